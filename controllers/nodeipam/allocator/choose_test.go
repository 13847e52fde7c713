package allocator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	. "github.com/multicidr/controller-manager/test/objects"
)

// now is any time: the state only compares times that it is told.
var now = time.Unix(1_000_000, 0)

// state is a State with what a test does to it, in few words.
type state struct {
	*allocator.State
	t       *testing.T
	nodes   map[string]*v1.Node
	version int
}

// started returns a state that has these ClusterCIDRs, and then whatever before adds, when it starts.
func started(t *testing.T, clusterCIDRs []*networkingv1.ClusterCIDR, before ...func(*state)) *state {
	s := &state{State: allocator.New(), t: t, nodes: map[string]*v1.Node{}}
	s.set(clusterCIDRs...)
	for _, f := range before {
		f(s)
	}
	s.Start()
	return s
}

func (s *state) set(clusterCIDRs ...*networkingv1.ClusterCIDR) {
	for _, cc := range clusterCIDRs {
		earlier, _ := s.Pool(cc.Name)
		s.SetPool(pool.Compile(cc, earlier))
	}
}

// show shows a Node in a new version.
func (s *state) show(n *v1.Node) allocator.Seen {
	s.version++
	n.ResourceVersion = fmt.Sprint(s.version)
	s.nodes[n.Name] = n
	return s.Observe(n, now)
}

func (s *state) has(n *v1.Node, podCIDRs ...string) allocator.Seen {
	n = n.DeepCopy()
	n.Spec.PodCIDRs = podCIDRs
	return s.show(n)
}

// send sends what there is for a Node; nil if there is nothing.
func (s *state) send(name string) []string {
	s.t.Helper()
	do, uid, _ := s.Next(name, now)
	if do != allocator.Write {
		return nil
	}
	r, ok := s.Send(name, uid)
	if !ok {
		return nil
	}
	return Texts(r.Blocks)
}

// serve shows a new Node, and writes what it gets.
func (s *state) serve(name string, edits ...func(*v1.Node)) []string {
	s.t.Helper()
	n := Node(name, edits...)
	s.show(n)
	return s.write(name)
}

func (s *state) write(name string) []string {
	s.t.Helper()
	blocks := s.send(name)
	if blocks != nil {
		s.has(s.nodes[name], blocks...)
	}
	return blocks
}

func (s *state) gone(name string) { s.Gone(name, s.nodes[name].UID) }

