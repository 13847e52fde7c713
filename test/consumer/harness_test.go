package consumer

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/multicidr/controller-manager/test/controlplane"
)

const (
	// patience is how long something may take. It only shows on a failure.
	patience  = 2 * time.Minute
	namespace = "t"
)

// The programs that contain our controllers.
const (
	insideManager = "kube-controller-manager"
	alone         = "cluster-ipam-controller"
)

// built is where the programs of others are, with their manifests.
const built = "../../bin/consumer"

// other is a program of others.
type other struct {
	name     string
	contract string // of Cluster API with its providers; a label of the CRDs tells which version of the kind keeps it
	port     int    // where it serves its webhooks on loopback
}

var (
	claims      = ipam("v1beta2", "ipaddressclaims")
	addresses   = ipam("v1beta2", "ipaddresses")
	pools       = ipam("v1alpha2", "inclusterippools")
	globalPools = ipam("v1alpha2", "globalinclusterippools")
	clusters    = schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "clusters"}
	machines    = schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "machines"}
	deployments = schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "machinedeployments"}
	vSphereVMs  = schema.GroupVersionResource{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Resource: "vspherevms"}
)

func ipam(version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "ipam.cluster.x-k8s.io", Version: version, Resource: resource}
}

// cluster is a management cluster: a control plane, Cluster API, its vSphere provider and a vCenter.
type cluster struct {
	*testing.T
	cp      *controlplane.ControlPlane
	dynamic dynamic.Interface
	kube    kubernetes.Interface
	vCenter *vCenter
	program string
	manager *controlplane.Manager // our program; nil before start
}

// newCluster starts everything but our program, which it only gives its CRDs and permissions.
func newCluster(t *testing.T, program string) *cluster {
	t.Helper()
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	cp := controlplane.StartForTest(t, controlplane.Options{BinDir: bin})
	config := cp.AdminConfig()
	c := &cluster{
		T: t, cp: cp, dynamic: dynamic.NewForConfigOrDie(config), kube: kubernetes.NewForConfigOrDie(config),
		vCenter: startVCenter(t), program: program,
	}
	c.applyOurs()
	c.do("give permissions", cp.BindClusterIPAM(t.Context(), alone, "in-cluster-ip-pool-controller"))
	others := []*other{{name: "cluster-api", contract: "v1beta2"}, {name: "cluster-api-provider-vsphere", contract: "v1beta1"}}
	for _, o := range others {
		c.applyOther(o)
	}
	for _, o := range others {
		c.startOther(o)
	}
	// An IPAddressClaim is deleted when the machine that owns it is gone.
	if program == alone {
		cp.StartManagerForTest(t, controlplane.ManagerOptions{Args: []string{"--controllers=garbage-collector-controller,serviceaccount-token-controller"}})
	}
	c.put(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", namespace))
	return c
}

// applyOurs applies our CRDs and permissions. IPAddressClaim and IPAddress are Cluster API's own here.
func (c *cluster) applyOurs() {
	c.Helper()
	crds, err := filepath.Glob("../../manifests/clusteripam/crds/*pools.yaml")
	c.do("find our CRDs", err)
	more, err := filepath.Glob("../../manifests/clusteripam/crds/*infobloxinstances.yaml")
	c.do("find our CRDs", err)
	c.do("apply our manifests", c.cp.Apply(c.Context(), append(append(crds, more...), "../../manifests/clusteripam/rbac")...))
}

// applyOther applies the CRDs and webhook configurations of another program as its installation would, but for the addresses of its webhooks.
func (c *cluster) applyOther(o *other) {
	c.Helper()
	var err error
	o.port, err = controlplane.FreePort()
	c.do("find a port", err)
	at := fmt.Sprintf("https://127.0.0.1:%d", o.port)
	ca, err := os.ReadFile(filepath.Join(c.cp.PKIDir(), "ca.crt"))
	c.do("read the CA", err)
	files, err := filepath.Glob(filepath.Join(built, "manifests", o.name, "*.yaml"))
	c.do("find the manifests of "+o.name, err)
	if len(files) == 0 {
		c.Fatalf("%s is not built: run make consumer", o.name)
	}
	var configurations []*unstructured.Unstructured
	for _, file := range files {
		content, err := os.ReadFile(file)
		c.do("read a manifest", err)
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			object := &unstructured.Unstructured{}
			c.do("read "+file, yaml.Unmarshal([]byte(document), &object.Object))
			if object.GetKind() != "CustomResourceDefinition" {
				object.SetName(o.name + "-" + object.GetName())
				c.do("change a webhook", onLoopback(object, at, ca))
				configurations = append(configurations, object)
				continue
			}
			object.SetLabels(map[string]string{"cluster.x-k8s.io/" + o.contract: o.contract})
			c.do("change a CRD", unstructured.SetNestedMap(object.Object, map[string]any{
				"strategy": "Webhook",
				"webhook": map[string]any{
					"conversionReviewVersions": []any{"v1", "v1beta1"},
					"clientConfig":             map[string]any{"url": at + "/convert", "caBundle": base64.StdEncoding.EncodeToString(ca)},
				},
			}, "spec", "conversion"))
			c.do("apply "+file, c.cp.ApplyObjects(c.Context(), object))
		}
	}
	c.do("apply webhook configurations", c.cp.ApplyObjects(c.Context(), configurations...))
}

