package shell

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/multicidr/controller-manager/controllers/clusteripam/shell/pace"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// server is the discovery of an API server.
type server struct {
	mu    sync.Mutex
	has   []string // group/version/resource
	fails bool
	asked int
}

func (s *server) becomes(has []string, fails bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.has, s.fails = has, fails
}

func (s *server) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *server) ServerResourcesForGroupVersion(gv string) (*metav1.APIResourceList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.fails {
		return nil, errors.New("no answer")
	}
	list := &metav1.APIResourceList{}
	for _, has := range s.has {
		if resource, ok := strings.CutPrefix(has, gv+"/"); ok {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: resource})
		}
	}
	if len(list.APIResources) == 0 {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, gv)
	}
	return list, nil
}

const (
	newClaims = GroupIPAM + "/v1beta2/ipaddressclaims"
	oldClaims = GroupIPAM + "/v1beta1/ipaddressclaims"
	machines  = GroupClusterAPI + "/v1beta2/machines"
)

// TestLooker: a controller learns of kinds that come, go and change their version, and asks nothing while nothing changes.
func TestLooker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		l := newLooker([]Reads{{Kind: IPAddressClaims}, {Kind: Machines, Optional: true}})
		l.discovery, l.problem = s, func(problem) {}
		ctx, cancel := context.WithCancel(t.Context())
		go l.run(ctx)
		for _, step := range []struct {
			what    string
			has     []string
			fails   bool
			changed bool // a CustomResourceDefinition has changed
			after   time.Duration
			want    string // the view; empty if there is no new one
		}{
			{what: "nothing", after: time.Second, want: "missing"},
			{what: "it comes, and nobody says so", has: []string{oldClaims}, after: 2 * time.Minute, want: "v1beta1"},
			{what: "nothing changes", has: []string{oldClaims}, after: time.Hour},
			{what: "the preferred version comes", has: []string{oldClaims, newClaims}, changed: true, after: 2 * time.Second, want: "v1beta2"},
			{what: "an optional kind comes", has: []string{newClaims, machines}, changed: true, after: time.Second, want: "v1beta2 machines"},
			{what: "an API server starts", changed: true, after: confirmLook / 2},
			{what: "and knows everything then", has: []string{newClaims, machines}, after: 2 * time.Second},
			{what: "no answer", fails: true, changed: true, after: time.Minute},
			{what: "an answer", has: []string{newClaims, machines}, after: time.Minute},
			{what: "the optional kind goes", has: []string{newClaims}, changed: true, after: 3 * time.Second, want: "v1beta2"},
			{what: "everything goes", changed: true, after: 3 * time.Second, want: "missing"},
		} {
			if s.becomes(step.has, step.fails); step.changed {
				l.again()
			}
			time.Sleep(step.after)
			synctest.Wait()
			got := ""
			select {
			case v := <-l.views:
				if got = strings.TrimPrefix(v.served[IPAddressClaims], GroupIPAM+"/"); len(v.missing) > 0 {
					got = "missing"
				}
				if _, ok := v.served[Machines]; ok {
					got += " machines"
				}
			default:
			}
			if got != step.want {
				t.Errorf("%s: the view is %q, want %q", step.what, got, step.want)
			}
			if step.what == "nothing changes" {
				asked := s.requests()
				if time.Sleep(24 * time.Hour); s.requests() != asked {
					t.Errorf("the API server was asked %d times although nothing has changed", s.requests()-asked)
				}
			}
		}
		cancel()
	})
}

// TestOther: a controller stands by from the moment at which another program is seen to hold its Lease, until that has not come back for a minute
// after the Lease was released, deleted or has run out.
func TestOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Controller{looker: newLooker(nil)}
		o := newOther(Other{Program: "the original", Namespace: "n", Name: "l"}, time.Now)
		if _, err := o.leads(); err == nil {
			t.Error("it is known who leads before the Lease was read")
		}
		o.listed = true
		renew := func(holder string, at time.Time) {
			o.heard(c, &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
				"holderIdentity": holder, "renewTime": at.UTC().Format("2006-01-02T15:04:05.000000Z07:00"), "leaseDurationSeconds": int64(15),
			}}})
		}
		leads := func() bool {
			why, err := o.leads()
			if err != nil {
				t.Error(err)
			}
			return why != ""
		}
		check := func(what string, want bool) {
			if got := leads(); got != want {
				t.Errorf("%s: leads is %v, want %v", what, got, want)
			}
		}
		check("there is no Lease", false)
		renew("x", time.Now().Add(-24*time.Hour))
		check("a Lease of yesterday", false)
		o.gone(c)
		renew("x", time.Now().Add(-time.Minute)) // Its clock may be late.
		check("a Lease of a minute ago", true)
		for range 10 {
			time.Sleep(10 * time.Second)
			renew("x", time.Now())
			check("it is renewed", true)
		}
		ends := func(what string, after time.Duration) {
			t.Helper()
			for len(c.looker.changed) > 0 {
				<-c.looker.changed
			}
			time.Sleep(after)
			check(what+", and it may come back", true)
			time.Sleep(2 * time.Second)
			check(what, false)
			if synctest.Wait(); len(c.looker.changed) == 0 {
				t.Errorf("%s, and nobody looks again", what)
			}
		}
		ends("it is not renewed", 15*time.Second+comesBack)
		o.gone(c)
		check("it is deleted after it has run out", false)
		renew("y", time.Now())
		check("another one takes it", true)
		renew("", time.Now())
		ends("it was released", 15*time.Second+comesBack)
		renew("z", time.Now())
		o.gone(c)
		ends("it was deleted", 15*time.Second+comesBack)
		time.Sleep(2 * time.Minute) // The last timer ends.
	})
}

