package seen

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
)

// kinds are two kinds of objects with what their informers do, and a log of what is done about gaps.
type kinds struct {
	t       *testing.T
	changes map[string]*health.Changes
	log     []string
	reads   chan bool // each read takes until it is sent to
}

func (k *kinds) breaks(kind string) {
	k.fails(kind, apierrors.NewForbidden(schema.GroupResource{}, "", nil))
}

func (k *kinds) lacks(kind string) { k.fails(kind, apierrors.NewNotFound(schema.GroupResource{}, "")) }

func (k *kinds) fails(kind string, err error) {
	_, _ = health.Listed(k.t.Context(), k.changes[kind], metav1.ListOptions{}, func(context.Context, metav1.ListOptions) (*v1.NodeList, error) {
		return nil, err
	})
	synctest.Wait()
}

func (k *kinds) opens(kind string) {
	w := watch.NewFake()
	got, err := k.changes[kind].Watched(k.t.Context(), metav1.ListOptions{}, func(context.Context, metav1.ListOptions) (watch.Interface, error) { return w, nil })
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(got.Stop)
	synctest.Wait()
}

// read lets the read that goes on end.
func (k *kinds) read() {
	k.reads <- true
	synctest.Wait()
}

// TestRun: each kind that had a gap is read when its watch is open, and again if that one breaks off meanwhile. It stays known whatever the other
// kind does.
func TestRun(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(k *kinds)
		want    string
		missed  string // part of it; "": nothing
	}{
		"nothing": {func(*kinds) {}, "", ""},
		"one kind has a gap": {func(k *kinds) {
			k.breaks("a")
		}, "", "changes of a are not seen: the API server does not let"},
		"its watch is open again": {func(k *kinds) {
			k.breaks("a")
			k.opens("a")
		}, "reads a", "changes of a were not seen"},
		"and it was read": {func(k *kinds) {
			k.breaks("a")
			k.opens("a")
			k.read()
		}, "reads a, knows a, all", ""},
		"one is back before the other": {func(k *kinds) {
			k.breaks("a")
			k.breaks("b")
			k.opens("a")
		}, "reads a", "changes of a were not seen, and the controller has not read all a since then; changes of b are not seen"},
		"and it is known before the other is back": {func(k *kinds) {
			k.breaks("a")
			k.breaks("b")
			k.opens("a")
			k.read()
		}, "reads a, knows a", "changes of b are not seen"},
		"both are back": {func(k *kinds) {
			k.breaks("a")
			k.breaks("b")
			k.opens("b")
			k.opens("a")
			k.read()
			k.read()
		}, "reads b, knows b, reads a, knows a, all", ""},
		"one breaks off while the other is read": {func(k *kinds) {
			k.breaks("a")
			k.opens("a")
			for range 3 {
				k.breaks("b")
				k.opens("b")
			}
			k.read()
			k.read()
		}, "reads a, knows a, reads b, knows b, all", ""},
		"the same one breaks off while it is read": {func(k *kinds) {
			k.breaks("a")
			k.opens("a")
			k.breaks("a")
		}, "reads a, gives up a", "changes of a are not seen"},
		"there are none of a kind": {func(k *kinds) {
			for range 2 {
				k.breaks("ServiceCIDRs")
				k.lacks("ServiceCIDRs")
				time.Sleep(health.NotServedFor)
				synctest.Wait()
			}
		}, "all, all", ""},
		"two gaps": {func(k *kinds) {
			for range 2 {
				k.breaks("a")
				k.opens("a")
				k.read()
			}
		}, "reads a, knows a, all, reads a, knows a, all", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &kinds{t: t, changes: map[string]*health.Changes{}, reads: make(chan bool)}
				var all []Kind
				for _, kind := range []string{"a", "b", "ServiceCIDRs"} {
					k.changes[kind] = health.NewChanges(kind, nil)
					all = append(all, Kind{k.changes[kind].Gap, func(ctx context.Context) bool {
						k.log = append(k.log, "reads "+kind)
						select {
						case <-k.reads:
							k.log = append(k.log, "knows "+kind)
							return true
						case <-ctx.Done():
							k.log = append(k.log, "gives up "+kind)
							return false
						}
					}})
				}
				seen := New(all...)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan bool)
				go func() {
					defer close(ended)
					seen.Run(ctx, func() { k.log = append(k.log, "all") })
				}()
				synctest.Wait()
				k.log = nil // At the start nothing is missed.
				tc.happens(k)
				if got := seen.MissedFor(time.Second); got != "" {
					t.Errorf("missed for a second, at once: %q", got)
				}
				time.Sleep(time.Second)
				if got := seen.MissedFor(time.Second); got != seen.Missed() {
					t.Errorf("missed for a second: %q, and missed: %q", got, seen.Missed())
				}
				if got := strings.Join(k.log, ", "); got != tc.want {
					t.Errorf("%s; want %s", got, tc.want)
				}
				if got := seen.Missed(); !strings.HasPrefix(got, tc.missed) || tc.missed == "" && got != "" {
					t.Errorf("missed: %q, want %q", got, tc.missed)
				}
				cancel()
				<-ended
				time.Sleep(10 * time.Second) // until all timers are over
			})
		})
	}
}
