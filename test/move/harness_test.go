package move

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/multicidr/controller-manager/test/controlplane"
)

const (
	namespace = "t"
	program   = "cluster-ipam-controller"
	manifests = "../../manifests/clusteripam/"
)

var (
	bin      = flag.String("bin", "../../bin", "the directory of the programs that the test starts")
	patience = flag.Duration("patience", 90*time.Second, "how long something may take; only shows on a failure")
)

var (
	claims      = ipam("v1beta2", "ipaddressclaims")
	addresses   = ipam("v1beta2", "ipaddresses")
	pools       = ipam("v1alpha2", "inclusterippools")
	globalPools = ipam("v1alpha2", "globalinclusterippools")
	infoblox    = ipam("v1alpha1", "infobloxippools")
	instances   = ipam("v1alpha1", "infobloxinstances")
	clusters    = schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "clusters"}
	machines    = schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "machines"}
	ipamClaims  = schema.GroupVersionResource{Group: "k0rdent.mirantis.com", Version: "v1beta1", Resource: "clusteripamclaims"}
	ipams       = schema.GroupVersionResource{Group: "k0rdent.mirantis.com", Version: "v1beta1", Resource: "clusteripams"}
	deployments = schema.GroupVersionResource{Group: "k0rdent.mirantis.com", Version: "v1beta1", Resource: "clusterdeployments"}

	kinds = map[schema.GroupVersionResource]string{
		claims: "IPAddressClaim", addresses: "IPAddress", pools: "InClusterIPPool", globalPools: "GlobalInClusterIPPool",
		infoblox: "InfobloxIPPool", instances: "InfobloxInstance", clusters: "Cluster", machines: "Machine",
		ipamClaims: "ClusterIPAMClaim", ipams: "ClusterIPAM", deployments: "ClusterDeployment",
	}
)

func ipam(version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "ipam.cluster.x-k8s.io", Version: version, Resource: resource}
}

// management is a management cluster: a control plane, the CRDs of Cluster API, a garbage collector, and our controllers.
type management struct {
	*testing.T
	name    string
	cp      *controlplane.ControlPlane
	dynamic dynamic.Interface
	kube    kubernetes.Interface
	manager *controlplane.Manager
}

// newControlPlane starts a control plane with the CRDs of Cluster API's core provider and a garbage collector.
func newControlPlane(t *testing.T, name string) *management {
	t.Helper()
	dir, err := filepath.Abs(*bin)
	if err != nil {
		t.Fatal(err)
	}
	cp := controlplane.StartForTest(t, controlplane.Options{BinDir: dir})
	c := &management{T: t, name: name, cp: cp, dynamic: dynamic.NewForConfigOrDie(cp.AdminConfig()), kube: kubernetes.NewForConfigOrDie(cp.AdminConfig())}
	c.applyClusterAPI()
	c.do("make a namespace", cp.ApplyObjects(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace},
	}}))
	cp.StartManagerForTest(t, controlplane.ManagerOptions{Name: "garbage-collector", Args: []string{"--controllers=garbage-collector-controller"}})
	return c
}

// newManagement starts a management cluster that knows the Infoblox.
func newManagement(t *testing.T, name string, server *grid) *management {
	t.Helper()
	c := newControlPlane(t, name)
	crds, err := filepath.Glob(manifests + "crds/*.yaml")
	c.do("find our CRDs", err)
	crds = slices.DeleteFunc(crds, func(path string) bool { return strings.Contains(path, "_ipaddress") }) // Cluster API's are there.
	c.do("apply our manifests", c.cp.Apply(t.Context(), append(crds, manifests+"rbac", manifests+"policy")...))
	c.do("give permissions", c.cp.BindClusterIPAM(t.Context(), program,
		"cluster-ipam-controller", "cluster-deployment-ipam-controller", "in-cluster-ip-pool-controller", "infoblox-ip-pool-controller"))
	c.instance(server, metav1.NamespaceSystem)
	c.manager = c.cp.StartManagerForTest(t, controlplane.ManagerOptions{Name: program, Binary: program, Alone: true, User: program})
	return c
}

