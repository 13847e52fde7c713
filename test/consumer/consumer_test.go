package consumer

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// grace is addressReuseGracePeriodSeconds of the pool: long enough for the machine that replaces a deleted one to have asked for an address.
const grace = 10 * time.Second

// TestMachines is the life of a cluster whose machines get their addresses from our pools.
func TestMachines(t *testing.T) {
	for _, program := range []string{alone, insideManager} {
		t.Run(program, func(t *testing.T) { testMachines(newCluster(t, program)) })
	}
}

func testMachines(c *cluster) {
	stopJudge := controlplane.JudgeIPAddresses(c, c.of(addresses))
	c.infrastructure()
	c.pool("p", "10.0.0.10-10.0.0.12")
	c.deployment("workers", 3, "InClusterIPPool p")

	// Without our program the provider has asked for addresses, and its machines wait for them.
	c.waiting(3)

	c.start()
	c.served(3)

	// Our program is killed while it allocates, and the provider goes on asking. The pool has two addresses less than there are machines.
	c.pool("p", "10.0.0.10-10.0.0.15")
	c.scale("workers", 8)
	c.untilClaims("an address for a fourth one", 8, func(all []v1beta2.IPAddressClaim) bool { return count(all, bound) >= 4 })
	c.kill()
	c.untilClaims("8 claims", 8, func(all []v1beta2.IPAddressClaim) bool { return len(all) == 8 })
	c.start()
	c.served(6)
	c.untilClaims("2 claims that wait for a bigger pool", 8, func(all []v1beta2.IPAddressClaim) bool { return count(all, exhausted) == 2 })

	c.pool("p", "10.0.0.10-10.0.0.17")
	c.served(8)
	c.usage("p", v1alpha2.PoolUsage{Total: 8, Used: 8})

	c.replaced()

	// Two addresses for each machine, one of them from a pool for all namespaces.
	c.put("{apiVersion: ipam.cluster.x-k8s.io/v1alpha2, kind: InClusterIPPool, metadata: {name: q}, spec: {addresses: [10.0.1.0/24], prefix: 24, gateway: 10.0.1.1}}")
	c.put("{apiVersion: ipam.cluster.x-k8s.io/v1alpha2, kind: GlobalInClusterIPPool, metadata: {name: everywhere}, spec: {addresses: ['fd00::/120'], prefix: 120, gateway: 'fd00::1'}}")
	c.deployment("dual", 2, "InClusterIPPool q", "GlobalInClusterIPPool everywhere")
	c.served(10)

	// The whole cluster goes, and with it all that was allocated.
	c.do("delete the Cluster", c.of(clusters).Delete(c.Context(), "edge", metav1.DeleteOptions{}))
	c.untilClaims("no claims", 0, func(all []v1beta2.IPAddressClaim) bool { return len(all) == 0 })
	c.served(0)
	c.usage("p", v1alpha2.PoolUsage{Total: 8, Free: 8})
	c.Logf("%d IPAddresses came and went", stopJudge())
}

// infrastructure applies a Cluster in the vCenter, without machines.
func (c *cluster) infrastructure() {
	c.Helper()
	c.put("{apiVersion: v1, kind: Secret, metadata: {name: login}, stringData: {username: user, password: pass}}")
	c.put("{apiVersion: v1, kind: Secret, metadata: {name: bootstrap}, stringData: {value: '#cloud-config'}}")
	c.put(fmt.Sprintf(`{apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: VSphereCluster, metadata: {name: edge}, spec: {
		server: %q, identityRef: {kind: Secret, name: login}, controlPlaneEndpoint: {host: 127.0.0.1, port: 6443}}}`, c.vCenter.server.URL.Host))
	c.put(`{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {name: edge}, spec: {
		infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: VSphereCluster, name: edge}, controlPlaneEndpoint: {host: 127.0.0.1, port: 6443}}}`)
}

// pool applies an InClusterIPPool.
func (c *cluster) pool(name, addresses string) {
	c.Helper()
	c.put(fmt.Sprintf(`{apiVersion: ipam.cluster.x-k8s.io/v1alpha2, kind: InClusterIPPool, metadata: {name: %s}, spec: {
		addresses: [%s], prefix: 24, gateway: 10.0.0.1, addressReuseGracePeriodSeconds: %d}}`, name, addresses, int(grace.Seconds())))
}

