package move

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/yaml"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// ofClusterAPI is the version of Cluster API's core provider. Its objects are not installed here, but its CRDs.
const ofClusterAPI = "v1.14.2"

// provider is one of ours, by its name for clusterctl.
type provider struct{ name, file string }

var (
	whole     = provider{"multicidr", "ipam-components.yaml"}
	inCluster = provider{"multicidr-in-cluster", "ipam-components-in-cluster.yaml"}
	infobloxs = provider{"multicidr-infoblox", "ipam-components-infoblox.yaml"}
)

// TestProviders installs our providers of a release with clusterctl's own code, from a local directory, and runs our program with the
// arguments and the permissions that it gets by that. Then clusterctl deletes them.
func TestProviders(t *testing.T) {
	t.Run("all", func(t *testing.T) {
		i := newInstallation(t)
		i.install(whole, "")
		i.run("cluster-ipam")
		p, x, d := allPools[0], allPools[4], allPools[3]
		for _, pool := range []pool{p, x, d} {
			pool.create(i.management)
			i.untilTold(map[string]string{i.claim(pool): ""})
		}
		i.delete(whole, "cluster-ipam")
	})
	t.Run("one by one", func(t *testing.T) {
		i := newInstallation(t)
		i.install(inCluster, "")
		i.install(infobloxs, "elsewhere")
		i.run("in-cluster-ipam")
		i.run("elsewhere")
		for _, pool := range allPools[:3] {
			pool.create(i.management)
			i.untilTold(map[string]string{i.claim(pool): ""})
		}
		i.delete(inCluster, "in-cluster-ipam")
	})
}

// installation is a management cluster in which clusterctl installs our providers.
type installation struct {
	*management
	grid    *grid
	ctl     *clusterctl
	cluster cluster.Client
	version string
}

func newInstallation(t *testing.T) *installation {
	t.Helper()
	i := &installation{management: newControlPlane(t, "cluster"), grid: newGrid(t)}
	repository := i.repository()
	i.ctl = newClusterctl(t, func(reader *config.MemoryReader) error {
		for _, p := range []provider{whole, inCluster, infobloxs} {
			if _, err := reader.AddProvider(p.name, v1alpha3.IPAMProviderType, filepath.Join(repository, "ipam-"+p.name, i.version, p.file)); err != nil {
				return err
			}
		}
		_, err := reader.AddProvider("cluster-api", v1alpha3.CoreProviderType, filepath.Join(repository, "cluster-api", ofClusterAPI, "core-components.yaml"))
		return err
	}, i.management)
	i.cluster = cluster.New(cluster.Kubeconfig(i.ctl.kubeconfigs[i.management]), i.ctl.configuration)
	inventory := i.cluster.ProviderInventory()
	i.do("install clusterctl's CRD", inventory.EnsureCustomResourceDefinitions(t.Context()))
	i.do("say that Cluster API is installed", inventory.Create(t.Context(), v1alpha3.Provider{
		ObjectMeta:   metav1.ObjectMeta{Namespace: namespace, Name: "cluster-api"},
		ProviderName: "cluster-api", Type: string(v1alpha3.CoreProviderType), Version: ofClusterAPI,
	}))
	return i
}

// repository makes the files of a release, and puts them where clusterctl looks for them.
func (i *installation) repository() (dir string) {
	i.Helper()
	version, err := os.ReadFile("../../controllers/build/VERSION")
	i.do("read our version", err)
	i.version = strings.TrimSpace(string(version))
	chart := struct{ AppVersion string }{}
	content, err := os.ReadFile("../../manifests/charts/cluster-ipam-controller/Chart.yaml")
	i.do("read the chart", err)
	i.do("read the chart", yaml.Unmarshal(content, &chart))
	dir = i.TempDir()
	made := i.TempDir()
	command := exec.CommandContext(i.Context(), "go", "-C", "../..", "run", "./hack/release",
		"-version="+i.version, "-tag="+chart.AppVersion, "-registry=registry.example.com/multicidr", "-output="+made)
	output, err := command.CombinedOutput()
	i.do("make the files: "+string(output), err)
	for _, p := range []provider{whole, inCluster, infobloxs} {
		i.do("copy the files", os.CopyFS(filepath.Join(dir, "ipam-"+p.name, i.version), os.DirFS(made)))
	}
	core := filepath.Join(dir, "cluster-api", ofClusterAPI)
	metadata, err := os.ReadFile(filepath.Join(clusterAPI(i.T), "metadata.yaml"))
	i.do("read the metadata of Cluster API", err)
	i.do("copy the metadata of Cluster API", os.MkdirAll(core, 0o700))
	i.do("copy the metadata of Cluster API", os.WriteFile(filepath.Join(core, "metadata.yaml"), metadata, 0o600))
	return dir
}

