package nodeipam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	clustercidrlisters "github.com/multicidr/controller-manager/apis/generated/listers/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pending"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/queues"
)

func TestFlagsSpec(t *testing.T) {
	for name, tc := range map[string]struct {
		flags   fromflags.Flags
		want    *networkingv1.ClusterCIDRSpec
		wantErr string // a part of it
	}{
		"no range": {flags: fromflags.Flags{NodeMaskSize: 26}},
		"IPv4, the default block": {
			flags: fromflags.Flags{ClusterCIDR: "10.244.0.0/16"},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", PerNodeHostBits: 8},
		},
		"IPv6, the default block": {
			flags: fromflags.Flags{ClusterCIDR: "fd00::/48"},
			want:  &networkingv1.ClusterCIDRSpec{IPv6: "fd00::/48", PerNodeHostBits: 64},
		},
		"one family, the general mask": {
			flags: fromflags.Flags{ClusterCIDR: "10.244.0.0/16", NodeMaskSize: 26},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", PerNodeHostBits: 6},
		},
		"one family, its own mask": {
			flags: fromflags.Flags{ClusterCIDR: "fd00::/48", NodeMaskSizeIPv6: 80},
			want:  &networkingv1.ClusterCIDRSpec{IPv6: "fd00::/48", PerNodeHostBits: 48},
		},
		"all three masks, as far as they agree": {
			flags: fromflags.Flags{ClusterCIDR: "10.244.0.0/16", NodeMaskSize: 26, NodeMaskSizeIPv4: 26, NodeMaskSizeIPv6: 64},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", PerNodeHostBits: 6},
		},
		"two families, the default blocks": {
			flags: fromflags.Flags{ClusterCIDR: "10.244.0.0/16,fd00::/48"},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", IPv6: "fd00::/48", PerNodeHostBits: 8, IPv6PerNodeHostBits: new(int32(64))},
		},
		"two families in the other order are the same object": {
			flags: fromflags.Flags{ClusterCIDR: " fd00::/48, 10.244.0.0/16 "},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", IPv6: "fd00::/48", PerNodeHostBits: 8, IPv6PerNodeHostBits: new(int32(64))},
		},
		"two families, equal host bits": {
			flags: fromflags.Flags{ClusterCIDR: "10.96.0.0/12,fd00:10:96::/112", NodeMaskSizeIPv4: 24, NodeMaskSizeIPv6: 120},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.96.0.0/12", IPv6: "fd00:10:96::/112", PerNodeHostBits: 8},
		},
		"host bits of the range are masked off": {
			flags: fromflags.Flags{ClusterCIDR: "10.244.7.9/16"},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", PerNodeHostBits: 8},
		},
		"no CIDR":                               {flags: fromflags.Flags{ClusterCIDR: "10.244.0.0"}, wantErr: "--cluster-cidr: invalid CIDR address: 10.244.0.0: write one CIDR"},
		"IPv4-mapped IPv6":                      {flags: fromflags.Flags{ClusterCIDR: "::ffff:10.0.0.0/112,fd00::/64"}, wantErr: "::ffff:10.0.0.0/112 contains IPv4-mapped addresses"},
		"two of one family":                     {flags: fromflags.Flags{ClusterCIDR: "10.1.0.0/16,10.2.0.0/16"}, wantErr: "at most one CIDR of each family"},
		"three":                                 {flags: fromflags.Flags{ClusterCIDR: "10.1.0.0/16,fd00::/48,10.2.0.0/16"}, wantErr: "at most one CIDR of each family"},
		"the general mask with two families":    {flags: fromflags.Flags{ClusterCIDR: "10.244.0.0/16,fd00::/48", NodeMaskSize: 24}, wantErr: "use --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6"},
		"the general mask and one of a family":  {flags: fromflags.Flags{ClusterCIDR: "10.244.0.0/16", NodeMaskSize: 24, NodeMaskSizeIPv4: 25}, wantErr: "--node-cidr-mask-size is 24, but --node-cidr-mask-size-ipv4 is 25: remove one of them"},
		"the mask of a family that is not used": {flags: fromflags.Flags{ClusterCIDR: "10.244.0.0/16", NodeMaskSizeIPv6: 64}, wantErr: "--node-cidr-mask-size-ipv6 is set, but --cluster-cidr has no IPv6 range"},
		"blocks larger than the range":          {flags: fromflags.Flags{ClusterCIDR: "10.244.0.0/24", NodeMaskSize: 16}, wantErr: "Nodes cannot get /16 blocks of --cluster-cidr 10.244.0.0/24: use a --node-cidr-mask-size from 24 to 28"},
		"blocks below the minimum":              {flags: fromflags.Flags{ClusterCIDR: "10.244.0.0/16", NodeMaskSize: 30}, wantErr: "from 16 to 28"},
		"blocks of a family below the minimum":  {flags: fromflags.Flags{ClusterCIDR: "10.244.0.0/16", NodeMaskSizeIPv4: 30}, wantErr: "use a --node-cidr-mask-size-ipv4 from 16 to 28"},
		"the same with two families":            {flags: fromflags.Flags{ClusterCIDR: "10.244.0.0/16,fd00::/48", NodeMaskSizeIPv6: 126}, wantErr: "use a --node-cidr-mask-size-ipv6 from 48 to 124"},
		"default blocks that do not fit":        {flags: fromflags.Flags{ClusterCIDR: "10.244.0.0/26,fd00::/48"}, wantErr: "use a --node-cidr-mask-size-ipv4 from 26 to 28"},
		"a mask that is none":                   {flags: fromflags.Flags{ClusterCIDR: "10.244.0.0/16", NodeMaskSize: -1}, wantErr: "cannot get /-1 blocks"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.flags.Spec()
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error %v, want %q in it", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got == nil {
				return
			}
			// What the flags make must be a ClusterCIDR that serves.
			if p := clustercidr.Compile(ClusterCIDR("a", *got)); p.Problem != "" {
				t.Errorf("it is invalid: %s", p.Problem)
			}
			if !clustercidr.SameRanges(*got, *tc.want) || !strings.HasPrefix(fromflags.NameOf(got), fromflags.Prefix) {
				t.Errorf("%s is not recognised", fromflags.NameOf(got))
			}
		})
	}
}

