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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
)

// firstAddress is the one before the first of a pool of a million.
const firstAddress = "10.128.0.0"

var (
	ipPools     = v1alpha2.GroupVersion.WithResource("inclusterippools")
	ipClaims    = v1beta2.GroupVersion.WithResource("ipaddressclaims")
	ipAddress   = v1beta2.GroupVersion.WithResource("ipaddresses")
	ipamClaims  = v1beta1.GroupVersion.WithResource("clusteripamclaims")
	deployments = v1beta1.GroupVersion.WithResource("clusterdeployments")
	poolOfAll   = map[string]any{"apiGroup": v1alpha2.GroupName, "kind": v1alpha2.KindInClusterIPPool, "name": rangeName}
)

// addresses creates IPAddressClaims as fast as the API server takes them, while a contestant serves them. Then it counts what the contestant asks in a
// minute without any change.
func addresses(ctx context.Context, who contestant, claims int) (metrics, error) {
	return withCluster(ctx, func(c *cluster) (metrics, error) {
		crds := "manifests/clusteripam/crds"
		if who.name == original { // which needs more kinds
			crds = "bin/original/crds"
		}
		if err := c.Apply(ctx, filepath.Join(c.root, crds)); err != nil {
			return nil, err
		}
		pool := object(ipPools, v1alpha2.KindInClusterIPPool, rangeName, map[string]any{"addresses": []any{firstAddress + "/12"}, "prefix": int64(12)})
		if err := c.ApplyObjects(ctx, pool); err != nil {
			return nil, err
		}
		p, err := c.start(ctx, who)
		if err != nil {
			return nil, err
		}
		if _, err := c.claims().serve(ctx, p, "warm", warmUp, creators); err != nil {
			return nil, err
		}
		got, err := c.rush(ctx, p, c.claims(), "claim", claims, creators)
		if err != nil {
			return nil, err
		}
		if got["idle-requests"], err = c.idleRequests(ctx); err != nil {
			return nil, err
		}
		return got, c.distinct(ctx, warmUp+claims)
	})
}

// claims are IPAddressClaims for the pool.
func (c *cluster) claims() objects {
	api := c.dynamic.Resource(ipClaims).Namespace(metav1.NamespaceDefault)
	return objects{
		version: func(ctx context.Context) (string, error) {
			list, err := api.List(ctx, metav1.ListOptions{Limit: 1})
			if err != nil {
				return "", err
			}
			return list.GetResourceVersion(), nil
		},
		watch: api.Watch,
		create: func(ctx context.Context, name string, _ int) error {
			_, err := api.Create(ctx, object(ipClaims, v1beta2.KindIPAddressClaim, name, map[string]any{"poolRef": poolOfAll}), metav1.CreateOptions{})
			return err
		},
		served: func(o runtime.Object) bool { return has(o, "status", "addressRef", "name") },
	}
}

// distinct returns an error if there are not so many IPAddresses, or two of them have one address.
func (c *cluster) distinct(ctx context.Context, want int) error {
	list, err := c.dynamic.Resource(ipAddress).Namespace(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	holder := map[string]string{}
	for i := range list.Items {
		o := &list.Items[i]
		address, _, _ := unstructured.NestedString(o.Object, "spec", "address")
		if other, taken := holder[address]; taken {
			return fmt.Errorf("%s and %s both have the address %s", other, o.GetName(), address)
		}
		holder[address] = o.GetName()
	}
	if len(holder) != want {
		return fmt.Errorf("there are %d IPAddresses, want %d", len(holder), want)
	}
	return nil
}

func has(o runtime.Object, path ...string) bool {
	value, ok, err := unstructured.NestedFieldNoCopy(o.(*unstructured.Unstructured).Object, path...)
	return ok && err == nil && value != "" && value != false
}

func object(r schema.GroupVersionResource, kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": r.GroupVersion().String(), "kind": kind,
		"metadata": map[string]any{"name": name, "namespace": metav1.NamespaceDefault},
		"spec":     spec,
	}}
}

