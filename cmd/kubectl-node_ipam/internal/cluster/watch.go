package cluster

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/stored"
)

// Watch keeps objects as they are now.
type Watch struct {
	// Missing are kinds that may not be read, or that the API server does not have.
	Missing []Missing

	nodes, clusterCIDRs, serviceCIDRs cache.Store // nil if they are missing
	leases                            map[leasesOf]cache.Store
	allocations                       atomic.Int64
	changed                           atomic.Bool
	mu                                sync.Mutex
	problem                           error // of the last watch that failed
}

// Watch starts to watch all kinds until ctx is done. It returns when their caches are filled.
func (r *Reader) Watch(ctx context.Context) (*Watch, error) {
	w := &Watch{leases: map[leasesOf]cache.Store{}}
	kube := informers.NewSharedInformerFactory(r.Kube, 0)
	resource := networkingv1.SchemeGroupVersion.WithResource("clustercidrs")
	var synced []cache.InformerSynced
	for _, kind := range []struct {
		name     string
		means    string
		list     func(metav1.ListOptions) error
		informer cache.SharedIndexInformer
		trim     cache.TransformFunc
		into     *cache.Store
	}{
		{Nodes, "which blocks are free, and which Nodes are pending, is not known",
			func(opts metav1.ListOptions) error { _, err := r.Kube.CoreV1().Nodes().List(ctx, opts); return err },
			kube.Core().V1().Nodes().Informer(), trimmed, &w.nodes},
		{ClusterCIDRs, "nothing can be said about ranges",
			func(opts metav1.ListOptions) error {
				_, err := stored.ClusterCIDRs(r.Dynamic).List(ctx, opts)
				return err
			},
			dynamicinformer.NewDynamicSharedInformerFactory(r.Dynamic, 0).ForResource(resource).Informer(), nil, &w.clusterCIDRs},
		{ServiceCIDRs, "blocks in service ranges count as free",
			func(opts metav1.ListOptions) error {
				_, err := r.Kube.NetworkingV1().ServiceCIDRs().List(ctx, opts)
				return err
			},
			kube.Networking().V1().ServiceCIDRs().Informer(), nil, &w.serviceCIDRs},
	} {
		// A watch would try for ever to read what is forbidden.
		switch err := kind.list(metav1.ListOptions{Limit: 1}); {
		case apierrors.IsForbidden(err):
			w.Missing = append(w.Missing, Missing{kind.name, Forbidden, kind.means})
			continue
		case apierrors.IsNotFound(err):
			w.Missing = append(w.Missing, Missing{kind.name, NotServed, kind.means})
			continue
		case err != nil:
			return nil, fmt.Errorf("list %s: %w", kind.name, err)
		}
		if err := w.start(ctx, kind.informer, kind.trim); err != nil {
			return nil, err
		}
		*kind.into = kind.informer.GetStore()
		synced = append(synced, kind.informer.HasSynced)
	}
	for _, of := range leaderLeases {
		if _, err := r.Kube.CoordinationV1().Leases(of.namespace).List(ctx, metav1.ListOptions{Limit: 1}); apierrors.IsForbidden(err) {
			w.Missing = append(w.Missing, Missing{Leases, Forbidden, whoLeads})
			break
		}
		informer := informers.NewSharedInformerFactoryWithOptions(r.Kube, 0, informers.WithNamespace(of.namespace), informers.WithTweakListOptions(of.tweak)).Coordination().V1().Leases().Informer()
		if err := w.start(ctx, informer, nil); err != nil {
			return nil, err
		}
		w.leases[of] = informer.GetStore()
		synced = append(synced, informer.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil, context.Cause(ctx)
	}
	return w, nil
}

// start starts an informer.
func (w *Watch) start(ctx context.Context, informer cache.SharedIndexInformer, trim cache.TransformFunc) error {
	if trim != nil {
		if err := informer.SetTransform(trim); err != nil {
			return err
		}
	}
	if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { w.fail(err) }); err != nil {
		return err
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(now any, first bool) {
			if !first {
				w.count(nil, now)
			}
			w.changed.Store(true)
		},
		UpdateFunc: func(before, now any) { w.count(before, now); w.changed.Store(true) },
		DeleteFunc: func(any) { w.changed.Store(true) },
	})
	go informer.RunWithContext(ctx)
	return err
}

// count counts Nodes that got podCIDRs.
func (w *Watch) count(before, now any) {
	w.fail(nil)
	old, _ := before.(*corev1.Node)
	if node, ok := now.(*corev1.Node); ok && clustercidr.ShowsPodCIDRs(node) && (old == nil || old.UID != node.UID || !clustercidr.ShowsPodCIDRs(old)) {
		w.allocations.Add(1)
	}
}

func (w *Watch) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problem = err
}

// Problem is why the last watch that ended has ended, until another event comes.
func (w *Watch) Problem() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.problem
}

// Allocations is how many Nodes got podCIDRs since the start.
func (w *Watch) Allocations() int64 { return w.allocations.Load() }

// Changed reports whether something has changed since the last call.
func (w *Watch) Changed() bool { return w.changed.Swap(false) }

// Objects returns the objects as they are now.
func (w *Watch) Objects() (o Objects) {
	o.Missing = w.Missing
	o.Nodes = all[*corev1.Node](w.nodes)
	o.ServiceCIDRs = all[*networkingapiv1.ServiceCIDR](w.serviceCIDRs)
	for _, u := range all[*unstructured.Unstructured](w.clusterCIDRs) {
		o.ClusterCIDRs = append(o.ClusterCIDRs, stored.Decode(u))
	}
	return o
}

// Leaders returns the holders of Leases.
func (w *Watch) Leaders(nodes []*corev1.Node, now time.Time) (leaders []Leader) {
	wrote := writers(nodes)
	for _, of := range leaderLeases {
		for _, l := range all[*coordinationv1.Lease](w.leases[of]) {
			leaders = appendLeader(leaders, l, of.name, wrote, now)
		}
	}
	sortLeaders(leaders)
	return leaders
}

func all[T any](store cache.Store) (objects []T) {
	if store == nil {
		return nil
	}
	for _, object := range store.List() {
		objects = append(objects, object.(T))
	}
	return objects
}

// trimmed is trim for an informer, which compares resource versions.
func trimmed(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	small := trim(node)
	small.ResourceVersion = node.ResourceVersion
	return small, nil
}
