package health

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

var (
	forbidden  = apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	notFound   = apierrors.NewNotFound(schema.GroupResource{}, "")
	expired    = apierrors.NewResourceExpired("too old")
	unreached  = &url.Error{Op: "Get", URL: "https://api.test", Err: syscall.ECONNREFUSED}
	overloaded = apierrors.NewTooManyRequestsError("no")
	fails      = apierrors.NewInternalError(errors.New("etcd"))
	tooLarge   = &apierrors.StatusError{ErrStatus: metav1.Status{Code: 504, Reason: metav1.StatusReasonTimeout, Details: &metav1.StatusDetails{
		Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}}}}
)

// informer does what an informer does with one kind of object.
type informer struct {
	*testing.T
	*Changes
	watch *watch.FakeWatcher // the last one
	got   watch.Interface
}

func (i *informer) list(err error) {
	_, _ = Listed(i.Context(), i.Changes, metav1.ListOptions{}, func(context.Context, metav1.ListOptions) (*v1.NodeList, error) { return &v1.NodeList{}, err })
}

func (i *informer) watches(lists bool) { i.watchesAfter(0, lists) }

// watchesAfter begins a watch of five minutes, and reads it once it is open.
func (i *informer) watchesAfter(d time.Duration, lists bool) {
	lasts := int64(300)
	i.watch = watch.NewFake()
	i.got, _ = i.Watched(i.Context(), metav1.ListOptions{SendInitialEvents: &lists, TimeoutSeconds: &lasts}, func(context.Context, metav1.ListOptions) (watch.Interface, error) {
		time.Sleep(d)
		return i.watch, nil
	})
	go func(events <-chan watch.Event) {
		for range events {
		}
	}(i.got.ResultChan())
}

// TestGaps: from a failing read or the end of a watch that should go on, until a watch is open.
func TestGaps(t *testing.T) {
	for name, tc := range map[string]struct {
		kind    string
		happens func(i *informer)
		want    Gap
	}{
		"a watch is open":                   {happens: func(i *informer) { i.watches(false) }},
		"a list fails":                      {happens: func(i *informer) { i.list(forbidden) }, want: Gap{Count: 1, Open: true}},
		"a list fails, and then works":      {happens: func(i *informer) { i.list(forbidden); i.list(nil) }, want: Gap{Count: 1, Open: true}},
		"a list fails, and a watch is open": {happens: func(i *informer) { i.list(forbidden); i.list(forbidden); i.watches(false) }, want: Gap{Count: 1}},
		"a watch ends when it has to": {happens: func(i *informer) {
			i.watches(false)
			time.Sleep(5 * time.Minute)
			i.watch.Stop()
		}},
		"a watch ends early": {happens: func(i *informer) {
			i.watches(false)
			time.Sleep(4 * time.Minute)
			i.watch.Stop()
		}, want: Gap{Count: 1, Open: true}},
		"a watch breaks off when it has worked": {happens: func(i *informer) {
			i.watches(false)
			i.watch.Add(&v1.Node{})
			i.watch.Error(&expired.ErrStatus)
		}, want: Gap{Count: 1, Open: true}},
		"two gaps": {happens: func(i *informer) {
			for range 2 {
				i.watches(false)
				i.watch.Stop()
				synctest.Wait()
			}
			i.watches(false)
		}, want: Gap{Count: 2}},
		"a watch is open in time":   {happens: func(i *informer) { i.watchesAfter(opening-1, false) }},
		"a watch is not open yet":   {happens: func(i *informer) { go i.watchesAfter(2*opening, false); time.Sleep(3 * opening / 2) }, want: Gap{Count: 1, Open: true}},
		"a watch is open late":      {happens: func(i *informer) { i.watchesAfter(2*opening, false) }, want: Gap{Count: 1}},
		"the informer ends a watch": {happens: func(i *informer) { i.watches(false); time.Sleep(2 * open); i.got.Stop() }},
		"a watch lists":             {happens: func(i *informer) { i.list(expired); i.watches(true); i.watch.Add(&v1.Node{}) }, want: Gap{Count: 1, Open: true}},
		"a watch has listed": {happens: func(i *informer) {
			i.list(expired)
			i.watches(true)
			i.watch.Action(watch.Bookmark, &v1.Node{})
		}, want: Gap{Count: 1}},
		"there are no ServiceCIDRs":              {kind: "ServiceCIDRs", happens: func(i *informer) { i.list(notFound); time.Sleep(29 * time.Second) }, want: Gap{Count: 1, Open: true}},
		"there have been none for half a minute": {kind: "ServiceCIDRs", happens: func(i *informer) { i.list(notFound); time.Sleep(31 * time.Second) }, want: Gap{Count: 1, Open: true, Absent: true}},
		"some API servers have them": {kind: "ServiceCIDRs", happens: func(i *informer) {
			i.list(notFound)
			time.Sleep(20 * time.Second)
			i.list(forbidden)
			i.list(notFound)
			time.Sleep(20 * time.Second)
		}, want: Gap{Count: 1, Open: true}},
		"there were none, and are": {kind: "ServiceCIDRs", happens: func(i *informer) { i.list(notFound); time.Sleep(time.Minute); i.watches(false) }, want: Gap{Count: 1}},
		"there are no Nodes":       {kind: "Nodes", happens: func(i *informer) { i.list(notFound); time.Sleep(time.Minute) }, want: Gap{Count: 1, Open: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := &informer{T: t, Changes: &Changes{kind: tc.kind, gap: gap{optional: tc.kind == optionalKind}}}
				before := i.Gap()
				tc.happens(i)
				synctest.Wait()
				got := i.Gap()
				if told := before.Until.Err() != nil; told != (tc.want.Count > 0) {
					t.Errorf("a change was told: %t", told)
				}
				if got.Count != tc.want.Count || got.Open != tc.want.Open || got.Absent != tc.want.Absent {
					t.Errorf("got %+v, want %+v", got, tc.want)
				}
				if i.watch != nil {
					time.Sleep(2 * opening) // until it is open
					synctest.Wait()
					i.got.Stop()
				}
				time.Sleep(unanswered) // until all timers are over
			})
		})
	}
}