func (s *state) want(what string, got []string, want ...string) {
	s.t.Helper()
	if !slices.Equal(got, want) {
		s.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func sel(labels ...string) *v1.NodeSelector {
	var rs []v1.NodeSelectorRequirement
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		rs = append(rs, In(key, value))
	}
	return AnyOf(AllOf(rs...))
}

func labels(labels ...string) func(*v1.Node) {
	return func(n *v1.Node) {
		for _, label := range labels {
			key, value, _ := strings.Cut(label, "=")
			Label(key, value)(n)
		}
	}
}

// cc returns a ClusterCIDR as semantics.md writes it; ranges of IPv6 have a colon.
func cc(name string, selector *v1.NodeSelector, hostBits int32, ranges ...string) *networkingv1.ClusterCIDR {
	spec := networkingv1.ClusterCIDRSpec{PerNodeHostBits: hostBits, NodeSelector: selector}
	for _, r := range ranges {
		if strings.Contains(r, ":") {
			spec.IPv6 = r
		} else {
			spec.IPv4 = r
		}
	}
	return ClusterCIDR(name, spec)
}

func allocation(mode networkingv1.AllocationMode, cc *networkingv1.ClusterCIDR) *networkingv1.ClusterCIDR {
	cc = cc.DeepCopy()
	cc.Generation++
	cc.Spec.Allocation = mode
	return cc
}

func priority(n int32, cc *networkingv1.ClusterCIDR) *networkingv1.ClusterCIDR {
	cc.Spec.Priority = n
	return cc
}

func excluding(cc *networkingv1.ClusterCIDR, cidrs ...string) *networkingv1.ClusterCIDR {
	cc.Generation++
	cc.Spec.ExcludedCIDRs = cidrs
	return cc
}

// Steps of the examples: a new Node, with the podCIDRs that it gets; without any, it is pending.
type step struct {
	node   string
	labels []string
	want   []string
}

// TestChoice has the examples of the documented semantics by their number.
func TestChoice(t *testing.T) {
	type ccs = []*networkingv1.ClusterCIDR
	single := []string{"match=single", "ipv4=true", "ipv6=true"}
	t1s := cc("s", sel("match=single"), 8, "192.168.0.0/23", "fd00:30:100::/119")
	both := sel("ipv4=true", "ipv6=true")
	dual := cc("cc", nil, 8, "10.0.0.0/16", "fd00::/48")
	dual.Spec.IPv6PerNodeHostBits = new(int32(64))
	rack := []string{"node=n1", "rack=r1"}
	named := cc("cc", AnyOf(v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{In("metadata.name", "nf")}}), 8, "10.2.0.0/16")
	for id, tc := range map[string]struct {
		ccs   ccs
		steps []step
	}{
		"A1 one range":            {ccs{cc("cc", nil, 8, "10.10.0.0/16")}, []step{{"n1", nil, []string{"10.10.0.0/24"}}}},
		"A7 host bits masked off": {ccs{cc("cc", nil, 8, "10.244.7.9/16")}, []step{{"n", nil, []string{"10.244.0.0/24"}}}},
		"A8 IPv6 host bits": {ccs{dual}, []step{
			{"n1", nil, []string{"10.0.0.0/24", "fd00::/64"}}, {"n2", nil, []string{"10.0.1.0/24", "fd00:0:0:1::/64"}}}},
		"T1 more requirements": {ccs{t1s, cc("d", both, 8, "10.0.0.0/23", "fd12:30:200::/119")}, []step{
			{"n", single, []string{"10.0.0.0/24", "fd12:30:200::/120"}}}},
		"T2 fewer blocks": {ccs{t1s, cc("d2", both, 8, "10.0.0.0/20", "fd12:30:200::/116"), cc("f", both, 8, "172.16.0.0/23", "fd34:30:100::/119")}, []step{
			{"n", single, []string{"172.16.0.0/24", "fd34:30:100::/120"}}}},
		"T6 the smaller family counts": {ccs{cc("x", sel("l0=x", "l1=y"), 8, "127.123.234.0/23"), cc("y", sel("l0=x", "l2=z"), 8, "10.0.0.0/16", "ace:cab:deca::/120")}, []step{
			{"n", []string{"l0=x", "l1=y", "l2=z"}, []string{"10.0.0.0/24", "ace:cab:deca::/120"}}}},
		"T7 lower address": {ccs{cc("x", sel("a=b"), 8, "10.10.0.0/16"), cc("y", sel("a=b"), 8, "10.2.0.0/16")}, []step{
			{"n", []string{"a=b"}, []string{"10.2.0.0/24"}}}},
		"T8 fall-backs last": {ccs{cc("a", sel(rack...), 8, "10.5.0.0/24"), cc("b", sel("node=n1"), 4, "192.168.64.0/20"), cc("c", sel("node=n1"), 4, "192.168.128.0/17"), cc("z", nil, 6, "10.0.0.0/8")}, []step{
			{"x1", rack, []string{"10.5.0.0/24"}}, {"x2", rack, []string{"192.168.64.0/28"}}, {"x3", nil, []string{"10.0.0.0/26"}}}},
		"T10 fall-backs by the same rules": {ccs{cc("a-big", nil, 8, "10.0.0.0/8"), cc("b-small", nil, 8, "192.168.0.0/24")}, []step{{"n", nil, []string{"192.168.0.0/24"}}}},
		"T12 terms are ORed":               {ccs{cc("cc", AnyOf(AllOf(In("a", "1")), AllOf(In("b", "1"))), 8, "10.1.0.0/16")}, []step{{"n", []string{"a=1"}, []string{"10.1.0.0/24"}}}},
		"T13 matchFields":                  {ccs{named}, []step{{"other", nil, nil}, {"nf", nil, []string{"10.2.0.0/24"}}}},
		"T14 an empty term":                {ccs{cc("cc", AnyOf(v1.NodeSelectorTerm{}), 8, "10.3.0.0/16")}, []step{{"n", nil, nil}}},
		"priority before all else":         {ccs{cc("a", sel("a=b"), 8, "10.1.0.0/24"), priority(1, cc("z", nil, 8, "10.2.0.0/16"))}, []step{{"n", []string{"a=b"}, []string{"10.2.0.0/24"}}}},
		"X2 the next one takes over":       {ccs{cc("a", sel("p=x"), 8, "10.1.0.0/24"), cc("b", nil, 8, "10.2.0.0/16")}, []step{{"n1", []string{"p=x"}, []string{"10.1.0.0/24"}}, {"n2", []string{"p=x"}, []string{"10.2.0.0/24"}}}},
		"O1 two block sizes": {ccs{cc("a", sel("p=a"), 4, "10.0.0.0/24"), cc("b", sel("p=b"), 8, "10.0.0.0/16")}, []step{
			{"a1", []string{"p=a"}, []string{"10.0.0.0/28"}}, {"b1", []string{"p=b"}, []string{"10.0.1.0/24"}}, {"a2", []string{"p=a"}, []string{"10.0.0.16/28"}}}},
		"E1 exclusions of one do not affect others": {ccs{excluding(cc("wide", nil, 8, "10.50.0.0/21"), "10.50.5.0/24"), cc("special", sel("p=x"), 4, "10.50.5.0/24")}, []step{
			{"n", []string{"p=x"}, []string{"10.50.5.0/28"}}, {"w0", nil, []string{"10.50.0.0/24"}}, {"w1", nil, []string{"10.50.1.0/24"}}, {"w2", nil, []string{"10.50.2.0/24"}},
			{"w3", nil, []string{"10.50.3.0/24"}}, {"w4", nil, []string{"10.50.4.0/24"}}, {"w6", nil, []string{"10.50.6.0/24"}}, {"w7", nil, []string{"10.50.7.0/24"}}, {"w8", nil, nil}}},
		"None ends the search": {ccs{cc("z", nil, 8, "10.0.0.0/16"), allocation(networkingv1.AllocationNone, cc("virtual", sel("type=virtual"), 0))}, []step{
			{"v", []string{"type=virtual"}, nil}, {"n", nil, []string{"10.0.0.0/24"}}}},
		"only the first candidate counts for None": {ccs{priority(1, cc("z", nil, 8, "10.0.0.0/24")), allocation(networkingv1.AllocationNone, cc("virtual", sel("type=virtual"), 0))}, []step{
			{"v", []string{"type=virtual"}, []string{"10.0.0.0/24"}}}},
	} {
		t.Run(id, func(t *testing.T) {
			s := started(t, tc.ccs)
			for _, step := range tc.steps {
				s.want(step.node, s.serve(step.node, labels(step.labels...)), step.want...)
			}
		})
	}
}