// writing is an API server that says what ClusterCIDRs it was asked to write.
type writing struct {
	requests.API
	asked []string
	fails map[string]error // by what is asked
}

func (w *writing) ask(format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	w.asked = append(w.asked, what)
	return w.fails[what]
}

func (w *writing) CreateClusterCIDR(_ context.Context, cc *networkingv1.ClusterCIDR) (*networkingv1.ClusterCIDR, error) {
	return cc, w.ask("create %s", cc.Name)
}

func (w *writing) PatchClusterCIDR(_ context.Context, name string, patch []byte) error {
	var p struct {
		Metadata struct {
			UID, ResourceVersion string
			Annotations          map[string]*string
		}
		Spec networkingv1.ClusterCIDRSpec
	}
	if err := json.Unmarshal(patch, &p); err != nil {
		return err
	}
	superseded := "null"
	if s := p.Metadata.Annotations[networkingv1.AnnotationSuperseded]; s != nil {
		superseded = *s
	}
	return w.ask("%s of %s at %s: %s, superseded %s", name, p.Metadata.UID, p.Metadata.ResourceVersion, p.Spec.Allocation, superseded)
}

func (w *writing) DeleteClusterCIDR(_ context.Context, name string, uid types.UID, resourceVersion string) error {
	return w.ask("delete %s of %s at %s", name, uid, resourceVersion)
}

