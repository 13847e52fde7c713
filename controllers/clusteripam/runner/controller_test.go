package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// story is a controller, the API server that it works with, and what its Logics do.
type story struct {
	t      *testing.T
	server *server
	fence  *lease.Fence
	c      *Controller

	mu    sync.Mutex
	terms int
	heard []string // changes
	works func(ctx context.Context, l *logic, key Key) error
}

// logic reads IPAddressClaims, and works on each of them.
type logic struct {
	*Term
	s      *story
	claims Lister[*v1beta2.IPAddressClaim]
}

func (l *logic) Reconcile(ctx context.Context, key Key) error {
	l.s.mu.Lock()
	works := l.s.works
	l.s.mu.Unlock()
	return works(ctx, l, key)
}

func (l *logic) Show() any { return map[string]int{"claims": len(l.claims.List())} }
func (l *logic) Figures() Figures {
	return Figures{Bound: len(l.claims.List()), Conflicts: 3, Waiting: map[string]int{"PoolExhausted": 4}, Pools: []PoolFigures{{IPAddresses, "n", "p", 11, 5, 6, 7}}}
}

// say notes a change.
func (s *story) say(format string, of ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, fmt.Sprintf(format, of...))
}

// does sets what Logics do.
func (s *story) does(works func(context.Context, *logic, Key) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.works = works
}

// said returns the changes since it was called last, sorted.
func (s *story) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.heard)
	defer func() { s.heard = nil }()
	return strings.Join(s.heard, ", ")
}

func (s *story) begins(t *Term) Logic {
	s.mu.Lock()
	s.terms++
	s.mu.Unlock()
	l := &logic{Term: t, s: s}
	l.claims = Read(t, IPAddressClaims, func(before, now *v1beta2.IPAddressClaim) {
		time.Sleep(time.Millisecond)
		switch {
		case now == nil:
			s.say("gone %s, seen %v", before.UID, before.DeletionTimestamp == nil)
		case before == nil:
			s.say("new %s of %q", now.UID, now.Spec.PoolRef.Name)
		default:
			s.say("changed %s", now.UID)
		}
		t.Queue.Add(KeyOf(IPAddressClaims, cmp.Or(now, before)))
	})
	l.claims.Index("pool", func(c *v1beta2.IPAddressClaim) []string { return []string{c.Spec.PoolRef.Name} })
	Read(t, Machines, func(_, _ *metav1.PartialObjectMetadata) {})
	return l
}

// run runs a controller until the end of the test.
func run(t *testing.T, change func(*Config)) *story {
	s := &story{t: t, server: newServer(), fence: lease.Unelected(lease.Clocks{}), works: func(context.Context, *logic, Key) error { return nil }}
	config := &rest.Config{Host: "http://server", Transport: s.server, QPS: -1}
	config.Wrap(lease.Transport)
	cfg := Config{
		Name: "test", Client: config, Fence: s.fence, Reads: []Reads{{Kind: IPAddressClaims}, {Kind: Machines, Optional: true}},
		Workers: map[*Kind]int{IPAddressClaims: 2}, New: s.begins,
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if s.c, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		s.c.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if len(s.server.bad) > 0 {
			t.Error(s.server.bad)
		}
	})
	return s
}

// after lets time pass, and then expects the health check to say something; nothing means that it passes.
func (s *story) after(d time.Duration, want string) {
	s.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	err := s.c.Check(nil)
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		s.t.Errorf("the health check says %v, want %q", err, want)
	}
}