// X1, X5, R1, R2, R5: a freed block is used again when its Node is gone, and after all others.
func TestReuse(t *testing.T) {
	s := started(t, []*networkingv1.ClusterCIDR{cc("cc", nil, 8, "10.0.0.0/22", "fd00:30:100::/118")})
	deleting := func(name string) {
		n := s.nodes[name].DeepCopy()
		n.DeletionTimestamp = &metav1.Time{Time: now}
		s.show(n)
	}
	s.want("a", s.serve("a"), "10.0.0.0/24", "fd00:30:100::/120")
	s.want("b", s.serve("b"), "10.0.1.0/24", "fd00:30:100::100/120")
	s.gone("a")
	s.want("c", s.serve("c"), "10.0.2.0/24", "fd00:30:100::200/120")
	s.want("d", s.serve("d"), "10.0.3.0/24", "fd00:30:100::300/120")
	s.want("e", s.serve("e"), "10.0.0.0/24", "fd00:30:100::/120")
	s.want("f, when the range is full", s.serve("f", Created(2)))
	s.want("g", s.serve("g", Created(1)))
	s.Changes()
	deleting("b") // it may live for hours behind a finalizer
	if s.want("f", s.send("f")); s.Changes().Walk {
		t.Error("a Node that is being deleted makes room")
	}
	s.gone("b")
	if !s.Changes().Walk {
		t.Error("no walk is due when a Node is gone")
	}
	s.Walk()
	if got := s.Changes().Nodes; !slices.Equal(got, []string{"g"}) {
		t.Errorf("%v are called, want the oldest", got)
	}
	s.want("g", s.send("g"), "10.0.1.0/24", "fd00:30:100::100/120")
	s.want("f", s.send("f"))
	s.gone("c")
	deleting("f")
	if s.want("f, being deleted", s.send("f")); s.serve("h") == nil {
		t.Error("a Node that is being deleted stands before others")
	}
}