func TestFollowFlags(t *testing.T) {
	now, other := Spec4("10.244.0.0/16", 8, nil), Spec4("10.245.0.0/16", 8, nil)
	current, old := fromflags.NameOf(&now), fromflags.NameOf(&other)
	type change = func(*networkingv1.ClusterCIDR)
	made := func(cc *networkingv1.ClusterCIDR) {
		cc.Labels, cc.ResourceVersion = map[string]string{networkingv1.LabelCreatedFromFlags: "true"}, "7"
	}
	disabled := func(cc *networkingv1.ClusterCIDR) { cc.Spec.Allocation = networkingv1.AllocationDisabled }
	enabled := func(cc *networkingv1.ClusterCIDR) { cc.Spec.Allocation = networkingv1.AllocationEnabled }
	annotated := func(cc *networkingv1.ClusterCIDR) {
		metav1.SetMetaDataAnnotation(&cc.ObjectMeta, networkingv1.AnnotationSuperseded, "true")
	}
	later := func(cc *networkingv1.ClusterCIDR) { cc.CreationTimestamp = metav1.NewTime(time.Unix(9, 0)) }
	of := func(name string, spec networkingv1.ClusterCIDRSpec, more ...change) *networkingv1.ClusterCIDR {
		return ClusterCIDR(name, spec, append([]change{made}, more...)...)
	}
	ccs := func(all ...*networkingv1.ClusterCIDR) []*networkingv1.ClusterCIDR { return all }
	enables, disables := "%s of uid-%[1]s at 7: Enabled, superseded null", "%s of uid-%[1]s at 7: Disabled, superseded true"
	deletes := "delete %s of uid-%[1]s at 7"
	for name, tc := range map[string]struct {
		flags *networkingv1.ClusterCIDRSpec
		ccs   []*networkingv1.ClusterCIDR
		used  string // podCIDR of a Node
		fails string // what the API server refuses
		want  []string
	}{
		"there is none": {flags: &now, want: []string{"create " + current}},
		"without flags": {},
		"as it has to be, however a user has set it": {flags: &now, ccs: ccs(of(current, now, disabled))},
		"other flags":                                   {flags: &now, ccs: ccs(of(old, other)), want: []string{fmt.Sprintf(disables, old), "create " + current}},
		"no flags any more, unused":                     {ccs: ccs(of(old, other)), want: []string{fmt.Sprintf(disables, old)}},
		"disabled by us, in use":                        {ccs: ccs(of(old, other, disabled, annotated)), used: "10.245.1.0/24"},
		"disabled by us, unused":                        {ccs: ccs(of(old, other, disabled, annotated)), want: []string{fmt.Sprintf(deletes, old)}},
		"disabled by us, unused, and changed by a user": {ccs: ccs(of(old, other, disabled, annotated, func(cc *networkingv1.ClusterCIDR) { cc.Spec.ExcludedCIDRs = []string{"10.245.0.0/24"} }))},
		"disabled by a user, unused":                    {ccs: ccs(of(old, other, disabled))},
		"enabled again by a user":                       {ccs: ccs(of(old, other, enabled, annotated)), want: []string{fmt.Sprintf(disables, old)}},
		"the flags come back":                           {flags: &now, ccs: ccs(of(current, now, disabled, annotated)), want: []string{fmt.Sprintf(enables, current)}},
		"the flags come back, and a user has enabled it, so that he can disable it again": {flags: &now, ccs: ccs(of(current, now, enabled, annotated)), want: []string{fmt.Sprintf(enables, current)}},
		"one too many, in use": {flags: &now, ccs: ccs(of(current+"-2", now, later), of(current, now)), used: "10.244.1.0/24", want: []string{fmt.Sprintf(disables, current+"-2")}},
		"one too many, unused": {flags: &now, ccs: ccs(of(current+"-2", now, later, disabled, annotated), of(current, now)), want: []string{fmt.Sprintf(deletes, current+"-2")}},
		"one too many has to take over": {flags: &now, ccs: ccs(of(current+"-2", now, later, disabled, annotated), of(current, now, Deleted)), used: "10.244.1.0/24",
			want: []string{fmt.Sprintf(enables, current+"-2")}},
		"left behind by an older version": {flags: &now, ccs: ccs(of(old, other, Deleted)), used: "10.245.1.0/24", want: []string{"create " + current}},
		"the label on another name":       {flags: &now, ccs: ccs(of("second", other), of(current, now))},
		"the name without the label":      {flags: &now, ccs: ccs(ClusterCIDR(current, other), ClusterCIDR(old, other)), want: []string{"create " + current + "-2"}},
		"somebody took the label away":    {flags: &now, ccs: ccs(ClusterCIDR(current, now))},
		"a write that is refused does not keep another one from it": {flags: &now, ccs: ccs(of(old, other)), fails: fmt.Sprintf(disables, old),
			want: []string{fmt.Sprintf(disables, old), "create " + current}},
	} {
		t.Run(name, func(t *testing.T) {
			clusterCIDRs := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			w := &writing{fails: map[string]error{tc.fails: errors.New("no")}}
			c := newController(Config{FromFlags: tc.flags}, parts{api: w, now: time.Now, clusterCIDRs: clustercidrlisters.NewClusterCIDRLister(clusterCIDRs), newQueue: newQueue})
			for _, l := range c.lines() {
				t.Cleanup(l.queue.ShutDown)
			}
			for _, cc := range tc.ccs {
				if err := clusterCIDRs.Add(cc); err != nil {
					t.Fatal(err)
				}
				c.with(func(b *allocator.State) { b.SetPool(c.compile(cc)) })
			}
			if tc.used != "" {
				c.with(func(b *allocator.State) { b.Observe(Node("n"), Pfxs(tc.used), nil) })
			}
			looked := "another"
			if tc.fails != "" {
				looked = old // whose error it is
			}
			if err := c.followFlags(t.Context(), looked); (err != nil) != (tc.fails != "") {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(tc.want, w.asked); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

// altering is an API server at which something changes what is created.
type altering struct {
	*writing
	change  func(*networkingv1.ClusterCIDR)
	objects cache.Indexer
}

func (a *altering) CreateClusterCIDR(ctx context.Context, cc *networkingv1.ClusterCIDR) (*networkingv1.ClusterCIDR, error) {
	stored := cc.DeepCopy()
	stored.UID = types.UID(fmt.Sprintf("uid-%d", len(a.asked)))
	a.change(stored)
	_ = a.objects.Add(stored)
	_, err := a.writing.CreateClusterCIDR(ctx, cc)
	return stored, err
}

// A ClusterCIDR of the flags that is stored otherwise than it was sent is made once, and again when a user has deleted it.
func TestFlagsThatAreStoredOtherwise(t *testing.T) {
	bits := int32(64)
	for name, change := range map[string]func(*networkingv1.ClusterCIDR){
		"a policy drops the label":       func(cc *networkingv1.ClusterCIDR) { cc.Labels = nil },
		"a policy adds a selector":       func(cc *networkingv1.ClusterCIDR) { cc.Spec.NodeSelector = AnyOf(AllOf(In("p", "x"))) },
		"another CRD does not know bits": func(cc *networkingv1.ClusterCIDR) { cc.Spec.IPv6PerNodeHostBits = nil },
	} {
		t.Run(name, func(t *testing.T) {
			objects := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			a := &altering{writing: &writing{}, change: change, objects: objects}
			c := newController(Config{FromFlags: &networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", IPv6: "fd00::/48", PerNodeHostBits: 8, IPv6PerNodeHostBits: &bits}},
				parts{api: a, now: time.Now, clusterCIDRs: clustercidrlisters.NewClusterCIDRLister(objects), newQueue: newQueue})
			for _, l := range c.lines() {
				t.Cleanup(l.queue.ShutDown)
			}
			made := fromflags.NameOf(c.flags)
			for range 3 {
				if err := c.followFlags(t.Context(), fromflags.NameOf(c.flags)); !errors.Is(err, requests.ErrStoredOtherwise) {
					t.Errorf("error %v, want that it is stored otherwise", err)
				}
			}
			if diff := cmp.Diff([]string{"create " + made}, a.asked); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			_ = objects.Delete(ClusterCIDR(made, *c.flags))
			a.change = func(*networkingv1.ClusterCIDR) {}
			for range 2 {
				if err := c.followFlags(t.Context(), fromflags.NameOf(c.flags)); err != nil {
					t.Error(err)
				}
			}
			if diff := cmp.Diff([]string{"create " + made, "create " + made}, a.asked); diff != "" {
				t.Errorf("writes after it was deleted (-want +got):\n%s", diff)
			}
		})
	}
}

// At a start Nodes are served before anything is written. A superseded ClusterCIDR gives them nothing, and says so.
func TestSupersededIsDisabledAtOnce(t *testing.T) {
	now, other := Spec4("10.244.0.0/16", 8, nil), Spec4("10.245.0.0/16", 8, nil)
	made := func(cc *networkingv1.ClusterCIDR) {
		cc.Labels = map[string]string{networkingv1.LabelCreatedFromFlags: "true"}
	}
	for name, tc := range map[string]struct {
		cc        *networkingv1.ClusterCIDR
		flags     *networkingv1.ClusterCIDRSpec
		wantState ipam.State
		wantReady string // reason and a part of the message
	}{
		"other flags":               {ClusterCIDR(fromflags.NameOf(&other), other, made), &now, ipam.Disabled, "Superseded: It was made from flags, which now name another range or block size."},
		"no flags":                  {ClusterCIDR(fromflags.NameOf(&other), other, made), nil, ipam.Disabled, "Superseded: It was made from flags, and the controller has no such flags now."},
		"without its finalizer":     {ClusterCIDR(fromflags.NameOf(&other), other, made, NoFinalizer), &now, ipam.Disabled, "Superseded: "},
		"being deleted":             {ClusterCIDR(fromflags.NameOf(&other), other, made, Deleted), &now, ipam.Terminating, "Terminating: "},
		"the same flags":            {ClusterCIDR(fromflags.NameOf(&now), now, made), &now, ipam.Enabled, "Available: "},
		"the label on another name": {ClusterCIDR("second", other, made), &now, ipam.Enabled, "Available: "},
		"the name without a label":  {ClusterCIDR(fromflags.NameOf(&other), other), &now, ipam.Enabled, "Available: "},
	} {
		t.Run(name, func(t *testing.T) {
			c := newController(Config{FromFlags: tc.flags}, parts{now: time.Now, newQueue: newQueue})
			for _, l := range c.lines() {
				t.Cleanup(l.queue.ShutDown)
			}
			b := allocator.New()
			p := c.compile(tc.cc)
			b.SetPool(p)
			ready := b.Ready(p)
			if got := ready.Reason + ": " + ready.Message; p.State != tc.wantState || !strings.HasPrefix(got, tc.wantReady) {
				t.Errorf("%v, %s; want %v, %s", p.State, got, tc.wantState, tc.wantReady)
			}
			_, refusals, served := b.Reserve(Node("n"))
			if served != (tc.wantState == ipam.Enabled) {
				t.Errorf("a Node is served: %t", served)
			}
			if said := pending.NotAvailable(refusals, 1); strings.Contains(said, "spec.allocation") {
				t.Errorf("the advice does not help: %s", said)
			}
		})
	}
}

// stuck does not let ClusterCIDRs go, as a webhook for their deletion may.
type stuck struct {
	*leader
	err error
}

func (s stuck) PatchClusterCIDR(context.Context, string, []byte) error { return s.err }

func (s stuck) CreateClusterCIDR(_ context.Context, cc *networkingv1.ClusterCIDR) (*networkingv1.ClusterCIDR, error) {
	stored := cc.DeepCopy()
	stored.UID = types.UID("of " + cc.Name)
	if err := s.clusterCIDRs.Add(stored); err != nil {
		return nil, err
	}
	s.heardOfClusterCIDR(cc.Name)
	return stored, nil
}

// A user deletes the ClusterCIDR of the flags, no Node keeps it, and yet it does not go. Nodes do not wait for that, and health says it.
func TestFlagsWhoseClusterCIDRDoesNotGo(t *testing.T) {
	for name, err := range map[string]error{
		"forbidden": forbidden("no"),
		"conflict":  apierrors.NewConflict(networkingv1.SchemeGroupVersion.WithResource("clustercidrs").GroupResource(), "x", nil),
		"not kept":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, true)
				spec := Spec4("10.2.0.0/24", 4, nil)
				l.flags, l.api = &spec, stuck{l, err}
				l.setRange(t, ClusterCIDR(fromflags.NameOf(&spec), *spec.DeepCopy(), Deleted, func(cc *networkingv1.ClusterCIDR) {
					cc.Labels = map[string]string{networkingv1.LabelCreatedFromFlags: "true"}
				}))
				defer l.start(t)()
				l.watch("n", Node("n"))
				time.Sleep(2*queues.RetryMax + health.FailsFor)
				synctest.Wait()
				if podCIDR := l.node("n").Spec.PodCIDR; podCIDR != "10.2.0.0/28" {
					t.Errorf("the Node has %q, want 10.2.0.0/28", podCIDR)
				}
				if err := l.health.Check(nil); err == nil {
					t.Error("health says ok")
				}
			})
		})
	}
}

// gap is an API server that stores the first ClusterCIDR of the flags, and loses it (a restore of etcd, or somebody takes the finalizer away and deletes it)
// before the watch, which is late and then starts anew from a list, has shown it.
type gap struct {
	*leader
	creations int
	answer    error
}

func (g *gap) CreateClusterCIDR(_ context.Context, cc *networkingv1.ClusterCIDR) (*networkingv1.ClusterCIDR, error) {
	if g.creations++; g.creations == 1 {
		return cc, g.answer
	}
	cc = cc.DeepCopy()
	cc.UID = "second"
	if err := g.clusterCIDRs.Add(cc); err != nil {
		return nil, err
	}
	g.heardOfClusterCIDR(cc.Name)
	return cc, nil
}

// A ClusterCIDR of the flags can go before the watch has shown it. No event comes then, and it is made again all the same.
func TestFlagsClusterCIDRThatIsNeverSeen(t *testing.T) {
	for name, answer := range map[string]error{
		"created": nil,
		"exists":  apierrors.NewAlreadyExists(networkingv1.SchemeGroupVersion.WithResource("clustercidrs").GroupResource(), "x"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, true)
				g := &gap{leader: l, answer: answer}
				l.api = g
				spec := Spec4("10.2.0.0/24", 4, nil)
				l.flags = &spec
				stop := l.start(t)
				l.clusterCIDRQueue.Add(fromflags.NameOf(l.flags)) // as the start does
				time.Sleep(time.Second)
				l.watch("late", Node("late", Created(1)))
				time.Sleep(time.Hour)
				if n := l.node("late"); n.Spec.PodCIDR == "" {
					t.Errorf("an hour later the Node waits, %d creations were sent; health: %v", g.creations, l.health.Check(nil))
				}
				stop()
			})
		})
	}
}

