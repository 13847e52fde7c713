package infoblox

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/host"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/known"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapitest"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
	"github.com/multicidr/controller-manager/controllers/lease"
)

// stubFence is a fence that counts the writes that have entered and not left.
type stubFence struct {
	lease.Fence
	closed bool
	inside int
}

func (f *stubFence) Enter(ctx context.Context, _ time.Duration) (context.Context, func(), error) {
	if f.closed {
		return nil, nil, lease.ErrClosed
	}
	f.inside++
	return ctx, func() { f.inside-- }, nil
}

// stubWAPI counts writes and answers all of them with an error.
type stubWAPI struct {
	WAPI
	writes int
	err    error
}

func (s *stubWAPI) CreateHost(context.Context, host.Record) (string, error) {
	s.writes++
	return "", s.err
}
func (s *stubWAPI) UpdateHost(context.Context, host.Record) error { s.writes++; return s.err }
func (s *stubWAPI) DeleteHost(context.Context, string) error      { s.writes++; return s.err }

// Every write to Infoblox passes the fence, and one that was not answered stays in it: it may still be carried out.
func TestFence(t *testing.T) {
	for name, write := range map[string]func(WAPI) error{
		"create": func(w WAPI) error { _, err := w.CreateHost(t.Context(), host.Record{}); return err },
		"update": func(w WAPI) error { return w.UpdateHost(t.Context(), host.Record{}) },
		"delete": func(w WAPI) error { return w.DeleteHost(t.Context(), "") },
	} {
		fence, server := &stubFence{closed: true}, &stubWAPI{}
		if err := write(fenced{server, fence}); !errors.Is(err, lease.ErrClosed) || server.writes > 0 {
			t.Errorf("%s without the Lease: %v, %d writes", name, err, server.writes)
		}
		for _, tc := range []struct {
			err    error
			inside int
		}{{nil, 0}, {&wapi.Error{Status: http.StatusBadRequest}, 0}, {&wapi.Error{}, 1}} {
			fence, server := &stubFence{}, &stubWAPI{err: tc.err}
			if err := write(fenced{server, fence}); !errors.Is(err, tc.err) || server.writes != 1 || fence.inside != tc.inside {
				t.Errorf("%s, answered with %v: %v, %d writes, %d in the fence, want %d", name, tc.err, err, server.writes, fence.inside, tc.inside)
			}
		}
	}
}

// stubAPI stores the conditions that are written.
type stubAPI struct {
	shell.API
	conditions map[*shell.Kind][]metav1.Condition
}

func (s *stubAPI) Patch(_ context.Context, kind *shell.Kind, _ types.NamespacedName, patch shell.Patch, _ metav1.Object) error {
	var body struct {
		Status struct{ Conditions []metav1.Condition }
	}
	s.conditions[kind] = nil
	if err := json.Unmarshal(patch.Body, &body); err != nil {
		return err
	}
	s.conditions[kind] = body.Status.Conditions
	return nil
}

func (s *stubAPI) says(kind *shell.Kind) string {
	if c := meta.FindStatusCondition(s.conditions[kind], v1alpha1.ConditionReady); c != nil {
		return c.Reason
	}
	return ""
}

type stubQueue struct{}

func (stubQueue) Add(shell.Key)                     {}
func (stubQueue) AddAfter(shell.Key, time.Duration) {}

func testLogic(t *testing.T, api shell.API, now *time.Time) *logic {
	t.Helper()
	connect := func(c wapi.Config) (WAPI, error) { return wapi.New(c) }
	unanswered := func() time.Duration { return writeLasts }
	return newLogic(shell.Parts{API: api, Lock: &shell.Lock{}, Now: func() time.Time { return *now }, Queue: stubQueue{}, Tell: func(shell.Event) {},
		Served: func(k *shell.Kind) (string, bool) { return k.Group + "/" + k.Versions[0], true }}, "kube-system", connect, unanswered)
}