// O4, P2, P5, S1: what others hold is never allocated.
func TestHeldByOthers(t *testing.T) {
	s := started(t, []*networkingv1.ClusterCIDR{cc("cc", nil, 8, "10.0.0.0/16", "fd00::/112")}, func(s *state) {
		s.SetService("flag", Pfxs("10.0.1.0/26"))
		s.has(Node("one-family"), "10.0.0.0/24")
		s.has(Node("elsewhere"), "172.10.0.0/24")
	})
	s.SetService("ServiceCIDR late", Pfxs("fd00::/121"))
	s.want("n1", s.serve("n1"), "10.0.2.0/24", "fd00::100/120")
	s.SetService("flag", nil)
	s.SetService("flag", Pfxs("10.0.3.0/24"))
	s.want("n2", s.serve("n2"), "10.0.4.0/24", "fd00::200/120")
}

// After a start the search goes on behind the block of the youngest Node, in each range by itself.
func TestCursorsAfterStart(t *testing.T) {
	nodes := func(s *state) {
		s.has(Node("old", Created(1)), "10.0.9.0/24", "fd00::300/120")
		s.has(Node("young", Created(3)), "10.0.4.0/24")
		s.has(Node("middle", Created(2)), "10.0.7.0/24", "fd00::/120")
	}
	s := started(t, []*networkingv1.ClusterCIDR{cc("a", nil, 8, "10.0.0.0/16", "fd00::/112")}, nodes)
	s.want("n1", s.serve("n1"), "10.0.5.0/24", "fd00::100/120")
	last := started(t, []*networkingv1.ClusterCIDR{cc("a", nil, 8, "255.255.0.0/16")}, func(s *state) { s.has(Node("n"), "255.255.255.0/24") })
	last.want("behind the end", last.serve("n1"), "255.255.0.0/24")
	late := started(t, nil, nodes)
	late.set(cc("late", nil, 8, "10.0.0.0/16"))
	late.want("of a ClusterCIDR that came later", late.serve("n1"), "10.0.0.0/24")
	again := cc("late", nil, 8, "10.0.0.0/16")
	again.UID = "another"
	late.set(again)
	late.want("of another one of that name", late.serve("n2"), "10.0.1.0/24")
}

// Until Start handlers only record, and nothing is chosen.
func TestBeforeStart(t *testing.T) {
	s := started(t, []*networkingv1.ClusterCIDR{cc("cc", nil, 8, "10.0.0.0/16")}, func(s *state) {
		s.show(Node("young", Created(2)))
		s.show(Node("old", Created(1)))
		s.Walk()
		if s.want("before the start", s.send("young")); len(s.Changes().Nodes) > 0 {
			s.t.Error("somebody is called before the start")
		}
		s.has(Node("taken"), "10.0.0.0/24")
	})
	if !s.Changes().Walk {
		t.Error("no walk is due")
	}
	s.want("young", s.send("young"), "10.0.2.0/24")
	s.want("old", s.send("old"), "10.0.1.0/24")
}