// What users have excluded from the ClusterCIDRs of earlier flags stays excluded, also if it is more than the API takes.
func TestExclusionsOfSeveralFlags(t *testing.T) {
	var made []*networkingv1.ClusterCIDR
	for second := range 2 {
		spec := Spec4(fmt.Sprintf("10.%d.0.0/16", second), 8, nil)
		for third := range 200 {
			spec.ExcludedCIDRs = append(spec.ExcludedCIDRs, fmt.Sprintf("10.%d.%d.0/28", second, third))
		}
		made = append(made, ClusterCIDR(fmt.Sprint(fromflags.Prefix, second), spec, func(cc *networkingv1.ClusterCIDR) {
			cc.Labels = map[string]string{networkingv1.LabelCreatedFromFlags: "true"}
		}))
	}
	kept := Pfxs(fromflags.ExcludedBefore(made, Spec4("10.0.0.0/15", 8, nil))...)
	if len(kept) > fromflags.MaxExcluded {
		t.Errorf("%d exclusions, and the API takes %d", len(kept), fromflags.MaxExcluded)
	}
	for _, cc := range made {
		for _, e := range Pfxs(cc.Spec.ExcludedCIDRs...) {
			if !slices.ContainsFunc(kept, func(k netip.Prefix) bool { return k.Bits() <= e.Bits() && k.Contains(e.Addr()) }) {
				t.Fatalf("%v is not excluded any more", e)
			}
		}
	}
}

