package beside_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand"
	"net/netip"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/beside"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	nodeoptions "github.com/multicidr/controller-manager/controllers/nodeipam/options"
)

var (
	worldFirst   = flag.Int64("world.first", 1, "the seed of the first world")
	worldSeeds   = flag.Int64("world.seeds", 5, "the number of worlds")
	worldHistory = flag.String("world.history", "", "the file for the history of a world that ends badly")
	worldFor     = flag.Duration("world.for", 4*time.Minute, "for how long there is trouble in each world, by its own clock")
)

type world struct {
	*store
	logMu   sync.Mutex
	history bytes.Buffer
	t       *testing.T
	procs   []*process
	nextID  int
	saved   map[string]object // Nodes that were deleted, by name
	since   map[string]time.Time
	stats   map[string]int
	foreign map[string]bool // UIDs of Nodes with podCIDRs of users
	failed  atomic.Bool
	flagged bool
	alone   bool // there is no leader election, and one process at a time
}

type process struct {
	*side
	flags   fromflags.Flags
	cancel  context.CancelFunc
	running atomic.Pointer[nodeipam.Controller]
	done    chan struct{}
}

func (w *world) logf(format string, args ...any) {
	w.logMu.Lock()
	defer w.logMu.Unlock()
	fmt.Fprintf(&w.history, "%s "+format+"\n", append([]any{time.Now().UTC().Format("15:04:05.000")}, args...)...)
}

// bad reports a violation; any lock may be held.
func (w *world) bad(format string, args ...any) {
	w.failed.Store(true)
	w.t.Errorf("%s: "+format, append([]any{time.Now().UTC().Format("15:04:05.000")}, args...)...)
	w.logf("VIOLATION "+format, args...)
}

// slack is how much later a change may matter for what is chosen: a watch that is requested counts as open for a second, its end may be a little
// older, and events are late.
const slack = 2600 * time.Millisecond

// judgeWrite is called for each write, with the lock held.
func (w *world) judgeWrite(res, name string, before, after object, by string, sent time.Time) {
	now := time.Now()
	if res != "leases" && (res != "clustercidrs" || by == "user" || before == nil || after == nil || fmt.Sprint(pick(before, "status")) == fmt.Sprint(pick(after, "status"))) {
		w.logf("%s %s %s by %s: %v %v del=%v fin=%v %v", w.verb(before, after), res, name, by, pick(after, "spec"), pick(after, "metadata", "uid"), pick(after, "metadata", "deletionTimestamp"), pick(after, "metadata", "finalizers"), pick(after, "metadata", "annotations"))
	}
	switch res {
	case "nodes":
		if after == nil {
			delete(w.since, "node/"+str(before, "metadata", "uid"))
			return
		}
		had, has := prefixes(before), prefixes(after)
		if before != nil && len(had) > 0 && !slices.Equal(had, has) {
			w.bad("Node %s: podCIDRs changed from %v to %v by %s", name, had, has, by)
		}
		if len(had) > 0 || len(has) == 0 {
			return
		}
		uid := str(after, "metadata", "uid")
		w.since["node/"+uid] = now
		if by == "user" {
			w.foreign[uid] = true
			return
		}
		w.stats["served"]++
		w.judgeBlocks(name, after, has, by, sent)
	case "clustercidrs":
		w.judgeClusterCIDR(name, before, after, by)
	}
}

func (w *world) verb(before, after object) string {
	switch {
	case before == nil:
		return "CREATED"
	case after == nil:
		return "GONE"
	}
	return "CHANGED"
}

func pick(o object, path ...string) any {
	for _, p := range path {
		if o == nil {
			return nil
		}
		v := o[p]
		n, ok := v.(object)
		if !ok {
			return v
		}
		o = n
	}
	return o
}