// A reservation is checked when it is sent, and a write without an answer before it is repeated.
func TestChecks(t *testing.T) {
	first, second := cc("first", nil, 8, "10.0.0.0/24"), cc("second", nil, 8, "10.1.0.0/16")
	replaced := priority(-1, cc("first", nil, 8, "10.0.0.0/24"))
	replaced.UID = "another"
	for what, change := range map[string]func(s *state){
		"disabled":             func(s *state) { s.set(allocation(networkingv1.AllocationDisabled, first)) },
		"being deleted":        func(s *state) { c := first.DeepCopy(); Deleted(c); s.set(c) },
		"gone":                 func(s *state) { s.DropPool("first") },
		"excludes":             func(s *state) { s.set(excluding(first.DeepCopy(), "10.0.0.7/32")) },
		"a service range":      func(s *state) { s.SetService("flag", Pfxs("10.0.0.0/30")) },
		"another Node has it":  func(s *state) { s.has(Node("other"), "10.0.0.0/28") },
		"replaced":             func(s *state) { s.set(replaced) },
		"Disabled and Enabled": nil,
	} {
		t.Run(what, func(t *testing.T) {
			s := started(t, []*networkingv1.ClusterCIDR{first, second})
			s.show(Node("n"))
			if do, _, _ := s.Next("n", now); do != allocator.Write {
				t.Fatalf("to do: %v", do)
			}
			if change == nil {
				s.set(allocation(networkingv1.AllocationDisabled, first))
				s.set(first)
				s.want("it is as it was", s.send("n"), "10.0.0.0/24")
				return
			}
			change(s)
			s.want("not sent yet", s.send("n"), "10.1.0.0/24")
			sent := started(t, []*networkingv1.ClusterCIDR{first, second})
			sent.show(Node("n"))
			sent.want("sent", sent.send("n"), "10.0.0.0/24")
			sent.Unanswered("n", "uid-n", now.Add(time.Second))
			sent.want("sent again", sent.send("n"), "10.0.0.0/24")
			sent.Next("n", now)
			change(sent)
			if r, ok := sent.Send("n", "uid-n"); ok {
				t.Errorf("%v are sent again, although they are not valid", r.Blocks)
			}
			if do, _, wait := sent.Next("n", now); do != allocator.Wait || wait != time.Second {
				t.Errorf("then %v, %v, want to wait for a second", do, wait)
			}
			if do, _, _ := sent.Next("n", now.Add(time.Second)); do != allocator.Read {
				t.Errorf("then %v, want to read", do)
			}
			if view, _ := sent.Node("n"); view.State != allocator.Sent || !slices.Equal(view.Blocks, Pfxs("10.0.0.0/24")) {
				t.Errorf("meanwhile it holds %v, %v", view.Blocks, view.State)
			}
			sent.NotStored("n", "uid-n")
			sent.want("read, and not stored", sent.send("n"), "10.1.0.0/24")
		})
	}
	for _, unlabelled := range []bool{false, true} {
		s := started(t, []*networkingv1.ClusterCIDR{cc("first", sel("p=x"), 8, "10.0.0.0/24"), second})
		s.show(Node("n", Label("p", "x")))
		s.Next("n", now)
		want := "10.0.0.0/24"
		if unlabelled {
			want = "10.1.0.0/24"
			if !s.show(Node("n")).Work {
				t.Error("a Node is relabelled, and nobody is called")
			}
		}
		s.want(fmt.Sprintf("relabelled: %t", unlabelled), s.send("n"), want)
	}
}

