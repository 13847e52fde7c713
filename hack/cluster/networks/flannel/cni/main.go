// flannel-cni stands in for flannel's own CNI plugin, which no module proxy has to serve. It does the same with the same configuration: it reads
// what flanneld has written to /run/flannel/subnet.env, and hands the Pod to the plugins bridge and host-local. Until flanneld has written that
// file, there is no network for a Pod.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/joho/godotenv"
)

const subnetFile = "/run/flannel/subnet.env"

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: del, Check: func(*skel.CmdArgs) error { return nil }}, version.All, "flannel of hack/cluster")
}

func add(args *skel.CmdArgs) error {
	config, err := delegate(args.StdinData)
	if err != nil {
		return err
	}
	result, err := invoke.DelegateAdd(context.Background(), "bridge", config, nil)
	if err != nil {
		return err
	}
	return result.Print()
}

// del must succeed where flanneld has never run.
func del(args *skel.CmdArgs) error {
	config, err := delegate(args.StdinData)
	if err != nil {
		return nil // Without the file no Pod was added.
	}
	return invoke.DelegateDel(context.Background(), "bridge", config, nil)
}

// delegate is the configuration of the bridge plugin.
func delegate(stdin []byte) ([]byte, error) {
	var given struct {
		CNIVersion string         `json:"cniVersion"`
		Name       string         `json:"name"`
		Delegate   map[string]any `json:"delegate"`
	}
	if err := json.Unmarshal(stdin, &given); err != nil {
		return nil, err
	}
	env, err := godotenv.Read(subnetFile)
	if err != nil {
		return nil, fmt.Errorf("flanneld has not written its subnet yet: %w", err)
	}
	mtu, err := strconv.Atoi(env["FLANNEL_MTU"])
	if err != nil {
		return nil, fmt.Errorf("FLANNEL_MTU in %s: %w", subnetFile, err)
	}
	var ranges [][]map[string]string
	var routes []map[string]string
	for _, family := range []string{"FLANNEL_", "FLANNEL_IPV6_"} {
		if env[family+"SUBNET"] == "" {
			continue
		}
		subnet, err := netip.ParsePrefix(env[family+"SUBNET"]) // With the address of the bridge in it.
		if err != nil {
			return nil, fmt.Errorf("%sSUBNET in %s: %w", family, subnetFile, err)
		}
		ranges = append(ranges, []map[string]string{{"subnet": subnet.Masked().String()}})
		routes = append(routes, map[string]string{"dst": env[family+"NETWORK"]})
	}
	config := map[string]any{
		"cniVersion": given.CNIVersion, "name": given.Name, "type": "bridge", "mtu": mtu, "isGateway": true,
		"ipMasq": env["FLANNEL_IPMASQ"] != "true", // Else flanneld does it.
		"ipam":   map[string]any{"type": "host-local", "ranges": ranges, "routes": routes},
	}
	for key, value := range given.Delegate {
		config[key] = value
	}
	return json.Marshal(config)
}