// existing answers each creation of a ClusterCIDR with AlreadyExists, as a webhook of odd manners does, and has none.
type existing struct {
	*leader
	tries atomic.Int32
}

func (e *existing) CreateClusterCIDR(_ context.Context, cc *networkingv1.ClusterCIDR) (*networkingv1.ClusterCIDR, error) {
	e.tries.Add(1)
	return nil, apierrors.NewAlreadyExists(networkingv1.Resource("clustercidrs"), cc.Name)
}

func TestCreationThatIsAnsweredWithAlreadyExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, true)
		spec := Spec4("10.2.0.0/24", 4, nil)
		l.flags = &spec
		e := &existing{leader: l}
		l.api = e
		stop := l.start(t)
		// Two answers in a moment are no problem yet: the watch may be late.
		for range 3 {
			l.clusterCIDRQueue.Add(fromflags.NameOf(l.flags))
			time.Sleep(time.Second / 10)
		}
		if err := l.health.Check(nil); err != nil || e.tries.Load() < 2 {
			t.Errorf("after %d creations: %v", e.tries.Load(), err)
		}
		for time.Sleep(3 * queues.RetryMax); e.tries.Load() < 10; time.Sleep(queues.RetryMax / 3) {
			if l.health.Check(nil) == nil {
				t.Fatalf("health says ok after %d creations", e.tries.Load())
			}
		}
		stop()
	})
}