// hears expects changes.
func (s *story) hears(want string) {
	s.t.Helper()
	if diff := gocmp.Diff(want, s.said()); diff != "" {
		s.t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func claim(pool string, metadata map[string]any) map[string]any {
	return map[string]any{"metadata": metadata, "spec": map[string]any{"poolRef": map[string]any{"name": pool}}}
}

// TestTerms: a controller waits for its kinds, reads everything, works, and begins again when what is served changes.
func TestTerms(t *testing.T) {
	for _, watchList := range []bool{true, false} { // How client-go reads depends on it.
		t.Run(fmt.Sprint("WatchListClient=", watchList), func(t *testing.T) {
			clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, watchList)
			testTerms(t)
		})
	}
}

func testTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t, func(c *Config) {
			c.Yield = func(labels map[*Kind]map[string]string) string { return labels[IPAddressClaims]["yields"] }
		})
		s.after(10*time.Second, "waiting for these kinds, which the API server does not have: IPAddressClaim (ipam.cluster.x-k8s.io/v1beta2 or v1beta1). To install them, "+install)
		claims := IPAddressClaims.Resource
		s.server.put(claims, "n", "a", claim("p", map[string]any{"managedFields": []any{map[string]any{"manager": "m"}}}))
		s.server.put(claims, "n", "b", map[string]any{"spec": "this cannot be read"})
		var first string
		s.does(func(_ context.Context, l *logic, _ Key) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			a, _ := l.claims.Get("n", "a")
			first = cmp.Or(first, fmt.Sprintf("%d changes, %d claims, %d of a pool, %d managed fields",
				len(s.heard), len(l.claims.List()), len(l.claims.By("pool", "p")), len(a.ManagedFields)))
			return nil
		})
		s.server.serves(IPAddressClaims, nil, "v1beta1")
		s.after(5*time.Second, "")
		s.hears(`new uid-a of "p", new uid-b of ""`)
		if first != "2 changes, 2 claims, 1 of a pool, 0 managed fields" {
			t.Errorf("before the first Reconcile there were %s", first)
		}

		s.server.put(claims, "n", "a", claim("q", nil))
		s.server.put(claims, "n", "c", claim("q", nil))
		s.server.put(claims, "n", "c", nil)
		s.after(time.Second, "")
		s.hears(`changed uid-a, gone uid-c, seen true, new uid-c of "q"`)

		s.server.misses(claims, func() {
			s.server.put(claims, "n", "b", nil)
			s.server.put(claims, "n", "a", claim("r", map[string]any{"uid": "other"}))
		})
		s.after(time.Minute, "")
		s.hears(`gone uid-a, seen false, gone uid-b, seen false, new other of "r"`)

		s.server.serves(Machines, nil, "v1beta2")
		s.after(10*time.Second, "")
		s.hears(`new other of "r"`)
		s.server.serves(IPAddressClaims, map[string]any{"some": "label"}, "v1beta1")
		s.after(time.Minute, "")
		s.hears("")
		s.server.serves(IPAddressClaims, map[string]any{"yields": "another program to go"}, "v1beta1")
		s.after(3*time.Second, "not working yet; waiting for another program to go")
		s.server.serves(IPAddressClaims, nil)
		s.after(5*time.Second, "IPAddressClaim (")
		s.server.serves(IPAddressClaims, nil, "v1beta2")
		s.after(5*time.Second, "")
		// While one is being deleted, the finalizers of its objects are to go, although another one is gone.
		s.server.deletes(IPAddressClaims)
		s.server.serves(Machines, nil)
		s.after(time.Minute, "changes of Machines are not seen: the API server does not know the kind")
		s.server.serves(IPAddressClaims, nil)
		s.after(5*time.Second, "IPAddressClaim (")
		if s.terms != 3 {
			t.Errorf("%d terms, want 3", s.terms)
		}
	})
}

