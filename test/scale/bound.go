package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/test/controlplane"
	"github.com/multicidr/controller-manager/test/results"
)

var (
	ipamClaims  = v1beta1.GroupVersion.WithResource("clusteripamclaims")
	deployments = v1beta1.GroupVersion.WithResource("clusterdeployments")
	binders     = []contestant{
		{name: ours, binary: "cluster-ipam-controller", args: []string{"--controllers=cluster-ipam-controller,cluster-deployment-ipam-controller,in-cluster-ip-pool-controller"}},
	}
)

// boundWait is how long one cluster may take.
const boundWait = time.Minute

// bound creates one claim after the other, with a ClusterDeployment that has waited for it, and then ClusterDeployments with the claim in them.
// Nothing else goes on, so this is how long a user waits.
func (s *scale) bound(ctx context.Context, who contestant, clusters int) (sample, error) {
	got := sample{values: map[string]float64{}}
	err := withCluster(ctx, false, func(c *cluster) error {
		root, err := controlplane.ModuleRoot()
		if err != nil {
			return err
		}
		if err := c.Apply(ctx, filepath.Join(root, "manifests/clusteripam/crds")); err != nil {
			return err
		}
		kubeconfig, err := c.Kubeconfig("cluster-ipam", "system:masters")
		if err != nil {
			return err
		}
		client, err := dynamic.NewForConfig(c.AdminConfig())
		if err != nil {
			return err
		}
		runner, err := c.startAlone(ctx, who, kubeconfig)
		if err != nil {
			return err
		}
		// The first one waits for the start, too.
		if _, err := bind(ctx, client, "warm", 0); err != nil {
			return err
		}
		if err := c.settle(ctx); err != nil {
			return err
		}
		waits := map[string][]time.Duration{}
		for i := range clusters {
			took, err := bind(ctx, client, fmt.Sprintf("cluster-%d", i), i+1)
			if err != nil {
				return fmt.Errorf("%w; the end of the log:\n%s", err, tail(runner.LogPath()))
			}
			for what, wait := range took {
				waits[what] = append(waits[what], wait)
			}
		}
		for what, all := range waits {
			got.values[what+"-p50-ms"], got.values[what+"-max-ms"] = milliseconds(quantile(all, .5)), milliseconds(quantile(all, 1))
		}
		return c.idleRequests(ctx, got.values)
	})
	return got, err
}

// bind returns how long it took from the answer to the creation of a claim until it was bound and until the gate of its ClusterDeployment was
// open, and the latter for a ClusterDeployment that has its claim in it.
func bind(ctx context.Context, client dynamic.Interface, name string, number int) (took map[string]time.Duration, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, boundWait, fmt.Errorf("%s waits for more than %s", name, boundWait))
	defer cancel()
	network := map[string]any{"cidr": fmt.Sprintf("10.%d.0.0/24", number), "gateway": fmt.Sprintf("10.%d.0.1", number), "prefix": int64(24)}
	claim := map[string]any{"provider": "in-cluster", "nodeNetwork": network}
	deployment := func(ipamClaim map[string]any) map[string]any {
		return map[string]any{"template": "template", "credential": "credential", "config": map[string]any{"workersNumber": int64(2)}, "ipamClaim": ipamClaim}
	}
	create := func(r schema.GroupVersionResource, kind, name string, spec map[string]any) (*unstructured.Unstructured, error) {
		return client.Resource(r).Namespace(metav1.NamespaceDefault).Create(ctx, object(r, kind, name, spec), metav1.CreateOptions{})
	}
	waiting, err := create(deployments, v1beta1.KindClusterDeployment, name, deployment(map[string]any{"ref": name}))
	if err != nil {
		return nil, err
	}
	owned := map[string]any{"cluster": name}
	maps.Copy(owned, claim)
	created, err := create(ipamClaims, v1beta1.KindClusterIPAMClaim, name, owned)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	took = map[string]time.Duration{}
	var open time.Duration
	opened := make(chan error, 1)
	go func() { // at the same time, for the gate may open before the claim is seen to be bound
		err := until(ctx, client, deployments, waiting, func(o *unstructured.Unstructured) bool { return has(o, "spec", "config", "ipamEnabled") })
		open = time.Since(began)
		opened <- err
	}()
	if err := until(ctx, client, ipamClaims, created, func(o *unstructured.Unstructured) bool { return has(o, "status", "bound") }); err != nil {
		return nil, err
	}
	took["bound"] = time.Since(began)
	if err := <-opened; err != nil {
		return nil, err
	}
	took["gate"] = open

	inline, err := create(deployments, v1beta1.KindClusterDeployment, name+"-inline", deployment(map[string]any{"spec": claim}))
	if err != nil {
		return nil, err
	}
	began = time.Now()
	err = until(ctx, client, deployments, inline, func(o *unstructured.Unstructured) bool { return has(o, "spec", "config", "ipamEnabled") })
	took["inline"] = time.Since(began)
	return took, err
}

// until returns when an object that was just created is as wanted.
func until(ctx context.Context, client dynamic.Interface, r schema.GroupVersionResource, o *unstructured.Unstructured, wanted func(*unstructured.Unstructured) bool) error {
	one := named{client.Resource(r).Namespace(o.GetNamespace()), o.GetName()}
	return followObjects(ctx, one, o.GetResourceVersion(), wanted)
}

// named is a resource of which only one object is watched.
type named struct {
	dynamic.ResourceInterface
	name string
}

func (n named) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, n.name).String()
	return n.ResourceInterface.Watch(ctx, opts)
}

var boundColumns = []column{
	{"claim to bound, p50 ms", "bound-p50-ms"}, {"max ms", "bound-max-ms"}, {"claim to open gate, p50 ms", "gate-p50-ms"}, {"max ms", "gate-max-ms"},
	{"claim inside to open gate, p50 ms", "inline-p50-ms"}, {"max ms", "inline-max-ms"}, {"requests in an idle minute", "idle-requests"},
}

// boundMarks holds the slowest cluster against the limits that were set.
func boundMarks(clusters int, round map[string]sample) []results.Mark {
	we := round[ours].values
	if we == nil {
		return nil
	}
	name := func(text string) string { return fmt.Sprintf("%d clusters: %s", clusters, text) }
	return []results.Mark{
		results.AtMost(name("ours, from claim to bound"), "ms", 1000, we["bound-max-ms"]),
		results.AtMost(name("ours, from claim to open gate"), "ms", 1000, we["gate-max-ms"]),
		results.AtMost(name("ours, from claim inside to open gate"), "ms", 1000, we["inline-max-ms"]),
		results.AtMost(name(fmt.Sprintf("ours, requests in %s without a change", idleTime)), "requests", 0, we["idle-requests"]),
	}
}