func (w *world) judgeBlocks(name string, node object, has []netip.Prefix, by string, sent time.Time) {
	for other, o := range w.now["nodes"] {
		if other == name {
			continue
		}
		for _, p := range prefixes(o) {
			for _, q := range has {
				if !p.Overlaps(q) {
					continue
				}
				t0 := w.since["node/"+str(o, "metadata", "uid")]
				if w.foreign[str(o, "metadata", "uid")] && sent.Sub(t0) < slack {
					w.stats["foreign races"]++
					continue
				}
				w.bad("Node %s gets %v by %s (sent %v) while %s has %v since %v (foreign: %t)", name, q, by, sent.Format("15:04:05.000"), other, p, t0.Format("15:04:05.000"), w.foreign[str(o, "metadata", "uid")])
			}
		}
	}
	for sname, o := range w.now["servicecidrs"] {
		for _, x := range strs(pick(o, "spec", "cidrs")) {
			r := netip.MustParsePrefix(x)
			for _, q := range has {
				if r.Overlaps(q) && sent.Sub(w.since["svc/"+sname]) > slack && sent.Sub(w.absent["servicecidrs"]) > heardOfServiceCIDRs {
					w.bad("Node %s gets %v of ServiceCIDR %s", name, q, sname)
				}
			}
		}
	}
	cname := str(node, "metadata", "annotations", "networking.x-k8s.io/cluster-cidr")
	cc := w.now["clustercidrs"][cname]
	switch {
	case cc == nil && sent.Sub(w.since["cc-gone/"+cname]) <= slack:
	case cc == nil:
		w.bad("Node %s gets %v of ClusterCIDR %s, which is gone", name, has, cname)
	case meta(cc)["deletionTimestamp"] != nil && sent.Sub(w.since["cc-del/"+cname]) > slack:
		w.bad("Node %s gets %v of ClusterCIDR %s, which terminates", name, has, cname)
	case str(cc, "spec", "allocation") == "Disabled" && sent.Sub(w.since["cc-dis/"+cname]) > slack:
		w.bad("Node %s gets %v of ClusterCIDR %s, which is disabled", name, has, cname)
	case !slices.Contains(strs(meta(cc)["finalizers"]), "networking.x-k8s.io/cluster-cidr-finalizer") && sent.Sub(w.since["cc-fin/"+cname]) > slack:
		w.bad("Node %s gets %v of ClusterCIDR %s, which has no finalizer", name, has, cname)
	}
	if cc != nil {
		for _, x := range strs(pick(cc, "spec", "excludedCIDRs")) {
			for _, q := range has {
				if netip.MustParsePrefix(x).Overlaps(q) && sent.Sub(w.since["cc-ex/"+cname+x]) > slack {
					w.bad("Node %s gets %v, which ClusterCIDR %s excludes", name, q, cname)
				}
			}
		}
	}
}

func (w *world) judgeClusterCIDR(name string, before, after object, by string) {
	now := time.Now()
	if before != nil && after == nil && by != "user" {
		for n, o := range w.now["nodes"] {
			if str(o, "metadata", "annotations", "networking.x-k8s.io/cluster-cidr") == name && len(prefixes(o)) > 0 && inside(before, prefixes(o)) {
				if t0 := w.since["node/"+str(o, "metadata", "uid")]; !w.foreign[str(o, "metadata", "uid")] || now.Sub(t0) > slack {
					w.bad("ClusterCIDR %s goes while Node %s has %v of it", name, n, prefixes(o))
				}
			}
		}
	}
	if after == nil {
		w.since["cc-gone/"+name] = now
		return
	}
	const finalizer = "networking.x-k8s.io/cluster-cidr-finalizer"
	if before == nil || slices.Contains(strs(meta(before)["finalizers"]), finalizer) && !slices.Contains(strs(meta(after)["finalizers"]), finalizer) {
		w.since["cc-fin/"+name] = now
	}
	if str(before, "spec", "allocation") != str(after, "spec", "allocation") {
		w.since["cc-dis/"+name] = now
	}
	if before != nil && meta(before)["deletionTimestamp"] == nil && meta(after)["deletionTimestamp"] != nil {
		w.since["cc-del/"+name] = now
	}
	old := strs(pick(before, "spec", "excludedCIDRs"))
	for _, x := range strs(pick(after, "spec", "excludedCIDRs")) {
		if !slices.Contains(old, x) {
			w.since["cc-ex/"+name+x] = now
		}
	}
}