// instance makes the Infoblox known, with a Secret in a namespace.
func (c *management) instance(server *grid, secrets string) {
	c.Helper()
	_, err := c.kube.CoreV1().Secrets(secrets).Create(c.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "grid"}, StringData: map[string]string{"username": server.Username, "password": server.Password},
	}, metav1.CreateOptions{})
	c.do("create a Secret", err)
	host, port := server.Address()
	c.create(instances, "grid", fmt.Sprintf(`{spec: {host: %q, port: %q, wapiVersion: "2.12", credentialsSecretRef: {name: grid}, customCAPath: %s}}`, host, port, server.CAFile))
}

// applyClusterAPI applies the CRDs of Cluster API that matter here, with the labels that `clusterctl init` gives them.
func (c *management) applyClusterAPI() {
	c.Helper()
	for _, kind := range []string{"cluster.x-k8s.io_clusters", "cluster.x-k8s.io_machines", "ipam.cluster.x-k8s.io_ipaddressclaims", "ipam.cluster.x-k8s.io_ipaddresses"} {
		text, err := os.ReadFile(filepath.Join(clusterAPI(c.T), "core/config/crd/bases", kind+".yaml"))
		c.do("read a CRD of Cluster API", err)
		crd := &unstructured.Unstructured{}
		c.do("read a CRD of Cluster API", yaml.Unmarshal(text, &crd.Object))
		crd.SetLabels(map[string]string{"clusterctl.cluster.x-k8s.io": "", "cluster.x-k8s.io/provider": "cluster-api", "cluster.x-k8s.io/v1beta2": "v1beta2"})
		c.do("apply a CRD of Cluster API", c.cp.ApplyObjects(c.Context(), crd))
	}
}

// clusterAPI is the directory of Cluster API's module.
func clusterAPI(t *testing.T) string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(dir))
}

// do ends the test on an error.
func (c *management) do(what string, err error) {
	c.Helper()
	if err != nil {
		c.Fatalf("%s: %s: %v", c.name, what, err)
	}
}

// eventually waits until a condition holds, and reports it if it does not. The test goes on, since the next check tells more.
func eventually(t *testing.T, what string, condition func(context.Context) error) bool {
	t.Helper()
	if err := controlplane.Eventually(t.Context(), *patience, condition); err != nil {
		t.Errorf("%s: %v", what, err)
		return false
	}
	return true
}

func (c *management) of(resource schema.GroupVersionResource) dynamic.ResourceInterface {
	if resource == globalPools || resource == instances {
		return c.dynamic.Resource(resource)
	}
	return c.dynamic.Resource(resource).Namespace(namespace)
}

// create creates an object with this content, as YAML.
func (c *management) create(resource schema.GroupVersionResource, name, content string) *unstructured.Unstructured {
	c.Helper()
	object := &unstructured.Unstructured{}
	c.do("read the YAML of "+name, yaml.Unmarshal([]byte(content), &object.Object))
	object.SetAPIVersion(resource.GroupVersion().String())
	object.SetKind(kinds[resource])
	object.SetName(name)
	var stored *unstructured.Unstructured
	// A CustomResourceDefinition is served a moment after it was applied.
	c.do("create "+name, controlplane.Eventually(c.Context(), *patience, func(ctx context.Context) (err error) {
		if stored, err = c.of(resource).Create(ctx, object, metav1.CreateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			c.Fatalf("%s: create %s: %v", c.name, name, err)
		}
		return err
	}))
	return stored
}

// patch changes an object by a merge patch, as YAML.
func (c *management) patch(resource schema.GroupVersionResource, name, content string, subresources ...string) {
	c.Helper()
	body, err := yaml.YAMLToJSON([]byte(content))
	c.do("read the YAML of a patch", err)
	_, err = c.of(resource).Patch(c.Context(), name, types.MergePatchType, body, metav1.PatchOptions{}, subresources...)
	c.do("patch "+name, err)
}

func (c *management) delete(resource schema.GroupVersionResource, name string) {
	c.Helper()
	c.do("delete "+name, c.of(resource).Delete(c.Context(), name, metav1.DeleteOptions{}))
}