// onLoopback makes the URLs of webhooks of what are Services in a cluster.
func onLoopback(configuration *unstructured.Unstructured, at string, ca []byte) error {
	webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	for _, webhook := range webhooks {
		hook, ok := webhook.(map[string]any)
		if !ok {
			return errors.New("a webhook is no object")
		}
		path, _, err := unstructured.NestedString(hook, "clientConfig", "service", "path")
		if err != nil {
			return err
		}
		hook["clientConfig"] = map[string]any{"url": at + path, "caBundle": base64.StdEncoding.EncodeToString(ca)}
	}
	return errors.Join(err, unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks"))
}

// startOther starts another program and waits until it says that it is ready.
func (c *cluster) startOther(o *other) {
	c.Helper()
	dir := c.TempDir()
	certificate, key, err := c.cp.ServingCertificate(o.name)
	c.do("make a certificate", err)
	c.do("write a certificate", errors.Join(os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600), os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600)))
	kubeconfig, err := c.cp.Kubeconfig(o.name, "system:masters")
	c.do("write a kubeconfig", err)
	port, err := controlplane.FreePort()
	c.do("find a port", err)
	health := fmt.Sprintf("127.0.0.1:%d", port)
	binary, err := filepath.Abs(filepath.Join(built, o.name))
	c.do("find "+o.name, err)
	process, err := controlplane.StartProcess(o.name, filepath.Join(c.cp.LogDir(), o.name+".log"), binary,
		"--kubeconfig="+kubeconfig, "--leader-elect=false", "--diagnostics-address=0", "--health-addr="+health,
		"--webhook-cert-dir="+dir, fmt.Sprintf("--webhook-port=%d", o.port))
	c.do("start "+o.name, err)
	c.Cleanup(func() {
		if err := process.Stop(); err != nil {
			c.Errorf("stop %s: %v", o.name, err)
		}
	})
	c.eventually(func(ctx context.Context) error {
		select {
		case <-process.Done():
			log, _ := process.Log()
			c.Fatalf("%s has ended: %s", o.name, log[max(0, len(log)-4000):])
		default:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+health+"/readyz", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err == nil && answer.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s is not ready: %s %s", o.name, answer.Status, body)
		}
		return err
	})
}

// start starts our program.
func (c *cluster) start() {
	c.Helper()
	opts := controlplane.ManagerOptions{Name: "ours", Binary: c.program, Args: []string{
		"--controllers=in-cluster-ip-pool-controller,garbage-collector-controller,serviceaccount-token-controller",
	}}
	if c.program == alone {
		opts.Alone, opts.User, opts.Args = true, alone, []string{"--controllers=in-cluster-ip-pool-controller"}
	}
	c.manager = c.cp.StartManagerForTest(c.T, opts)
}

// kill ends our program like a crash of its machine, and frees its Lease so that the next one need not wait.
func (c *cluster) kill() {
	c.Helper()
	c.do("kill our program", c.manager.Kill())
	c.do("delete the Lease", c.kube.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(c.Context(), c.program, metav1.DeleteOptions{}))
}

func (c *cluster) do(what string, err error) {
	c.Helper()
	if err != nil {
		c.Fatalf("%s: %v", what, err)
	}
}

func (c *cluster) eventually(condition func(context.Context) error) {
	c.Helper()
	if err := controlplane.Eventually(c.Context(), patience, condition); err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) of(r schema.GroupVersionResource) dynamic.ResourceInterface {
	if r == globalPools {
		return c.dynamic.Resource(r)
	}
	return c.dynamic.Resource(r).Namespace(namespace)
}

// put applies an object, as YAML.
func (c *cluster) put(text string) {
	c.Helper()
	object := &unstructured.Unstructured{}
	c.do("read "+text, yaml.UnmarshalStrict([]byte(text), &object.Object))
	switch object.GetKind() {
	case "Namespace", "GlobalInClusterIPPool":
	default:
		object.SetNamespace(namespace)
	}
	c.do("apply "+text, c.cp.ApplyObjects(c.Context(), object))
}

// list reads the objects of a kind into structs.
func list[T any](ctx context.Context, c *cluster, r schema.GroupVersionResource) ([]T, error) {
	found, err := c.of(r).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := make([]T, len(found.Items))
	for i, o := range found.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &all[i]); err != nil {
			return nil, fmt.Errorf("read %s: %w", o.GetName(), err)
		}
	}
	return all, nil
}
