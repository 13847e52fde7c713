package debugpage

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	. "github.com/multicidr/controller-manager/test/objects"
)

type step func(*allocator.State)

func set(cc *networkingv1.ClusterCIDR) step {
	return func(s *allocator.State) {
		before, _ := s.Pool(cc.Name)
		s.SetPool(pool.Compile(cc, before))
	}
}

func observe(n *v1.Node) step {
	return func(s *allocator.State) { s.Observe(n, time.Time{}) }
}

// send reserves blocks for a Node without podCIDRs, if there are any, and sends them.
func send(n *v1.Node) step {
	return func(s *allocator.State) {
		s.Observe(n, time.Time{})
		s.Send(n.Name, n.UID)
	}
}

// show returns a page for nodes after the steps.
func show(nodes []*v1.Node, steps ...step) http.Handler {
	state := allocator.New()
	state.Start()
	for _, s := range steps {
		s(state)
	}
	failing := health.New(&health.Watches{})
	failing.WaitFor(health.Problem{What: "the CRD"})
	return Handler(Source{
		Health: failing,
		Nodes:  func() []*v1.Node { return nodes },
		With:   func(f func(*allocator.State)) bool { f(state); return len(steps) > 0 },
	})
}

func ask(h http.Handler, method, target, accept string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/"+target, nil)
	r.URL.Path = strings.TrimPrefix(r.URL.Path, "/") // as http.StripPrefix leaves it
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// oneOfEach is a controller in which everything that can be shown occurs once.
func oneOfEach() http.Handler {
	with := func(n *v1.Node, cidrs ...string) *v1.Node {
		n.Spec.PodCIDRs = cidrs
		return n
	}
	n1, wide, old := with(Node("n1", From("a")), "10.0.1.0/24", "fd00::/120"), with(Node("wide"), "10.0.0.0/23"), with(Node("old"), "172.16.0.0/24")
	waiting, unreadable, going := Node("waiting", Label("zone", "b")), with(Node("unreadable"), "10.0.0.0/99"), Node("going")
	going.DeletionTimestamp = &going.CreationTimestamp
	dual := networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/20", IPv6: "fd00::/116", PerNodeHostBits: 8, Priority: 7, ExcludedCIDRs: []string{"10.0.0.0/24"}}
	return show([]*v1.Node{n1, Node("n2"), wide, old, waiting, unreadable, going, Node("new"), Node("first", Label("zone", "b"))},
		func(s *allocator.State) { s.SetService("ServiceCIDR kubernetes", Pfxs("10.0.15.0/24")) },
		set(ClusterCIDR("a", dual)),
		set(ClusterCIDR("b", Spec4("192.168.0.0/24", 8, AnyOf(AllOf(In("zone", "b")))))),
		send(Node("n1", From("a"))), send(Node("n2")),
		observe(n1), observe(wide), observe(old), observe(unreadable),
		set(ClusterCIDR("a", dual, func(cc *networkingv1.ClusterCIDR) { cc.Spec.Allocation = networkingv1.AllocationDisabled })),
		send(Node("first", Label("zone", "b"))), send(waiting),
	)
}

// The whole of it: its field names are an interface.
func TestJSON(t *testing.T) {
	const want = `{
	"controller": "multi-cidr-node-ipam-controller", "time": "2000-01-01T00:00:00Z", "problem": "not serving Nodes yet; waiting for the CRD",
	"summary": {"total": 9, "allocated": 4, "reserved": 2, "pending": 2, "deleting": 1, "none": 0, "outOfRange": ["old"], "conflicting": ["n1", "wide"]},
	"clusterCIDRs": [
		{
			"name": "a", "state": "Disabled", "message": "spec.allocation is Disabled. Nodes keep what they have. Set it to Enabled to allocate from this ClusterCIDR.", "priority": 7, "members": 3,
			"overlapping": "Service ranges, which are never allocated: 10.0.15.0/24 of ServiceCIDR kubernetes.",
			"conflicted": "The same addresses are held by Node n1 (10.0.1.0/24) and Node wide (10.0.0.0/23). Replace each Node that should not have them: drain and delete it, then reboot its machine or, in a node group, delete the machine.",
			"ranges": [
				{"family": "IPv4", "cidr": "10.0.0.0/20", "blockPrefixLength": 24, "total": 16, "allocated": 1, "reserved": 1, "unavailable": 2, "free": 12},
				{"family": "IPv6", "cidr": "fd00::/116", "blockPrefixLength": 120, "total": 16, "allocated": 1, "reserved": 1, "unavailable": 0, "free": 14}
			]
		},
		{
			"name": "b", "state": "Exhausted", "message": "No free block for IPv4. Create another ClusterCIDR, or delete Nodes that are not needed.", "priority": 0, "members": 1,
			"ranges": [{"family": "IPv4", "cidr": "192.168.0.0/24", "blockPrefixLength": 24, "total": 1, "allocated": 0, "reserved": 1, "unavailable": 0, "free": 0}]
		}
	],
	"pending": [
		{"reason": "Full", "message": "No ClusterCIDR that selects this Node can serve it: a is disabled; b is full (IPv4). Create another one, or set spec.allocation: Enabled, or delete Nodes that are not needed.", "nodes": ["waiting"]},
		{"reason": "NotSeen", "message": "The controller is about to look at this Node.", "nodes": ["new"]}
	],
	"nodes": [
		{"node": "first", "uid": "uid-first", "state": "Reserved", "podCIDRs": ["192.168.0.0/24"], "clusterCIDRs": ["b"]},
		{"node": "going", "uid": "uid-going", "state": "Deleting", "message": "The Node is being deleted, so it gets no podCIDRs."},
		{"node": "n1", "uid": "uid-n1", "state": "Allocated", "podCIDRs": ["10.0.1.0/24", "fd00::/120"], "clusterCIDRs": ["a"],
			"findings": [{"reason": "CIDRConflict", "message": "podCIDRs [10.0.1.0/24 fd00::/120] share addresses with Node wide (10.0.0.0/23). Two Pods, or a Pod and a Service, may get the same address. Replace this Node or the others: drain and delete it, then reboot its machine or, in a node group, delete the machine."}]},
		{"node": "n2", "uid": "uid-n2", "state": "Reserved", "podCIDRs": ["10.0.2.0/24", "fd00::100/120"], "clusterCIDRs": ["a"]},
		{"node": "new", "uid": "uid-new", "state": "Pending", "reason": "NotSeen", "message": "The controller is about to look at this Node."},
		{"node": "old", "uid": "uid-old", "state": "Allocated", "podCIDRs": ["172.16.0.0/24"],
			"findings": [{"reason": "CIDROutsideRanges", "message": "podCIDRs [172.16.0.0/24] lie in no ClusterCIDR. They stay as they are and are allocated to no other Node. Create a ClusterCIDR that contains them, or replace the Node: drain and delete it, then reboot its machine or, in a node group, delete the machine. Do that before you go back to the stock kube-controller-manager, which ends while a podCIDR is outside of its --cluster-cidr."}]},
		{"node": "unreadable", "uid": "uid-unreadable", "state": "Allocated",
			"findings": [{"reason": "CIDRUnreadable", "message": "podCIDRs \"10.0.0.0/99\" cannot be read, so nothing keeps their addresses from being allocated to another Node. Replace the Node: drain and delete it, then reboot its machine or, in a node group, delete the machine."}]},
		{"node": "waiting", "uid": "uid-waiting", "state": "Pending", "reason": "Full", "message": "No ClusterCIDR that selects this Node can serve it: a is disabled; b is full (IPv4). Create another one, or set spec.allocation: Enabled, or delete Nodes that are not needed."},
		{"node": "wide", "uid": "uid-wide", "state": "Allocated", "podCIDRs": ["10.0.0.0/23"], "clusterCIDRs": ["a"],
			"findings": [{"reason": "CIDRConflict", "message": "podCIDRs [10.0.0.0/23] share addresses with Node n1 (10.0.1.0/24). Two Pods, or a Pod and a Service, may get the same address. Replace this Node or the others: drain and delete it, then reboot its machine or, in a node group, delete the machine."}]}
	]
}`
	synctest.Test(t, func(t *testing.T) {
		w := ask(oneOfEach(), "GET", "?format=json", "")
		var got, wanted any
		for text, into := range map[string]*any{w.Body.String(): &got, want: &wanted} {
			if err := json.Unmarshal([]byte(text), into); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("JSON (-want +got):\n%s", diff)
		}
	})
}

func TestText(t *testing.T) { synctest.Test(t, text) }

func text(t *testing.T) {
	got := ask(oneOfEach(), "GET", "", "text/html,*/*").Body.String()
	for _, want := range []string{
		"multi-cidr-node-ipam-controller at 2000-01-01T00:00:00Z\nProblem: not serving Nodes yet; waiting for the CRD\n",
		"Nodes: 9, 4 allocated, 2 reserved, 2 pending, 1 being deleted without podCIDRs, 1 out of range, 2 in conflict\n",
		"\na             Disabled    fd00::/116       /120    16      1           1          0             14     3\n",
		"\na: spec.allocation is Disabled. Nodes keep what they have.",
		"\n1         Full      No ClusterCIDR that selects this Node can serve it: a is disabled; b is full (IPv4).",
		"\nn2           Reserved    10.0.2.0/24,fd00::100/120   a              -\n",
		"\nold          Allocated   172.16.0.0/24               -              CIDROutsideRanges: podCIDRs [172.16.0.0/24] lie in no ClusterCIDR.",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
}

func TestAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		page                   http.Handler
		method, target, accept string
		status                 int
		mediaType              string
	}{
		"a browser":           {oneOfEach(), "GET", "", "text/html,application/xhtml+xml,*/*;q=0.8", 200, "text/plain; charset=utf-8"},
		"a script":            {oneOfEach(), "GET", "", "application/json", 200, "application/json"},
		"without an answer":   {oneOfEach(), "HEAD", "", "", 200, "text/plain; charset=utf-8"},
		"a write":             {oneOfEach(), "POST", "", "", 405, "text/plain; charset=utf-8"},
		"another path":        {oneOfEach(), "GET", "x", "", 404, "text/plain; charset=utf-8"},
		"there is no state":   {show(nil), "GET", "", "", 503, "text/plain; charset=utf-8"},
		"without a finalizer": {show(nil, set(ClusterCIDR("new", Spec4("10.0.0.0/20", 8, nil), NoFinalizer))), "GET", "", "", 200, "text/plain; charset=utf-8"},
	} {
		t.Run(name, func(t *testing.T) {
			w := ask(tc.page, tc.method, tc.target, tc.accept)
			if got := w.Header().Get("Content-Type"); w.Code != tc.status || got != tc.mediaType {
				t.Errorf("it answers %d with %s, want %d with %s: %s", w.Code, got, tc.status, tc.mediaType, w.Body)
			}
		})
	}
}