// deployment applies a MachineDeployment whose machines get an address of each of the pools, which are given as kind and name.
func (c *cluster) deployment(name string, replicas int, pools ...string) {
	c.Helper()
	var from []string
	for _, pool := range pools {
		kind, name, _ := strings.Cut(pool, " ")
		from = append(from, fmt.Sprintf("{apiGroup: ipam.cluster.x-k8s.io, kind: %s, name: %s}", kind, name))
	}
	c.put(fmt.Sprintf(`{apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: VSphereMachineTemplate, metadata: {name: %s}, spec: {template: {spec: {
		template: %s, cloneMode: fullClone, datacenter: %s, resourcePool: %s, numCPUs: 2, memoryMiB: 2048,
		network: {devices: [{networkName: %s, dhcp4: false, addressesFromPools: [%s]}]}}}}}`, name, template, datacenter, resourcePool, network, strings.Join(from, ", ")))
	c.put(fmt.Sprintf(`{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineDeployment, metadata: {name: %s}, spec: {clusterName: edge, replicas: %d, selector: {},
		template: {spec: {clusterName: edge, version: v1.37.1, bootstrap: {dataSecretName: bootstrap},
		infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: VSphereMachineTemplate, name: %s}}}}}`, name, replicas, name))
}

func (c *cluster) scale(deployment string, replicas int) {
	c.Helper()
	_, err := c.of(deployments).Patch(c.Context(), deployment, types.MergePatchType, fmt.Appendf(nil, `{"spec": {"replicas": %d}}`, replicas), metav1.PatchOptions{})
	c.do("scale "+deployment, err)
}

// waiting waits until so many machines wait for an address: their claims exist, nobody has answered them, and the virtual machines, which have
// no network configuration, are off.
func (c *cluster) waiting(want int) {
	c.Helper()
	c.eventually(func(ctx context.Context) error {
		vms, err := list[vSphereVM](ctx, c, vSphereVMs)
		if err != nil {
			return err
		}
		inVCenter, err := c.vCenter.machines(ctx)
		if err != nil {
			return err
		}
		all, err := list[v1beta2.IPAddressClaim](ctx, c, claims)
		if err != nil {
			return err
		}
		waiting := 0
		for _, vm := range vms {
			m, cloned := inVCenter[vm.Metadata.Name]
			if cloned && vm.waitsForAddress() {
				waiting++
			}
			if m.on || len(m.addresses) > 0 {
				c.Fatalf("%s runs or has addresses, although nobody has allocated any: %+v", vm.Metadata.Name, m)
			}
		}
		if got := count(all, bound); got > 0 {
			c.Fatalf("%d IPAddressClaims have addresses, although nobody has allocated any", got)
		}
		if len(all) != want || waiting != want {
			return fmt.Errorf("there are %d IPAddressClaims and %d machines that wait for them, want %d; the VSphereVMs are %+v", len(all), waiting, want, vms)
		}
		return nil
	})
}

type named struct {
	Name string `json:"name"`
}

// vSphereVM is the provider's view of a virtual machine.
type vSphereVM struct {
	Metadata named `json:"metadata"`
	Status   struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
			Reason string `json:"reason"`
		} `json:"conditions"`
	} `json:"status"`
}

func (vm *vSphereVM) waitsForAddress() bool {
	for _, condition := range vm.Status.Conditions {
		if condition.Type == "VMProvisioned" && condition.Status == "False" && condition.Reason == "WaitingForIPAddress" {
			return true
		}
	}
	return false
}

// apiMachine is Cluster API's view of a machine.
type apiMachine struct {
	Metadata named `json:"metadata"`
	Status   struct {
		Addresses []struct {
			Address string `json:"address"`
		} `json:"addresses"`
	} `json:"status"`
}

// served waits until so many virtual machines run with exactly the addresses that we have allocated to them, and Cluster API knows them. There
// may be more, without addresses.
func (c *cluster) served(want int) {
	c.Helper()
	c.eventually(func(ctx context.Context) error {
		if err := c.vCenter.bootGuests(ctx); err != nil {
			return err
		}
		allocated, err := list[v1beta2.IPAddress](ctx, c, addresses)
		if err != nil {
			return err
		}
		known, err := list[apiMachine](ctx, c, machines)
		if err != nil {
			return err
		}
		inVCenter, err := c.vCenter.machines(ctx)
		if err != nil {
			return err
		}
		holders := map[netip.Prefix]string{}
		served := 0
		for name, m := range inVCenter {
			if len(m.addresses) == 0 {
				continue
			}
			for _, at := range m.addresses {
				if other := holders[at]; other != "" {
					c.Fatalf("%s and %s are configured with the address %s", name, other, at)
				}
				holders[at] = name
			}
			ofMachine, gateways := allocatedTo(name, allocated)
			if m.on && slices.Equal(m.addresses, ofMachine) && slices.Equal(m.gateways, gateways) && reported(known, name, m.addresses[0].Addr()) {
				served++
			}
		}
		if served != want || len(holders) != len(allocated) {
			return fmt.Errorf("%d machines run with their addresses, want %d; IPAddresses: %d; Machines: %+v; virtual machines: %+v", served, want, len(allocated), known, inVCenter)
		}
		return nil
	})
}