// inside reports whether all blocks lie in ranges of a ClusterCIDR.
func inside(cc object, blocks []netip.Prefix) bool {
	for _, b := range blocks {
		in := false
		for _, f := range []string{"ipv4", "ipv6"} {
			if r := str(cc, "spec", f); r != "" {
				p := netip.MustParsePrefix(r).Masked()
				in = in || p.Contains(b.Addr()) && p.Bits() <= b.Bits()
			}
		}
		if !in {
			return false
		}
	}
	return true
}

// start starts a process.
func (w *world) start() {
	w.nextID++
	p := &process{side: &side{store: w.store, proc: fmt.Sprintf("p%d", w.nextID)}, done: make(chan struct{})}
	if w.flagged {
		p.flags = []fromflags.Flags{{}, {Allocate: true, ClusterCIDR: "10.0.1.0/26", NodeMaskSize: 28}, {Allocate: true, ClusterCIDR: "10.0.0.128/25,fd00:1::/120", NodeMaskSizeIPv4: 28, NodeMaskSizeIPv6: 124}}[w.rand(3)]
	}
	w.procs = append(w.procs, p)
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	w.logf("START %s", p.proc)
	go func() {
		defer close(p.done)
		for w.run(ctx, p); ctx.Err() == nil; w.run(ctx, p) { // a process that has lost the Lease ends, and the kubelet starts it again
			old := p.side
			w.user(func() {
				old.dead = true
				w.cutConns(func(c *conn) bool { return c.proc == old.proc })
				w.nextID++
				p.side = &side{store: w.store, proc: fmt.Sprintf("p%d", w.nextID), down: old.down}
			})
			w.logf("RESTART of %s as %s", old.proc, p.proc)
		}
	}()
}

func (w *world) run(ctx context.Context, p *process) {
	if w.alone {
		fence := lease.Unelected()
		defer fence.Close()
		w.control(ctx, p, fence)
		return
	}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, "kube-system", "test", resourcelock.ResourceLockConfig{Identity: p.proc}, p.config(), 10*time.Second)
	if err != nil {
		panic(err)
	}
	_ = lease.Lead(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{OnStoppedLeading: func() {}},
	}, func(ctx context.Context, fence *lease.Fence) error {
		w.control(ctx, p, fence)
		return nil
	})
}

func (p *process) config() *rest.Config {
	return &rest.Config{Host: "http://api.test", Transport: p.side, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}}
}

// control runs the controller while a process leads.
func (w *world) control(ctx context.Context, p *process, fence *lease.Fence) {
	w.user(func() { w.stats["terms"]++ })
	w.logf("LEADS %s", p.proc)
	err := beside.Program{
		Config: p.config(), Fence: fence,
		Waits: func(string, error) bool { return false },
		Built: func(c *nodeipam.Controller) { p.running.Store(c) },
	}.Run(ctx, p.flags, nodeoptions.New())
	if err != nil { // The process ends, and start begins another one.
		w.logf("CRASH of %s: %v", p.proc, err)
		w.user(func() { w.stats["crashes"]++ })
	}
}

func (w *world) nodeObject() object {
	labels := object{}
	for _, l := range []string{"a", "b", "c"} {
		if w.rng.Intn(2) == 0 {
			labels[l] = fmt.Sprint(w.rng.Intn(2))
		}
	}
	o := object{"kind": "Node", "apiVersion": "v1", "metadata": object{"labels": labels}, "spec": object{}}
	if w.rng.Intn(8) == 0 {
		meta(o)["finalizers"] = []any{"example.com/hold"}
	}
	return o
}

