package health

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/multicidr/controller-manager/test/said"
)

// nodes is an API server with Nodes that answers with an error where one is set.
type nodes struct {
	mu          sync.Mutex // of list and watch
	list, watch error
	version     int // goes up with each list
	watches     chan *watch.FakeWatcher
}

// listsFirst is a client that cannot begin a watch with a list.
type listsFirst struct{}

func (listsFirst) IsWatchListSemanticsUnSupported() bool { return true }

func (n *nodes) answers() (list, watch error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.list, n.watch
}

// works ends all errors.
func (n *nodes) works() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list, n.watch = nil, nil
}

// informer runs an informer of these Nodes, which are followed as objects of a kind.
func (n *nodes) informer(t *testing.T, w *Watches, kind string) {
	t.Helper()
	n.watches = make(chan *watch.FakeWatcher, 1)
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			n.version++
			list, _ := n.answers()
			return &v1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(n.version)}}, list
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			if _, refused := n.answers(); refused != nil {
				return nil, refused
			}
			f := watch.NewFake()
			n.watches <- f
			return f, nil
		},
	}, listsFirst{}), &v1.Node{}, 0, nil)
	if err := w.Follow(kind, informer); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); informer.RunWithContext(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	synctest.Wait()
	if err := w.Follow(kind, informer); err == nil {
		t.Error("an informer that was started is followed")
	}
}

func TestWatches(t *testing.T) {
	// They sleep until a moment after the last error, which was in another bubble.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	defer func() { utilruntime.ErrorHandlers = handlers }()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))
	said := func(h *Health) string {
		if err := h.Check(nil); err != nil {
			return err.Error()
		}
		return ""
	}
	t.Run("a watch that is refused, also where lists are not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := &nodes{watch: forbidden}
			w := &Watches{}
			h := New(w)
			n.informer(t, w, "Nodes")
			time.Sleep(25 * time.Second)
			for range 20 { // It is a problem all the time, whenever the informer tries again.
				time.Sleep(7 * time.Second)
				if got := said(h); !strings.Contains(got, "changes of Nodes are not seen: the API server does not let this process watch them: run helm upgrade") {
					t.Fatalf("it says %q", got)
				}
			}
			n.works()
			f := <-n.watches
			f.Modify(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1000"}})
			synctest.Wait()
			if got := said(h); got != "" {
				t.Errorf("it says %q when the watch works", got)
			}
		})
	})
	t.Run("an API server that restarts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := &nodes{list: errors.New("connection reset by peer")}
			w := &Watches{}
			h := New(w)
			n.informer(t, w, "Nodes")
			for i := range 200 {
				if i == 5 {
					n.works()
				}
				if got := said(h); got != "" {
					t.Fatalf("it says %q after %d s", got, i)
				}
				time.Sleep(time.Second)
			}
		})
	})
	t.Run("ServiceCIDRs that the API server does not have, has, and has no more", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := &nodes{list: apierrors.NewNotFound(schema.GroupResource{Resource: "servicecidrs"}, "")}
			w := &Watches{}
			h := New(w)
			n.informer(t, w, "ServiceCIDRs")
			time.Sleep(2 * time.Minute)
			if got := said(h); got != "" {
				t.Errorf("it says %q before an API server of v1.32", got)
			}
			missing := n.list
			n.works()
			f := <-n.watches
			n.mu.Lock()
			n.list, n.watch = missing, missing
			n.mu.Unlock()
			f.Stop()
			time.Sleep(2 * time.Minute)
			if got := said(h); !strings.Contains(got, "changes of ServiceCIDRs are not seen: the API server does not have them") {
				t.Errorf("it says %q", got)
			}
		})
	})
	t.Run("lists that fail until they do not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := &nodes{list: apierrors.NewServiceUnavailable("etcd")}
			w := &Watches{}
			h := New(w)
			n.informer(t, w, "Nodes")
			time.Sleep(2 * time.Minute)
			if got := said(h); !strings.Contains(got, "the API server fails, or a proxy before it") || !strings.Contains(got, ", since 2000-01-01T00:00:00Z") {
				t.Errorf("it says %q", got)
			}
			n.works()
			<-n.watches
			synctest.Wait()
			if got := said(h); got != "" {
				t.Errorf("it says %q after a list", got)
			}
		})
	})
}

func TestReadProblem(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	for name, tc := range map[string]struct {
		kind string
		err  error
	}{
		"no CRD":                   {"ClusterCIDRs", apierrors.NewNotFound(nodes, "")},
		"no permission for it":     {"ClusterCIDRs", apierrors.NewForbidden(nodes, "", nil)},
		"no permission for Nodes":  {"Nodes", apierrors.NewForbidden(nodes, "", nil)},
		"no ServiceCIDRs":          {"ServiceCIDRs", apierrors.NewNotFound(nodes, "")},
		"overload":                 {"Nodes", apierrors.NewTooManyRequests("busy", 1)},
		"a proxy":                  {"Nodes", apierrors.NewGenericServerResponse(http.StatusBadGateway, "GET", nodes, "", "<html>", 0, true)},
		"watches that end at once": {"Nodes", &cache.VeryShortWatchError{Name: "n"}},
		"the network":              {"Nodes", errors.New("no route to host")},
	} {
		t.Run(name, func(t *testing.T) {
			said.Check(t, ReadProblem(tc.kind, tc.err).What)
		})
	}
}
