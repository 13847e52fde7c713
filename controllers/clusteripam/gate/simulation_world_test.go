package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/claims"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
)

// The simulated world: one API server and two processes, each with both controllers. There is no Lease: both processes write at once, from
// caches that lag, and a request may arrive long after its sender gave up. What is decided here has to be right even so.

type world struct {
	server    *server
	processes []*process
	dice      *rand.Rand // of the current move
	now       time.Time
	calm      bool            // no faults, and nothing happens during a request
	depth     int             // of requests during which something else happens
	network   []func() error  // requests that may still arrive
	used      map[string]bool // the pools of which addresses are in use, by UID
	writes    int             // by controllers
	known     known
	trace     []string
	violation string
	covered   map[string]int
}

func newWorld() *world {
	w := &world{server: newServer(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), used: map[string]bool{}, covered: map[string]int{}, known: newKnown()}
	w.server.onWrite = w.judge
	w.processes = []*process{w.boot("p"), w.boot("q")}
	return w
}

func (w *world) violate(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
	}
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// process is one run of a controller manager.
type process struct {
	name        string
	controllers []*controller
}

type controller struct {
	w       *world
	name    string
	feed    shell.Feed
	sources []*cached
	queue   []shell.Key
	later   []shell.Key
	// shows is whether answers are shown, as the shell does; a Logic does not rely on it.
	shows bool
}

// cached is one informer: it has shown the first seen changes.
type cached struct {
	source shell.Source
	seen   int
}

func (w *world) boot(name string) *process {
	p := &process{name: name}
	for i, build := range []func(shell.Parts) shell.Logic{
		func(parts shell.Parts) shell.Logic { return claims.NewLogic(parts, "") },
		func(parts shell.Parts) shell.Logic { return newLogic(parts) },
	} {
		c := &controller{w: w, name: fmt.Sprintf("%s/%d", name, i), shows: name != "q"}
		parts := shell.Parts{
			API: api{c}, Lock: &shell.Lock{}, Now: func() time.Time { return w.now }, Queue: c,
			Served: func(k *shell.Kind) (string, bool) { return k.Group + "/" + k.Versions[0], true },
			Tell:   func(e shell.Event) { w.covered["event: "+e.Reason]++ },
			Took:   func(time.Duration) { w.covered["took"]++ },
		}
		c.feed = shell.Feed{Lock: parts.Lock, Logic: build(parts)}
		for _, source := range c.feed.Logic.Reads() {
			c.sources = append(c.sources, &cached{source, len(w.server.changes)})
			for _, name := range sortedKeys(w.server.objects[source.Reads().Kind]) {
				c.feed.Shows(source, w.server.typed[source.Reads().Kind][name])
			}
		}
		c.feed.Fill()
		p.controllers = append(p.controllers, c)
	}
	return p
}

// typed decodes an object.
func typed(kind *shell.Kind, o object) metav1.Object {
	switch kind {
	case shell.ClusterIPAMClaims:
		return copyOf[*v1beta1.ClusterIPAMClaim](o)
	case shell.ClusterIPAMs:
		return copyOf[*v1beta1.ClusterIPAM](o)
	case shell.ClusterDeployments:
		return copyOf[*v1beta1.ClusterDeployment](o)
	case shell.InClusterIPPools:
		return copyOf[*v1alpha2.InClusterIPPool](o)
	case shell.InfobloxIPPools:
		return copyOf[*v1alpha1.InfobloxIPPool](o)
	default:
		return copyOf[*v1alpha1.InfobloxInstance](o)
	}
}

func (c *controller) Add(k shell.Key) {
	if !slices.Contains(c.queue, k) {
		c.queue = append(c.queue, k)
	}
}

func (c *controller) AddAfter(k shell.Key, _ time.Duration) { c.later = append(c.later, k) }