// TestAnswers follows one Node through what a write can come to.
func TestAnswers(t *testing.T) {
	const uid = types.UID("uid-n")
	for what, tc := range map[string]struct {
		answer func(s *state)
		want   allocator.ReservationState
		next   allocator.Action
		free   int // of four
	}{
		"stored":                              {func(s *state) { s.Stored("n", uid, "100") }, allocator.Assigned, allocator.Nothing, 3},
		"refused":                             {func(s *state) { s.Refused("n", uid) }, allocator.None, allocator.Write, 4},
		"not sent":                            {func(s *state) { s.NotSent("n", uid) }, allocator.Reserved, allocator.Write, 3},
		"no answer":                           {func(s *state) { s.Unanswered("n", uid, now.Add(1)) }, allocator.Sent, allocator.Write, 3},
		"no answer, then not sent":            {func(s *state) { s.Unanswered("n", uid, now.Add(1)); s.NotSent("n", uid) }, allocator.Sent, allocator.Write, 3},
		"no answer, then refused":             {func(s *state) { s.Unanswered("n", uid, now.Add(1)); s.Refused("n", uid) }, allocator.Sent, allocator.Write, 3},
		"no answer, then refused, long ago":   {func(s *state) { s.Unanswered("n", uid, now.Add(-1)); s.Refused("n", uid) }, allocator.Sent, allocator.Read, 3},
		"no answer, refused, being deleted":   {func(s *state) { s.Unanswered("n", uid, now.Add(1)); s.Refused("n", uid); s.show(Node("n", deleted)) }, allocator.Sent, allocator.Wait, 3},
		"no answer, then stored":              {func(s *state) { s.Unanswered("n", uid, now.Add(1)); s.Stored("n", uid, "100") }, allocator.Assigned, allocator.Nothing, 3},
		"another one is refused":              {func(s *state) { s.Refused("n", "other") }, allocator.Sent, allocator.Write, 3},
		"another one is stored":               {func(s *state) { s.Stored("n", "other", "100") }, allocator.Sent, allocator.Write, 3},
		"stored, and then a late refusal":     {func(s *state) { s.Stored("n", uid, "100"); s.Refused("n", uid) }, allocator.Assigned, allocator.Nothing, 3},
		"shown, and then a late refusal":      {func(s *state) { s.has(Node("n"), "10.0.0.0/24"); s.Refused("n", uid) }, allocator.Assigned, allocator.Nothing, 3},
		"being deleted, and not sent":         {func(s *state) { s.show(Node("n", deleted)); s.NotSent("n", uid) }, allocator.Reserved, allocator.Nothing, 4},
		"being deleted, and sent":             {func(s *state) { s.show(Node("n", deleted)) }, allocator.Sent, allocator.Read, 3},
		"gone":                                {func(s *state) { s.gone("n"); s.Stored("n", uid, "100") }, allocator.None, allocator.Nothing, 4},
		"replaced by another, in one update":  {func(s *state) { s.show(Node("n", UID("other"))); s.Stored("n", uid, "100") }, allocator.None, allocator.Write, 4},
		"an old one of that name is gone":     {func(s *state) { s.Gone("n", "other") }, allocator.Sent, allocator.Write, 3},
		"stored in the version that is shown": {func(s *state) { s.Stored("n", uid, s.nodes["n"].ResourceVersion) }, allocator.Sent, allocator.Write, 3},
		"no answer, then dropped, and refused": {func(s *state) {
			s.Unanswered("n", uid, now.Add(1))
			s.Stored("n", uid, "2")
			s.show(Node("n"))
			s.Refused("n", uid)
		}, allocator.Sent, allocator.Write, 3},
	} {
		t.Run(what, func(t *testing.T) {
			s := started(t, []*networkingv1.ClusterCIDR{cc("cc", nil, 8, "10.0.0.0/22")})
			s.show(Node("n"))
			s.want("sent", s.send("n"), "10.0.0.0/24")
			tc.answer(s)
			if view, _ := s.Node("n"); view.State != tc.want {
				t.Errorf("it is %v, want %v", view.State, tc.want)
			}
			p, _ := s.Pool("cc")
			do, _, _ := s.Next("n", now)
			free := s.Free(p, p.Ranges[0])
			if do == allocator.Write && tc.want == allocator.None {
				free++ // chosen again
			}
			if do != tc.next || free != uint64(tc.free) {
				t.Errorf("next is %v with %d free, want %v with %d", do, free, tc.next, tc.free)
			}
		})
	}
}

func deleted(n *v1.Node) { n.DeletionTimestamp = &metav1.Time{Time: now} }

// A Node shown as it was before an answer, or a read, changes nothing; one at least as new without podCIDRs was changed by somebody.
func TestOlderThanAnAnswer(t *testing.T) {
	for what, stored := range map[string]func(s *state){
		"an answer": func(s *state) { s.Stored("n", "uid-n", "5") },
		"a read": func(s *state) {
			read := Node("n")
			read.ResourceVersion, read.Spec.PodCIDRs = "5", []string{"10.0.0.0/24"}
			s.Observe(read, now)
		},
	} {
		s := started(t, []*networkingv1.ClusterCIDR{cc("cc", nil, 8, "10.0.0.0/22")})
		s.show(Node("n"))
		s.send("n")
		stored(s)
		for version, want := range map[string]allocator.Seen{"2": {}, "4": {}} {
			n := Node("n", Label("some", "label"))
			n.ResourceVersion = version
			if diff := cmp.Diff(want, s.Observe(n, now)); diff != "" {
				t.Errorf("%s, and then the version %s (-want +got):\n%s", what, version, diff)
			}
			if view, _ := s.Node("n"); view.State != allocator.Assigned {
				t.Errorf("%s, and then the version %s: %v", what, version, view.State)
			}
		}
		n := Node("n")
		n.ResourceVersion = "5"
		if seen := s.Observe(n, now); !seen.NotKept {
			t.Errorf("%s, and then the version 5: %+v", what, seen)
		}
		if view, _ := s.Node("n"); view.State != allocator.Sent || !slices.Equal(view.Blocks, Pfxs("10.0.0.0/24")) {
			t.Errorf("%s, and then the version 5: %+v", what, view)
		}
	}
}

