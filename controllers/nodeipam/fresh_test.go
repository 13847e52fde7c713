package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	versionedfake "github.com/multicidr/controller-manager/apis/generated/clientset/versioned/fake"
	clustercidrlisters "github.com/multicidr/controller-manager/apis/generated/listers/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fresh"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/nodeipam/stored"
	"github.com/multicidr/controller-manager/controllers/queues"
)

// aheadOfStore is an informer that has read further than its lister shows, because it still enters what it has read.
type aheadOfStore struct{ coreinformers.NodeInformer }

func (i aheadOfStore) Informer() cache.SharedIndexInformer {
	return aheadOfStoreInformer{i.NodeInformer.Informer()}
}

type aheadOfStoreInformer struct{ cache.SharedIndexInformer }

func (aheadOfStoreInformer) LastSyncResourceVersion() string { return "9" }

func (aheadOfStoreInformer) GetStore() cache.Store {
	return storeAsOf5{cache.NewStore(cache.MetaNamespaceKeyFunc)}
}

type storeAsOf5 struct{ cache.Store }

func (storeAsOf5) LastStoreSyncResourceVersion() string { return "5" }

// Only what listers show counts.
func TestFreshIsWhatListersShow(t *testing.T) {
	written := Node("n")
	written.ResourceVersion = "9"
	client := fake.NewClientset(written)
	nodes := aheadOfStore{informers.NewSharedInformerFactory(client, 0).Core().V1().Nodes()}
	c, err := New(Config{Client: client, ClusterCIDRClient: versionedfake.NewClientset(), Nodes: nodes, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	if fresh.Wait(noTime, &c.health, fresh.Cache{Contents: c.nodeContents(), AsOf: "9", Version: c.nodesVersion}) {
		t.Error("the lister shows Nodes as of 5, and those of 9 are needed")
	}
	if !fresh.Wait(noTime, &c.health, fresh.Cache{Contents: c.nodeContents(), AsOf: "5", Version: c.nodesVersion}) {
		t.Error("the lister shows what is needed")
	}
}

// A cache that cannot tell how new it is, or does not soon, is compared with what exists.
func TestFreshObjectByObject(t *testing.T) {
	type versions = map[string]string
	for name, tc := range map[string]struct {
		exist, shown versions
		want         string // what it waits for; empty: nothing
	}{
		"no objects":                               {},
		"all of them":                              {versions{"a": "9", "b": "10"}, versions{"a": "9", "b": "10"}, ""},
		"one has changed since the read":           {versions{"a": "9"}, versions{"a": "21"}, ""},
		"one is new since the read":                {versions{"a": "9"}, versions{"a": "9", "b": "21"}, ""},
		"one is missing":                           {versions{"a": "9", "b": "10"}, versions{"b": "10"}, "show a as of resource version 9"},
		"one is older":                             {versions{"a": "10"}, versions{"a": "9"}, "show a as of resource version 10"},
		"one is gone":                              {versions{"a": "9"}, versions{"a": "9", "b": "10"}, "show b as of resource version 20"},
		"a version that is none is not new enough": {versions{"a": "9"}, versions{"a": "new"}, "show a as of resource version 9"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Controller{}
			all := fresh.Contents{Kind: "Nodes", Read: func(context.Context, string) (versions, string, error) { return maps.Clone(tc.exist), "20", nil }, Shown: func() (versions, error) { return tc.shown, nil }}
			for _, version := range []string{"", "19"} {
				fresh := fresh.Wait(noTime, &c.health, fresh.Cache{Contents: all, AsOf: "20", Version: func() string { return version }})
				err := c.health.Check(nil)
				if fresh != (tc.want == "") || !fresh && !strings.Contains(fmt.Sprint(err), tc.want) {
					t.Errorf("the cache tells %q: fresh is %t (%v), want %q", version, fresh, err, tc.want)
				}
			}
		})
	}
}

// A cache can be older than a ClusterCIDR that came and went before the start, and show it later. Then it does not count: its finalizer is gone, and it may
// not allocate.
func TestClusterCIDRThatCameAndWent(t *testing.T) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	lists := stored.Existing{ClusterCIDRLister: clustercidrlisters.NewClusterCIDRLister(indexer), Gone: &fresh.Gone{}}
	show := func(name, version string) {
		_ = indexer.Update(ClusterCIDR(name, Spec4("10.0.0.0/16", 8, nil), func(cc *networkingv1.ClusterCIDR) { cc.ResourceVersion = version }))
	}
	want := func(when, want string) {
		t.Helper()
		all, err := lists.List(labels.Everything())
		var names []string
		for _, cc := range all {
			names = append(names, cc.Name)
			if _, err := lists.Get(cc.Name); err != nil {
				t.Error(err)
			}
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", when, got, err, want)
		}
		for _, name := range []string{"stays", "went", "new"} {
			if _, err := lists.Get(name); (err == nil) != slices.Contains(names, name) {
				t.Errorf("%s: get %s: %v", when, name, err)
			}
		}
	}
	show("stays", "9")
	all := fresh.Contents{Kind: "ClusterCIDRs", Shown: fresh.VersionsOf(lists.List), Gone: lists.Gone, Read: func(context.Context, string) (map[string]string, string, error) {
		return map[string]string{"stays": "9"}, "20", nil
	}}
	if !fresh.WaitShown(t.Context(), &health.Health{}, all) {
		t.Fatal("not fresh")
	}
	show("went", "12")
	want("the watch tells of its creation", "stays")
	show("went", "15")
	show("stays", "17")
	want("and of its finalizer", "stays")
	show("new", "21")
	show("stays", "22")
	want("later", "new stays")
	show("went", "23")
	want("another one of the name", "new stays went")
}

