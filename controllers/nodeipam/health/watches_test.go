package health

import (
	"context"
	"strings"
	"sync/atomic"
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
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// Changes of Nodes are not seen for as long as the API server forbids it, and the health check says so for as long.
func TestWatchThatIsForbidden(t *testing.T) {
	// They sleep by the time of the last error in the process, which is not that of the bubble.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	defer func() { utilruntime.ErrorHandlers = handlers }()
	for name, tc := range map[string]struct {
		lists bool // whether what the API server answers afterwards tells the informer anything new
		after time.Duration
	}{
		"there is something new":    {true, 61 * time.Second}, // the longest back-off of a reflector
		"there is nothing to tell":  {false, unwatchedFor + 61*time.Second},
		"it is forbidden for hours": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var forbidden atomic.Bool
				forbidden.Store(true)
				refusal := apierrors.NewForbidden(v1.Resource("nodes"), "", nil)
				nodes := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
					ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
						if forbidden.Load() {
							return nil, refusal
						}
						if tc.lists {
							return &v1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil
						}
						<-ctx.Done()
						return nil, ctx.Err()
					},
					WatchFuncWithContext: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
						switch {
						case forbidden.Load():
							return nil, refusal
						case opts.SendInitialEvents != nil:
							return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil) // so it is a list
						}
						return watch.NewFake(), nil
					},
				}, fake.NewClientset()), &v1.Node{}, 0, cache.Indexers{})
				check := Health{Watches: &Watches{}}
				check.Watches.Of("Nodes", nodes)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					nodes.RunWithContext(ctx)
				}()
				defer func() {
					cancel()
					<-ended
				}()
				says := func(want bool) {
					t.Helper()
					synctest.Wait()
					err := check.Check(nil)
					if told := err != nil && strings.Contains(err.Error(), "changes of Nodes are not seen: the API server does not let this process watch them: "+ApplyRBAC); told != want {
						t.Errorf("the health check says %v; it has to tell: %t", err, want)
					}
				}
				for range 4 {
					says(true)
					time.Sleep(time.Hour)
				}
				if tc.after > 0 {
					forbidden.Store(false)
					time.Sleep(tc.after)
					says(false)
				}
			})
		})
	}
}
