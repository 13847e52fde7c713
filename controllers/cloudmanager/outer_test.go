package cloudmanager

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/cloud-provider/app/config"
	cmconfig "k8s.io/controller-manager/config"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/multicidr/controller-manager/controllers/lease"
)

// The Lease around the controller's own counts while this program holds it without a break. After that the controller has to begin anew.
func TestOuter(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type holds struct {
		by                             string
		acquired, renewed, transitions int
		uid                            types.UID
	}
	for name, tc := range map[string]struct {
		own, shared []holds // one after the other
		anew        bool    // begins anew before the last one
		waits       bool    // has no Lease of its own yet
		want        int     // seconds from start to the end of the last one
		wantErr     string
	}{
		"held":                     {own: []holds{{by: "me"}}, shared: []holds{{by: "me", acquired: 1, renewed: 1}}, want: 16},
		"renewed":                  {own: []holds{{by: "me"}, {by: "me"}}, shared: []holds{{by: "me", acquired: 1, renewed: 1}, {by: "me", acquired: 1, renewed: 3}}, want: 18},
		"not won yet":              {own: []holds{{by: "me"}}, shared: []holds{{by: "kcm"}}, wantErr: `is held by "kcm", and cloud-controller-manager by "me"`},
		"released":                 {own: []holds{{by: "me"}}, shared: []holds{{}}, wantErr: "is held by nobody"},
		"lost":                     {own: []holds{{by: "me"}, {by: "me"}}, shared: []holds{{by: "me", renewed: 1}, {by: "kcm", acquired: 30, renewed: 30}}, wantErr: "does not hold both"},
		"lost and won again":       {own: []holds{{by: "me"}, {by: "me"}}, shared: []holds{{by: "me", renewed: 1}, {by: "me", acquired: 60, renewed: 60}}, wantErr: "starts anew"},
		"the same, afterwards":     {own: []holds{{by: "me"}, {by: "me"}}, shared: []holds{{by: "me", renewed: 1}, {by: "me", acquired: 60, renewed: 60}}, anew: true, want: 75},
		"the same, while it waits": {own: []holds{{by: "me"}, {by: "me"}}, shared: []holds{{by: "me", renewed: 1}, {by: "me", acquired: 60, renewed: 60}}, waits: true, want: 75},
		// As client-go's elector does when it wanted to renew the Lease, and finds it released by another process.
		"won again with the time of before": {own: []holds{{by: "me"}, {by: "me"}}, shared: []holds{{by: "me", renewed: 1}, {by: "me", renewed: 60, transitions: 2}}, wantErr: "starts anew"},
		"deleted and made anew":             {own: []holds{{by: "me"}, {by: "me"}}, shared: []holds{{by: "me", renewed: 1}, {by: "me", renewed: 60, uid: "second"}}, wantErr: "starts anew"},
		"both lost to one program":          {own: []holds{{by: "me"}, {by: "other"}}, shared: []holds{{by: "me", renewed: 1}, {by: "other", renewed: 31}}, wantErr: errDeposed.Error()},
		"the same, beginning anew":          {own: []holds{{by: "me"}, {by: "other"}}, shared: []holds{{by: "me", renewed: 1}, {by: "other", renewed: 31}}, anew: true, wantErr: errDeposed.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			leases := fake.NewClientset().CoordinationV1().Leases("kube-system")
			m := &outer{leases: leases, program: "cloud-controller-manager", name: "node-ipam-migration"}
			var err error
			for i := range tc.own {
				for name, h := range map[string]holds{m.program: tc.own[i], m.name: tc.shared[i]} {
					at := func(s int) metav1.Time { return metav1.NewTime(start.Add(time.Duration(s) * time.Second)) }
					record := resourcelock.LeaderElectionRecord{HolderIdentity: h.by, LeaseDurationSeconds: 15, AcquireTime: at(h.acquired), RenewTime: at(h.renewed), LeaderTransitions: h.transitions}
					put(t, leases, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, UID: h.uid}, Spec: resourcelock.LeaderElectionRecordToLeaseSpec(&record)})
				}
				if tc.anew && i == len(tc.own)-1 {
					m.begin()
				}
				if err = m.read(t.Context()); err == nil && !tc.waits {
					m.leads()
				}
			}
			switch {
			case tc.wantErr != "":
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("got error %v, want %q in it", err, tc.wantErr)
				}
			case err != nil:
				t.Error(err)
			default:
				last := tc.shared[len(tc.shared)-1]
				want := lease.Around{UID: last.uid, Transitions: last.transitions, Expires: start.Add(time.Duration(tc.want) * time.Second)}
				if got := m.held(); got.UID != want.UID || got.Transitions != want.Transitions || !got.Expires.Equal(want.Expires) {
					t.Errorf("got %v, want %v", got, want)
				}
			}
		})
	}
}