// The ClusterCIDR of the flags was superseded, and so disabled, by other flags; somebody took its label away; the flags are back.
func TestFlagsBackAndTheirClusterCIDRHasNoLabel(t *testing.T) {
	now := Spec4("10.244.0.0/16", 8, nil)
	clusterCIDRs := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	w := &writing{}
	c := newController(Config{FromFlags: &now}, parts{api: w, now: time.Now, clusterCIDRs: clustercidrlisters.NewClusterCIDRLister(clusterCIDRs), newQueue: newQueue})
	for _, l := range c.lines() {
		t.Cleanup(l.queue.ShutDown)
	}
	cc := ClusterCIDR(fromflags.NameOf(&now), now, func(cc *networkingv1.ClusterCIDR) {
		cc.Spec.Allocation = networkingv1.AllocationDisabled
		metav1.SetMetaDataAnnotation(&cc.ObjectMeta, networkingv1.AnnotationSuperseded, "true")
	})
	if err := clusterCIDRs.Add(cc); err != nil {
		t.Fatal(err)
	}
	c.with(func(b *allocator.State) { b.SetPool(c.compile(cc)) })
	c.health.WaitFor(health.Problem{})
	err := c.followFlags(t.Context(), cc.Name)
	c.with(func(b *allocator.State) {
		_, _, ok := b.Reserve(Node("n"))
		if !ok && len(w.asked) == 0 && err == nil {
			t.Error("no ClusterCIDR serves what the flags say, nothing is written, and nothing is said")
		}
	})
}