var v4 = []string{"10.0.0.0/25", "10.0.0.0/26", "10.0.0.64/26", "10.0.0.0/24", "10.0.0.128/25", "10.0.0.32/27"}
var v6 = []string{"fd00::/120", "fd00::/121", "fd00::80/121", "fd00::40/122"}

func (w *world) clusterCIDR() object {
	spec := object{"perNodeHostBits": 4 + w.rng.Intn(2), "allocation": "Enabled"}
	switch w.rng.Intn(4) {
	case 0:
		spec["ipv6"] = v6[w.rng.Intn(len(v6))]
	case 1:
		spec["ipv6"] = v6[w.rng.Intn(len(v6))]
		fallthrough
	default:
		spec["ipv4"] = v4[w.rng.Intn(len(v4))]
	}
	if w.rng.Intn(2) == 0 {
		spec["nodeSelector"] = object{"nodeSelectorTerms": []any{object{"matchExpressions": []any{w.requirement()}}, object{"matchExpressions": []any{w.requirement(), w.requirement()}}}[:1+w.rng.Intn(2)]}
	}
	if w.rng.Intn(3) == 0 {
		spec["priority"] = w.rng.Intn(3) - 1
	}
	return object{"kind": "ClusterCIDR", "apiVersion": "networking.x-k8s.io/v1", "metadata": object{}, "spec": spec}
}

func (w *world) requirement() object {
	r := object{"key": []string{"a", "b", "c"}[w.rng.Intn(3)], "operator": []string{"In", "NotIn", "Exists", "DoesNotExist"}[w.rng.Intn(4)]}
	if o := r["operator"].(string); o == "In" || o == "NotIn" {
		r["values"] = []any{fmt.Sprint(w.rng.Intn(2))}
	}
	return r
}

func (w *world) any(res string) string {
	names := make([]string, 0)
	for n := range w.now[res] {
		names = append(names, n)
	}
	if len(names) == 0 {
		return ""
	}
	sort.Strings(names)
	return names[w.rng.Intn(len(names))]
}

func block(rng *rand.Rand) string {
	bits := []int{28, 28, 28, 27, 26}[rng.Intn(5)]
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(rng.Intn(256))}), bits).Masked().String()
}