// TestWrites: a write is sent once, and only when the fence permits it. A refused one is tried again. After one without an answer, the next term waits.
func TestWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t, nil)
		s.server.serves(IPAddressClaims, nil, "v1beta1", "v1beta2")
		s.server.serves(Machines, nil, "v1beta1")
		s.after(5*time.Second, "")
		of := types.NamespacedName{Namespace: "n", Name: "a"}
		object := &v1beta2.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a", UID: "u", ResourceVersion: "7"}}
		bound, kept := object.DeepCopy(), object.DeepCopy()
		bound.Status.AddressRef.Name, kept.Finalizers = "x", []string{"f"}
		status, _ := Change(object, bound)
		finalizer, _ := Change(object, kept)
		var stored v1beta2.IPAddressClaim
		const path = "/v1beta2/namespaces/n/ipaddressclaims"
		const lost = "DELETE /apis/" + GroupIPAM + path + `/a {"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u"}}`
		all := map[string]func(context.Context, API) error{
			"POST /apis/" + GroupIPAM + path + ` {"kind":"IPAddressClaim","apiVersion":"` + GroupIPAM + `/v1beta2","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7"}}`: func(ctx context.Context, api API) error {
				return api.Create(ctx, IPAddressClaims, object, nil)
			},
			"PATCH /apis/" + GroupIPAM + path + `/a/status {"metadata":{"resourceVersion":"7","uid":"u"},"status":{"addressRef":{"name":"x"}}}`: func(ctx context.Context, api API) error {
				return api.Patch(ctx, IPAddressClaims, of, status, &stored)
			},
			"PATCH /apis/" + GroupClusterAPI + `/v1beta1/namespaces/n/machines/a {"metadata":{"finalizers":["f"],"resourceVersion":"7","uid":"u"}}`: func(ctx context.Context, api API) error {
				return api.Patch(ctx, Machines, of, finalizer, nil)
			},
			lost: func(ctx context.Context, api API) error {
				return api.Delete(ctx, IPAddressClaims, of, "u")
			},
		}
		for want, write := range all {
			for _, code := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusServiceUnavailable, 0} {
				arrived, err := s.sends(code, write)
				answered := code == http.StatusOK || code == http.StatusTooManyRequests
				if diff := gocmp.Diff([]string{want}, arrived); diff != "" || (err == nil) != (code == http.StatusOK) || writes.Answered(err) != answered || (s.fence.Unanswered() == 0) != answered {
					t.Errorf("answer %d: error %v, unanswered for %v, writes (-want +got):\n%s", code, err, s.fence.Unanswered(), diff)
				}
			}
			time.Sleep(s.fence.Unanswered())
		}
		if stored.UID != "u" || stored.Status.AddressRef.Name != "x" {
			t.Errorf("stored is %+v", stored)
		}
		_, _ = s.sends(0, all[lost])
		s.server.refuses(http.StatusOK)
		_, err := s.sends(http.StatusOK, func(ctx context.Context, api API) error {
			ctx = context.WithoutCancel(ctx)
			of := types.NamespacedName{Namespace: "n", Name: "a"}
			var got v1beta2.IPAddressClaim
			if err := api.Get(ctx, IPAddressClaims, of, &got); err != nil || got.UID != "uid-a" {
				t.Errorf("read %+v, error %v", got, err)
			}
			return api.Get(ctx, Secrets, of, &metav1.PartialObjectMetadata{}) // which is not in Reads
		})
		if !writes.NotThere(err) {
			t.Errorf("a Secret that does not exist: %v", err)
		}
		s.server.serves(Machines, nil)
		s.after(5*time.Second, "waiting for writes from before the controller started again")
		s.after(15*time.Second, "")
		for want, write := range all {
			if arrived, err := s.sends(http.StatusOK, write); strings.Contains(want, "machines") != writes.NotThere(err) {
				t.Errorf("without Machines: error %v, writes %v", err, arrived)
			}
		}

		s.server.refuses(http.StatusForbidden)
		s.does(func(ctx context.Context, l *logic, key Key) error {
			l.Event(object, key.Kind, true, "Often", "only once")
			return l.API.Patch(ctx, key.Kind, of, status, nil)
		})
		s.server.put(IPAddressClaims.Resource, "n", "b", claim("p", nil))
		s.after(time.Second, "")
		if told := s.server.wrote("/events"); len(told) != 1 || !strings.Contains(told[0], `"reason":"Often","message":"only once"`) {
			t.Errorf("events: %v", told)
		}
		s.after(3*time.Second, "IPAddressClaim n/b: the API server forbids it: correct ")
		told, retried := s.server.wrote("/events"), s.server.wrote("PATCH")
		s.server.refuses(http.StatusOK)
		if s.after(10*time.Second, ""); len(told) != 1 || !strings.Contains(told[0], `"reason":"WriteFailed"`) || len(retried) < 5 || len(s.server.wrote("PATCH")) != 1 {
			t.Errorf("writes: %v, events: %v", retried, told)
		}

		s.pages()

		s.fence.Close()
		for _, write := range all {
			if arrived, err := s.sends(http.StatusOK, write); len(arrived) > 0 || !errors.Is(err, lease.ErrClosed) && !writes.NotThere(err) {
				t.Errorf("with a closed fence: error %v, writes %v", err, arrived)
			}
		}
		s.after(time.Minute, "")
	})
}

