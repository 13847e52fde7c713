package clusteripam

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
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

	"github.com/multicidr/controller-manager/controllers/clusteripam"
	"github.com/multicidr/controller-manager/test/controlplane"
)

const (
	// patience is how long something may take. It only shows on a failure.
	patience = time.Minute
	// namespace has the objects of a test that needs no other.
	namespace = "t"
	// aloneUser is who cluster-ipam-controller is here.
	aloneUser = "cluster-ipam"
)

// The programs that contain the controllers.
const (
	insideManager = "kube-controller-manager"
	alone         = "cluster-ipam-controller"
)

// cluster is a control plane with one of the programs on it.
type cluster struct {
	t       *testing.T
	ns      string // of the objects
	cp      *controlplane.ControlPlane
	dynamic dynamic.Interface
	kube    kubernetes.Interface
	program string
	binary  string // another cluster-ipam-controller; empty: that of bin
	manager *controlplane.Manager
	args    []string
}

// inBothPrograms runs a test on a control plane with our CRDs and permissions, once with each program.
func inBothPrograms(t *testing.T, test func(c *cluster)) {
	for _, program := range []string{alone, insideManager} {
		t.Run(program, func(t *testing.T) {
			c := newCluster(t, program)
			c.apply(crds)
			c.start()
			test(c)
		})
	}
}

// newCluster starts a control plane with the permissions, but neither CRDs nor the program.
func newCluster(t *testing.T, program string, apiServerArgs ...string) *cluster {
	c := &cluster{t: t, ns: namespace, cp: controlplane.StartForTest(t, controlplane.Options{APIServerArgs: apiServerArgs}), program: program}
	c.dynamic, c.kube = dynamic.NewForConfigOrDie(c.cp.AdminConfig()), kubernetes.NewForConfigOrDie(c.cp.AdminConfig())
	c.apply("../../manifests/clusteripam/rbac")
	c = c.in(namespace)
	if program == alone {
		c.do("give permissions", c.cp.BindClusterIPAM(t.Context(), aloneUser, clusteripam.Names()...))
	}
	return c
}

// in returns the cluster with objects in another namespace, which it makes.
func (c *cluster) in(namespace string) *cluster {
	c.t.Helper()
	in := *c
	in.ns = namespace
	c.do("make a namespace", c.cp.ApplyObjects(c.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace},
	}}))
	return &in
}

// start starts the program, with the controllers and, in kube-controller-manager, the garbage collector.
func (c *cluster) start(args ...string) {
	c.t.Helper()
	c.args = args
	opts := controlplane.ManagerOptions{Name: c.program, Args: args}
	if c.program == alone {
		opts.Alone, opts.Binary, opts.User = true, cmp.Or(c.binary, alone), aloneUser
	} else {
		opts.Args = append([]string{"--controllers=" + strings.Join(append(clusteripam.Names(), "garbage-collector-controller", "serviceaccount-token-controller"), ",")}, args...)
	}
	c.manager = c.cp.StartManagerForTest(c.t, opts)
}

// kill ends the program like a crash of its machine, and frees its Lease so that the next one need not wait.
func (c *cluster) kill() {
	c.t.Helper()
	c.do("kill the program", c.manager.Kill())
	err := c.kube.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(c.t.Context(), c.program, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		c.do("delete the Lease", err)
	}
}

// collectGarbage starts the garbage collector beside a program that has none: in a real cluster it always runs.
func (c *cluster) collectGarbage() {
	c.t.Helper()
	if c.program == alone {
		c.cp.StartManagerForTest(c.t, controlplane.ManagerOptions{Name: "garbage-collector", Args: []string{"--controllers=garbage-collector-controller"}})
	}
}

// restart kills the program and starts it again.
func (c *cluster) restart() {
	c.t.Helper()
	c.kill()
	c.start(c.args...)
}

func (c *cluster) do(what string, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
}

func (c *cluster) apply(paths ...string) {
	c.t.Helper()
	apply(c.t, c.cp, paths...)
}

func (c *cluster) of(resource schema.GroupVersionResource) dynamic.ResourceInterface {
	if slices.Contains(clusterScoped, resource) {
		return c.dynamic.Resource(resource)
	}
	return c.dynamic.Resource(resource).Namespace(c.ns)
}

// create creates an object with this content, as YAML.
func (c *cluster) create(resource schema.GroupVersionResource, name, content string) *unstructured.Unstructured {
	c.t.Helper()
	object := &unstructured.Unstructured{}
	c.do("read the YAML of "+name, yaml.Unmarshal([]byte(content), &object.Object))
	object.SetAPIVersion(resource.GroupVersion().String())
	if kind, ok := kinds[resource]; ok { // Otherwise the content says it.
		object.SetKind(kind)
	}
	object.SetName(name)
	var stored *unstructured.Unstructured
	var refused error
	c.eventually(func(ctx context.Context) (err error) { // A CustomResourceDefinition is served a moment after it was applied.
		if stored, err = c.of(resource).Create(ctx, object, metav1.CreateOptions{}); apierrors.IsNotFound(err) {
			return err
		}
		refused = err
		return nil
	})
	c.do("create "+name, refused)
	return stored
}

// patch changes an object by a merge patch, as YAML.
func (c *cluster) patch(resource schema.GroupVersionResource, name, content string, subresources ...string) {
	c.t.Helper()
	body, err := yaml.YAMLToJSON([]byte(content))
	c.do("read the YAML of a patch", err)
	_, err = c.of(resource).Patch(c.t.Context(), name, types.MergePatchType, body, metav1.PatchOptions{}, subresources...)
	c.do("patch "+name, err)
}