// users do something; the lock is held.
func (w *world) users() {
	rng := w.rng
	switch n := rng.Intn(100); {
	case n < 35:
		name := fmt.Sprintf("n%d", rng.Intn(24))
		if len(w.now["nodes"]) < 22 {
			w.create("nodes", name, w.nodeObject(), "user")
		}
	case n < 55:
		name := w.any("nodes")
		if name != "" {
			w.saved[name] = clone(w.now["nodes"][name])
			w.remove("nodes", name, "user")
			if rng.Intn(5) == 0 { // its machine registers again at once
				w.create("nodes", name, w.nodeObject(), "user")
			}
		}
	case n < 60: // put back from a backup
		names := make([]string, 0)
		for n := range w.saved {
			names = append(names, n)
		}
		if len(names) == 0 {
			return
		}
		sort.Strings(names)
		name := names[rng.Intn(len(names))]
		o := clone(w.saved[name])
		delete(meta(o), "deletionTimestamp")
		for _, p := range prefixes(o) { // A person looks first.
			for _, other := range w.now["nodes"] {
				if slices.ContainsFunc(prefixes(other), p.Overlaps) {
					return
				}
			}
		}
		if w.create("nodes", name, o, "user") {
			w.stats["put back"]++
		}
	case n < 62: // foreign
		o := w.nodeObject()
		b := block(rng)
		o["spec"] = object{"podCIDR": b, "podCIDRs": []any{b}}
		for _, other := range w.now["nodes"] {
			for _, q := range prefixes(other) {
				if q.Overlaps(netip.MustParsePrefix(b)) {
					return
				}
			}
		}
		w.create("nodes", fmt.Sprintf("f%d", rng.Intn(5)), o, "user")
	case n < 66: // relabel, or let go
		if name := w.any("nodes"); name != "" {
			o := clone(w.now["nodes"][name])
			if rng.Intn(2) == 0 {
				meta(o)["labels"] = meta(w.nodeObject())["labels"]
			} else {
				delete(meta(o), "finalizers")
			}
			w.put("nodes", name, o, "user", time.Now())
		}
	case n < 93 && n >= 66 && time.Now().Before(w.absent["clustercidrs"]), n >= 93 && time.Now().Before(w.absent["servicecidrs"]):
	case n < 74:
		if len(w.now["clustercidrs"]) < 7 {
			w.create("clustercidrs", fmt.Sprintf("c%d", rng.Intn(8)), w.clusterCIDR(), "user")
		}
	case n < 78:
		if name := w.any("clustercidrs"); name != "" {
			w.remove("clustercidrs", name, "user")
		}
	case n < 79: // replaced by one of the same name
		if name := w.any("clustercidrs"); name != "" && rng.Intn(2) == 0 {
			w.force(name)
			w.create("clustercidrs", name, w.clusterCIDR(), "user")
			w.stats["replaced"]++
		}
	case n < 80:
		if name := w.any("clustercidrs"); name != "" { // by force, or the finalizer only
			o := clone(w.now["clustercidrs"][name])
			delete(meta(o), "finalizers")
			w.put("clustercidrs", name, o, "user", time.Now())
		}
	case n < 93:
		if name := w.any("clustercidrs"); name != "" {
			o := clone(w.now["clustercidrs"][name])
			sp := o["spec"].(object)
			switch rng.Intn(3) {
			case 0:
				sp["allocation"] = []string{"Enabled", "Disabled", "Enabled"}[rng.Intn(3)]
			case 1:
				sp["priority"] = rng.Intn(3) - 1
			case 2:
				if r := str(sp, "ipv4"); r != "" {
					var ex []any
					for range rng.Intn(3) {
						if b := block(rng); netip.MustParsePrefix(r).Overlaps(netip.MustParsePrefix(b)) {
							ex = append(ex, b)
						}
					}
					sp["excludedCIDRs"] = ex
				}
			}
			w.put("clustercidrs", name, o, "user", time.Now())
		}
	case n < 96:
		name := fmt.Sprintf("s%d", rng.Intn(2))
		b := block(rng)
		w.since["svc/"+name] = time.Now()
		w.create("servicecidrs", name, object{"kind": "ServiceCIDR", "apiVersion": "networking.k8s.io/v1", "metadata": object{}, "spec": object{"cidrs": []any{b}}}, "user")
	default:
		if name := w.any("servicecidrs"); name != "" {
			w.remove("servicecidrs", name, "user")
		}
	}
}

var resources = []string{"nodes", "clustercidrs", "servicecidrs"}

