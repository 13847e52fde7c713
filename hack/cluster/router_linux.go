package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

const (
	routerCommand = "router"
	// routerNumber is the last byte of the router's addresses; machines have the ones after it.
	routerNumber = 1
	apiPort      = 6443
)

// address4 and address6 are those of a machine on the bridge, which nobody outside ever sees.
func address4(number int) string { return fmt.Sprintf("172.18.0.%d", number) }
func address6(number int) string { return fmt.Sprintf("fd00:172:18::%d", number) }

// mac is that of a machine, or of the router. It stays, whatever is plugged in and out: the neighbours remember it.
func mac(number int) string { return fmt.Sprintf("02:00:00:00:00:%02x", number) }

// startRouter returns the port of the host's loopback address behind which the API servers will be.
func (c *cluster) startRouter(podNetwork bool) (port int, err error) {
	if err := os.MkdirAll(filepath.Join(c.dir, routerCommand), 0o755); err != nil {
		return 0, err
	}
	log, err := os.Create(filepath.Join(c.dir, routerCommand, "log"))
	if err != nil {
		return 0, err
	}
	defer log.Close()
	// A socket stays in the namespace it was made in: this one is the host's, and so the router's only way out.
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	socket, err := listener.File()
	if err != nil {
		return 0, err
	}
	defer socket.Close()

	router := exec.Command("/proc/self/exe", routerCommand, "--dir="+c.dir, "--bin="+c.bin, fmt.Sprintf("--pod-network=%t", podNetwork))
	router.Stdout, router.Stderr = log, log
	router.ExtraFiles = []*os.File{socket}
	router.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNET}
	if err := startInCgroup(c.cgroup+"/"+routerCommand, router); err != nil {
		return 0, fmt.Errorf("start the router: %w", err)
	}
	if err := os.WriteFile(c.routerPID(), []byte(strconv.Itoa(router.Process.Pid)), 0o644); err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, inNetwork(router.Process.Pid, fmt.Sprintf(`
link set lo up
link add nodes address %s type bridge
address add %s/24 dev nodes
address add %s/64 dev nodes nodad
link set nodes up
`, mac(routerNumber), address4(routerNumber), address6(routerNumber)))
}

// endpoint is the address behind which machines find the API servers.
func (c *cluster) endpoint() string {
	return net.JoinHostPort(address4(routerNumber), strconv.Itoa(apiPort))
}

func (c *cluster) routerPID() string { return filepath.Join(c.dir, routerCommand, "pid") }

// plugIn connects a machine's network to the bridge.
func (m machine) plugIn(ctx context.Context, number, pid int) error {
	router, err := m.pidIn(m.routerPID(), m.cgroup+"/"+routerCommand)
	if err != nil {
		return err
	}
	// After a reboot the kernel needs a moment to remove the old machine's end, and with it this one.
	var last error
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		last = inNetwork(router, fmt.Sprintf("link add machine%d type veth peer name eth0 address %s netns %d\n", number, mac(number), pid))
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("plug in %s: %w", m.name, errors.Join(err, last))
	}
	return errors.Join(
		inNetwork(router, fmt.Sprintf("link set machine%d master nodes up\n", number)),
		inNetwork(pid, fmt.Sprintf(`
address add %s/24 dev eth0
address add %s/64 dev eth0 nodad
link set eth0 up
route add default via %s
route add default via %s
`, address4(number), address6(number), address4(routerNumber), address6(routerNumber))),
	)
}

// cut takes the machine off the network, as if somebody had pulled its cable: whoever talks to it is told nothing.
func (c *cluster) cut(_ context.Context, name string) error {
	return c.machine(name).changePort("set", "down")
}

// mend undoes cut.
func (c *cluster) mend(_ context.Context, name string) error {
	return c.machine(name).changePort("set", "up")
}

// unplug undoes plugIn.
func (m machine) unplug() error { return m.changePort("delete", "") }

// changePort changes the machine's port of the bridge.
func (m machine) changePort(verb, state string) error {
	number, err := m.number()
	if err != nil {
		return err
	}
	router, err := m.pidIn(m.routerPID(), m.cgroup+"/"+routerCommand)
	if err != nil {
		return err
	}
	return inNetwork(router, fmt.Sprintf("link %s machine%d %s\n", verb, number, state))
}

// inNetwork runs commands of ip(8) in the network namespace of a process.
func inNetwork(pid int, commands string) error {
	cmd := exec.Command("nsenter", "--target", strconv.Itoa(pid), "--net", "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(commands)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w\n%s%s", err, strings.TrimSpace(commands), output)
	}
	return nil
}

