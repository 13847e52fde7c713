package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// What operators ran into, kind by kind: the objects of a cluster, and what check says about it. With a step back to the stock manager, that manager is
// started, too: it runs if check has no problem, and ends if check says so, or allocates addresses that others have.
func TestCheckInClusters(t *testing.T) {
	const (
		now   = "RENEWED"
		kcm   = "[kube-controller-manager, --allocate-node-cidrs=true, --cluster-cidr=10.244.0.0/16, --use-service-account-credentials]"
		stock = "registry.k8s.io/kube-controller-manager:v1.37.1"
		ours  = "localhost/multicidr/kube-controller-manager:v1.37.1-mc0.2.0"
		alone = "--form=node-ipam-controller"
	)
	c := newChecked(t)
	for _, tc := range []struct {
		name    string
		objects []string // as kind name, and YAML of the rest
		planned string   // a range of a ClusterCIDR in a file
		args    string
		code    int
		says    []string // the beginnings of lines
		stock   string   // with --before=rollback: starts, ends, or twice
	}{
		// Kind 1: who is the manager.
		{name: "1a: kube-controller-manager of kOps", objects: []string{lease("kube-controller-manager", "cp1_1"), pod("kube-system", "kube-controller-manager-cp1", stock, kcm, "")},
			args: alone, code: 2, says: []string{"PROBLEM second writer: kube-controller-manager has --allocate-node-cidrs"}},
		{name: "1a: before the chart", objects: []string{pod("kube-system", "kube-controller-manager-cp1", stock, kcm, "")},
			args: "--before=chart", code: 2, says: []string{"PROBLEM second writer: kube-controller-manager has --allocate-node-cidrs"}},
		{name: "1a: a Lease and no Pod", objects: []string{lease("kube-controller-manager", "cp1_1")},
			args: alone, code: 1, says: []string{"WARNING second writer: cp1_1 renews the Lease kube-system/kube-controller-manager, and no Pod of it is seen"}},
		{name: "1a: nobody renews the Lease", objects: []string{strings.ReplaceAll(lease("kube-controller-manager", "cp1_1"), now, "2020-01-01T00:00:00.000000Z")},
			args: alone, code: 1, says: []string{"OK       second writer: none found"}},
		{name: "1b: our image behind a wrapper", objects: []string{pod("kube-system", "kcm-cp1", ours, "[/go-runner, --also-stdout, /usr/local/bin/kube-controller-manager, --allocate-node-cidrs=true, --cluster-cidr=10.244.0.0/16]", "k8s-app: kube-controller-manager")},
			code: 1, says: []string{"OK       manager: "}},
		{name: "1b: a wrapper before the swap, with flags by hand", objects: []string{pod("kube-system", "kcm-cp1", stock, "[/go-runner, --log-file=/var/log/kcm.log, /usr/local/bin/kube-controller-manager, --allocate-node-cidrs=true]", "k8s-app: kube-controller-manager")},
			args: "--before=kubeadm-swap --allocate-node-cidrs --cluster-cidr=10.244.0.0/16", code: 1, says: []string{"OK       kubeadm-swap: "}},
		{name: "1b: hyperkube before the swap, with flags by hand", objects: []string{pod("kube-system", "kcm-cp1", stock, "[/hyperkube, kube-controller-manager, --allocate-node-cidrs=true]", "k8s-app: kube-controller-manager")},
			args: "--before=kubeadm-swap --allocate-node-cidrs --cluster-cidr=10.244.0.0/16", code: 2, says: []string{"PROBLEM kubeadm-swap: after the swap Pod kcm-cp1 is started by /hyperkube, which this project's image does not have"}},
		{name: "1: a shell, in another namespace", objects: []string{pod("openshift-kube-controller-manager", "kcm-cp1", "quay.io/openshift/all@sha256:00", "[/bin/bash, -euxo, pipefail, -c, 'exec hyperkube kube-controller-manager --allocate-node-cidrs=true --cluster-cidr=10.128.0.0/14']", "app: x")},
			args: alone, code: 2, says: []string{"PROBLEM second writer: kube-controller-manager has --allocate-node-cidrs"}},
		{name: "1: a control plane of another cluster", objects: []string{pod("tenant", "kcm", stock, kcm, ""), pod("tenant", "api", "registry.k8s.io/kube-apiserver:v1.37.1", "[kube-apiserver]", "")},
			args: alone, code: 1, says: []string{"WARNING second writer: 1 kube-controller-manager stands (tenant/kcm) beside a kube-apiserver"}},

		// Kind 2: who allocates.
		{name: "2a: an unknown program with the flag", objects: []string{pod("kube-system", "x-cloud-controller-manager-1", "example.com/x-cloud-controller-manager:v1", "[/bin/x, --allocate-node-cidrs=true, --cluster-cidr=10.244.0.0/16]", "app: x")},
			code: 1, says: []string{"WARNING second writer: Pod x-cloud-controller-manager-1 has --allocate-node-cidrs: cannot tell"}},
		{name: "2: Hetzner's, which has no allocator", objects: []string{pod("kube-system", "hccm-1", "docker.io/hetznercloud/hcloud-cloud-controller-manager:v1.30.0", "[/bin/hcloud-cloud-controller-manager, --allocate-node-cidrs=true, --cluster-cidr=10.244.0.0/16]", "")},
			code: 1, says: []string{"OK       second writer: Pod hccm-1 has --allocate-node-cidrs and no allocator"}},
		{name: "2: Linode's, which has one", objects: []string{pod("kube-system", "ccm-linode-1", "linode/linode-cloud-controller-manager:latest", "[/linode-cloud-controller-manager-linux-amd64, --allocate-node-cidrs=true, --cluster-cidr=10.192.0.0/10]", "")},
			code: 2, says: []string{"PROBLEM second writer: Pod ccm-linode-1 allocates"}},
		{name: "2b: kops-controller", objects: []string{pod("kube-system", "kops-controller-x1", "registry.k8s.io/kops/kops-controller:1.33.0", "[/kops-controller]", "k8s-app: kops-controller")},
			code: 1, says: []string{"WARNING second writer: Pod kops-controller-x1 can write podCIDRs"}},
		{name: "2: Antrea", objects: []string{configMap("kube-system", "antrea-config", "antrea-controller.conf", "nodeIPAM:\n  enableNodeIPAM: true\n")},
			code: 2, says: []string{"PROBLEM second writer: ConfigMap kube-system/antrea-config has nodeIPAM.enableNodeIPAM: true"}},
		{name: "2: node-ipam-controller as a Pod", objects: []string{pod("kube-system", "ipam-cp1", "registry.k8s.io/node-ipam-controller/node-ipam-controller:v0.1.0", "[/manager]", "")},
			args: "--form=kube-controller-manager", code: 2, says: []string{"PROBLEM second writer: Pod kube-system/ipam runs a node-ipam-controller: take it away"}},

		// Kind 3: settings of the network.
		{name: "3a: canal, and a kube-proxy with flags", objects: []string{configMap("kube-system", "canal-config", "net-conf.json", `{"Network":"10.42.0.0/16"}`), pod("kube-system", "kube-proxy-w1", "any", "[kube-proxy, --cluster-cidr=10.42.0.0/16]", "component: kube-proxy")},
			planned: "10.66.0.0/16", code: 1, says: []string{"WARNING flannel: Network in net-conf.json of ConfigMap kube-system/canal-config [10.42.0.0/16] does not contain", "WARNING kube-proxy: --cluster-cidr of Pod kube-proxy-w1 [10.42.0.0/16] does not contain"}},
		{name: "3: kube-proxy by the Node", objects: []string{pod("kube-system", "kube-proxy-w1", "any", "[kube-proxy, --cluster-cidr=10.42.0.0/16, --detect-local-mode=NodeCIDR]", "")},
			planned: "10.66.0.0/16", code: 1, says: []string{"OK       kube-proxy: its mode"}},
		{name: "3: kube-proxy as a DaemonSet", objects: []string{"DaemonSet kube-system/kube-proxy-2: {spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: x, image: x, command: [/bin/sh, -c, \"exec /opt/kube-proxy --cluster-cidr=10.42.0.0/16 2>&1\"]}]}}}}"},
			planned: "10.66.0.0/16", code: 1, says: []string{"WARNING kube-proxy: --cluster-cidr of DaemonSet kube-proxy-2 [10.42.0.0/16] does not contain"}},
		{name: "3: Calico with its own IPAM", objects: []string{configMap("kube-system", "calico-config", "cni_network_config", `{"plugins":[{"type":"calico","ipam":{"type": "calico-ipam"}}]}`)},
			planned: "10.66.0.0/16", code: 2, says: []string{"PROBLEM Calico: its IPAM is calico-ipam"}},
		{name: "3: ip-masq-agent, kindnet and kube-router", objects: []string{configMap("kube-system", "ip-masq-agent", "config", "nonMasqueradeCIDRs: [10.42.0.0/16]\n"),
			"Pod kube-system/kindnet-w1: {spec: {nodeName: cp1, containers: [{name: kindnet-cni, image: kindest/kindnetd:v1, command: [/bin/kindnetd], env: [{name: POD_SUBNET, value: 10.42.0.0/16}]}]}}",
			pod("kube-system", "kube-router-w1", "cloudnativelabs/kube-router:v2", "[kube-router, --cluster-cidr=10.42.0.0/16]", "")},
			planned: "10.66.0.0/16", code: 1, says: []string{"WARNING ip-masq-agent: nonMasqueradeCIDRs of", "WARNING kindnet: POD_SUBNET of", "WARNING kube-router: --cluster-cidr of"}},
		{name: "3: a NetworkPolicy that means the Pods", objects: []string{configMap("kube-system", "canal-config", "net-conf.json", `{"Network":"10.42.0.0/16"}`),
			"NetworkPolicy default/pods: {spec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.42.0.0/16}}]}]}}", "NetworkPolicy default/all: {spec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}, {ipBlock: {cidr: 203.0.113.0/24}}]}]}}"},
			planned: "10.66.0.0/16", code: 1, says: []string{"WARNING NetworkPolicies: ipBlock 10.42.0.0/16 contains Pods, and not the range edge (10.66.0.0/16) (default/pods)"}},

		// Kind 4: the way back.
		{name: "4a: the other family first", objects: []string{node("w1", "fd00:172:16::1000/117", "10.244.2.0/24")},
			args: "--allocate-node-cidrs --cluster-cidr=10.244.0.0/16,fd00:172:16::/108 --node-cidr-mask-size-ipv4=24 --node-cidr-mask-size-ipv6=117",
			code: 2, says: []string{"PROBLEM rollback: the stock manager ends at every start while Node w1 has"}, stock: "ends"},
		{name: "4: both families in order", objects: []string{node("w1", "10.244.2.0/24", "fd00:172:16::1000/117"), node("w2", "10.244.3.0/24")},
			args: "--allocate-node-cidrs --cluster-cidr=10.244.0.0/16,fd00:172:16::/108 --node-cidr-mask-size-ipv6=117", code: 0, says: []string{"OK       rollback: "}, stock: "starts"},
		{name: "4: a Node out of range", objects: []string{node("w1", "10.245.2.0/24")}, args: "--allocate-node-cidrs --cluster-cidr=10.244.0.0/16",
			code: 2, says: []string{"PROBLEM rollback: the stock manager ends at every start while Node w1"}, stock: "ends"},
		{name: "4: a second family that the flags do not have", objects: []string{node("w1", "10.244.2.0/24", "fd00::/64")}, args: "--allocate-node-cidrs --cluster-cidr=10.244.0.0/16",
			code: 2, says: []string{"PROBLEM rollback: the stock manager ends at every start while Node w1"}, stock: "ends"},
		{name: "4: a blank in --cluster-cidr", args: "--allocate-node-cidrs --cluster-cidr=10.244.0.0/16,·fd00::/56", code: 2, says: []string{"PROBLEM rollback: the stock manager ends at its start"}, stock: "ends"},
		{name: "4: an empty --cluster-cidr", args: "--allocate-node-cidrs", code: 2, says: []string{"PROBLEM rollback: the stock manager ends at its start"}, stock: "ends"},
		{name: "4: block sizes said twice", args: "--allocate-node-cidrs --cluster-cidr=10.244.0.0/16 --node-cidr-mask-size=24 --node-cidr-mask-size-ipv4=24", code: 2, says: []string{"PROBLEM rollback: the stock manager ends at its start"}, stock: "ends"},
		{name: "4: IPv6 blocks too small", args: "--allocate-node-cidrs --cluster-cidr=fd00::/40", code: 2, says: []string{"PROBLEM rollback: the stock manager ends at its start"}, stock: "ends"},
		{name: "4: three service ranges", args: "--allocate-node-cidrs --cluster-cidr=10.244.0.0/16 --service-cluster-ip-range=10.96.0.0/16,fd00::/112,10.97.0.0/16", code: 2, says: []string{"PROBLEM rollback: the stock manager ends at its start"}, stock: "ends"},
		{name: "4: blanks at the ends, and host bits", objects: []string{node("w1", "10.244.2.0/24")}, args: "--allocate-node-cidrs --cluster-cidr=·10.244.5.1/16·", code: 0, says: []string{"OK       rollback: "}, stock: "starts"},
		{name: "4: a Node with a larger block", objects: []string{node("w1", "10.244.0.0/20")}, args: "--allocate-node-cidrs --cluster-cidr=10.244.0.0/16", code: 0, says: []string{"OK       rollback: "}, stock: "starts"},
		{name: "4: a Node with a smaller block of its own", objects: []string{node("w1", "10.244.0.0/28")}, args: "--allocate-node-cidrs --cluster-cidr=10.244.0.0/16", code: 0, says: []string{"OK       rollback: "}, stock: "starts"},
		{name: "4: Nodes with smaller blocks beside each other", objects: []string{node("w1", "10.244.0.0/28"), node("w2", "10.244.0.16/28")}, args: "--allocate-node-cidrs --cluster-cidr=10.244.0.0/22",
			code: 2, says: []string{"PROBLEM rollback: Node w1 (10.244.0.0/28) and Node w2 (10.244.0.16/28) are in the same /24 block"}, stock: "twice"},
		{name: "4: an exclusion inside", objects: []string{"ClusterCIDR /edge: {spec: {ipv4: 10.244.0.0/22, perNodeHostBits: 8, excludedCIDRs: [10.244.0.0/24]}}"}, args: "--allocate-node-cidrs --cluster-cidr=10.244.0.0/22",
			code: 2, says: []string{"PROBLEM rollback: the stock manager would allocate 10.244.0.0/24, which ClusterCIDR edge excludes"}, stock: "twice"},
		{name: "4: a service range inside", objects: []string{"ServiceCIDR /more: {spec: {cidrs: [10.244.0.0/24]}}"}, args: "--allocate-node-cidrs --cluster-cidr=10.244.0.0/22",
			code: 2, says: []string{"PROBLEM rollback: the stock manager would allocate addresses of ServiceCIDR more (10.244.0.0/24)"}, stock: "twice"},
		{name: "4: a service range inside, named with a blank", args: "--allocate-node-cidrs --cluster-cidr=10.244.0.0/22,fd00::/56 --service-cluster-ip-range=fd01::/112,·10.244.0.0/24",
			code: 2, says: []string{"PROBLEM rollback: the stock manager would allocate addresses of --service-cluster-ip-range (10.244.0.0/24)"}, stock: "twice"},
		{name: "4: a service range inside, named", objects: []string{node("w1", "10.244.1.0/24")}, args: "--allocate-node-cidrs --cluster-cidr=10.244.0.0/22 --service-cluster-ip-range=10.244.0.0/24", code: 1, says: []string{"OK       rollback: "}, stock: "starts"},
		{name: "4: no flags", code: 1, says: []string{"WARNING rollback: --allocate-node-cidrs is not among the flags"}, args: "--before=rollback"},
		{name: "4: our flags", objects: []string{pod("kube-system", "kcm-cp1", ours, "[kube-controller-manager, --allocate-node-cidrs=true, --cluster-cidr=10.244.0.0/16, '--controllers=*,multicidrnodeipam', --node-ipam-takeover-delay=0s]", "")},
			args: "--before=rollback", code: 1, says: []string{"WARNING rollback: the stock manager ends at its start with --node-ipam-takeover-delay; multi-cidr-node-ipam-controller in --controllers"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c.create(t, tc.objects)
			args := strings.Fields(tc.args)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "·", " ")
			}
			if tc.stock != "" {
				args = append(args, "--before=rollback")
			}
			if tc.planned != "" {
				file := filepath.Join(c.dir, "planned.yaml")
				text := "{apiVersion: networking.x-k8s.io/v1, kind: ClusterCIDR, metadata: {name: edge}, spec: {ipv4: " + tc.planned + ", perNodeHostBits: 8}}"
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				args = append(args, "-f", file)
			}
			code, said := c.check(t, args)
			lines := strings.Split(said, "\n")
			if code != tc.code {
				t.Errorf("it exits with %d, want %d:\n%s", code, tc.code, said)
			}
			for _, want := range tc.says {
				if !slices.ContainsFunc(lines, func(line string) bool {
					return strings.HasPrefix(strings.Join(strings.Fields(line), " "), strings.Join(strings.Fields(want), " "))
				}) {
					t.Errorf("it does not say %q:\n%s", want, said)
				}
			}
			if tc.stock != "" {
				c.judge(t, args, tc.stock)
			}
		})
	}
}

