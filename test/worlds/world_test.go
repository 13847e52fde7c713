package worlds

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/test/chaos/checker"
	"github.com/multicidr/controller-manager/test/seeds"
)

// user and stock write beside the product: users, and an allocator of another make.
const (
	user  = "user"
	stock = "stock"
)

// slack is how long after a watch showed something the product may still decide without it.
const slack = time.Second

// world is a server and the processes that talk to it.
type world struct {
	*server
	t        *testing.T
	replicas []*replica
	started  int

	// Of all processes that are started from now on:
	lease    string // empty: no leader election
	flags    fromflags.Flags
	takeover time.Duration
	workers  int
	early    bool
	faults   func(*link) func(request) fault // nil: none
}

// replica is a process that is started again when it ends. Its link is guarded by the server's lock.
type replica struct {
	*link
	leads  bool
	health func() error
	cancel context.CancelFunc
	done   chan struct{}
}

// inWorld calls f in a bubble with simulated time, and fails the test if the product did anything wrong.
func inWorld(t *testing.T, seed uint64, f func(*world)) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // A seed comes closer to one history.
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil
	synctest.Test(t, func(t *testing.T) {
		j := newJudge(checker.Options{Unlisted: time.Minute, Slack: slack, Lease: "controller", Flags: true})
		w := &world{server: newServer(seed, j), t: t, lease: "kube-system/controller", takeover: 20 * time.Second, workers: 10}
		f(w)
		wrong := j.verdict()
		for len(w.replicas) > 0 {
			w.kill(w.replicas[0])
		}
		w.do(func() { w.cutStreams(func(*stream) bool { return true }) })
		time.Sleep(10 * time.Minute) // what is on its way ends
		j.mu.Lock()
		defer j.mu.Unlock()
		for _, v := range wrong[:min(3, len(wrong))] {
			t.Error(v)
		}
		seeds.Report(t, seed, j.history)
	})
}

// start starts a replica.
func (w *world) start() *replica {
	ctx, cancel := context.WithCancel(context.Background())
	r := &replica{cancel: cancel, done: make(chan struct{})}
	r.link = w.newLink(nil)
	w.replicas = append(w.replicas, r)
	go func() {
		defer close(r.done)
		for w.run(ctx, r); ctx.Err() == nil; w.run(ctx, r) {
			w.do(func() { w.end(r.link) })
			time.Sleep(2 * time.Second)
			next := w.newLink(r.link)
			w.do(func() { r.link, r.leads = next, false })
		}
	}()
	return r
}

// newLink is a new process, on the machine of an earlier one if there is one.
func (w *world) newLink(earlier *link) *link {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started++
	l := &link{server: w.server, process: fmt.Sprintf("p%d", w.started), lease: w.lease, shown: map[string][]mark{}, tries: map[string]*try{}}
	_, l.lease, _ = strings.Cut(w.lease, "/")
	if earlier != nil {
		l.refusing, l.silent, l.slow, l.ahead = earlier.refusing, earlier.silent, earlier.slow, earlier.ahead
	}
	if w.faults != nil {
		l.fault = w.faults(l)
	}
	w.judge.logf("START %s", l.process)
	return l
}

func (w *world) run(ctx context.Context, r *replica) {
	var l *link
	var c config
	w.do(func() {
		l = r.link
		c = config{
			identity: l.process, lease: w.lease, network: l, paused: l.paused, clocks: l.clocks, flags: w.flags, takeover: w.takeover, workers: w.workers, early: w.early,
			made: func(check func() error) { w.do(func() { r.health = check }) },
			leads: func() {
				w.judge.logf("%s LEADS", l.process)
				w.do(func() { r.leads = true })
			},
		}
	})
	if err := run(ctx, c); err != nil {
		w.judge.bad("%s: %v", l.process, err)
	}
	w.judge.logf("END %s", l.process)
}

// end makes a process reach nothing any more. The caller holds the lock.
func (w *world) end(l *link) {
	l.dead = true
	w.cutStreams(func(s *stream) bool { return s.link == l })
}

// kill is kill -9.
func (w *world) kill(r *replica) {
	w.do(func() {
		w.judge.logf("KILL %s", r.process)
		w.end(r.link)
	})
	r.cancel()
	w.replicas = slices.DeleteFunc(w.replicas, func(o *replica) bool { return o == r })
}

