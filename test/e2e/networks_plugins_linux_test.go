package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// plugin is a network plugin, and what differs between them.
type plugin struct {
	name string
	// module is the directory below hack/cluster/networks whose module has the plugin, of in that package, and manifest the file with its objects there:
	// those that the plugin's own documentation says to apply. Without, hack/cluster itself configures bridge and host-local, and makes routes.
	module, of, manifest string
	// chart are Helm's flags, if manifest is a chart's directory.
	chart []string
	// crds are directories there whose objects come first.
	crds []string
	// edits are what a user of it has to change in that file, in pairs of old and new.
	edits []string
	// programs are those of its containers, in bin/networks.
	programs map[string]string
	// masquerades is whether what leaves the cluster has a Node's address.
	masquerades bool
	// balances is whether it gives Pods their Services itself, beside kube-proxy.
	balances bool
	// oneRange is whether it knows one range, and masquerades what goes to Pods outside of that.
	oneRange bool
	// refusal is what it says of a Node whose podCIDRs are outside of its one network.
	refusal string
}

var plugins = []plugin{
	{name: "bridge"},
	flannel("vxlan"),
	flannel("host-gw"),
	{
		name: "kube-router", module: "kube-router", of: "github.com/cloudnativelabs/kube-router/v2", manifest: "daemonset/kubeadm-kuberouter.yaml",
		edits: []string{
			// Between these it does not know of new Nodes' blocks, and masquerades what goes there: 5 minutes by default.
			"        - --run-router=true\n", "        - --run-router=true\n        - --routes-sync-period=10s\n" +
				"        - --enable-ipv6=true\n        - --service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112\n",
		},
		programs:    map[string]string{"install-cni": "kube-router", "kube-router": "kube-router"},
		masquerades: true,
	},
	cilium("tunnel"),
	cilium("native", "--set=autoDirectNodeRoutes=true,ipv4NativeRoutingCIDR=10.244.0.0/14,ipv6NativeRoutingCIDR=fd00:10:244::/46"),
}

// cilium follows podCIDRs with ipam: kubernetes. With native routing it is given one range that contains all but the one outside.
func cilium(routing string, values ...string) plugin {
	crds := "pkg/k8s/apis/cilium.io/client/crds/"
	return plugin{
		name: "Cilium " + routing, module: "cilium", of: "github.com/cilium/cilium", manifest: "install/kubernetes/cilium",
		chart: append(values, "--namespace=kube-system", "--values=testdata/cilium-values.yaml", "--set=routingMode="+routing),
		crds:  []string{crds + "v2", crds + "v2alpha1"},
		edits: []string{
			"              - SYS_RESOURCE\n", "", // For older kernels; a root in a container does not have it.
			"- /init-container.sh\n", "- /usr/bin/true\n", // It would remove an earlier Cilium.
			`- "/install-plugin.sh"`, "- /usr/bin/cp\n          - /usr/local/bin/cilium-cni\n          - /host/opt/cni/bin/",
		},
		programs: map[string]string{
			"mount-bpf-fs": "cilium-agent", "clean-cilium-state": "cilium-agent", "install-cni-binaries": "cilium-cni", "cilium-agent": "cilium-agent",
		},
		masquerades: true,
		balances:    true,
		oneRange:    routing == "native",
	}
}

// flannel is given one network that contains all ranges but the one outside.
func flannel(backend string) plugin {
	return plugin{
		name: "flannel " + backend, module: "flannel", of: "github.com/flannel-io/flannel", manifest: "Documentation/kube-flannel.yml",
		edits: []string{
			`"Network": "10.244.0.0/16"`, `"Network": "10.244.0.0/14", "EnableIPv6": true, "IPv6Network": "fd00:10:244::/46"`,
			`"Type": "vxlan"`, `"Type": "` + backend + `"`,
			"- /flannel\n", "- /usr/local/bin/flannel-cni\n",
			"/opt/bin/install-conf", "/usr/local/bin/install_conf",
			"/opt/bin/flanneld", "/usr/local/bin/flannel",
		},
		programs:    map[string]string{"install-cni-plugin": "flannel-cni", "install-cni": "install_conf", "kube-flannel": "flannel"},
		masquerades: true,
		refusal:     "specified in the flannel net config doesn't contain",
	}
}