// lease, pod, configMap and node are objects: the kind, the name, and the rest.
func lease(name, holder string) string {
	return fmt.Sprintf("Lease kube-system/%s: {spec: {holderIdentity: %s, leaseDurationSeconds: 15, renewTime: RENEWED}}", name, holder)
}

func pod(namespace, name, image, command, labels string) string {
	return fmt.Sprintf("Pod %s/%s: {metadata: {labels: {%s}}, spec: {nodeName: cp1, containers: [{name: main, image: %q, command: %s}]}}", namespace, name, labels, image, command)
}

func configMap(namespace, name, key, text string) string {
	return fmt.Sprintf("ConfigMap %s/%s: {data: {%s: %q}}", namespace, name, key, text)
}

func node(name string, podCIDRs ...string) string {
	return fmt.Sprintf("Node /%s: {spec: {podCIDR: %q, podCIDRs: [\"%s\"]}}", name, podCIDRs[0], strings.Join(podCIDRs, `","`))
}

// checked is a cluster for the table above.
type checked struct {
	cp         *controlplane.ControlPlane
	kube       kubernetes.Interface
	anything   dynamic.Interface
	kubeconfig string
	dir        string
}

func newChecked(t *testing.T) *checked {
	c := &checked{cp: controlplane.StartForTest(t, controlplane.Options{ServiceRange: "198.51.100.0/24"}), dir: t.TempDir()}
	root, err := controlplane.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	config := c.cp.AdminConfig()
	if c.kube, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if c.anything, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if c.kubeconfig, err = c.cp.WriteKubeconfig("check", config); err != nil {
		t.Fatal(err)
	}
	if err := c.cp.Apply(t.Context(), filepath.Join(root, "manifests/crds"), filepath.Join(root, "manifests/rbac")); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"kube-system", "tenant", "openshift-kube-controller-manager"} {
		_, _ = c.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}) // kube-system exists.
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		if _, err := c.kube.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// resources by kind.
var resources = map[string]schema.GroupVersionResource{
	"Pod": {Version: "v1", Resource: "pods"}, "ConfigMap": {Version: "v1", Resource: "configmaps"}, "Node": {Version: "v1", Resource: "nodes"},
	"Lease":         {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	"DaemonSet":     {Group: "apps", Version: "v1", Resource: "daemonsets"},
	"NetworkPolicy": {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	"ServiceCIDR":   {Group: "networking.k8s.io", Version: "v1", Resource: "servicecidrs"},
	"ClusterCIDR":   {Group: "networking.x-k8s.io", Version: "v1", Resource: "clustercidrs"},
}

// create creates objects, which are gone when the test is over.
func (c *checked) create(t *testing.T, objects []string) {
	t.Helper()
	for _, text := range objects {
		head, body, _ := strings.Cut(text, ": ")
		kind, name, _ := strings.Cut(head, " ")
		namespace, name, _ := strings.Cut(name, "/")
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(body, "RENEWED", time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))), &o.Object); err != nil {
			t.Fatal(err)
		}
		r := resources[kind]
		o.SetAPIVersion(r.GroupVersion().String())
		o.SetKind(kind)
		o.SetName(name)
		resource := dynamic.ResourceInterface(c.anything.Resource(r))
		if namespace != "" {
			resource = c.anything.Resource(r).Namespace(namespace)
		}
		if _, err := resource.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatalf("create %s: %v", head, err)
		}
		t.Cleanup(func() {
			zero := int64(0)
			_, _ = resource.Patch(context.Background(), name, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}) // The deletion shows whether it has worked.
			if err := resource.Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("delete %s: %v", head, err)
			}
			_, _ = resource.Patch(context.Background(), name, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}) // Usually it is gone.
		})
	}
}