// pages checks the debug page and the metrics.
func (s *story) pages() {
	s.t.Helper()
	page := httptest.NewRecorder()
	s.c.DebuggingHandler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/", nil))
	for _, part := range []string{`{"controller":"test","time":"2000-01-01T00:`, `"state":{"claims":2}}`} {
		if !strings.Contains(page.Body.String(), part) {
			s.t.Errorf("the debug page lacks %s: %s", part, page.Body)
		}
	}
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name, ours := strings.CutPrefix(family.GetName(), prefix)
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			if ours {
				got[name] = m.GetGauge().GetValue()
			}
		}
	}
	want := map[string]float64{"ready test": 1, "failing_objects test IPAddressClaim": 0, "bound_objects test": 2, "conflicting_addresses test": 3,
		"waiting_objects test PoolExhausted": 4, "addresses test IPAddress n p used": 5, "addresses test IPAddress n p free": 6, "addresses test IPAddress n p out_of_range": 7}
	for kind, verbs := range map[string][]string{"IPAddressClaim": {"create", "patch", "delete"}, "Machine": {"patch"}} {
		for _, verb := range verbs {
			for _, outcome := range []string{"success", "refused", "unknown"} {
				want[fmt.Sprintf("writes_total test %s %s %s", kind, outcome, verb)] = 0
			}
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		s.t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// sends has a Logic write something once, returns what has arrived, and the error.
func (s *story) sends(code int, write func(context.Context, API) error) (arrived []string, err error) {
	s.server.refuses(code)
	var once sync.Once
	s.does(func(ctx context.Context, l *logic, _ Key) error {
		ctx, cancel := context.WithCancel(ctx)
		cancel() // A shutdown does not interrupt a write.
		once.Do(func() { err = write(ctx, l.API) })
		return nil
	})
	s.server.put(IPAddressClaims.Resource, "n", "a", claim("p", nil))
	time.Sleep(time.Second)
	synctest.Wait()
	return s.server.wrote("/n"), err
}

// TestOther: while another program leads, and may come back, the controller does not run.
func TestOther(t *testing.T) {
	const held = "renewed or released its Lease ns/l"
	for name, steps := range map[string][]struct {
		lease string // holder; "-" deletes it, "" leaves it
		ago   time.Duration
		after time.Duration
		says  string
	}{
		"none":                   {{after: 5 * time.Second}},
		"an old one":             {{lease: "other", ago: time.Hour, after: 5 * time.Second}},
		"one of another clock":   {{lease: "other", ago: 5 * time.Minute, after: 5 * time.Second, says: held}, {after: 55 * time.Second, says: held}, {after: 20 * time.Second}},
		"a released one":         {{lease: "other", after: 5 * time.Second, says: held}, {lease: "nobody", after: 3 * time.Second, says: held}, {after: 80 * time.Second}},
		"a deleted one":          {{lease: "other", after: 5 * time.Second, says: held}, {lease: "-", after: time.Second, says: held}, {after: 80 * time.Second}},
		"one that comes, stays":  {{after: 5 * time.Second}, {lease: "other", after: 3 * time.Second, says: held}, {lease: "other", after: 60 * time.Second, says: held}, {lease: "other", after: 60 * time.Second, says: held}},
		"an old one is deleted":  {{lease: "other", ago: time.Hour, after: 5 * time.Second}, {lease: "-", after: 5 * time.Second}},
		"an old one comes again": {{lease: "other", ago: time.Hour, after: 5 * time.Second}, {lease: "other", after: 3 * time.Second, says: held}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := run(t, func(c *Config) { c.Other = &Other{Program: "The other", Namespace: "ns", Name: "l"} })
				s.server.serves(IPAddressClaims, nil, "v1beta2")
				for _, step := range steps {
					switch step.lease {
					case "":
					case "-":
						s.server.put("leases", "ns", "l", nil)
					default:
						s.server.put("leases", "ns", "l", map[string]any{"spec": map[string]any{
							"holderIdentity": strings.TrimPrefix(step.lease, "nobody"), "leaseDurationSeconds": 15,
							"renewTime": time.Now().Add(-step.ago).UTC().Format(metav1.RFC3339Micro),
						}})
					}
					s.after(step.after, step.says)
				}
			})
		})
	}
}