// trouble makes some; the lock is held.
func (w *world) trouble() {
	rng := w.rng
	if len(w.procs) == 0 {
		return
	}
	p := w.procs[rng.Intn(len(w.procs))]
	res := resources[rng.Intn(3)]
	short := time.Duration(rng.Intn(3000)) * time.Millisecond
	long := time.Duration(rng.Intn(20)) * time.Second
	switch n := rng.Intn(100); {
	case n < 12:
		d := []time.Duration{short, long}[rng.Intn(2)]
		w.logf("OUTAGE %v", d)
		w.down = time.Now().Add(d)
		w.cutConns(func(*conn) bool { return true })
		w.stats["outages"]++
	case n < 24:
		d := []time.Duration{short, long}[rng.Intn(2)]
		w.logf("OUTAGE of %s %v", p.proc, d)
		p.down = time.Now().Add(d)
		w.cutConns(func(c *conn) bool { return c.proc == p.proc })
		w.stats["outages"]++
	case n < 40:
		w.logf("CUT %s", res)
		w.cutConns(func(c *conn) bool { return c.res == res })
		w.stats["cuts"]++
	case n < 55:
		d := []time.Duration{short, long}[rng.Intn(2)]
		w.logf("CUT and HANG %s of %s %v", res, p.proc, d)
		w.hang[p.proc+res] = time.Now().Add(d)
		w.cutConns(func(c *conn) bool { return c.res == res && c.proc == p.proc })
		w.stats["hangs"]++
	case n < 70:
		d := []time.Duration{short, long}[rng.Intn(2)]
		code := []int{500, 503, 429, 403, 410}[rng.Intn(5)]
		w.logf("CUT and REFUSE %s of %s %v %d", res, p.proc, d, code)
		w.refuse[p.proc+res] = refusal{time.Now().Add(d), code}
		w.cutConns(func(c *conn) bool { return c.res == res && c.proc == p.proc })
		w.stats["refusals"]++
	case n < 78:
		w.logf("COMPACT")
		w.compacted = w.rev
		if rng.Intn(2) == 0 {
			w.cutConns(func(*conn) bool { return true })
		}
	case n < 92:
		w.lag[res] = time.Duration(rng.Intn(500)) * time.Millisecond
	case n < 94:
		w.loseCRD([]time.Duration{short, 3 * long}[rng.Intn(2)])
	case n < 96:
		w.loseServiceCIDRs([]time.Duration{short, 5 * long}[rng.Intn(2)])
	}
}

// loseCRD takes the CustomResourceDefinition of ClusterCIDRs away, with all of them or, as by force, without; the lock is held.
func (w *world) loseCRD(d time.Duration) {
	lost := w.rng.Intn(2) == 0
	w.logf("NO CRD %v, objects lost: %t", d, lost)
	if lost {
		for _, name := range slices.Sorted(maps.Keys(w.now["clustercidrs"])) {
			w.force(name)
		}
	}
	w.absent["clustercidrs"] = time.Now().Add(d)
	w.cutConns(func(c *conn) bool { return c.res == "clustercidrs" })
	w.stats["CRD gone"]++
}

// force deletes a ClusterCIDR without its finalizers; the lock is held.
func (w *world) force(name string) {
	o := clone(w.now["clustercidrs"][name])
	delete(meta(o), "finalizers")
	w.put("clustercidrs", name, o, "user", time.Now())
	if w.now["clustercidrs"][name] != nil {
		w.remove("clustercidrs", name, "user")
	}
}

// loseServiceCIDRs is a rollback of the API server to a version that has no ServiceCIDRs, and an upgrade; the lock is held.
func (w *world) loseServiceCIDRs(d time.Duration) {
	w.logf("NO ServiceCIDRs %v", d)
	for _, name := range slices.Sorted(maps.Keys(w.now["servicecidrs"])) {
		w.remove("servicecidrs", name, "user")
	}
	w.absent["servicecidrs"] = time.Now().Add(d)
	w.cutConns(func(c *conn) bool { return c.res == "servicecidrs" })
	w.stats["ServiceCIDRs gone"]++
}

// heardOfServiceCIDRs is how long after they are there (again) the controller knows of ServiceCIDRs at the latest, if it has asked in vain before.
const heardOfServiceCIDRs = 90 * time.Second

func (w *world) kill(graceful bool) {
	if len(w.procs) == 0 {
		return
	}
	i := w.rand(len(w.procs))
	p := w.procs[i]
	w.procs = slices.Delete(w.procs, i, i+1)
	w.logf("END %s %t", p.proc, graceful)
	if !graceful {
		w.user(func() {
			p.dead = true
			w.cutConns(func(c *conn) bool { return c.proc == p.proc })
		})
	}
	p.cancel()
	<-p.done
}