// check runs the plugin.
func (c *checked) check(t *testing.T, args []string) (code int, said string) {
	command := exec.CommandContext(t.Context(), controlplane.Program("kubectl-node_ipam"), append([]string{"check", "--kubeconfig=" + c.kubeconfig}, args...)...)
	out, err := command.CombinedOutput()
	if command.ProcessState == nil {
		t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), string(out)
}

// judge starts the stock manager with the flags.
func (c *checked) judge(t *testing.T, args []string, want string) {
	ctx := t.Context()
	flags := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return strings.HasPrefix(arg, "--before") })
	m, err := c.cp.LaunchManager(controlplane.ManagerOptions{
		Name: "stock", Binary: "upstream/kube-controller-manager", Args: slices.Concat([]string{"--controllers=node-ipam-controller", "--leader-elect=false"}, flags),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Kill() }) // Some have ended.
	probes := func(from, to int) {
		for i := from; i < to; i++ {
			c.create(t, []string{fmt.Sprintf("Node /probe-%d: {}", i)})
		}
	}
	if want == "ends" {
		select {
		case <-m.Done():
			if code, _ := m.Wait(ctx); code == 0 {
				t.Error("the stock manager ends with 0")
			}
		case <-time.After(time.Minute):
			t.Error("the stock manager runs")
		}
		return
	}
	probes(0, 1)
	c.served(t, m, "probe-0")
	if want == "starts" {
		return
	}
	if err := c.kube.CoreV1().Nodes().Delete(ctx, "w1", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	probes(1, 4) // so that all of a /22 is allocated
	for i := range 4 {
		c.served(t, m, fmt.Sprintf("probe-%d", i))
	}
	if got := c.twice(t); got == "" {
		t.Error("the stock manager allocates no address twice")
	}
}

// served waits until the stock manager has allocated.
func (c *checked) served(t *testing.T, m *controlplane.Manager, name string) {
	t.Helper()
	if err := controlplane.Eventually(t.Context(), time.Minute, func(ctx context.Context) error {
		n, err := c.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil && n.Spec.PodCIDR == "" {
			err = fmt.Errorf("Node %s has no podCIDRs", name)
		}
		return err
	}); err != nil {
		log, _ := m.Log()
		t.Fatalf("%v\n%s", err, log)
	}
}

// twice names addresses that Nodes share, or that a Node shares with 10.244.0.0/24, which the table keeps for others.
func (c *checked) twice(t *testing.T) string {
	nodes, err := c.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]netip.Prefix{}
	for _, n := range nodes.Items {
		block := netip.MustParsePrefix(n.Spec.PodCIDR)
		for other, b := range held {
			if b.Overlaps(block) {
				return other + " and " + n.Name
			}
		}
		held[n.Name] = block
		if kept := netip.MustParsePrefix("10.244.0.0/24"); block.Overlaps(kept) && strings.HasPrefix(n.Name, "probe") {
			return n.Name
		}
	}
	return ""
}