// Claims that share a host record change it one after the other: each writes all addresses of the record.
func TestOneAtATime(t *testing.T) {
	now := start
	l := testLogic(t, nil, &now)
	name := known.RecordName{Place: known.Place{Instance: "i", NetworkView: "default"}, Name: "h"}
	_, done, err := l.claimRecord(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.claimRecord(name); err == nil {
		t.Error("two claims work on one host record")
	}
	if _, _, err := l.claimRecord(known.RecordName{Place: known.Place{Instance: "j", NetworkView: "default"}, Name: "h"}); err == nil {
		t.Error("two claims work on one host record, as that of two InfobloxInstances, which can be one Infoblox")
	}
	if _, _, err := l.claimRecord(known.RecordName{Place: known.Place{Instance: "i", NetworkView: "other"}, Name: "h"}); err != nil {
		t.Errorf("in another network view: %v", err)
	}
	done()
	if _, _, err := l.claimRecord(name); err != nil {
		t.Errorf("after the first one: %v", err)
	}
}

// A host record has the reference of the one before it that had its name, so that a late update or delete would hit it. A late create does not.
func TestCreateAfterALostWrite(t *testing.T) {
	server := wapitest.New(t, wapitest.NewGrid("10.0.0.0/29"))
	name, port := server.Address()
	client, err := wapi.New(wapi.Config{Host: name, Port: port, Version: "2.12", Username: server.Username, Password: server.Password, CAFile: server.CAFile})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	from := source{Place: known.Place{Instance: "i", NetworkView: "default"}, subnets: []host.Subnet{{Prefix: netip.MustParsePrefix("10.0.0.0/29")}}}
	now := start
	l := testLogic(t, nil, &now)
	obtain := func(name string) error {
		_, err := l.obtain(t.Context(), client, host.Claim{UID: "00000000-0000-0000-0000-000000000001", Wanted: wanted(name, from), Subnets: from.subnets}, from)
		return err
	}
	for name, create := range map[string]bool{"created": true, "changed": false} {
		_ = l.sent(l.recordState(known.RecordName{Place: from.Place, Name: name}), create, &wapi.Error{})
		if err := obtain(name); (err == nil) != create {
			t.Errorf("while the record may still be %s: %v", name, err)
		}
	}
	from.subnets[0].Gateway = netip.MustParseAddr("10.0.0.1") // What was allocated is useless, so the record is to be updated.
	if err := obtain("created"); err == nil {
		t.Error("the record was updated while another write can still be carried out")
	}
	now = now.Add(settled)
	if err := obtain("changed"); err != nil {
		t.Errorf("after the update is over: %v", err)
	}
}

// createdLate is an API server that does not answer a create, and carries it out later.
type createdLate struct {
	shell.API
	sent   *v1beta2.IPAddress
	stored bool
}

func (c *createdLate) Create(_ context.Context, _ *shell.Kind, object, _ metav1.Object) error {
	c.sent = object.(*v1beta2.IPAddress)
	return context.DeadlineExceeded
}

func (c *createdLate) Get(_ context.Context, _ *shell.Kind, of types.NamespacedName, object metav1.Object) error {
	if !c.stored {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "ipaddresses"}, of.Name)
	}
	*object.(*v1beta2.IPAddress) = *c.sent
	return nil
}

// The address that Infoblox has chosen for a claim belongs to nobody else from that moment on, also while it is not known whether its IPAddress
// was created.
func TestCreateWithoutAnswer(t *testing.T) {
	const own, other = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"
	now := start
	api := &createdLate{}
	l := testLogic(t, api, &now)
	feed := &shell.Feed{Lock: l.Lock, Logic: l}
	claim := &v1beta2.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "c", UID: own}}
	claim.Spec.PoolRef = v1beta2.IPPoolReference{APIGroup: shell.GroupIPAM, Kind: v1alpha1.KindInfobloxIPPool, Name: "p"}
	feed.Shows(l.Claims, claim)
	feed.Shows(l.Pools, poolOfName("a", "p"))
	feed.Fill()

	server := wapitest.New(t, wapitest.NewGrid("10.0.0.0/29"))
	name, port := server.Address()
	client, err := wapi.New(wapi.Config{Host: name, Port: port, Version: "2.12", Username: server.Username, Password: server.Password, CAFile: server.CAFile})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	from := source{Place: known.Place{Instance: "i", NetworkView: "default"}, subnets: []host.Subnet{{Prefix: netip.MustParsePrefix("10.0.0.0/29")}}}
	step, err := l.obtain(t.Context(), client, host.Claim{UID: own, Namespace: "a", Name: "c", Wanted: wanted("c", from), Subnets: from.subnets}, from)
	if err != nil || step.Verb != host.Use {
		t.Fatalf("%v %v", step, err)
	}
	if !(known.At{World: l.World, Place: from.Place}).HeldByAnother(other, step.Address) || (known.At{World: l.World, Place: from.Place}).HeldByAnother(own, step.Address) || (known.At{World: l.World, Place: known.Place{Instance: "i", NetworkView: "other"}}).HeldByAnother(other, step.Address) {
		t.Error("an address that was chosen belongs to its claim, in its network view")
	}
	if err := l.create(t.Context(), claim, from, step); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if address, err := l.created(t.Context(), claim, nil); err == nil {
		t.Errorf("while the create may be carried out: %v", address)
	}
	later := &v1beta2.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "c", UID: "later", Annotations: map[string]string{known.AnnotationClaim: own}}, Spec: v1beta2.IPAddressSpec{PoolRef: claim.Spec.PoolRef}}
	feed.Shows(l.Addresses, later)
	if address, err := l.created(t.Context(), claim, later); err == nil {
		t.Errorf("while the create may be carried out, after a later one was: %v", address)
	}
	now, api.stored = now.Add(writeLasts), true
	if address, err := l.created(t.Context(), claim, nil); err != nil || known.HostAddress(address) != step.Address {
		t.Errorf("after it was carried out: %v, %v", address, err)
	}
	delete(l.Creating, own)
	claim.Annotations = map[string]string{known.AnnotationPlace: "i/default"}
	if address, err := l.created(t.Context(), claim, nil); err != nil || known.HostAddress(address) != step.Address {
		t.Errorf("of a claim that may have one, and the cache is late: %v, %v", address, err)
	}
	api.sent.Spec.PoolRef.Kind = "InClusterIPPool"
	if address, err := l.created(t.Context(), claim, nil); err != nil || address != nil {
		t.Errorf("one that is in the claim's way: %v, %v", address, err)
	}
}

