package consumer

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"testing"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/simulator"
	_ "github.com/vmware/govmomi/vapi/simulator" // the provider logs in for tags, too
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"sigs.k8s.io/yaml"
)

// What the simulator's inventory has.
const (
	datacenter   = "DC0"
	template     = "DC0_C0_RP0_VM0"
	resourcePool = "/DC0/host/DC0_C0/Resources"
	network      = "VM Network"
)

// vCenter is a simulated one, in this process.
type vCenter struct {
	server *simulator.Server
	client *govmomi.Client
}

func startVCenter(t *testing.T) *vCenter {
	t.Helper()
	model := simulator.VPX()
	model.Host, model.Machine = 0, 1
	if err := model.Create(); err != nil {
		t.Fatal(err)
	}
	model.Service.Listen = &url.URL{Host: "127.0.0.1:0", User: url.UserPassword("user", "pass")}
	model.Service.TLS = new(tls.Config)
	model.Service.RegisterEndpoints = true
	server := model.Service.NewServer()
	t.Cleanup(func() {
		server.Close()
		model.Remove()
	})
	client, err := govmomi.NewClient(t.Context(), server.URL, true)
	if err != nil {
		t.Fatal(err)
	}
	return &vCenter{server, client}
}

// machine is a virtual machine as the vCenter knows it.
type machine struct {
	name      string
	ref       types.ManagedObjectReference
	on        bool
	addresses []netip.Prefix // what its network configuration tells it to use
	gateways  []string
	reports   []string // what its guest says that it uses
}

// metadata is what cloud-init reads of the configuration that the provider gives a virtual machine.
type metadata struct {
	Network struct {
		Ethernets map[string]struct {
			Addresses []netip.Prefix `json:"addresses"`
			Gateway4  string         `json:"gateway4"`
			Gateway6  string         `json:"gateway6"`
		} `json:"ethernets"`
	} `json:"network"`
}

// machines returns all virtual machines but the template, by name.
func (v *vCenter) machines(ctx context.Context) (map[string]machine, error) {
	list, err := view.NewManager(v.client.Client).CreateContainerView(ctx, v.client.ServiceContent.RootFolder, []string{"VirtualMachine"}, true)
	if err != nil {
		return nil, err
	}
	defer func() { _ = list.Destroy(context.WithoutCancel(ctx)) }()
	refs, err := list.Find(ctx, []string{"VirtualMachine"}, property.Match{})
	if err != nil {
		return nil, err
	}
	all := map[string]machine{}
	for _, ref := range refs {
		var vm mo.VirtualMachine
		if err := v.client.RetrieveOne(ctx, ref, []string{"name", "config.extraConfig", "guest.net", "runtime.powerState"}, &vm); err != nil {
			return nil, fmt.Errorf("read %s: %w", ref, err)
		}
		if vm.Name == template {
			continue
		}
		m := machine{name: vm.Name, ref: ref, on: vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn}
		if vm.Config != nil {
			if err := m.readConfiguration(vm.Config.ExtraConfig); err != nil {
				return nil, fmt.Errorf("read the network configuration of %s: %w", vm.Name, err)
			}
		}
		if vm.Guest != nil && len(vm.Guest.Net) > 0 {
			m.reports = vm.Guest.Net[0].IpAddress
		}
		all[vm.Name] = m
	}
	return all, nil
}

func (m *machine) readConfiguration(config []types.BaseOptionValue) error {
	encoded, _ := object.OptionValueList(config).GetString("guestinfo.metadata")
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return err
	}
	var data metadata
	if err := yaml.Unmarshal(text, &data); err != nil {
		return err
	}
	for _, nic := range data.Network.Ethernets {
		m.addresses = append(m.addresses, nic.Addresses...)
		m.gateways = append(m.gateways, nic.Gateway4, nic.Gateway6)
	}
	m.gateways = slices.DeleteFunc(m.gateways, func(s string) bool { return s == "" })
	return nil
}

// bootGuests does what the guests of virtual machines that are on would do, since the simulated ones have no guests: take the addresses of the
// network configuration, and report the first one.
func (v *vCenter) bootGuests(ctx context.Context) error {
	all, err := v.machines(ctx)
	if err != nil {
		return err
	}
	for _, m := range all {
		if !m.on || len(m.addresses) == 0 || slices.Contains(m.reports, m.addresses[0].Addr().String()) {
			continue
		}
		task, err := object.NewVirtualMachine(v.client.Client, m.ref).Reconfigure(ctx, types.VirtualMachineConfigSpec{
			ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: "SET.guest.ipAddress", Value: m.addresses[0].Addr().String()}},
		})
		if err != nil {
			return err
		}
		if err := task.Wait(ctx); err != nil {
			return fmt.Errorf("set the address of the guest of %s: %w", m.name, err)
		}
	}
	return nil
}