// TestAgain: what may be over in a moment is repeated, at least every one and a half seconds, and nothing else.
func TestAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		err     error
		repeats bool
	}{
		"the API server cannot be reached":   {unreached, true},
		"the API server fails":               {fails, true},
		"the API server turns requests away": {overloaded, true},
		"forbidden":                          {forbidden, false},
		"not found":                          {notFound, false},
		"expired":                            {expired, false},
		"a version that is too large":        {tooLarge, false},
		"an answer that is no API's":         {errors.New("couldn't get version/kind"), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, calls, began, last := &Changes{}, 0, time.Now(), time.Now()
				_, err := Listed(t.Context(), c, metav1.ListOptions{}, func(context.Context, metav1.ListOptions) (*v1.NodeList, error) {
					calls++
					if pause := time.Since(last); pause > 3*lastPause/2 {
						t.Errorf("a pause of %v", pause)
					}
					if last = time.Now(); time.Since(began) < time.Minute {
						return nil, tc.err
					}
					return nil, nil
				})
				if repeats := err == nil; repeats != tc.repeats || !repeats && calls != 1 || calls > 75 {
					t.Errorf("%d calls, and then %v", calls, err)
				}
			})
		})
	}
}

// TestBackSoon: after an outage of minutes the watches of all kinds are open again within two seconds, and not within half a minute, each in its own time.
// An API server, or a proxy before it, fails every watch that begins with a list, and serves lists.
func TestListInPlaceOfAWatch(t *testing.T) {
	watching(t, func(t *testing.T, s *apiServer, check *Health, _ func()) {
		var mu sync.Mutex
		asked := map[string]bool{}
		s.becomes(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			first := !asked[r.URL.Path]
			asked[r.URL.Path] = true
			mu.Unlock()
			switch {
			case watches(r) && first:
				errorEvent(w, http.StatusGone, "Expired")
			case r.URL.Query().Get("sendInitialEvents") == "true":
				says(http.StatusInternalServerError, "InternalError", "no list")(w, r)
			default:
				s.works(w, r)
			}
		})
		time.Sleep(10 * time.Second)
		for _, kind := range []string{"Nodes", "ServiceCIDRs"} {
			if gap := check.Watches.Of(kind).Gap(); gap.Open || gap.Count == 0 {
				t.Errorf("%s: %+v, and lists work", kind, gap)
			}
		}
	})
}

func TestBackSoon(t *testing.T) {
	watching(t, func(t *testing.T, s *apiServer, check *Health, _ func()) {
		for range 3 {
			s.becomes(nil)
			time.Sleep(5 * time.Minute)
			s.becomes(s.works)
			time.Sleep(2 * time.Second)
			for _, kind := range []string{"Nodes", "ServiceCIDRs"} {
				if gap := check.Watches.Of(kind).Gap(); gap.Open || gap.Count == 0 {
					t.Errorf("%s: %+v two seconds after the API server is back", kind, gap)
				}
			}
		}
	})
}

// TestLostAnswer: a read whose answer is lost is given up, so that the informer reads again.
func TestLostAnswer(t *testing.T) {
	for name, read := range map[string]func(ctx context.Context, c *Changes) error{
		"list": func(ctx context.Context, c *Changes) error {
			_, err := Listed(ctx, c, metav1.ListOptions{}, func(ctx context.Context, _ metav1.ListOptions) (*v1.NodeList, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
			return err
		},
		"watch": func(ctx context.Context, c *Changes) error {
			_, err := c.Watched(ctx, metav1.ListOptions{}, func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*unanswered)
				defer cancel()
				if err := read(ctx, &Changes{}); err == nil || ctx.Err() != nil {
					t.Errorf("the read ends with %v, and its informer is stopped: %v", err, ctx.Err())
				}
			})
		})
	}
}