// TestChecks: the address, the port, the CA file and the credentials of an InfobloxInstance are those that it names, also for its pools, and what
// is missing in Infoblox is found when it is missing and when it comes.
func TestChecks(t *testing.T) {
	for name, tc := range map[string]struct {
		grid           func(g *wapitest.Grid)
		instance       v1alpha1.InfobloxInstanceSpec
		pool           v1alpha1.InfobloxIPPoolSpec
		first, repairs string // what the pool says
		repair         func(g *wapitest.Grid)
	}{
		"everything is there": {first: "Ready", repairs: "Ready"},
		"no DNS view, which nobody needs without a zone": {
			grid:  func(g *wapitest.Grid) { g.DNSViews = nil },
			first: "Ready", repairs: "Ready",
		},
		"no DNS view for the zone": {
			grid:   func(g *wapitest.Grid) { g.DNSViews = nil },
			pool:   v1alpha1.InfobloxIPPoolSpec{DNSZone: "example.com"},
			first:  "DNSViewNotFound",
			repair: func(g *wapitest.Grid) { g.DNSViews = []string{"default"} }, repairs: "Ready",
		},
		"no network": {
			grid:   func(g *wapitest.Grid) { g.Networks = map[string][]netip.Prefix{"default": nil} },
			first:  "NetworkNotFound",
			repair: func(g *wapitest.Grid) { g.Networks["default"] = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")} }, repairs: "Ready",
		},
		"a network that goes": {
			first:  "Ready",
			repair: func(g *wapitest.Grid) { g.Networks["default"] = nil }, repairs: "NetworkNotFound",
		},
	} {
		t.Run(name, func(t *testing.T) {
			grid := wapitest.NewGrid("10.0.0.0/24")
			if tc.grid != nil {
				tc.grid(grid)
			}
			server := wapitest.New(t, grid)
			api, now := &stubAPI{conditions: map[*shell.Kind][]metav1.Condition{}}, start
			l := testLogic(t, api, &now)
			feed := &shell.Feed{Lock: l.Lock, Logic: l}
			instance := &v1alpha1.InfobloxInstance{ObjectMeta: metav1.ObjectMeta{Name: "i", UID: "1"}, Spec: tc.instance}
			instance.Spec.Host, instance.Spec.Port = server.Address()
			instance.Spec.WAPIVersion, instance.Spec.CustomCAPath, instance.Spec.CredentialsSecretRef.Name = "2.12", server.CAFile, "s"
			pool := &v1alpha1.InfobloxIPPool{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "2", Finalizers: []string{v1beta2.FinalizerProtectPool}}, Spec: tc.pool}
			pool.Spec.InstanceRef.Name, pool.Spec.Subnets = "i", []v1alpha1.Subnet{{CIDR: "10.0.0.0/24"}}
			feed.Shows(l.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "s"},
				Data: map[string][]byte{"username": []byte(server.Username), "password": []byte(server.Password)}})
			feed.Shows(l.Instances, instance)
			feed.Shows(l.Pools, pool)
			feed.Fill()

			sync := func() {
				t.Helper()
				if err := errors.Join(l.Sync(t.Context(), shell.KeyOf(shell.InfobloxInstances, instance)), l.Sync(t.Context(), shell.KeyOf(shell.InfobloxIPPools, pool))); err != nil {
					t.Error(err)
				}
			}
			sync()
			if i, p := api.says(shell.InfobloxInstances), api.says(shell.InfobloxIPPools); i != "ConfigurationValid" || p != tc.first {
				t.Fatalf("the InfobloxInstance says %q, the pool %q, want %q", i, p, tc.first)
			}
			// Soon nothing is asked again, and later everything is.
			server.Requests()
			sync()
			if asked := server.Requests(); len(asked) > 0 {
				t.Errorf("asked again at once: %v", asked)
			}
			if now = now.Add(checkEvery); tc.repair != nil {
				server.Grid(tc.repair)
			}
			sync()
			if p := api.says(shell.InfobloxIPPools); p != tc.repairs || len(server.Requests()) == 0 {
				t.Errorf("later the pool says %q, want %q", p, tc.repairs)
			}
		})
	}
}