// nodesWhileListed is a lister of Nodes with something that happens while they are listed.
type nodesWhileListed struct {
	corelisters.NodeLister
	nodes map[string]*v1.Node
	then  func()
}

func (l nodesWhileListed) List(labels.Selector) (all []*v1.Node, err error) {
	for _, n := range l.nodes {
		all = append(all, n)
	}
	l.then()
	return all, nil
}

func (l nodesWhileListed) Get(name string) (*v1.Node, error) { return l.nodes[name], nil }

type clusterCIDRs []*networkingv1.ClusterCIDR

func (l clusterCIDRs) List(labels.Selector) ([]*networkingv1.ClusterCIDR, error) { return l, nil }
func (l clusterCIDRs) Get(string) (*networkingv1.ClusterCIDR, error)             { return l[0], nil }

// What an event tells while the start reads the cache is in the state before the first choice.
func TestEventWhileTheStartReads(t *testing.T) {
	foreign := Node("foreign")
	foreign.Spec.PodCIDRs = []string{"10.0.0.0/24"}
	heard := make(chan struct{})
	var c *Controller
	l := nodesWhileListed{nodes: map[string]*v1.Node{"waits": Node("waits")}}
	l.then = func() {
		l.nodes["foreign"] = foreign
		started := make(chan struct{})
		go func() {
			close(started)
			c.heardOfNode("foreign", nil, foreign)
			close(heard)
		}()
		<-started
	}
	c = newController(Config{Workers: 1, PrimaryFamily: ipam.IPv4}, parts{
		now: time.Now, nodes: l, newQueue: newQueue,
		clusterCIDRs: clusterCIDRs{ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil))},
	})
	if err := c.readAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-heard
	c.with(func(b *allocator.State) {
		if r, _, ok := b.Reserve(Node("waits")); !ok || r.Blocks[0] != Pfx("10.0.1.0/24") {
			t.Errorf("reserved %v, %v; want the first block that foreign does not have", r.Blocks, ok)
		}
	})
}

// While a cache lags, or what exists cannot be read, the lists of all objects become rarer.
func TestLaggingCacheIsNotListedForEver(t *testing.T) {
	for name, err := range map[string]error{"the cache lags": nil, "the list is refused": errors.New("forbidden")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reads := 0
				all := fresh.Contents{Kind: "Nodes", Read: func(_ context.Context, name string) (map[string]string, string, error) {
					if name == "" {
						reads++
					}
					if err != nil {
						return nil, "", err
					}
					return map[string]string{"a": "9"}, "20", nil
				}, Shown: func() (map[string]string, error) { return nil, nil }}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				if fresh.WaitShown(ctx, &health.Health{}, all) {
					t.Error("a cache that shows nothing is fresh")
				}
				if most := int(10*time.Minute/queues.RetryMax) + 5; reads > most {
					t.Errorf("%d lists in ten minutes, want %d at most", reads, most)
				}
			})
		})
	}
}