// deliver shows a cache its next change. It reports whether there was one.
func (c *controller) deliver(i int) bool {
	s := c.sources[i]
	for s.seen < len(c.w.server.changes) {
		ch := c.w.server.changes[s.seen]
		s.seen++
		if ch.kind != s.source.Reads().Kind {
			continue
		}
		if ch.gone {
			c.feed.Gone(s.source, ch.typed)
		} else {
			c.feed.Shows(s.source, ch.typed)
		}
		return true
	}
	return false
}

// relist shows a cache what there is, as after a watch that has missed events.
func (c *controller) relist(i int) {
	s := c.sources[i]
	is := c.w.server.typed[s.source.Reads().Kind]
	gone := map[types.UID]metav1.Object{}
	for _, ch := range c.w.server.changes {
		if ch.kind == s.source.Reads().Kind {
			gone[ch.typed.GetUID()] = ch.typed
		}
	}
	for _, o := range is {
		delete(gone, o.GetUID())
	}
	for _, uid := range slices.Sorted(maps.Keys(gone)) {
		c.feed.Gone(s.source, gone[uid])
	}
	for _, name := range sortedKeys(is) {
		c.feed.Shows(s.source, is[name])
	}
	s.seen = len(c.w.server.changes)
	c.w.covered["a watch has missed events"]++
}

// work works on one key. It reports whether there was one.
func (c *controller) work() bool {
	if len(c.queue) == 0 {
		return false
	}
	k := c.queue[0]
	c.queue = c.queue[1:]
	if err := c.feed.Logic.Sync(context.Background(), k); err != nil {
		c.w.covered["sync failed"]++
		if errors.Is(err, shell.ErrTakenBack) {
			c.w.covered["taken back"]++
		}
		c.later = append(c.later, k)
	}
	return true
}

// api is the API server as a controller sees it.
type api struct{ c *controller }

var errLost = errors.New("the answer was lost")

// send carries out a request, or not, or later, and during it other things happen.
func (a api) send(what string, do func() error) error {
	w := a.c.w
	w.writes++
	if w.calm {
		err := do()
		w.note("    %s: %s: %v", a.c.name, what, err)
		return err
	}
	if w.depth == 0 && w.dice.IntN(4) == 0 {
		w.depth++
		for range 1 + w.dice.IntN(3) {
			w.meanwhile()
		}
		w.depth--
	}
	fate := w.dice.IntN(12)
	if fate == 2 {
		w.network = append(w.network, do)
	}
	var err error
	if fate > 1 && fate != 2 || fate == 0 {
		err = do()
	}
	if fate <= 2 {
		w.covered[[]string{"answer lost", "request lost", "request late"}[fate]]++
		err = errLost
	}
	w.note("    %s: %s: %v", a.c.name, what, err)
	return err
}

func (a api) Get(context.Context, *shell.Kind, types.NamespacedName, metav1.Object) error {
	panic("nobody reads")
}

func (a api) Create(_ context.Context, kind *shell.Kind, o, _ metav1.Object) error {
	sent := copyOf[object](o)
	err := a.send(fmt.Sprintf("create %v %s", kind, o.GetName()), func() error { return a.c.w.server.create(a.c.name, kind, sent) })
	a.wrote(kind, o.GetName(), err)
	return err
}

func (a api) Patch(_ context.Context, kind *shell.Kind, of types.NamespacedName, patch shell.Patch, stored metav1.Object) error {
	var answer []byte
	err := a.send(fmt.Sprintf("patch %v %s %s", kind, of.Name, patch.Body), func() error {
		s := a.c.w.server
		if err := s.patch(a.c.name, kind, of.Name, patch.Status, decode(patch.Body)); err != nil {
			return err
		}
		answer = shell.Encode(s.objects[kind][of.Name])
		return nil
	})
	if err == nil && stored != nil {
		if err := json.Unmarshal(answer, stored); err != nil {
			panic(err)
		}
	}
	a.wrote(kind, of.Name, err)
	return err
}