func runWorld(t *testing.T, seed int64) (stats map[string]int) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewSource(seed))
		s := newStore(rng)
		w := &world{store: s, t: t, saved: map[string]object{}, since: map[string]time.Time{}, stats: map[string]int{}, foreign: map[string]bool{}, flagged: seed%4 == 0, alone: seed%5 == 0}
		stats = w.stats
		s.judge = w.judgeWrite
		s.noWL, s.noChunk = rng.Intn(3) == 0, rng.Intn(2) == 0
		writesFail := true
		panics := rng.Intn(3) == 0
		kinds := []string{"lost", "late", "slow", "refuse", "5xx", "429", "dropped"}
		s.patchFail = func() string {
			if !writesFail {
				return ""
			}
			switch n := rng.Intn(1000); {
			case n < 120:
				return kinds[rng.Intn(len(kinds))]
			case n < 125 && panics:
				return "panic"
			}
			return ""
		}
		most := 3
		if w.alone {
			most = 1
		}
		for range 1 + rng.Intn(most) {
			w.start()
		}
		end := time.Now().Add(*worldFor)
		pace := 20 + w.rand(1500)
		troubles := []int{3, 8, 20}[w.rand(3)]
		for time.Now().Before(end) && !w.failed.Load() {
			burst := 1
			s.user(func() {
				if rng.Intn(20) == 0 {
					burst = 10
				}
				for range burst {
					w.users()
				}
				if rng.Intn(troubles) == 0 {
					w.trouble()
				}
			})
			late := false
			s.user(func() { late, s.late = s.late && w.alone, false })
			switch rng2 := w.rand(100); {
			case late && rng2 < 60 && len(w.procs) > 0: // The next process must not allocate what is still on its way.
				w.kill(false)
				w.start()
				w.stats["killed while it wrote"]++
			case rng2 == 0:
				w.kill(w.rand(2) == 0)
			case rng2 < 3 && len(w.procs) < most, len(w.procs) == 0 && rng2 < 20:
				w.start()
			}
			time.Sleep(time.Duration(1+w.rand(pace)) * time.Millisecond)
		}
		s.user(func() {
			writesFail = false
			s.down = time.Time{}
			for _, p := range w.procs {
				p.down = time.Time{}
			}
			clear(s.hang)
			clear(s.refuse)
			for res, until := range s.absent {
				s.absent[res] = time.Now()
				if until.Before(time.Now()) {
					s.absent[res] = until
				}
			}
		})
		if len(w.procs) == 0 {
			w.start()
		}
		if !w.failed.Load() {
			time.Sleep(4 * time.Minute)
			s.user(func() { w.atRest() })
		}
		if w.failed.Load() {
			for _, p := range w.procs {
				if c := p.running.Load(); c != nil {
					w.logf("HEALTH of %s: %v", p.proc, c.HealthChecker().Check(nil))
				}
			}
		}
		if w.failed.Load() && *worldHistory != "" {
			if err := os.WriteFile(*worldHistory, w.history.Bytes(), 0o600); err != nil {
				t.Error(err)
			}
		}
		for len(w.procs) > 0 {
			w.kill(true)
		}
		s.user(func() { w.cutConns(func(*conn) bool { return true }) })
		time.Sleep(5 * time.Minute)
	})
	return stats
}

// atRest judges what there is when nothing happens any more.
func (w *world) atRest() {
	var taken []netip.Prefix
	for _, o := range w.now["nodes"] {
		taken = append(taken, prefixes(o)...)
	}
	for _, o := range w.now["servicecidrs"] {
		for _, x := range strs(pick(o, "spec", "cidrs")) {
			taken = append(taken, netip.MustParsePrefix(x))
		}
	}
	for name, o := range w.now["nodes"] {
		if len(prefixes(o)) > 0 || meta(o)["deletionTimestamp"] != nil {
			continue
		}
		for cname, cc := range w.now["clustercidrs"] {
			if meta(cc)["deletionTimestamp"] == nil && str(cc, "spec", "allocation") != "Disabled" && matches(cc, o) && room(cc, taken) {
				w.bad("Node %s is pending, and %s could serve it", name, cname)
			}
		}
	}
	for cname, cc := range w.now["clustercidrs"] {
		if meta(cc)["deletionTimestamp"] == nil {
			continue
		}
		used := false
		for _, o := range w.now["nodes"] {
			for _, p := range prefixes(o) {
				for _, f := range []string{"ipv4", "ipv6"} {
					if r := str(cc, "spec", f); r != "" && netip.MustParsePrefix(r).Overlaps(p) {
						used = true
					}
				}
			}
		}
		if !used {
			w.bad("ClusterCIDR %s does not go", cname)
		}
	}
}