// A cluster in which an object is deleted during every read of all objects: the cache, which is never more than a moment behind, is fresh all the same.
func TestFreshWhileObjectsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exist, cache, version := map[string]string{}, map[string]string{}, 0
		var mu sync.Mutex
		add := func(name string) {
			version++
			exist[name] = strconv.Itoa(version)
		}
		for i := range 100 {
			add(fmt.Sprint("n", i))
		}
		maps.Copy(cache, exist)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var changes sync.WaitGroup
		defer changes.Wait()
		defer cancel()
		changes.Go(func() { // The oldest one goes, and another one comes.
			for i := 0; ctx.Err() == nil; i++ {
				time.Sleep(time.Second)
				gone, comes := fmt.Sprint("n", i), fmt.Sprint("n", 100+i)
				mu.Lock()
				version++
				delete(exist, gone)
				add(comes)
				mu.Unlock()
				time.Sleep(5 * time.Millisecond)
				mu.Lock()
				delete(cache, gone)
				cache[comes] = exist[comes]
				mu.Unlock()
			}
		})
		all := fresh.Contents{Kind: "Nodes", Read: func(_ context.Context, name string) (map[string]string, string, error) {
			mu.Lock()
			defer mu.Unlock()
			if now, ok := exist[name]; ok {
				return map[string]string{name: now}, "", nil
			} else if name != "" {
				return nil, "", nil
			}
			read, asOf := maps.Clone(exist), strconv.Itoa(version)
			mu.Unlock()
			time.Sleep(5 * time.Second) // page by page, and all of them as of the first one
			mu.Lock()
			return read, asOf, nil
		}, Shown: func() (map[string]string, error) {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(cache), nil
		}}
		if !fresh.WaitShown(ctx, &health.Health{}, all) {
			t.Error("not fresh after a minute")
		}
	})
}

// Discovery names ServiceCIDRs, and the API server that answers does not have them: the start goes on when that stays so.
func TestServiceCIDRsThatAreNotThere(t *testing.T) {
	for name, tc := range map[string]struct {
		every int // one answer of so many is another one
		want  bool
	}{"for good": {1000, true}, "now and then": {20, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := &fake.Clientset{}
				asked := 0
				client.AddReactor("list", "servicecidrs", func(clienttesting.Action) (bool, runtime.Object, error) {
					if asked++; asked%tc.every == 0 {
						return true, &networkingapiv1.ServiceCIDRList{}, nil
					}
					return true, nil, apierrors.NewNotFound(networkingapiv1.Resource("servicecidrs"), "")
				})
				c := &Controller{client: client, synced: map[string]cache.InformerSynced{"ServiceCIDRs": func() bool { return false }}}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				if got := c.waitServiceCIDRs(ctx); got != tc.want {
					t.Errorf("it goes on: %t, want %t", got, tc.want)
				}
			})
		})
	}
}

// TestServiceCIDRsThatReadsDoNotHave: after a gap the watch is open, and reads reach an API server that does not have ServiceCIDRs.
func TestServiceCIDRsThatReadsDoNotHave(t *testing.T) {
	absent := apierrors.NewNotFound(networkingapiv1.Resource("servicecidrs"), "")
	refused := apierrors.NewForbidden(networkingapiv1.Resource("servicecidrs"), "", errors.New("no"))
	for name, tc := range map[string]struct {
		answer   func(since time.Duration) error
		from, to time.Duration // when it goes on
	}{
		"for good": {func(time.Duration) error { return absent }, health.NotServedFor, health.NotServedFor + 10*time.Second},
		"for some seconds": {func(since time.Duration) error {
			if since > 5*time.Second {
				return nil
			}
			return absent
		}, 5 * time.Second, 10 * time.Second},
		"they are refused": {func(time.Duration) error { return refused }, 5 * time.Minute, 5 * time.Minute},
		"now and then": {func(since time.Duration) error {
			if since/(20*time.Second)%2 == 0 {
				return absent
			}
			return refused
		}, 5 * time.Minute, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				c := &Controller{
					serviceCIDRs: networkinglisters.NewServiceCIDRLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})),
					reads: map[string]fresh.Read{"ServiceCIDRs": func(context.Context, string) (map[string]string, string, error) {
						if err := tc.answer(time.Since(began)); err != nil {
							return nil, "", err
						}
						return nil, "9", nil
					}},
				}
				known := c.knowServiceCIDRs(ctx)
				if took := time.Since(began); took < tc.from || took > tc.to || known != (ctx.Err() == nil) {
					t.Errorf("known: %t, after %v; want %v to %v", known, took, tc.from, tc.to)
				}
			})
		})
	}
}