// TestHealth: health names what is wrong, after a while, and not longer.
func TestHealth(t *testing.T) {
	now := time.Unix(1000, 0)
	h := newHealth(func() time.Time { return now })
	h.waitFor(problem{})
	key := Key{IPAddressClaims, "n", "a"}
	err := apierrors.NewForbidden(schema.GroupResource{Resource: "ipaddresses"}, "a", errors.New("no role"))
	if news, tell, _ := h.synced(key, err); !news || tell || len(h.problems()) > 0 {
		t.Errorf("a first failure: news %v, tell %v, problems %q", news, tell, h.problems())
	}
	now = now.Add(failsFor)
	if news, tell, p := h.synced(key, err); news || !tell || !strings.Contains(p.What, applyRBAC) {
		t.Errorf("a failure that lasts: news %v, tell %v, problem %v", news, tell, p)
	}
	if _, tell, _ := h.synced(key, err); tell {
		t.Error("it is told twice")
	}
	if says := h.problems(); len(says) != 1 || !strings.Contains(says[0], "IPAddressClaim n/a") || !strings.Contains(says[0], "no role") {
		t.Errorf("health says %q", says)
	}
	if news, _, _ := h.synced(key, nil); !news || len(h.problems()) > 0 {
		t.Errorf("after a success: news %v, problems %q", news, h.problems())
	}
}

// TestHealthOfWorkThatIsPutOff: a failure lasts while the work waits to be repeated, and ends when it waits for something else.
func TestHealthOfWorkThatIsPutOff(t *testing.T) {
	later := func(d time.Duration) error { return fmt.Errorf("claim a: %w", writes.Later(d)) }
	for name, tc := range map[string]struct {
		err   error
		after time.Duration // since the failure
		ends  bool
	}{
		"until a write without an answer is over":   {later(15 * time.Second), 0, false},
		"somebody else leads":                       {lease.ErrClosed, time.Hour, false},
		"until the end of a grace period":           {later(time.Hour), 0, true},
		"a moment, for what is no failure any more": {later(time.Second), time.Minute, true},
		"a moment": {later(time.Second), 10 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			h := newHealth(func() time.Time { return now })
			key := Key{IPAddressClaims, "n", "a"}
			h.synced(key, errors.New("refused"))
			now = now.Add(tc.after)
			if news, tell, p := h.synced(key, tc.err); news != tc.ends || tell || p.What != "" {
				t.Errorf("news %v, tell %v, problem %q", news, tell, p)
			}
			now = now.Add(failsFor)
			if ended := len(h.failing()) == 0; ended != tc.ends {
				t.Errorf("the failure has ended: %v, want %v", ended, tc.ends)
			}
		})
	}
}

// TestWhyNot: every answer of the API server has an advice; a request that was not sent is no failure.
func TestWhyNot(t *testing.T) {
	of := schema.GroupResource{Resource: "ipaddresses"}
	advice := map[string]bool{}
	for _, err := range []error{
		apierrors.NewForbidden(of, "a", nil), apierrors.NewForbidden(of, "a", errors.New("ValidatingAdmissionPolicy x")), apierrors.NewConflict(of, "a", nil),
		apierrors.NewUnauthorized(""), apierrors.NewTooManyRequests("", 1), apierrors.NewBadRequest(""), apierrors.NewInternalError(errors.New("")),
		apierrors.NewTimeoutError("", 1), context.DeadlineExceeded, fmt.Errorf("patch a: %w", ErrTakenBack), fmt.Errorf("patch a: %w", pace.ErrRestless), errors.New("its own"),
	} {
		advice[whyNot(err).What] = true
	}
	if advice[""] || len(advice) != 11 || !advice["its own"] {
		t.Errorf("advice: %v", advice)
	}
}