// A challenger notices only the first renewal in a second, so the Lease around counts from there if there can be several.
func TestOuterThatIsRenewedSeveralTimesASecond(t *testing.T) {
	for retry, want := range map[time.Duration]time.Duration{time.Second: 15800 * time.Millisecond, 999 * time.Millisecond: 15 * time.Second} {
		leases := fake.NewClientset().CoordinationV1().Leases("kube-system")
		o, err := newOuter(completed(t, func(c *config.Config) {
			c.Kubeconfig = &rest.Config{}
			c.ComponentConfig.Generic.LeaderElection.LeaderElect, c.ComponentConfig.Generic.LeaderElection.ResourceName = true, "program"
			c.ComponentConfig.Generic.LeaderElection.RetryPeriod.Duration = retry
		}))
		if err != nil {
			t.Fatal(err)
		}
		o.leases = leases
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		record := resourcelock.LeaderElectionRecord{HolderIdentity: "me", LeaseDurationSeconds: 15, RenewTime: metav1.NewTime(start.Add(800 * time.Millisecond))}
		put(t, leases, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: o.name}, Spec: resourcelock.LeaderElectionRecordToLeaseSpec(&record)})
		if err := o.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := o.held().Expires.Sub(start); got != want {
			t.Errorf("with a retry period of %v it expires after %v, want %v", retry, got, want)
		}
	}
}

// A process that is paused when its program has just begun to lead finds Leases that another one holds when it goes on. It must not take the other one for
// itself.
func TestPausedAtTheBeginning(t *testing.T) {
	leases := fake.NewClientset().CoordinationV1().Leases("kube-system")
	held := func(by string) {
		put(t, leases, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "program"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &by}})
	}
	p := newParticipant(newRegistered(), Name, completed(t, func(*config.Config) {}), nil)
	p.outer = &outer{leases: leases, name: "program", program: "program"}
	held("me")
	p.mayLead(t.Context())
	select {
	case <-p.leading:
	case <-time.After(time.Minute):
		t.Fatal("it does not lead")
	}
	held("another one")
	p.outer.begin()
	if err := p.outer.read(t.Context()); !errors.Is(err, errDeposed) {
		t.Errorf("got %v, want %v", err, errDeposed)
	}
}

// TestPanicIsAnError: a panic before the controller runs must not end the program. Health tells of it.
func TestPanicIsAnError(t *testing.T) {
	p := newParticipant(newRegistered(), Name, completed(t, func(*config.Config) {}), nil) // without a ClientBuilder
	p.mayLead(t.Context())
	<-p.leading
	_, fence := lease.Wrap(&answers{})
	if err := p.lead(t.Context(), fence); err == nil || !strings.Contains(err.Error(), "panic") {
		t.Errorf("got %v, want a panic as an error", err)
	}
	const want = "the controller has ended by itself once"
	if err := p.check(&http.Request{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("health says %v, want %q", err, want)
	}
}

// Outside of a migration of this controller, its own Lease is held inside of the program's: an older version of the program, with another allocator, takes
// only that one.
func TestWhichLeaseIsAround(t *testing.T) {
	for name, tc := range map[string]struct {
		named     string // in the file of a leader migration; empty: there is none
		unelected bool
		want      string
	}{
		"no migration":                 {want: "cloud-controller-manager"},
		"a migration of others":        {named: "service-controller", want: "cloud-controller-manager"},
		"a migration":                  {named: Name, want: "node-ipam-migration"},
		"the program elects no leader": {unelected: true},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := newOuter(completed(t, func(c *config.Config) {
				c.Kubeconfig = &rest.Config{}
				g := &c.ComponentConfig.Generic
				g.LeaderElection.LeaderElect, g.LeaderElection.ResourceName = !tc.unelected, "cloud-controller-manager"
				g.LeaderMigrationEnabled, g.LeaderMigration.LeaderName = tc.named != "", "node-ipam-migration"
				g.LeaderMigration.ControllerLeaders = []cmconfig.ControllerLeaderConfiguration{{Name: tc.named, Component: component}}
			}))
			if err != nil {
				t.Fatal(err)
			}
			if o == nil {
				o = &outer{}
			} else if o.program != "cloud-controller-manager" {
				t.Errorf("the program's Lease is %q", o.program)
			}
			if o.name != tc.want {
				t.Errorf("got %q, want %q", o.name, tc.want)
			}
		})
	}
}

func put(t *testing.T, leases coordinationv1client.LeaseInterface, l *coordinationv1.Lease) {
	t.Helper()
	_, err := leases.Update(t.Context(), l, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(t.Context(), l, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestNoCampaignAfterTheProgram: once the program does not lead any more, the controller does not take part in another election.
func TestNoCampaignAfterTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		p := newParticipant(newRegistered(), Name, completed(t, func(c *config.Config) { c.Kubeconfig = &rest.Config{Host: "127.0.0.1:1"} }), nil)
		program, stops := context.WithCancel(t.Context())
		p.mayLead(program)
		stops()
		<-p.over
		ctx, ends := context.WithCancel(klog.NewContext(t.Context(), logger))
		go p.campaign(ctx)
		time.Sleep(time.Minute)
		ends()
		synctest.Wait()
		log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		if got := strings.Count(log, "This process does not hold the Lease any more"); got != 1 {
			t.Errorf("it has ended %d campaigns, want one:\n%s", got, log)
		}
	})
}