func (c *cluster) delete(resource schema.GroupVersionResource, name string) {
	c.t.Helper()
	c.do("delete "+name, c.of(resource).Delete(c.t.Context(), name, metav1.DeleteOptions{}))
}

// get returns an object; nil if there is none.
func (c *cluster) get(resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	c.t.Helper()
	object, err := c.of(resource).Get(c.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	c.do("get "+name, err)
	return object
}

// eventually waits until a condition holds.
func (c *cluster) eventually(condition func(context.Context) error) {
	c.t.Helper()
	err := controlplane.Eventually(c.t.Context(), patience, condition)
	if err == nil {
		return
	}
	if c.manager != nil {
		_, health, _ := c.manager.Get(c.t.Context(), "/healthz?verbose")
		c.t.Logf("health: %s", health)
	}
	c.t.Fatal(err)
}

// until waits until an object has all these values, by path, as JSON: "status.bound": `true`. A path that does not exist is "". It returns
// how long that took.
func (c *cluster) until(resource schema.GroupVersionResource, name string, want map[string]string) time.Duration {
	c.t.Helper()
	began := time.Now()
	c.eventually(func(context.Context) error {
		object := c.get(resource, name)
		for path, value := range want {
			if is := at(object, path); is != value {
				return fmt.Errorf("%s %s: %s is %s, want %s; the object is %s", kinds[resource], name, path, cmp.Or(is, "missing"), cmp.Or(value, "missing"), asJSON(object))
			}
		}
		return nil
	})
	return time.Since(began)
}

// untilCondition waits until a field of a condition has a value, as JSON; empty if there is to be no such condition.
func (c *cluster) untilCondition(resource schema.GroupVersionResource, name, kind, field, want string) {
	c.t.Helper()
	c.eventually(func(context.Context) error {
		object, is := c.get(resource, name), ""
		for i := range 10 {
			if prefix := fmt.Sprintf("status.conditions.%d", i); at(object, prefix+".type") == `"`+kind+`"` {
				is = at(object, prefix+"."+field)
			}
		}
		if is != want {
			return fmt.Errorf("condition %s of %s %s: %s is %s, want %s: %s", kind, kinds[resource], name, field, is, want, asJSON(object))
		}
		return nil
	})
}

// untilEvent waits for an event about an object.
func (c *cluster) untilEvent(name, reason string) {
	c.t.Helper()
	c.eventually(func(ctx context.Context) error {
		events, err := c.kube.CoreV1().Events(c.ns).List(ctx, metav1.ListOptions{})
		if err == nil && !slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.InvolvedObject.Name == name && e.Reason == reason }) {
			err = fmt.Errorf("no event %s about %s", reason, name)
		}
		return err
	})
}

// untilHealth waits until a controller's health check says something.
func (c *cluster) untilHealth(controller, want string) {
	c.t.Helper()
	c.eventually(func(ctx context.Context) error {
		_, body, err := c.manager.Get(ctx, "/healthz/"+controller)
		if err == nil && !strings.Contains(string(body), want) {
			err = fmt.Errorf("the health check of %s says %q, want %q", controller, body, want)
		}
		return err
	})
}

// history returns what an object had at a path, as JSON, in each of its versions after one of this or another object.
func (c *cluster) history(resource schema.GroupVersionResource, name, after, path string) (values []string) {
	c.t.Helper()
	last := c.get(resource, name).GetResourceVersion()
	watcher, err := c.of(resource).Watch(c.t.Context(), metav1.ListOptions{ResourceVersion: after, FieldSelector: "metadata.name=" + name})
	c.do("watch "+name, err)
	defer watcher.Stop()
	for e := range watcher.ResultChan() {
		object, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			break
		}
		if values = append(values, at(object, path)); object.GetResourceVersion() == last {
			return values
		}
	}
	c.t.Fatalf("the watch of %s has ended after %s", name, values)
	return nil
}

// shell runs a command of an administrator and returns what it prints.
func (c *cluster) shell(command string) string {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "bash", "-c", command)
	cmd.Env = append(os.Environ(), c.commandLine()...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s: %v: %s", command, err, output)
	}
	return string(output)
}

// commandLine is the environment of an administrator's commands.
func (c *cluster) commandLine() []string {
	c.t.Helper()
	kubeconfig, err := c.cp.Kubeconfig("administrator", "system:masters")
	c.do("write a kubeconfig", err)
	bin, err := controlplane.BinDir()
	c.do("find kubectl", err)
	return []string{"KUBECONFIG=" + kubeconfig, "KUBECACHEDIR=" + c.t.TempDir(), "PATH=" + bin + ":" + os.Getenv("PATH")}
}

// untilGone waits until an object is gone.
func (c *cluster) untilGone(resource schema.GroupVersionResource, name string) {
	c.t.Helper()
	c.eventually(func(context.Context) error {
		if object := c.get(resource, name); object != nil {
			return fmt.Errorf("%s %s is still there: %s", kinds[resource], name, asJSON(object))
		}
		return nil
	})
}

// at returns a value of an object as JSON; empty if it is not there. Numbers in the path are indexes of lists.
func at(object *unstructured.Unstructured, path string) string {
	if object == nil {
		return ""
	}
	var value any = object.Object
	for field := range strings.SplitSeq(path, ".") {
		switch of := value.(type) {
		case map[string]any:
			value = of[field]
		case []any:
			var i int
			if _, err := fmt.Sscan(field, &i); err != nil || i >= len(of) {
				return ""
			}
			value = of[i]
		default:
			return ""
		}
	}
	if value == nil {
		return ""
	}
	return asJSON(value)
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