// install is `clusterctl init --ipam`, without cert-manager and without waiting for a kubelet.
func (i *installation) install(p provider, namespace string) {
	i.Helper()
	components, err := i.ctl.GetProviderComponents(i.Context(), p.name, v1alpha3.IPAMProviderType, client.ComponentsOptions{Version: i.version, TargetNamespace: namespace})
	i.do("read the components of "+p.name, err)
	if variables := components.Variables(); len(variables) > 0 {
		i.Errorf("%s asks for the variables %v", p.name, variables)
	}
	if want := "registry.example.com/multicidr/cluster-ipam-controller:"; len(components.Images()) != 1 || !strings.HasPrefix(components.Images()[0], want) {
		i.Errorf("%s has the images %v, want %s", p.name, components.Images(), want)
	}
	installer := i.cluster.ProviderInstaller()
	installer.Add(components)
	i.do("check "+p.name, installer.Validate(i.Context()))
	_, err = installer.Install(i.Context(), cluster.InstallOptions{})
	i.do("install "+p.name, err)
}

// run starts our program as the Deployment in a namespace says, and tells it of the Infoblox.
func (i *installation) run(namespace string) {
	i.Helper()
	all, err := i.kube.AppsV1().Deployments(namespace).List(i.Context(), metav1.ListOptions{})
	i.do("list Deployments", err)
	if len(all.Items) != 1 || all.Items[0].Spec.Template.Spec.Containers[0].Name != "manager" {
		i.Fatalf("want a Deployment with a container manager, got %+v", all.Items)
	}
	pod := all.Items[0].Spec.Template.Spec
	var args []string
	for _, arg := range pod.Containers[0].Args {
		// Another process on this machine may have the ports.
		if !strings.HasPrefix(arg, "--webserver-bind-address=") && !strings.HasPrefix(arg, "--secure-port=") {
			args = append(args, strings.ReplaceAll(arg, "$(POD_NAMESPACE)", namespace))
		}
	}
	user := "system:serviceaccount:" + namespace + ":" + pod.ServiceAccountName
	kubeconfig, err := i.cp.Kubeconfig(user, "system:serviceaccounts", "system:serviceaccounts:"+namespace, "system:authenticated")
	i.do("write a kubeconfig", err)
	_, err = i.cp.LaunchManager(controlplane.ManagerOptions{Name: namespace, Binary: program, Alone: true, Kubeconfig: kubeconfig, Args: append(args, "--secure-port=0")})
	i.do("start the program", err)
	if slices.ContainsFunc(args, func(arg string) bool {
		return strings.HasPrefix(arg, "--controllers=") && strings.Contains(arg, "infoblox")
	}) {
		i.instance(i.grid, namespace)
	}
}

// claim creates a claim of a pool.
func (i *installation) claim(p pool) (name string) {
	i.Helper()
	return (&world{T: i.T}).claim(i.management, p, "a", "")
}

// delete is `clusterctl delete --ipam --include-namespace`: of what has no namespace, only the CRDs stay.
func (i *installation) delete(p provider, namespace string) {
	i.Helper()
	of := v1alpha3.Provider{
		ObjectMeta:   metav1.ObjectMeta{Namespace: namespace, Name: "ipam-" + p.name},
		ProviderName: p.name, Type: string(v1alpha3.IPAMProviderType), Version: i.version,
	}
	i.do("delete "+p.name, i.cluster.ProviderComponents().Delete(i.Context(), cluster.DeleteOptions{Provider: of, IncludeNamespace: true}))
	selector := metav1.ListOptions{LabelSelector: "cluster.x-k8s.io/provider=ipam-" + p.name}
	roles, err := i.kube.RbacV1().ClusterRoles().List(i.Context(), selector)
	i.do("list ClusterRoles", err)
	bindings, err := i.kube.RbacV1().ClusterRoleBindings().List(i.Context(), selector)
	i.do("list ClusterRoleBindings", err)
	policies, err := i.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(i.Context(), selector)
	i.do("list ValidatingAdmissionPolicies", err)
	if len(roles.Items)+len(bindings.Items)+len(policies.Items) > 0 {
		i.Errorf("clusterctl leaves ClusterRoles, ClusterRoleBindings or ValidatingAdmissionPolicies: %v %v %v", roles.Items, bindings.Items, policies.Items)
	}
}
