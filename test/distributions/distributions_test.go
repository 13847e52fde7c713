// Package distributions holds examples/distributions against the code of the projects that read them: `make test-distributions`. It starts none of
// them.
package distributions

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	_ "sigs.k8s.io/cluster-api/version" // Of the module that has the CRD.
	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	"sigs.k8s.io/yaml"
)

const (
	ours  = "multi-cidr-node-ipam-controller"
	patch = "kube-controller-manager+strategic.yaml"
)

func example(t *testing.T, name string) []byte {
	t.Helper()
	return read(t, filepath.Join("../../examples/distributions", name))
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func decode(t *testing.T, content []byte, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(content, into); err != nil {
		t.Fatal(err)
	}
}

// The example is valid for the CRD of Cluster API, and says the same as what the end-to-end tests give kubeadm.
func TestClusterAPI(t *testing.T) {
	content := example(t, "cluster-api.yaml")
	object := map[string]any{}
	decode(t, content, &object)
	version, _ := strings.CutPrefix(object["apiVersion"].(string), "controlplane.cluster.x-k8s.io/")
	validator, _, err := validation.NewSchemaValidator(schemaOf(t, "sigs.k8s.io/cluster-api", "controlplane/kubeadm/config/crd/bases/controlplane.cluster.x-k8s.io_kubeadmcontrolplanes.yaml", version))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range validation.ValidateCustomResource(nil, object, validator) {
		t.Error(err)
	}

	kcp := &controlplanev1.KubeadmControlPlane{}
	decode(t, content, kcp) // Fields that the CRD does not have.
	spec := kcp.Spec.KubeadmConfigSpec
	var e2e struct {
		ControllerManager struct {
			ExtraArgs []struct{ Name, Value string }
		}
	}
	decodeFirst(t, read(t, "../e2e/testdata/kubeadm-networks.yaml"), &e2e)
	for _, want := range e2e.ControllerManager.ExtraArgs {
		found := false
		for _, arg := range spec.ClusterConfiguration.ControllerManager.ExtraArgs {
			found = found || arg.Name == want.Name && arg.Value != nil && *arg.Value == want.Value
		}
		if !found {
			t.Errorf("extraArgs have no %s=%s", want.Name, want.Value)
		}
	}
	file := spec.Files[0]
	if want := filepath.Join(spec.InitConfiguration.Patches.Directory, patch); file.Path != want || spec.JoinConfiguration.Patches.Directory != spec.InitConfiguration.Patches.Directory {
		t.Errorf("the patch is %s; want %s, where init and join look for it", file.Path, want)
	}
	var got, want map[string]any
	decode(t, []byte(file.Content), &got)
	decode(t, read(t, "../../manifests/kubeadm/patches/"+patch), &want)
	if a, b := marshal(t, got), marshal(t, want); a != b {
		t.Errorf("the patch is\n%swant as in manifests/kubeadm/patches\n%s", a, b)
	}
	if !strings.Contains(file.Content, ":"+kcp.Spec.Version+"-") {
		t.Errorf("the image in the patch is not of version %s", kcp.Spec.Version)
	}
}

func marshal(t *testing.T, object any) string {
	t.Helper()
	content, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// decodeFirst reads the first document of a file, and passes over fields that the target does not have.
func decodeFirst(t *testing.T, content []byte, into any) {
	t.Helper()
	first, _, _ := strings.Cut(string(content), "\n---\n")
	if err := yaml.Unmarshal([]byte(first), into); err != nil {
		t.Fatal(err)
	}
}

// schemaOf is that of a version of a CRD in a module's file.
func schemaOf(t *testing.T, module, file, version string) *apiextensions.JSONSchemaProps {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(read(t, filepath.Join(strings.TrimSpace(string(dir)), file)), crd); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
	if i < 0 {
		t.Fatalf("%s has no version %q", file, version)
	}
	schema := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[i].Schema.OpenAPIV3Schema, schema, nil); err != nil {
		t.Fatal(err)
	}
	return schema
}

// kind reads its configuration as strictly. Its patch has no apiVersion on purpose: then it matches whatever version of kubeadm's configuration
// the Node's Kubernetes has.
func TestKind(t *testing.T) {
	cluster := &v1alpha4.Cluster{}
	decode(t, example(t, "kind.yaml"), cluster)
	v1alpha4.SetDefaultsCluster(cluster)
	var patch map[string]any
	decode(t, []byte(cluster.KubeadmConfigPatches[0]), &patch)
	if patch["apiVersion"] != nil || patch["kind"] != "ClusterConfiguration" {
		t.Errorf("the patch is for %v %v", patch["apiVersion"], patch["kind"])
	}
}

// Talos takes the example as a patch of what it generates, and accepts what comes of it.
func TestTalos(t *testing.T) {
	input, err := generate.NewInput("cluster", "https://192.0.2.1:6443", "1.36.3", generate.WithInstallDisk("/dev/sda"))
	if err != nil {
		t.Fatal(err)
	}
	generated, err := input.Config(machine.TypeControlPlane)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := configpatcher.LoadPatch(example(t, "talos.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := configpatcher.Apply(configpatcher.WithConfig(generated), []configpatcher.Patch{loaded})
	if err != nil {
		t.Fatal(err)
	}
	patched, err := out.Config()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := patched.Validate(mode{}); err != nil {
		t.Error(err)
	}
	manager := patched.Cluster().ControllerManager()
	if !strings.Contains(manager.Image(), "/multicidr/kube-controller-manager:v1.36.") {
		t.Errorf("the image is %s", manager.Image())
	}
	if args := manager.ExtraArgs(); !slices.Contains(args["controllers"], ours) || !slices.Contains(args["allocate-node-cidrs"], "false") {
		t.Errorf("the flags are %v", args)
	}
}

// mode is that of a machine which Talos is installed on.
type mode struct{}

func (mode) String() string        { return "metal" }
func (mode) RequiresInstall() bool { return true }
func (mode) InContainer() bool     { return false }