// bound creates one claim after the other, with a ClusterDeployment that has waited for it, and then ClusterDeployments with the claim in them. Nothing
// else goes on, so this is how long a user waits.
func bound(ctx context.Context, who contestant, clusters int) (metrics, error) {
	return withCluster(ctx, func(c *cluster) (metrics, error) {
		if err := c.Apply(ctx, filepath.Join(c.root, "manifests/clusteripam/crds")); err != nil {
			return nil, err
		}
		p, err := c.start(ctx, who)
		if err != nil {
			return nil, err
		}
		// The first one waits for the start, too.
		if _, err := bind(ctx, c.dynamic, "warm", 0); err != nil {
			return nil, err
		}
		if err := c.settle(ctx); err != nil {
			return nil, err
		}
		waits := map[string][]time.Duration{}
		for i := range clusters {
			took, err := bind(ctx, c.dynamic, fmt.Sprintf("cluster-%d", i), i+1)
			if err != nil {
				return nil, fmt.Errorf("%w; the end of the log:\n%s", err, tail(p.LogPath()))
			}
			for what, wait := range took {
				waits[what] = append(waits[what], wait)
			}
		}
		got := metrics{}
		for what, all := range waits {
			got[what+"-p50-ms"], got[what+"-max-ms"] = milliseconds(quantile(all, .5)), milliseconds(quantile(all, 1))
		}
		got["idle-requests"], err = c.idleRequests(ctx)
		return got, err
	})
}

// bind returns how long it took from the answer to the creation of a claim until it was bound and until the gate of its ClusterDeployment was open, and
// the latter for a ClusterDeployment that has its claim in it.
func bind(ctx context.Context, client dynamic.Interface, name string, number int) (took map[string]time.Duration, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("%s waits for more than a minute", name))
	defer cancel()
	network := map[string]any{"cidr": fmt.Sprintf("10.%d.0.0/24", number), "gateway": fmt.Sprintf("10.%d.0.1", number), "prefix": int64(24)}
	claim := map[string]any{"provider": "in-cluster", "nodeNetwork": network}
	deployment := func(name string, ipamClaim map[string]any) (*unstructured.Unstructured, error) {
		spec := map[string]any{"template": "template", "credential": "credential", "config": map[string]any{"workersNumber": int64(2)}, "ipamClaim": ipamClaim}
		return client.Resource(deployments).Namespace(metav1.NamespaceDefault).Create(ctx, object(deployments, v1beta1.KindClusterDeployment, name, spec), metav1.CreateOptions{})
	}
	waiting, err := deployment(name, map[string]any{"ref": name})
	if err != nil {
		return nil, err
	}
	owned := map[string]any{"cluster": name}
	maps.Copy(owned, claim)
	created, err := client.Resource(ipamClaims).Namespace(metav1.NamespaceDefault).Create(ctx, object(ipamClaims, v1beta1.KindClusterIPAMClaim, name, owned), metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	began := time.Now()
	took = map[string]time.Duration{}
	// The gate may open before the claim is seen to be bound; a watch from where its object was shows that, too, but only later.
	gate, opened := time.Duration(0), make(chan error, 1)
	go func() {
		err := until(ctx, client, deployments, waiting, "spec", "config", "ipamEnabled")
		gate = time.Since(began)
		opened <- err
	}()
	if err := until(ctx, client, ipamClaims, created, "status", "bound"); err != nil {
		return nil, err
	}
	took["bound"] = time.Since(began)
	if err := <-opened; err != nil {
		return nil, err
	}
	took["gate"] = gate

	inline, err := deployment(name+"-inline", map[string]any{"spec": claim})
	if err != nil {
		return nil, err
	}
	began = time.Now()
	err = until(ctx, client, deployments, inline, "spec", "config", "ipamEnabled")
	took["inline"] = time.Since(began)
	return took, err
}

// until returns when an object that was just created has a field.
func until(ctx context.Context, client dynamic.Interface, r schema.GroupVersionResource, o *unstructured.Unstructured, field ...string) error {
	one := func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, o.GetName()).String()
		return client.Resource(r).Namespace(o.GetNamespace()).Watch(ctx, opts)
	}
	return follow(ctx, one, o.GetResourceVersion(), func(_ watch.EventType, o runtime.Object, _ string) bool { return has(o, field...) })
}