func matches(cc, node object) bool {
	sel := pick(cc, "spec", "nodeSelector", "nodeSelectorTerms")
	if sel == nil {
		return true
	}
	labels, _ := meta(node)["labels"].(object)
	for _, t := range sel.([]any) {
		all := true
		for _, r := range t.(object)["matchExpressions"].([]any) {
			r := r.(object)
			v, has := labels[r["key"].(string)]
			in := false
			for _, x := range strs(r["values"]) {
				in = in || has && x == v.(string)
			}
			switch r["operator"] {
			case "In":
				all = all && in
			case "NotIn":
				all = all && !in
			case "Exists":
				all = all && has
			case "DoesNotExist":
				all = all && !has
			}
		}
		if all {
			return true
		}
	}
	return false
}

func room(cc object, taken []netip.Prefix) bool {
	for _, e := range strs(pick(cc, "spec", "excludedCIDRs")) {
		taken = append(slices.Clip(taken), netip.MustParsePrefix(e))
	}
	bits := num(pick(cc, "spec", "perNodeHostBits"))
	for _, f := range []string{"ipv4", "ipv6"} {
		r := str(cc, "spec", f)
		if r == "" {
			continue
		}
		p := netip.MustParsePrefix(r).Masked()
		b := bits
		if f == "ipv6" {
			if v := num(pick(cc, "spec", "ipv6PerNodeHostBits")); v > 0 {
				b = v
			}
		}
		found := false
		for a := p.Addr(); p.Contains(a); {
			q := netip.PrefixFrom(a, a.BitLen()-b)
			if !slices.ContainsFunc(taken, q.Overlaps) {
				found = true
				break
			}
			for range 1 << b {
				a = a.Next()
			}
		}
		if !found {
			return false
		}
	}
	return true
}

func num(v any) int {
	switch v := v.(type) {
	case int:
		return v
	case float64:
		return int(v)
	}
	return 0
}

// TestWorlds runs up to three whole processes, with client-go's informers, elector, queues and clients, against API servers behind a
// http.RoundTripper. Time is virtual (testing/synctest), so ten minutes of a world take a second or two. Which of two goroutines comes first is
// not decided by the seed: a world that ends badly may not do so again.
//
// The API servers list from a cache that lags or consistently, in pages or as a watch that begins with a list; they send bookmarks and forget old
// versions (410). All watches, those of one process or those of one kind break off, hang before they open, or are refused; writes are lost,
// late, slow or refused, or panic. The CustomResourceDefinition goes and comes back, with or without the ClusterCIDRs, and so does the API of
// ServiceCIDRs. Users go on meanwhile, put Nodes back with the podCIDRs that they had, and replace ClusterCIDRs by others of their names. Events of a kind
// are up to half a second late. In every fifth world there is no leader election and one process at a time.
//
// It judges what the API server stores: podCIDRs against all other Nodes, and, of a choice that was made slack after that was changed,
// against service ranges, exclusions, and ClusterCIDRs that are disabled, terminate or are gone; when finalizers go; and, four minutes after the
// last trouble, that no Node is pending that could be served and that no ClusterCIDR stays.
func TestWorlds(t *testing.T) {
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil
	total := map[string]int{}
	for seed := *worldFirst; seed < *worldFirst+*worldSeeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			for k, n := range runWorld(t, seed) {
				total[k] += n
			}
		})
		if t.Failed() {
			break
		}
	}
	var all []string
	for k, n := range total {
		all = append(all, fmt.Sprintf("%s: %d", k, n))
	}
	sort.Strings(all)
	t.Log(strings.Join(all, ", "))
}
