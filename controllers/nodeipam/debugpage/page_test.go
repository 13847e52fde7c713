package debugpage

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/steps"
	"github.com/multicidr/controller-manager/controllers/text"
)

// scene is what a page is made from.
type scene struct {
	state   *allocator.State
	nodes   []*v1.Node
	problem string
}

// showing returns the scene after the steps, with these Nodes in the cache.
func showing(nodes []*v1.Node, steps ...Step) *scene {
	c := &scene{state: allocator.New(), nodes: nodes}
	for _, s := range steps {
		s(c.state)
	}
	return c
}

func (c *scene) look() (Look, error) {
	return Look{Controller: "multi-cidr-node-ipam-controller", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Problem: c.problem, State: c.state, Nodes: c.nodes}, nil
}

func (c *scene) ledger() ledger {
	seen, _ := c.look()
	return ledgerOf(seen)
}

func services(source string, cidrs ...string) Step {
	return func(b *allocator.State) { b.SetService(source, Pfxs(cidrs...)) }
}

func addressed(n *v1.Node, cidrs, addresses []string) Step {
	return func(b *allocator.State) { b.Observe(n, Pfxs(cidrs...), Pfxs(addresses...)) }
}

func ask(c *scene, method, target string, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/"+target, nil)
	r.URL.Path = strings.TrimPrefix(r.URL.Path, "/") // as http.StripPrefix leaves it
	maps.Copy(r.Header, header)
	w := httptest.NewRecorder()
	Handler(c.look).ServeHTTP(w, r)
	return w
}

// oneOfEach is a controller in which everything that can be shown occurs once.
func oneOfEach(t *testing.T) *scene {
	wide, old, waiting, unreadable := Node("wide"), Node("old"), Node("waiting", Label("zone", "b")), Node("unreadable")
	unreadable.Spec.PodCIDRs = []string{"10.0.0.0/99"}
	dual := networkingv1.ClusterCIDRSpec{
		IPv4: "10.0.0.0/20", IPv6: "fd00::/116", PerNodeHostBits: 8, Priority: 7, ExcludedCIDRs: []string{"10.0.0.0/24"},
	}
	return showing([]*v1.Node{Node("n1"), Node("n2"), wide, old, waiting, unreadable, Node("empty")},
		services("ServiceCIDR kubernetes", "10.0.15.0/24"),
		Set(ClusterCIDR("a", dual)),
		Set(ClusterCIDR("b", Spec4("192.168.0.0/24", 8, AnyOf(AllOf(In("zone", "b")))))),
		Reserve(Node("n1", From("a"))),
		Reserve(Node("n2")),
		addressed(Node("n1", From("a")), []string{"10.0.1.0/24", "fd00::/120"}, []string{"203.0.113.1/32"}),
		Shows(wide, "10.0.0.0/23"),
		Shows(old, "172.16.0.0/24"),
		Set(ClusterCIDR("a", dual, func(cc *networkingv1.ClusterCIDR) { cc.Spec.Allocation = networkingv1.AllocationDisabled })),
		Reserve(Node("first", Label("zone", "b"))),
		Reserve(waiting),
	)
}