// up are the flags with which the cluster gets the plugin.
func (p plugin) up(t *testing.T, c *cluster) []string {
	t.Helper()
	if p.module == "" {
		return nil
	}
	dir, err := run(t.Context(), nil, "go", "-C", c.root+"/hack/cluster/networks/"+p.module, "list", "-m", "-f", "{{.Dir}}", p.of)
	if err != nil {
		t.Fatal(err)
	}
	dir = strings.TrimSpace(dir)
	flags := []string{"--pod-network=false"}
	for _, crds := range p.crds {
		flags = append(flags, "--apply="+filepath.Join(dir, crds))
	}
	manifest := p.objects(t, c, dir)
	for i := 0; i < len(p.edits); i += 2 {
		if !strings.Contains(manifest, p.edits[i]) {
			t.Fatalf("%q is not in %s any more", p.edits[i], p.manifest)
		}
		manifest = strings.ReplaceAll(manifest, p.edits[i], p.edits[i+1])
	}
	flags = append(flags, "--apply="+writeFile(t, onHost(t, manifest, p.programs)))
	seen := map[string]bool{}
	for _, program := range p.programs {
		if !seen[program] {
			flags = append(flags, "--image="+imageOfProgram(program)+"="+c.bin("networks/"+program))
		}
		seen[program] = true
	}
	return flags
}

// objects are those of the manifest, or of the chart, in the plugin's module.
func (p plugin) objects(t *testing.T, c *cluster, dir string) string {
	t.Helper()
	path := filepath.Join(dir, p.manifest)
	if p.chart != nil {
		objects, err := run(t.Context(), nil, c.bin("helm"), append([]string{"template", p.module, path, "--set=extraHostPathMounts[0].hostPath=" + dir + "/bpf"}, p.chart...)...)
		if err != nil {
			t.Fatal(err)
		}
		return objects
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func imageOfProgram(program string) string { return "example.com/networks/" + program + ":v1" }

// kubeProxy are the flags with which the cluster gets the kube-proxy that kubeadm writes for a configuration.
func (c *networkCluster) kubeProxy(t *testing.T, config string) []string {
	t.Helper()
	manifest, err := run(t.Context(), nil, c.bin("kubeadm"), "init", "phase", "addon", "kube-proxy", "--print-manifest", "--config="+config)
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"--image=" + imageOfProgram("kube-proxy") + "=" + c.bin("kube-proxy"),
		"--apply=" + writeFile(t, onHost(t, manifest, map[string]string{"kube-proxy": "kube-proxy"})),
	}
}

// setProxyMode does what docs/use/network-plugins.md says of kube-proxy.
func (c *networkCluster) setProxyMode(t *testing.T, mode, detectLocal string) {
	t.Helper()
	maps := c.client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	eventually(t, time.Minute, "the ConfigMap of kube-proxy is changed", func(ctx context.Context) (bool, string) {
		found, err := maps.Get(ctx, "kube-proxy", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		config := map[string]any{}
		err = sigsyaml.Unmarshal([]byte(found.Data["config.conf"]), &config)
		if err != nil {
			return false, err.Error()
		}
		config["mode"], config["detectLocalMode"] = mode, detectLocal
		content, err := sigsyaml.Marshal(config)
		if err != nil {
			return false, err.Error()
		}
		found.Data["config.conf"] = string(content)
		_, err = maps.Update(ctx, found, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
	c.kubectl(t, "--namespace=kube-system", "rollout", "restart", "daemonset", "kube-proxy")
	c.kubectl(t, "--namespace=kube-system", "rollout", "status", "daemonset", "kube-proxy", "--timeout=8m")
}

// onHost has containers run programs of bin/networks with what they call, iptables, ip, ipset, nft and a shell, of their machine: an image here has
// one static program.
func onHost(t *testing.T, manifest string, programs map[string]string) string {
	t.Helper()
	var all []string
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096); ; {
		object := map[string]any{}
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		var changed any = object
		if object["kind"] == "DaemonSet" {
			set := &appsv1.DaemonSet{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, set); err != nil {
				t.Fatal(err)
			}
			runOnHost(&set.Spec.Template.Spec, programs)
			changed = set
		}
		content, err := sigsyaml.Marshal(changed)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(bytes.TrimSpace(content), []byte("{}")) {
			all = append(all, string(content))
		}
	}
	return strings.Join(all, "---\n")
}

func runOnHost(pod *corev1.PodSpec, programs map[string]string) {
	var mounts []corev1.VolumeMount
	for there, here := range map[string]string{
		"/bin": "/usr/bin", "/sbin": "/usr/sbin", "/lib": "/usr/lib", "/lib64": "/usr/lib64",
		"/usr/bin": "/usr/bin", "/usr/sbin": "/usr/sbin", "/usr/lib": "/usr/lib", "/etc/alternatives": "/etc/alternatives",
		"/etc/iproute2": "/etc/iproute2",
	} {
		name := "host" + strings.ReplaceAll(there, "/", "-")
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: here}}})
		mounts = append(mounts, corev1.VolumeMount{Name: name, MountPath: there})
	}
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			c := &containers[i]
			c.Image, c.ImagePullPolicy = imageOfProgram(programs[c.Name]), corev1.PullNever
			c.Env = append(c.Env, corev1.EnvVar{Name: "PATH", Value: "/usr/local/bin:/usr/sbin:/usr/bin:/usr/lib/llvm-19/bin"})
			c.VolumeMounts = append(c.VolumeMounts, mounts...)
		}
	}
}