// allocatedTo returns the addresses of the IPAddressClaims of a machine, and their gateways, in the order of its claims. The provider names claims
// <machine>-<device>-<index of the pool>.
func allocatedTo(machine string, all []v1beta2.IPAddress) (prefixes []netip.Prefix, gateways []string) {
	slices.SortFunc(all, func(a, b v1beta2.IPAddress) int { return strings.Compare(a.Spec.ClaimRef.Name, b.Spec.ClaimRef.Name) })
	for _, a := range all {
		if strings.HasPrefix(a.Spec.ClaimRef.Name, machine+"-0-") && a.Spec.Prefix != nil {
			prefixes = append(prefixes, netip.PrefixFrom(netip.MustParseAddr(a.Spec.Address), int(*a.Spec.Prefix)))
			gateways = append(gateways, a.Spec.Gateway)
		}
	}
	return prefixes, gateways
}

func reported(known []apiMachine, name string, address netip.Addr) bool {
	for _, m := range known {
		for _, a := range m.Status.Addresses {
			if m.Metadata.Name == name && a.Address == address.String() {
				return true
			}
		}
	}
	return false
}

// replaced deletes a machine while the pool is full. Its MachineDeployment makes another one, which gets the address, but not before the grace
// period is over.
func (c *cluster) replaced() {
	c.Helper()
	before, err := list[v1beta2.IPAddress](c.Context(), c, addresses)
	c.do("list IPAddresses", err)
	victim := before[0]
	c.do("delete a machine", c.of(machines).Delete(c.Context(), strings.TrimSuffix(victim.Spec.ClaimRef.Name, "-0-0"), metav1.DeleteOptions{}))
	var released time.Time
	c.untilClaims("a claim in its grace period, and one that waits for its address", len(before)+1, func(all []v1beta2.IPAddressClaim) bool {
		for _, claim := range all {
			if claim.Name == victim.Spec.ClaimRef.Name && claim.DeletionTimestamp != nil {
				released = claim.DeletionTimestamp.Time
			}
		}
		return !released.IsZero() && count(all, exhausted) == 1 && len(all) == len(before)+1
	})
	c.served(len(before))
	after, err := list[v1beta2.IPAddress](c.Context(), c, addresses)
	c.do("list IPAddresses", err)
	i := slices.IndexFunc(after, func(a v1beta2.IPAddress) bool { return a.Spec.Address == victim.Spec.Address })
	if i < 0 || after[i].UID == victim.UID {
		c.Fatalf("nobody else has the address %s of the machine that was deleted", victim.Spec.Address)
	}
	if waited := after[i].CreationTimestamp.Sub(released); waited < grace {
		c.Errorf("%s was allocated again %v after its release, want at least %v", victim.Spec.Address, waited, grace)
	}
}

func count(all []v1beta2.IPAddressClaim, is func(v1beta2.IPAddressClaim) bool) (n int) {
	for _, claim := range all {
		if is(claim) {
			n++
		}
	}
	return n
}

func bound(claim v1beta2.IPAddressClaim) bool { return claim.Status.AddressRef.Name != "" }

func exhausted(claim v1beta2.IPAddressClaim) bool {
	return slices.ContainsFunc(claim.Status.Conditions, func(condition metav1.Condition) bool { return condition.Reason == "PoolExhausted" })
}

// untilClaims waits until the IPAddressClaims are as they should be. There are never more than most of them.
func (c *cluster) untilClaims(what string, most int, are func([]v1beta2.IPAddressClaim) bool) {
	c.Helper()
	c.eventually(func(ctx context.Context) error {
		all, err := list[v1beta2.IPAddressClaim](ctx, c, claims)
		if err != nil {
			return err
		}
		if most > 0 && len(all) > most {
			c.Fatalf("there are %d IPAddressClaims, want at most %d: %s", len(all), most, summary(all))
		}
		if !are(all) {
			return fmt.Errorf("want %s; the IPAddressClaims are %s", what, summary(all))
		}
		return nil
	})
}

func summary(all []v1beta2.IPAddressClaim) string {
	var lines []string
	for _, claim := range all {
		lines = append(lines, fmt.Sprintf("%s (deleted: %v, address: %q, conditions: %+v)", claim.Name, claim.DeletionTimestamp, claim.Status.AddressRef.Name, claim.Status.Conditions))
	}
	return strings.Join(lines, "; ")
}

// usage waits until the status of an InClusterIPPool has these numbers.
func (c *cluster) usage(pool string, want v1alpha2.PoolUsage) {
	c.Helper()
	c.eventually(func(ctx context.Context) error {
		all, err := list[v1alpha2.InClusterIPPool](ctx, c, pools)
		if err != nil {
			return err
		}
		for _, p := range all {
			if p.Name == pool && (p.Status.IPAddresses == nil || *p.Status.IPAddresses != want) {
				return fmt.Errorf("the status of %s is %+v, want %+v", pool, p.Status, want)
			}
		}
		return nil
	})
}