// TestDebugJSON is the whole of it: its field names are an interface.
func TestDebugJSON(t *testing.T) {
	const want = `{
	"controller": "multi-cidr-node-ipam-controller",
	"time": "2026-01-02T03:04:05Z",
	"clusterCIDRs": [
		{
			"name": "a", "uid": "uid-a", "state": "Disabled", "why": "spec.allocation is Disabled. Nodes keep what they have. Set it to Enabled to allocate from this ClusterCIDR.", "priority": 7,
			"excluded": ["10.0.0.0/24"], "members": 3,
			"overlapping": "Service ranges, which are never allocated: 10.0.15.0/24 of ServiceCIDR kubernetes.",
			"ranges": [
				{"family": "IPv4", "cidr": "10.0.0.0/20", "blockPrefixLength": 24, "total": 16, "allocated": 2, "reserved": 1, "unavailable": 2, "free": 12, "cursor": "10.0.3.0"},
				{"family": "IPv6", "cidr": "fd00::/116", "blockPrefixLength": 120, "total": 16, "allocated": 2, "reserved": 1, "unavailable": 0, "free": 14, "cursor": "fd00::200"}
			]
		},
		{
			"name": "b", "uid": "uid-b", "state": "Exhausted", "why": "No free block for IPv4. Create another ClusterCIDR, or delete Nodes that are not needed.", "priority": 0,
			"nodeSelector": "zone In [\"b\"]", "excluded": [], "members": 1,
			"ranges": [{"family": "IPv4", "cidr": "192.168.0.0/24", "blockPrefixLength": 24, "total": 1, "allocated": 1, "reserved": 1, "unavailable": 0, "free": 0, "cursor": "192.168.1.0"}]
		}
	],
	"nodes": [
		{"name": "empty", "uid": "uid-empty", "state": "Without", "blocks": [], "clusterCIDRs": [], "addresses": []},
		{"name": "first", "uid": "uid-first", "state": "Reserved", "blocks": ["192.168.0.0/24"], "clusterCIDRs": ["b"], "addresses": []},
		{"name": "n1", "uid": "uid-n1", "state": "Assigned", "blocks": ["10.0.1.0/24", "fd00::/120"], "clusterCIDRs": ["a"], "addresses": ["203.0.113.1/32"],
			"findings": {"CIDRConflict": "shares addresses with Node wide (10.0.0.0/23)"}},
		{"name": "n2", "uid": "uid-n2", "state": "Reserved", "blocks": ["10.0.2.0/24", "fd00::100/120"], "clusterCIDRs": ["a"], "addresses": []},
		{"name": "old", "uid": "uid-old", "state": "Assigned", "blocks": ["172.16.0.0/24"], "clusterCIDRs": [], "addresses": [],
			"findings": {"CIDROutsideRanges": "its podCIDRs lie in no ClusterCIDR"}},
		{"name": "unreadable", "uid": "uid-unreadable", "state": "Assigned", "blocks": [], "clusterCIDRs": [], "addresses": [],
			"findings": {"CIDRUnreadable": "podCIDRs 10.0.0.0/99 cannot be read"}},
		{"name": "waiting", "uid": "uid-waiting", "state": "Waiting", "blocks": [], "clusterCIDRs": [], "addresses": [],
			"why": "No ClusterCIDR that selects this Node can serve it: a is disabled; b is full (IPv4). Create another one, or set spec.allocation: Enabled, or delete Nodes that are not needed.",
			"refusedBy": [{"clusterCIDR": "a", "reason": "a is disabled"}, {"clusterCIDR": "b", "reason": "b is full (IPv4)"}]},
		{"name": "wide", "uid": "uid-wide", "state": "Assigned", "blocks": ["10.0.0.0/23"], "clusterCIDRs": ["a"], "addresses": [],
			"findings": {"CIDRConflict": "shares addresses with Node n1 (10.0.1.0/24)"}}
	],
	"serviceRanges": [{"source": "ServiceCIDR kubernetes", "cidrs": ["10.0.15.0/24"]}],
	"conflicts": [{"holders": [{"kind": "Node", "name": "wide", "cidr": "10.0.0.0/23"}, {"kind": "Node", "name": "n1", "cidr": "10.0.1.0/24"}]}],
	"conflictsTotal": 1
}`
	w := ask(oneOfEach(t), "GET", "?format=json", nil)
	var got, wanted any
	for text, into := range map[string]*any{w.Body.String(): &got, want: &wanted} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

func TestDebugPage(t *testing.T) {
	c := oneOfEach(t)
	c.problem = "the CRD is gone"
	for name, tc := range map[string]struct {
		query  string
		status int
		want   []string // in this order
		not    []string
	}{
		"all": {"", 200, []string{
			"2026-01-02 03:04:05 UTC", "8 Nodes:", "4 assigned", "2 reserved", "1 waiting", "1 without", "conflicts: 1",
			"Not all is well:", "the CRD is gone",
			`<td class="mono">10.0.0.0/20</td>`, "Exhausted",
			"Nodes that wait", "a is disabled; b is full (IPv4)", ">waiting</a>",
			"CIDRConflict", "shares addresses with Node wide", "CIDROutsideRanges",
			`<a class="u" href="?find=10.0.0.0%2f24" title="10.0.0.0/24: unavailable: Node wide (10.0.0.0/23), an exclusion of ClusterCIDR a">`,
			`<a class="a x" href="?find=10.0.1.0%2f24" title="10.0.1.0/24: CONFLICT Node wide (10.0.0.0/23), Node n1">`,
			`<a class="r" href="?find=10.0.2.0%2f24" title="10.0.2.0/24: reserved for Node n2">`,
			`<i class="f" title="10.0.3.0/24: free">`,
			`title="10.0.15.0/24: unavailable: service range ServiceCIDR kubernetes">`,
			"Service ranges", "ServiceCIDR kubernetes",
		}, nil},
		"one ClusterCIDR":            {"?cc=a", 200, []string{"ClusterCIDR a", "Disabled", "excluded: 10.0.0.0/24", `title="fd00::/120: Node n1"`, "an exclusion of ClusterCIDR a", "never given"}, []string{"192.168.0.0"}},
		"a part of a range":          {"?cc=a&in=10.0.2.0/23", 200, []string{"10.0.2.0/23", "zoom out", `title="10.0.2.0/24: reserved for Node n2"`, `title="10.0.3.0/24: free"`}, []string{"10.0.4.0/24", "fd00::/120"}},
		"no such ClusterCIDR":        {"?cc=z", 404, []string{"There is no ClusterCIDR"}, nil},
		"no prefix":                  {"?cc=a&in=x", 400, []string{"is no prefix"}, nil},
		"a prefix elsewhere":         {"?cc=a&in=10.1.0.0/24", 400, []string{"is no part of a range of ClusterCIDR a"}, nil},
		"a prefix within a block":    {"?cc=a&in=10.0.0.0/25", 400, []string{"is no part of a range of ClusterCIDR a"}, nil},
		"a Pod's address":            {"?find=10.0.2.7", 200, []string{"10.0.2.7 is in", "10.0.2.0/24", "Who holds it", ">n2</a>", "reserved"}, []string{"which is free"}},
		"a Pod's IPv6 address":       {"?find=fd00::7", 200, []string{"fd00::7 is in", "fd00::/120", ">n1</a>", "assigned"}, nil},
		"an address that nobody has": {"?find=10.0.9.9", 200, []string{"10.0.9.0/24", "which is free", "Nobody holds it"}, nil},
		"an address in no range":     {"?find=8.8.8.8", 200, []string{"8.8.8.8 is in no ClusterCIDR", "Nobody holds it"}, nil},
		"an address in two holders":  {"?find=10.0.1.1", 200, []string{"10.0.0.0/23", ">wide</a>", "10.0.1.0/24", ">n1</a>"}, nil},
		"a Node's own address":       {"?find=203.0.113.1", 200, []string{"203.0.113.1", "of Node", ">n1</a>"}, nil},
		"a Service's address":        {"?find=10.0.15.1", 200, []string{"service range ServiceCIDR kubernetes", "never given"}, nil},
		"a prefix":                   {"?find=10.0.0.0/22", 200, []string{">wide</a>", ">n1</a>", ">n2</a>"}, nil},
		"a Node":                     {"?find=n1", 200, []string{">n1</a>", "Assigned", "10.0.1.0/24", "fd00::/120"}, []string{">n2</a>"}},
		"a UID":                      {"?find=uid-n2", 200, []string{">n2</a>", "Reserved"}, []string{">n1</a>"}},
		"a part of names":            {"?find=n", 200, []string{">n1</a>", ">n2</a>", ">unreadable</a>", ">waiting</a>"}, []string{">wide</a>"}},
		"no Node":                    {"?find=nobody", 200, []string{"No Node has this"}, nil},
		"what was looked for is text, never markup": {"?find=%3Cscript%3Ealert(1)%3C/script%3E", 200, []string{"&lt;script&gt;"}, []string{"<script>"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := ask(c, "GET", tc.query, nil)
			if w.Code != tc.status {
				t.Errorf("status %d, want %d", w.Code, tc.status)
			}
			rest := w.Body.String()
			for _, not := range tc.not {
				if strings.Contains(rest, not) {
					t.Errorf("the page says %q", not)
				}
			}
			for _, want := range tc.want {
				_, after, ok := strings.Cut(rest, want)
				if !ok {
					t.Fatalf("the page does not say %q, or not in its place:\n%s", want, rest)
				}
				rest = after
			}
		})
	}
}

func TestDebugRequests(t *testing.T) {
	c := oneOfEach(t)
	for name, tc := range map[string]struct {
		method, path, accept string
		status               int
		mediaType            string
	}{
		"a browser":           {"GET", "", "text/html,application/xhtml+xml,*/*;q=0.8", 200, "text/html; charset=utf-8"},
		"curl":                {"GET", "", "*/*", 200, "text/html; charset=utf-8"},
		"a script":            {"GET", "", "application/json", 200, "application/json"},
		"a format is said":    {"GET", "?format=json", "text/html", 200, "application/json"},
		"HEAD":                {"HEAD", "", "", 200, "text/html; charset=utf-8"},
		"our path with slash": {"GET", "/", "", 200, "text/html; charset=utf-8"},
		"below our path":      {"GET", "/other", "", 404, "text/plain; charset=utf-8"},
		"a write":             {"POST", "", "", 405, "text/plain; charset=utf-8"},
		"a deletion":          {"DELETE", "", "", 405, "text/plain; charset=utf-8"},
	} {
		t.Run(name, func(t *testing.T) {
			w := ask(c, tc.method, tc.path, http.Header{"Accept": {tc.accept}})
			if diff := cmp.Diff([]string{fmt.Sprint(tc.status), tc.mediaType}, []string{fmt.Sprint(w.Code), w.Header().Get("Content-Type")}); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDebugReadsACopy changes the state after it was copied.
func TestDebugReadsACopy(t *testing.T) {
	c := oneOfEach(t)
	s := c.state.Snapshot()
	before := ledgerOf(Look{State: s.State()})
	c.state.NodeGone("n1", "uid-n1")
	c.state.Observe(Node("n2"), Pfxs("10.0.2.0/24", "fd00::100/120"), nil)
	c.state.DropPool("b")
	c.state.SetService("ServiceCIDR kubernetes", nil)
	c.state.Reserve(Node("waiting", Label("zone", "b")))
	byText := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if diff := cmp.Diff(before, ledgerOf(Look{State: s.State()}), byText); diff != "" {
		t.Errorf("the copy changed with the book (-before +after):\n%s", diff)
	}
	if now := ledgerOf(Look{State: c.state.Snapshot().State()}); cmp.Equal(before, now, byText) {
		t.Error("a copy made later says the same, want what has changed")
	}
}

// TestDebugOfManyNodes wants pages of a large cluster that a browser can show.
func TestDebugOfManyNodes(t *testing.T) {
	const maxSize = 1 << 20
	for name, tc := range map[string]struct {
		ranges []networkingv1.ClusterCIDRSpec
		nodes  int
		says   string
	}{
		"one narrow range, dual stack": {[]networkingv1.ClusterCIDRSpec{{IPv4: "10.0.0.0/8", IPv6: "fd00::/32", PerNodeHostBits: 8, IPv6PerNodeHostBits: new(int32(64))}}, 5000, "5,000 reserved"},
		"one wide range":               {[]networkingv1.ClusterCIDRSpec{Spec4("10.0.0.0/8", 4, nil)}, 5000, "4,096 blocks of /28"},
		"full, and most Nodes wait":    {[]networkingv1.ClusterCIDRSpec{Spec4("10.0.0.0/20", 8, nil)}, 5000, "and 4,964 more"},
		"as many as have pictures":     {manyRanges(maxPictures), 200, "200 reserved"},
		"too many for pictures":        {manyRanges(maxPictures + 1), 200, "There are too many ranges for pictures here"},
	} {
		t.Run(name, func(t *testing.T) {
			var steps []Step
			for i, spec := range tc.ranges {
				steps = append(steps, Set(ClusterCIDR(fmt.Sprintf("cc-%03d", i), spec)))
			}
			var nodes []*v1.Node
			for i := range tc.nodes {
				nodes = append(nodes, Node(fmt.Sprintf("node-with-a-name-of-usual-length-%04d.example.com", i)))
				steps = append(steps, Reserve(nodes[i]))
			}
			c := showing(nodes, steps...)
			all := ask(c, "GET", "", nil).Body.String()
			if !strings.Contains(all, tc.says) {
				t.Errorf("the page does not say %q", tc.says)
			}
			pictures := strings.Count(all, `class="picture"`)
			if want := len(c.state.Pools()); (want <= maxPictures && pictures < want) || (want > maxPictures && pictures > 0) {
				t.Errorf("%d pictures of %d ClusterCIDRs", pictures, want)
			}
			for _, query := range []string{"", "?cc=cc-000", "?find=node", "?find=0.0.0.0/0"} {
				if size := ask(c, "GET", query, nil).Body.Len(); size > maxSize {
					t.Errorf("the page %q has %d bytes, want at most %d", query, size, maxSize)
				}
			}
		})
	}
}

func manyRanges(n int) []networkingv1.ClusterCIDRSpec {
	var specs []networkingv1.ClusterCIDRSpec
	for i := range n {
		specs = append(specs, networkingv1.ClusterCIDRSpec{IPv6: fmt.Sprintf("fd00:%x::/32", i), PerNodeHostBits: 64})
	}
	return specs
}

// TestDebugOfOneBlockForAll is the worst that others can do: what is shown stays bounded, and is there in a moment.
func TestDebugOfOneBlockForAll(t *testing.T) {
	const nodes = 2000
	c := showing(nil, Set(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil))))
	var all []*v1.Node // Not by observe: it looks for conflicts one by one.
	for i := range nodes {
		n := Node(fmt.Sprintf("n%04d", i))
		n.Spec.PodCIDRs = []string{"10.0.0.0/24"}
		all = append(all, n)
	}
	c.state.Rebuild(all, func(n int, f func(i int)) {
		for i := range n {
			f(i)
		}
	})
	l := c.ledger()
	if want := nodes * (nodes - 1) / 2; l.ConflictsTotal != want || len(l.Conflicts) != maxConflicts {
		t.Errorf("%d of %d conflicts, want %d of %d", len(l.Conflicts), l.ConflictsTotal, maxConflicts, want)
	}
	finding := l.Nodes[0].Findings[allocator.ReasonConflict]
	if got := strings.Count(finding, "Node "); got != text.MaxNamed {
		t.Errorf("%d Nodes are named, want %d", got, text.MaxNamed)
	}
	if want := fmt.Sprintf("; %d more", nodes-1-text.MaxNamed); !strings.HasSuffix(finding, want) {
		t.Errorf("the finding is %q, want %q at its end", finding, want)
	}
}

// TestPictureCoversRange wants every address of a range in one cell, whatever the range's width.
func TestPictureCoversRange(t *testing.T) {
	for name, tc := range map[string]struct {
		cidr     string
		hostBits int
		view     string
		want     int
	}{
		"one block":                   {"10.0.0.0/24", 8, "10.0.0.0/24", 1},
		"a few blocks":                {"10.0.0.0/21", 8, "10.0.0.0/21", 8},
		"more than a line":            {"10.0.0.0/16", 8, "10.0.0.0/16", 256},
		"more than a picture":         {"10.0.0.0/8", 4, "10.0.0.0/8", 1024},
		"zoomed in":                   {"10.0.0.0/8", 4, "10.200.64.0/18", 1024},
		"zoomed in to less":           {"10.0.0.0/8", 4, "10.200.64.0/20", 256},
		"the end of the IPv4 space":   {"255.255.0.0/16", 8, "255.255.0.0/16", 256},
		"all of the IPv4 space":       {"0.0.0.0/0", 8, "0.0.0.0/0", 1024},
		"a wide IPv6 range":           {"fd00::/32", 64, "fd00::/32", 1024},
		"all of the IPv6 space":       {"::/0", 4, "::/0", 1024},
		"the end of the IPv6 space":   {"ffff::/16", 64, "ffff:ffff:ffff::/48", 1024},
		"blocks of a single address":  {"10.0.0.0/30", 0, "10.0.0.0/30", 4},
		"a view that is a block":      {"10.0.0.0/16", 8, "10.0.7.0/24", 1},
		"IPv6 blocks of odd prefixes": {"fd00::/61", 62, "fd00::/61", 32},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := ipam.NewRange(Pfx(tc.cidr), tc.hostBits)
			if err != nil {
				t.Fatal(err)
			}
			view := Pfx(tc.view)
			pic := pictureOf(allocator.New(), &clustercidr.Pool{}, rangeView{r, view}, maxCellBits)
			var seen ipam.PrefixSet
			cells := sets.New[string]()
			for _, line := range pic.Lines {
				for _, c := range line.Cells {
					text, _, _ := strings.Cut(c.Title, ": ")
					cell := Pfx(text)
					if !insideOf(cell, view) || seen.Overlaps(cell) {
						t.Errorf("the cell %v is not in %v, or twice", cell, view)
					}
					seen.Insert(cell)
					cells.Insert(text)
				}
			}
			if cells.Len() != tc.want {
				t.Errorf("%d cells, want %d", cells.Len(), tc.want)
			}
			if rest, ok := seen.NextFree(view, r.BlockBits, view.Addr()); ok {
				t.Errorf("%v is in no cell", rest)
			}
		})
	}
}

func TestCellOfManyBlocks(t *testing.T) {
	for name, tc := range map[string]struct {
		steps []Step
		want  cell
	}{
		"two Nodes with the same block": {
			[]Step{Shows(Node("n1"), "10.0.1.0/24"), Shows(Node("n2"), "10.0.1.0/24")},
			cell{Class: "m x", Title: "10.0.0.0/22: CONFLICT 1 allocated, 0 unavailable, 3 free: Node n1, Node n2", Allocated: 25, Reserved: 25, Unavailable: 25},
		},
		"one of each state": {
			[]Step{Shows(Node("n1"), "10.0.0.0/24"), Set(ClusterCIDR("a", Spec4("10.0.1.0/24", 8, nil))), Reserve(Node("n2")), services("s", "10.0.2.0/25")},
			cell{Class: "m", Title: "10.0.0.0/22: 2 allocated, 1 unavailable, 1 free: Node n1, Node n2, service range s (10.0.2.0/25)", Allocated: 25, Reserved: 50, Unavailable: 75},
		},
		"inside of what one Node holds": {
			[]Step{Shows(Node("n1"), "10.0.0.0/16")},
			cell{Class: "m", Title: "10.0.0.0/22: 0 allocated, 4 unavailable, 0 free: Node n1 (10.0.0.0/16)", Unavailable: 100},
		},
		"more holders than a title takes": {
			[]Step{Shows(Node("n1"), "10.0.0.0/24"), Shows(Node("n2"), "10.0.1.0/24"), Shows(Node("n3"), "10.0.2.0/24"), Shows(Node("n4"), "10.0.3.0/24")},
			cell{Class: "m", Title: "10.0.0.0/22: 4 allocated, 0 unavailable, 0 free: Node n1, Node n2, Node n3, 1 more", Allocated: 100, Reserved: 100, Unavailable: 100},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := allocator.New()
			for _, s := range tc.steps {
				s(b)
			}
			tc.want.Many, tc.want.In = true, "10.0.0.0/22"
			if diff := cmp.Diff(tc.want, cellOf(b, &clustercidr.Pool{}, ipam.Range{Prefix: Pfx("10.0.0.0/22"), BlockBits: 24})); diff != "" {
				t.Errorf("cell (-want +got):\n%s", diff)
			}
		})
	}
}