// TestWhyTheLeaseIsNotWritten: who may read the Lease and not write it learns why no Node gets podCIDRs, between two attempts, too.
func TestWhyTheLeaseIsNotWritten(t *testing.T) {
	r := newRegistered()
	p := newParticipant(r, Name, completed(t, func(*config.Config) {}), nil)
	p.mayLead(t.Context())
	<-p.leading
	api := &answers{holder: "somebody"}
	lock := &nestedLock{Interface: api, leading: p.leading, seen: p.saw, wrote: p.wrote}
	try := func(update error) {
		t.Helper()
		api.update = update
		if _, _, err := lock.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = lock.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"})
		if _, _, err := lock.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	says := func(want string) {
		t.Helper()
		if err := p.check(&http.Request{}); err == nil || err.Error() != "not serving Nodes yet; waiting for the Lease kube-system/node-ipam-controller"+want {
			t.Errorf("health says %v, want %q", err, want)
		}
	}
	try(errors.New("leases is forbidden"))
	says(" (leases is forbidden)")
	api.holder = "another one" // Nobody wants to write until its time is over.
	if _, _, err := lock.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	says(", which another one holds")
	try(errors.New("leases is forbidden"))
	try(nil)
	says(", which another one holds")
}

// TestStandbyFollows: a program that wanted to write the Lease before it leads follows whoever leads then. It would otherwise begin to count the
// duration of that Lease only when it leads itself.
func TestStandbyFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := fake.NewClientset().CoordinationV1()
		lockOf := func(identity string) *resourcelock.LeaseLock {
			return &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: defaultLease}, Client: leases, LockConfig: resourcelock.ResourceLockConfig{Identity: identity}}
		}
		record := func(identity string) resourcelock.LeaderElectionRecord {
			return resourcelock.LeaderElectionRecord{HolderIdentity: identity, LeaseDurationSeconds: 15, AcquireTime: metav1.Now(), RenewTime: metav1.Now()}
		}
		leading := make(chan struct{})
		var seen []string
		lock := &nestedLock{Interface: lockOf("standby"), retry: 2 * time.Second, leading: leading, seen: func(holder string, _ error) { seen = append(seen, holder) }}
		result := make(chan error, 1)
		waits := func(what string) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			select {
			case err := <-result:
				t.Fatalf("%s: %v", what, err)
			default:
			}
		}
		go func() { result <- lock.Create(t.Context(), record("standby")) }()
		waits("without a Lease")
		leader := lockOf("leader")
		if err := leader.Create(t.Context(), record("leader")); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := <-result; !errors.Is(err, errRenewed) || time.Since(begun) > 3*time.Second {
			t.Errorf("after %v: %v, want %v within three seconds", time.Since(begun), err, errRenewed)
		}

		// The Lease ran out, and this program does not lead: nobody renews the Lease, until another one does.
		if _, _, err := lock.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		go func() { result <- lock.Update(t.Context(), record("standby")) }()
		waits("nobody renews it")
		if err := leader.Update(t.Context(), record("leader")); err != nil {
			t.Fatal(err)
		}
		if err := <-result; !errors.Is(err, errRenewed) {
			t.Errorf("another one renews: %v, want %v", err, errRenewed)
		}

		// It was renewed between the elector's read and its write.
		if err := lock.Update(t.Context(), record("standby")); !errors.Is(err, errRenewed) {
			t.Errorf("renewed before: %v, want %v", err, errRenewed)
		}

		// This program leads.
		if _, _, err := lock.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		go func() { result <- lock.Update(t.Context(), record("standby")) }()
		time.Sleep(time.Minute)
		close(leading)
		if err := <-result; !errors.Is(err, errLeadsNow) {
			t.Errorf("it leads: %v, want %v", err, errLeadsNow)
		}
		if got, _, err := leader.Get(t.Context()); err != nil || got.HolderIdentity != "leader" {
			t.Errorf("the Lease says %v, %v: a standby has written it", got, err)
		}
		if len(seen) == 0 || seen[len(seen)-1] != "leader" {
			t.Errorf("it has seen %v", seen)
		}
	})
}

// answers is a lock whose API server gives these answers.
type answers struct {
	resourcelock.Interface
	holder string
	update error
}

func (a *answers) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: a.holder}, nil, nil
}
func (a *answers) Update(context.Context, resourcelock.LeaderElectionRecord) error { return a.update }
func (a *answers) Describe() string                                                { return "kube-system/node-ipam-controller" }
func (a *answers) Identity() string                                                { return "me" }