// A Node in back-off is passed over by walks, keeps nothing, and stands in its old place when it comes back.
func TestBackOff(t *testing.T) {
	s := started(t, []*networkingv1.ClusterCIDR{cc("cc", nil, 8, "10.0.0.0/24")})
	s.show(Node("old", Created(1)))
	s.show(Node("young", Created(2)))
	s.want("old", s.send("old"), "10.0.0.0/24")
	s.Refused("old", "uid-old")
	if !s.Changes().Walk {
		t.Error("no walk is due")
	}
	s.Walk()
	if got := s.Changes().Nodes; !slices.Equal(got, []string{"young"}) {
		t.Errorf("%v are called", got)
	}
	s.want("young", s.send("young"), "10.0.0.0/24")
	s.want("old, when it comes back", s.send("old"))
	s.Refused("young", "uid-young")
	s.want("old", s.send("old"), "10.0.0.0/24")
}

// A Node that is being deleted gives back at once what was never sent for it.
func TestDeletedWhileReserved(t *testing.T) {
	s := started(t, []*networkingv1.ClusterCIDR{cc("cc", nil, 8, "10.0.0.0/24")})
	s.show(Node("n"))
	s.Next("n", now)
	s.show(Node("m"))
	if s.want("m", s.send("m")); !s.show(Node("n", deleted)).Work {
		t.Error("nobody looks at a Node that is being deleted")
	}
	s.want("n", s.send("n"))
	s.want("m", s.send("m"), "10.0.0.0/24")
}

// Seen.First and Seen.Own: podCIDRs of a Node that had none, and whether they were sent for it.
func TestFirstShown(t *testing.T) {
	s := started(t, []*networkingv1.ClusterCIDR{cc("cc", nil, 8, "10.0.0.0/16")})
	wants := func(seen allocator.Seen, first, own bool, what string) {
		t.Helper()
		if seen.First != first || seen.Own != own {
			t.Errorf("%s: first %t, own %t", what, seen.First, seen.Own)
		}
	}
	s.show(Node("n"))
	s.send("n")
	wants(s.has(Node("n"), "10.0.0.0/24"), true, true, "its own")
	wants(s.has(Node("n"), "10.0.0.0/24"), false, true, "its own again")
	wants(s.has(Node("new"), "10.0.1.0/24"), false, false, "a Node that is created with podCIDRs")
	s.show(Node("m"))
	s.Next("m", now)
	wants(s.has(Node("m"), "10.0.2.0/24"), true, false, "podCIDRs that were never sent")
	s.show(Node("o"))
	s.send("o")
	wants(s.has(Node("o"), "10.0.9.0/24"), true, false, "other podCIDRs than those sent")
	if view, _ := s.Node("o"); !slices.Equal(view.Blocks, Pfxs("10.0.9.0/24")) {
		t.Errorf("it holds %v", view.Blocks)
	}
}

func TestMembers(t *testing.T) {
	a, b := cc("a", nil, 8, "10.0.0.0/16"), cc("b", nil, 4, "10.0.0.0/17")
	s := started(t, []*networkingv1.ClusterCIDR{a, b}, func(s *state) {
		s.has(Node("named", From("a")), "10.0.0.0/24")
		s.has(Node("unnamed"), "10.0.1.0/24")
		s.has(Node("elsewhere", From("a")), "10.0.2.0/24", "10.9.0.0/24")
		s.has(Node("high"), "10.0.200.0/24")
	})
	s.show(Node("reserved"))
	s.Next("reserved", now)
	members := func(name string) (names []string) {
		p, _ := s.Pool(name)
		return slices.AppendSeq(names, s.Members(p))
	}
	s.want("of a", members("a"), "named", "unnamed", "elsewhere", "high")
	s.want("of b", members("b"), "unnamed", "elsewhere")
	s.send("reserved")
	if view, _ := s.Node("reserved"); !slices.Contains(members(view.ClusterCIDR), "reserved") {
		t.Error("what is sent does not count")
	}
	if s.DropPool("a"); s.InUse("a") || !s.InUse("b") {
		t.Error("InUse is wrong")
	}
	s.want("of b, without a", members("b"), "named", "unnamed", "elsewhere")
}