func TestShares(t *testing.T) {
	for name, tc := range map[string]struct{ parts, want []uint64 }{
		"halves":                          {[]uint64{1, 1}, []uint64{50, 50}},
		"one of a million is seen":        {[]uint64{1, 0, 0, 1_000_000}, []uint64{minShare, 0, 0, 100 - minShare}},
		"one free of a million is seen":   {[]uint64{1_000_000, 0, 0, 1}, []uint64{100 - minShare, 0, 0, minShare}},
		"all of it":                       {[]uint64{0, 0, 7, 0}, []uint64{0, 0, 100, 0}},
		"more than can be counted":        {[]uint64{1, 1 << 63, 0, 1<<64 - 1}, []uint64{minShare, 33, 0, 59}},
		"four parts, three of them small": {[]uint64{1, 1, 1, 1000}, []uint64{minShare, minShare, minShare, 100 - 3*minShare}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []uint64
			for _, width := range shares(tc.parts...) {
				got = append(got, uint64(width))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("shares (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNumber(t *testing.T) {
	for n, want := range map[any]string{0: "0", 999: "999", int64(1000): "1,000", uint64(4294967296): "4,294,967,296", int64(1<<63 - 1): "≥ 2⁶³", uint64(1<<64 - 1): "≥ 2⁶³"} {
		if got := number(n); got != want {
			t.Errorf("number(%v) is %q, want %q", n, got, want)
		}
	}
}