// list returns the objects of a kind, by name.
func (c *management) list(ctx context.Context, resource schema.GroupVersionResource) (map[string]*unstructured.Unstructured, error) {
	found, err := c.of(resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := map[string]*unstructured.Unstructured{}
	for i := range found.Items {
		all[found.Items[i].GetName()] = &found.Items[i]
	}
	return all, nil
}

// told returns the addresses that claims have been told, by the claims' names. A claim that is Ready is told.
func (c *management) told(ctx context.Context) (map[string]string, error) {
	all, err := c.list(ctx, claims)
	if err != nil {
		return nil, err
	}
	held, err := c.list(ctx, addresses)
	told := map[string]string{}
	for name, claim := range all {
		address, _, _ := unstructured.NestedString(claim.Object, "status", "addressRef", "name")
		if status, _, _ := condition(claim, "Ready"); status == "True" && held[address] != nil {
			told[name] = text(held[address], "spec", "address")
		}
	}
	return told, err
}

// untilTold waits until claims have been told addresses: any for an empty one, otherwise exactly this one.
func (c *management) untilTold(want map[string]string) map[string]string {
	c.Helper()
	var told map[string]string
	eventually(c.T, c.name, func(ctx context.Context) (err error) {
		if told, err = c.told(ctx); err != nil {
			return err
		}
		var wrong []error
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if told[name] == "" || want[name] != "" && want[name] != told[name] {
				wrong = append(wrong, fmt.Errorf("%s has been told %q, want %q: %s", name, told[name], want[name], c.summary(ctx, name)))
			}
		}
		return errors.Join(wrong...)
	})
	return told
}

// untilCondition waits until a condition of an object has this status and, unless it is empty, this reason.
func (c *management) untilCondition(resource schema.GroupVersionResource, name, conditionType, status, reason string) {
	c.Helper()
	eventually(c.T, c.name, func(ctx context.Context) error {
		object, err := c.of(resource).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		is, because, message := condition(object, conditionType)
		if is != status || reason != "" && because != reason {
			return fmt.Errorf("%s %s has %s %q, reason %q, want %s %s: %s", kinds[resource], name, conditionType, is, because, status, reason, message)
		}
		return nil
	})
}

// untilGone waits until there are no objects of these kinds but some.
func (c *management) untilGone(but func(*unstructured.Unstructured) bool, resources ...schema.GroupVersionResource) {
	c.Helper()
	eventually(c.T, c.name, func(ctx context.Context) error {
		var left []string
		for _, resource := range resources {
			all, err := c.list(ctx, resource)
			if err != nil {
				return err
			}
			for _, name := range slices.Sorted(maps.Keys(all)) {
				if o := all[name]; !but(o) {
					left = append(left, fmt.Sprintf("%s %s, finalizers %v, annotations %v, owners %v, deleted %v",
						o.GetKind(), name, o.GetFinalizers(), o.GetAnnotations(), o.GetOwnerReferences(), o.GetDeletionTimestamp()))
				}
			}
		}
		if left != nil {
			return fmt.Errorf("these are left:\n%s", strings.Join(left, "\n"))
		}
		return nil
	})
}

func none(*unstructured.Unstructured) bool { return false }

// summary is what a message says about a claim.
func (c *management) summary(ctx context.Context, claim string) string {
	object, err := c.of(claims).Get(ctx, claim, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	status, _ := json.Marshal(object.Object["status"])
	return fmt.Sprintf("annotations %v, status %s", object.GetAnnotations(), status)
}

// condition returns a condition of an object; empty if there is none.
func condition(object *unstructured.Unstructured, conditionType string) (status, reason, message string) {
	all, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, one := range all {
		if m, ok := one.(map[string]any); ok && m["type"] == conditionType {
			return fmt.Sprint(m["status"]), fmt.Sprint(m["reason"]), fmt.Sprint(m["message"])
		}
	}
	return "", "", ""
}

// text returns a string of an object; empty if it is not there.
func text(object *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(object.Object, path...)
	return s
}