// stop is a shutdown. It returns when the process has ended.
func (w *world) stop(r *replica) {
	w.do(func() { w.judge.logf("STOP %s", r.process) })
	r.cancel()
	<-r.done
	w.do(func() { w.end(r.link) })
	w.replicas = slices.DeleteFunc(w.replicas, func(o *replica) bool { return o == r })
}

// off is an API server's machine without power, as one process sees it: no connection breaks before its keep-alive says so. The caller holds the lock.
func (w *world) off(l *link, d time.Duration) {
	l.silent = time.Now().Add(d)
	go func() {
		time.Sleep(min(d, 45*time.Second))
		w.do(func() { w.cutStreams(func(s *stream) bool { return s.link == l }) })
	}()
}

// cutAll is a proxy that ends every watch after 1 to 3 s, with lists that take up to a second.
func (w *world) cutAll() {
	w.watchesLast = func() time.Duration { return time.Second + time.Duration(w.noise.Intn(2000))*time.Millisecond }
	w.listsTake = func() time.Duration { return time.Duration(w.noise.Intn(1000)) * time.Millisecond }
}

// refuse is an API server that does not run, as one process sees it. The caller holds the lock.
func (w *world) refuse(l *link, d time.Duration) {
	l.refusing = time.Now().Add(d)
	w.cutStreams(func(s *stream) bool { return s.link == l })
}

// leader waits until a replica leads.
func (w *world) leader() *replica {
	for range 600 {
		for _, r := range w.replicas {
			leads := false
			w.do(func() { leads = r.leads && !r.dead })
			if leads {
				return r
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.judge.bad("nobody leads")
	return w.replicas[0]
}

// within waits until ok, and notes it if that takes longer than d.
func (w *world) within(d time.Duration, what string, ok func() bool) {
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		is := false
		w.do(func() { is = ok() })
		switch {
		case is:
			return
		case time.Since(begin) > d:
			w.judge.bad("not within %v: %s", d, what)
			return
		}
	}
}

// served waits until Nodes have podCIDRs.
func (w *world) served(d time.Duration, names ...string) {
	w.within(d, fmt.Sprintf("podCIDRs for %.200s", fmt.Sprint(names)), func() bool {
		return !slices.ContainsFunc(names, func(name string) bool { return len(w.podCIDRs(name)) == 0 })
	})
}

// settle waits until the controller has nothing left to do, and adds what is wrong then.
func (w *world) settle(d time.Duration) {
	time.Sleep(d)
	w.judge.settled()
}

// node creates a Node, and returns its name.
func (w *world) node(name string, labels ...string) string {
	w.do(func() { w.create(request{resource: nodes, body: encode(newNode(name, labels...))}, write{by: user}) })
	return name
}

func newNode(name string, labels ...string) object {
	all := object{}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		all[key] = value
	}
	return object{"metadata": object{"name": name, "labels": all}, "spec": object{}}
}

// stockPatch is a PATCH of an allocator of another make, which arrives after d.
func (w *world) stockPatch(d time.Duration, node, block string) {
	body := encode(object{"spec": object{"podCIDR": block, "podCIDRs": []any{block}}})
	r := request{method: http.MethodPatch, resource: nodes, name: node, contentType: string(types.StrategicMergePatchType), body: body}
	if d == 0 {
		w.serve(r, write{by: stock})
		return
	}
	go func() {
		time.Sleep(d)
		w.serve(r, write{by: stock})
	}()
}

// pool creates a ClusterCIDR for all Nodes, or for those with a label.
func (w *world) pool(name, ipv4 string, hostBits int, label ...string) {
	spec := object{"ipv4": ipv4, "perNodeHostBits": hostBits, "allocation": "Enabled"}
	if len(label) > 0 {
		spec["nodeSelector"] = object{"nodeSelectorTerms": []any{object{"matchExpressions": []any{object{"key": label[0], "operator": "Exists"}}}}}
	}
	w.do(func() {
		w.create(request{resource: clusterCIDRs, body: encode(object{"metadata": object{"name": name}, "spec": spec})}, write{by: user})
	})
}

// change changes an object. The caller holds the lock.
func (s *server) change(resource, name string, f func(object)) {
	o := clone(s.objects[resource][name])
	f(o)
	s.put(resource, name, o, write{by: user})
}

// delete deletes an object.
func (w *world) delete(resource, name string) {
	w.do(func() { w.remove(resource, name, write{by: user}) })
}