// TestHealth: what makes a controller unhealthy. That the API server takes what one object needs for invalid does not: others do not wait for it.
func TestHealth(t *testing.T) {
	pools := schema.GroupResource{Resource: "pools"}
	for name, tc := range map[string]struct {
		err  error
		says string
	}{
		"nothing":      {nil, ""},
		"put off":      {writes.Later(time.Second), ""},
		"not its turn": {lease.ErrClosed, ""},
		"invalid":      {apierrors.NewInvalid(schema.GroupKind{}, "p", field.ErrorList{field.Invalid(field.NewPath("spec"), "", "must have at most 1024 items")}), ""},
		"forbidden":    {apierrors.NewForbidden(pools, "p", errors.New("no")), "forbids it: correct "},
		"no such kind": {apierrors.NewGenericServerResponse(404, "get", pools, "p", "404 page not found", 0, true), "does not know the kind: " + install},
		"others":       {fmt.Errorf("patch: %w", apierrors.NewConflict(pools, "p", errors.New("changed"))), "changed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &health{failures: map[Key]*failure{}}
				of := func(name string) Key { return Key{Kind: ClusterIPAMs, Namespace: "n", Name: name} }
				says := func() string { return strings.Join(h.problems(), "; ") }
				told := 0
				for range 4 {
					for _, name := range []string{"c", "b", "a"} {
						if tell, _ := h.did(of(name), tc.err); tell {
							told++
						}
					}
					time.Sleep(time.Second)
				}
				all := says()
				if (all == "") != (tc.says == "") || !strings.Contains(all, tc.says) || tc.says != "" && (!strings.HasPrefix(all, "ClusterIPAM n/a and 2 more: ") || told != 3) {
					t.Errorf("problems: %s; told %d times", all, told)
				}
				if h.did(of("a"), writes.Later(time.Second)); says() != all { // The last outcome holds.
					t.Errorf("a pause ends the failure: %s", says())
				}
				h.did(of("b"), nil)
				h.did(of("c"), nil)
				if all := says(); strings.Contains(all, "more") || (all == "") != (tc.says == "") {
					t.Errorf("after it went well for others: %s", all)
				}
				time.Sleep(repeatedWithin)
				if len(h.problems()) > 0 || h.count(ClusterIPAMs) > 0 {
					t.Errorf("after a long pause: %v", h.problems())
				}
			})
		})
	}
}

// TestLog: however many objects of a kind fail, one is logged.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log ktesting.BufferTL
		ctx := klog.NewContext(t.Context(), ktesting.NewLogger(&log, ktesting.NewConfig()))
		c := &Controller{health: health{failures: map[Key]*failure{}}}
		for range 4 {
			for i := range 10_000 {
				c.did(ctx, Key{Kind: ClusterIPAMs, Name: fmt.Sprint(i)}, apierrors.NewUnauthorized("who"))
			}
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.String(), "The health check fails"); n != 1 {
			t.Errorf("%d lines, want 1:\n%s", n, log.String())
		}
	})
}