// route is the router's process. It ends with the cluster.
func (c *cluster) route(ctx context.Context, podNetwork bool) error {
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("wait for the go-ahead: %w", err)
	}
	for setting, value := range map[string]string{
		"ipv4/ip_forward":          "1",
		"ipv6/conf/all/forwarding": "1",
		// Nodes are neighbours, but their Pods' packets shall take the route that we keep.
		"ipv4/conf/all/send_redirects":     "0",
		"ipv4/conf/default/send_redirects": "0",
	} {
		if err := os.WriteFile("/proc/sys/net/"+setting, []byte(value), 0); err != nil {
			return err
		}
	}
	if podNetwork {
		go c.keepRoutes(ctx)
	}
	return c.balance(ctx, os.NewFile(3, "loopback"))
}

// keepRoutes does for podCIDRs what a cloud's route controller and a network plugin's agent do: a route to the Node, and a
// CNI configuration on it. It asks instead of watching, so that nobody waits for a client's backoff after a reboot.
func (c *cluster) keepRoutes(ctx context.Context) {
	routes := map[string]string{}
	said := ""
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		message := ""
		if err := c.syncRoutes(ctx, routes); err != nil {
			message = err.Error()
		}
		if message != said {
			fmt.Println(time.Now().Format(time.TimeOnly), "routes:", message)
			said = message
		}
	}, 250*time.Millisecond)
}

// syncRoutes changes the routes there are, by podCIDR, to those there should be.
func (c *cluster) syncRoutes(ctx context.Context, routes map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	config, err := c.adminConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	wanted := map[string]string{}
	for _, node := range nodes.Items {
		maps.Copy(wanted, routesTo(&node))
		if err := c.machine(node.Name).configureCNI(node.Spec.PodCIDRs); err != nil {
			return err
		}
	}
	for cidr, via := range routes {
		if _, keep := wanted[cidr]; !keep {
			if err := changeRoute(ctx, "delete", cidr, via); err != nil {
				return err
			}
			delete(routes, cidr)
		}
	}
	for cidr, via := range wanted {
		if routes[cidr] != via {
			if err := changeRoute(ctx, "replace", cidr, via); err != nil {
				return err
			}
			routes[cidr] = via
		}
	}
	return nil
}

func changeRoute(ctx context.Context, change, cidr, via string) error {
	output, err := exec.CommandContext(ctx, "ip", "route", change, cidr, "via", via).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip route %s %s via %s: %w\n%s", change, cidr, via, err, output)
	}
	fmt.Println(time.Now().Format(time.TimeOnly), "route", change, cidr, "via", via)
	return nil
}

// routesTo are the routes to a Node's Pods: podCIDR to the Node's address of the same family.
func routesTo(node *corev1.Node) map[string]string {
	routes := map[string]string{}
	for _, cidr := range node.Spec.PodCIDRs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			continue
		}
		for _, address := range node.Status.Addresses {
			ip, err := netip.ParseAddr(address.Address)
			if address.Type == corev1.NodeInternalIP && err == nil && ip.Is4() == prefix.Addr().Is4() {
				routes[cidr] = address.Address
			}
		}
	}
	return routes
}

// configureCNI gives the machine its Pod network. Until then, as the kubelet sees it, it has none and is not ready.
func (m machine) configureCNI(podCIDRs []string) error {
	if len(podCIDRs) == 0 {
		return nil
	}
	var ranges [][]map[string]string
	var routes []map[string]string
	for _, cidr := range podCIDRs {
		ranges = append(ranges, []map[string]string{{"subnet": cidr}})
		all := "0.0.0.0/0"
		if strings.Contains(cidr, ":") {
			all = "::/0"
		}
		routes = append(routes, map[string]string{"dst": all})
	}
	config, err := json.MarshalIndent(map[string]any{
		"cniVersion": "1.0.0",
		"name":       "pods",
		"plugins": []map[string]any{{
			"type": "bridge", "bridge": "cni0", "isGateway": true,
			"ipam": map[string]any{"type": "host-local", "ranges": ranges, "routes": routes},
		}},
	}, "", "  ")
	if err != nil {
		return err
	}
	path := m.disk("etc/cni/net.d/10-pods.conflist")
	// A Node that is no machine of ours, or not any more, is not an error.
	if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if present, err := os.ReadFile(path); err == nil && bytes.Equal(present, config) {
		return nil
	}
	// containerd watches the directory: it shall never see half a file.
	temporary := m.disk("etc/cni/net.d/.10-pods")
	return errors.Join(os.WriteFile(temporary, config, 0o644), os.Rename(temporary, path))
}