// wrote shows what an answer says, as the shell does.
func (a api) wrote(kind *shell.Kind, name string, err error) {
	stored := a.c.w.server.typed[kind][name]
	if err != nil || stored == nil || !a.c.shows {
		return
	}
	for _, s := range a.c.sources {
		if s.source.Reads().Kind == kind {
			a.c.feed.Wrote(s.source, stored)
			a.c.w.covered["an answer is shown before the watch"]++
		}
	}
}

func (a api) Delete(_ context.Context, kind *shell.Kind, of types.NamespacedName, uid types.UID, version string) error {
	return a.send(fmt.Sprintf("delete %v %s", kind, of.Name), func() error { return a.c.w.server.delete(a.c.name, kind, of.Name, string(uid), version) })
}

// allocate is what the providers of pools do: finalizers, counts and conditions. It reports whether something was to be done.
func (w *world) allocate() (did bool) {
	for _, kind := range []*shell.Kind{shell.InClusterIPPools, shell.InfobloxIPPools} {
		for _, name := range sortedKeys(w.server.objects[kind]) {
			o := w.server.objects[kind][name]
			version := len(w.server.changes)
			used := w.used[at(o, "metadata", "uid").(string)]
			var finalizers any
			switch {
			case at(o, "metadata", "deletionTimestamp") != nil && used:
				continue
			case at(o, "metadata", "deletionTimestamp") == nil:
				finalizers = []any{"protect"}
			}
			if kind == shell.InClusterIPPools {
				_ = w.server.patch("allocator", kind, name, true, object{"status": object{"ipAddresses": usage(o, used)}})
			} else {
				instance, _ := at(o, "spec", "instance", "name").(string)
				status := "False"
				if w.server.objects[shell.InfobloxInstances][instance] != nil {
					status = "True"
				}
				_ = w.server.patch("allocator", kind, name, true, object{"status": object{"conditions": []any{object{"type": "Ready", "status": status, "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}}}})
			}
			_ = w.server.patch("allocator", kind, name, false, object{"metadata": object{"finalizers": finalizers}})
			did = did || version != len(w.server.changes)
		}
	}
	return did
}

// usage counts as an allocator does: of these networks every /24 has 253 addresses and every other cidr none.
func usage(pool object, used bool) object {
	total, inUse := 0, 0
	addresses, _ := at(pool, "spec", "addresses").([]any)
	for _, a := range addresses {
		switch text, _ := a.(string); {
		case strings.HasSuffix(text, "/24"):
			total += 253
		case !strings.Contains(text, "/"):
			total++
		}
	}
	if used {
		inUse = 1
	}
	return object{"total": total, "free": total - inUse, "used": inUse, "outOfRange": 0}
}

// quiesce lets everything that is under way end. It ends with processes that have just started.
func (w *world) quiesce() {
	w.calm = true
	w.server.takesBack = map[*shell.Kind]bool{}
	w.note("quiesce")
	for _, late := range w.network {
		_ = late()
	}
	w.network = nil
	for round := 0; ; round++ {
		if round > 100 {
			w.violate("nothing flips: after 100 rounds there is still something to do")
			return
		}
		busy := w.server.collectGarbage()
		busy = w.allocate() || busy
		for _, p := range w.processes {
			for _, c := range p.controllers {
				for i := range c.sources {
					for c.deliver(i) {
						busy = true
					}
				}
				for _, k := range c.later {
					c.Add(k)
				}
				c.later = nil
				for range len(c.queue) {
					before := w.writes
					c.work()
					busy = busy || w.writes != before
				}
				busy = busy || len(c.queue)+len(c.later) > 0
			}
		}
		if !busy {
			break
		}
		w.now = w.now.Add(time.Second)
	}
	w.processes = []*process{w.boot("r")}
	before := w.writes
	for _, c := range w.processes[0].controllers {
		for c.work() {
		}
	}
	if w.writes != before {
		w.violate("idle is idle: a new process writes although nothing has changed")
	}
}
