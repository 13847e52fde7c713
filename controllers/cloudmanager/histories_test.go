package cloudmanager

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/internal/race"
	"github.com/multicidr/controller-manager/controllers/lease"
)

var (
	seedsFlag = flag.Uint64("simulation.seeds", race.Part(uint64(200)), "how many histories TestRandomHistories makes")
	firstFlag = flag.Uint64("simulation.first", 0, "seed of the first history")
)

// TestRandomHistories: programs take part in two elections, that of the program with client-go's elector, and inside of it our controller's. Some are of an older
// version with another allocator, which has only the first. The API server is slow, fails and loses answers; programs are killed and paused, machines
// suspended, after which only one clock shows it. No write may begin while one of another program may still arrive. While the API server works, one of them
// must write soon. Time is that of synctest, so nothing waits in earnest.
func TestRandomHistories(t *testing.T) {
	defer func(exit func(int)) { klog.OsExit = exit }(klog.OsExit)
	klog.OsExit = func(int) { runtime.Goexit() } // The program ends with its elector.
	for seed := *firstFlag; seed < *firstFlag+*seedsFlag && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("again: -simulation.first=%d -simulation.seeds=1", seed)
				}
			}()
			w := newHistory(t, seed)
			for range 12 {
				w.step()
				w.awaitWrite()
			}
			for _, p := range w.programs {
				w.end(p)
			}
		})
	}
}

const (
	historyLease    = 15 * time.Second
	historyDeadline = 10 * time.Second
	// withoutLeader is how long nobody may write while the API server works and no program is paused: both Leases expire at nearly the same time. Then
	// each elector notices, and ours notices that the program leads, with retry periods of 2s in between that are prolonged by up to a fifth.
	withoutLeader = historyLease + 10*time.Second
)

// history is one history: the programs, and the Leases as the API server has them.
type history struct {
	t        *testing.T
	retry    time.Duration
	programs []*program
	begun    int       // how many programs were begun
	older    float64   // share of them that are of an older version
	migrates bool      // the outer Lease is that of a leader migration, for which a program stands once it has its own. Older ones are of another program
	resumed  time.Time // when the last pause ends

	mu      sync.Mutex
	rand    *rand.Rand
	failing float64 // share of the requests that fail or are slow
	leases  map[string]*coordinationv1.Lease
	version int
	// writer wrote last, at the time wrote. Its writes may arrive until the time arrives.
	writer         *program
	wrote, arrives time.Time
}

// program is one process.
type program struct {
	kill  context.CancelFunc
	lives context.Context
	ended chan struct{}

	mu          sync.Mutex
	paused      time.Time // until then
	asleep      bool      // the pause is a suspension of the machine
	suspendedAt time.Time
	suspended   time.Duration // in earlier suspensions
	shifted     time.Duration // by how much its wall clock is behind the time that client-go's elector of our Lease sees; never positive
}

// stoodStill is for how long the machine has been suspended. Its monotonic clock stood still, and its wall clock was set back by that.
func (p *program) stoodStill() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asleep {
		return p.suspended
	}
	if now := time.Now(); now.Before(p.paused) {
		return p.suspended + now.Sub(p.suspendedAt)
	}
	p.suspended, p.asleep = p.suspended+p.paused.Sub(p.suspendedAt), false
	return p.suspended
}

// set is by how much the wall clock was set.
func (p *program) set() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shifted
}

// clocks are what the machine shows.
func (p *program) clocks() (wall time.Time, monotonic, suspended time.Duration) {
	still := p.stoodStill()
	return time.Now().Round(0).Add(p.set() - still), time.Since(historyStart) - still, still
}

// shownTime puts into the records of the program's own elector what the wall clock of its machine shows.
type shownTime struct {
	resourcelock.Interface
	p *program
}

func (l shownTime) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Interface.Create(ctx, l.put(r))
}

func (l shownTime) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Interface.Update(ctx, l.put(r))
}

func (l shownTime) put(r resourcelock.LeaderElectionRecord) resourcelock.LeaderElectionRecord {
	l.p.awaitEndOfPause()
	r.RenewTime = metav1.NewTime(r.RenewTime.Add(l.p.set() - l.p.stoodStill()))
	return r
}

// historyStart is any moment.
var historyStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func newHistory(t *testing.T, seed uint64) *history {
	w := &history{t: t, rand: rand.New(rand.NewPCG(seed, 1)), leases: map[string]*coordinationv1.Lease{}}
	// With less than a second a challenger does not notice every renewal.
	w.retry = []time.Duration{300 * time.Millisecond, time.Second, 2 * time.Second}[w.rand.IntN(3)]
	w.older = []float64{0, 0, 0.5}[w.rand.IntN(3)]
	w.migrates = w.rand.IntN(3) == 0
	for range 2 + w.rand.IntN(2) {
		w.programs = append(w.programs, w.start())
	}
	return w
}

// step lets something happen.
func (w *history) step() {
	p := w.programs[w.roll(len(w.programs))]
	switch w.roll(7) {
	case 6:
		w.deleteLease()
	case 5:
		w.setClock(p)
	case 4:
		w.mu.Lock()
		if leader := w.writer; leader != nil {
			p = leader
		}
		w.mu.Unlock()
		w.suspend(p)
	case 0:
		p.mu.Lock()
		p.paused = time.Now().Add(w.upTo(50 * time.Second))
		if p.paused.After(w.resumed) {
			w.resumed = p.paused
		}
		p.mu.Unlock()
		time.Sleep(w.upTo(time.Minute))
	case 1:
		w.fail(0.6 * float64(w.roll(100)) / 100)
		time.Sleep(w.upTo(time.Minute))
		w.fail(0)
		time.Sleep(3 * historyLease) // Until all slow requests have ended, and nobody waits for an old Lease.
	case 2:
		w.end(p)
		time.Sleep(w.upTo(40 * time.Second))
	case 3:
		w.mu.Lock()
		leader := w.writer
		w.mu.Unlock()
		if leader != nil {
			w.end(leader)
		}
	}
}

// setClock sets the wall clock of a machine, mostly of the one that writes, to and fro, while requests fail for a part of the time. Another allocator that
// knows only the Lease of the program may then take that too soon (docs/operators/cloud-controller-manager.md), so there is none.
func (w *history) setClock(p *program) {
	if w.older > 0 {
		return
	}
	w.mu.Lock()
	if w.writer != nil && w.rand.IntN(4) > 0 {
		p = w.writer
	}
	w.mu.Unlock()
	w.fail(0.7 * float64(w.roll(100)) / 100 * float64(w.roll(2)))
	for range 1 + w.roll(4) {
		d := []time.Duration{2, 4, 7, 15, 60, 3600}[w.roll(6)]*time.Second + w.upTo(time.Second)
		how := w.roll(4)
		p.mu.Lock()
		p.shifted = min(0, p.shifted+[]time.Duration{d, -d, 2 * d, -d}[how])
		p.mu.Unlock()
		time.Sleep(w.upTo(20 * time.Second))
	}
	w.fail(0)
	w.resumed = time.Now()
	time.Sleep(3 * historyLease)
}

// deleteLease deletes one of the Leases by hand. With an older version that is more than it stands.
func (w *history) deleteLease() {
	if w.older > 0 {
		return
	}
	w.fail(0.5 * float64(w.roll(100)) / 100 * float64(w.roll(2)))
	time.Sleep(w.upTo(10 * time.Second))
	name := []string{"outer", "inner", "program"}[w.roll(3)]
	w.mu.Lock()
	delete(w.leases, name)
	w.mu.Unlock()
	time.Sleep(w.upTo(20 * time.Second))
	w.fail(0)
	w.resumed = time.Now()
	time.Sleep(3 * historyLease)
}

// suspend suspends a machine. When it goes on, the API server fails for a while, so one Lease may be renewed and the other not.
func (w *history) suspend(p *program) {
	p.stoodStill()
	p.mu.Lock()
	if time.Now().Before(p.paused) {
		p.mu.Unlock()
		return
	}
	// Just before others take the Leases, or long after.
	d := historyLease - 4*time.Second + w.upTo([]time.Duration{6 * time.Second, 30 * time.Second}[w.roll(2)])
	p.asleep, p.suspendedAt, p.paused = true, time.Now(), time.Now().Add(d)
	until := p.paused
	p.mu.Unlock()
	time.Sleep(time.Until(until) - w.upTo(20*time.Second))
	w.fail(0.5 * float64(w.roll(100)) / 100)
	time.Sleep(time.Until(until) + w.upTo(10*time.Second))
	w.fail(0)
	w.resumed = time.Now()
	time.Sleep(3 * historyLease)
}

// awaitWrite waits until some program writes. Programs that have ended are begun again.
func (w *history) awaitWrite() {
	begun := time.Now()
	for since := time.Duration(0); ; since = min(time.Since(begun), time.Since(w.resumed)) {
		for i, p := range w.programs {
			select {
			case <-p.ended:
				w.programs[i] = w.start()
			default:
			}
		}
		w.mu.Lock()
		writes := w.wrote.After(begun)
		w.mu.Unlock()
		if writes {
			return
		}
		longest := withoutLeader
		if w.migrates { // Who has got the program's Lease sees that of the migration for the first time.
			longest += historyLease + 5*time.Second
		}
		if since > longest {
			w.t.Errorf("no program has written for %v", since)
			return
		}
		time.Sleep(time.Second)
	}
}

func (w *history) start() *program {
	w.begun++
	id := strconv.Itoa(w.begun)
	p := &program{ended: make(chan struct{}), shifted: -3 * time.Hour}
	p.lives, p.kill = context.WithCancel(klog.NewContext(w.t.Context(), logr.Discard()))
	own := "outer" // the Lease of the program itself
	if w.migrates {
		own = "program"
	}
	o := &outer{leases: client{w: w, p: p}, name: "outer", program: own, wholeSeconds: lease.CountsFromWholeSecond(w.retry)}
	leading := make(chan struct{})
	var electors sync.WaitGroup
	defer func() {
		go func() {
			electors.Wait()
			close(p.ended)
		}()
	}()
	w.mu.Lock()
	older := w.rand.Float64() < w.older
	w.mu.Unlock()
	if older {
		electors.Go(func() {
			defer p.kill()
			w.lead(p, id, "outer", func(context.Context) { close(leading) })
		})
		electors.Go(func() {
			select {
			case <-leading:
				w.leadUnfenced(p, id)
			case <-p.lives.Done():
			}
		})
		return p
	}
	electors.Go(func() {
		defer p.kill()
		if w.migrates {
			first := make(chan struct{})
			electors.Go(func() {
				defer p.kill()
				w.lead(p, id, own, func(context.Context) { close(first) })
			})
			select {
			case <-first:
			case <-p.lives.Done():
				return
			}
		}
		w.lead(p, id, "outer", func(ctx context.Context) {
			for o.read(ctx) != nil {
				time.Sleep(time.Second)
				if ctx.Err() != nil {
					return
				}
			}
			close(leading)
		})
	})
	electors.Go(func() {
		defer p.kill()
		for term := 0; p.lives.Err() == nil; term++ {
			o.begin()
			lock := &nestedLock{Interface: w.lock(p, "inner", id+"_"+strconv.Itoa(term)), retry: w.retry, leading: leading,
				seen: func(string, error) {}, wrote: func(error) {}, around: o}
			err := lease.LeadWithClocks(p.lives, leaderelection.LeaderElectionConfig{
				Lock: lock, LeaseDuration: historyLease, RenewDeadline: historyDeadline, RetryPeriod: w.retry, ReleaseOnCancel: true, Name: "inner",
				Callbacks: leaderelection.LeaderCallbacks{OnStoppedLeading: func() {}},
			}, p.clocks, func(leading context.Context, fence *lease.Fence) error {
				for leading.Err() == nil && p.lives.Err() == nil {
					w.write(leading, p, fence)
					time.Sleep(100 * time.Millisecond)
				}
				return nil
			})
			if err != nil {
				w.t.Error(err)
			}
			time.Sleep(time.Second)
		}
	})
	return p
}

// lead takes part in the election of the program, and calls leads when it is won.
func (w *history) lead(p *program, id, name string, leads func(context.Context)) {
	leaderelection.RunOrDie(p.lives, leaderelection.LeaderElectionConfig{
		Lock: shownTime{w.lock(p, name, id), p}, LeaseDuration: historyLease, RenewDeadline: historyDeadline, RetryPeriod: w.retry,
		Callbacks: leaderelection.LeaderCallbacks{OnStoppedLeading: func() {}, OnStartedLeading: leads},
	})
}

// leadUnfenced writes as another allocator does while it leads: every write arrives at once. Those of its end may arrive later, and ours wait for them before they
// write, which is not in these histories.
func (w *history) leadUnfenced(p *program, id string) {
	for ; p.lives.Err() == nil; time.Sleep(100 * time.Millisecond) {
		p.awaitEndOfPause()
		w.mu.Lock()
		if *w.leases["outer"].Spec.HolderIdentity == id {
			w.writes(p, 0)
		}
		w.mu.Unlock()
	}
}

// write sends a write if the fence permits it. It is not answered, so it may arrive for as long as the fence says.
func (w *history) write(ctx context.Context, p *program, fence *lease.Fence) {
	p.awaitEndOfPause()
	if _, _, err := fence.Enter(ctx, 5*time.Second); err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes(p, fence.Unanswered())
}

// writes notes a write that may arrive for so long. The caller holds the lock.
func (w *history) writes(p *program, arrives time.Duration) {
	if w.writer != p && time.Now().Before(w.arrives) {
		w.t.Errorf("a program writes, and a write of another one may arrive for another %v", time.Until(w.arrives))
	}
	w.writer, w.wrote, w.arrives = p, time.Now(), time.Now().Add(arrives)
}

func (w *history) end(p *program) {
	p.kill()
	<-p.ended
}

func (w *history) roll(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.IntN(n)
}

func (w *history) upTo(d time.Duration) time.Duration {
	return time.Duration(w.roll(int(d.Milliseconds()))) * time.Millisecond
}

func (w *history) fail(share float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failing = share
}

// fails reports whether the next thing that happens to a request is bad.
func (w *history) fails() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.Float64() < w.failing
}

func (p *program) awaitEndOfPause() {
	for {
		p.mu.Lock()
		d := time.Until(p.paused)
		p.mu.Unlock()
		if d <= 0 {
			return
		}
		time.Sleep(d)
	}
}

func (w *history) lock(p *program, name, id string) *resourcelock.LeaseLock {
	return &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Client: client{w: w, p: p}, LockConfig: resourcelock.ResourceLockConfig{Identity: id},
	}
}

// client is a program's client of Leases. A request waits while its program is paused, on its way and on its way back. A program that was killed sends
// nothing.
type client struct {
	coordinationv1client.LeaseInterface
	w *history
	p *program
}

func (c client) Leases(string) coordinationv1client.LeaseInterface { return c }

func (c client) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	defer c.p.awaitEndOfPause()
	if err := c.send(ctx); err != nil {
		return nil, err
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if l := c.w.leases[name]; l != nil {
		return l.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(ofLeases, name)
}

func (c client) Create(ctx context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return c.write(ctx, l, func(old *coordinationv1.Lease) error {
		if old != nil {
			return apierrors.NewAlreadyExists(ofLeases, l.Name)
		}
		return nil
	})
}

func (c client) Update(ctx context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return c.write(ctx, l, func(old *coordinationv1.Lease) error {
		switch {
		case old == nil:
			return apierrors.NewNotFound(ofLeases, l.Name)
		case old.ResourceVersion != l.ResourceVersion:
			return apierrors.NewConflict(ofLeases, l.Name, errors.New("it has changed"))
		}
		return nil
	})
}

var ofLeases = schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}

var (
	errFailed   = errors.New("the API server has failed")
	errNoAnswer = errors.New("the answer was lost")
)

// send is the way of a request to the API server. A slow one takes longer than its client waits, or nearly.
func (c client) send(ctx context.Context) error {
	c.p.awaitEndOfPause()
	if err := c.p.lives.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, historyDeadline/2) // like a client with a timeout
	defer cancel()
	takes := c.w.upTo(20 * time.Millisecond)
	if c.w.fails() {
		takes = c.w.upTo(historyDeadline/2 + time.Second)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(takes):
	}
	if c.w.fails() {
		return errFailed
	}
	return nil
}

func (c client) write(ctx context.Context, l *coordinationv1.Lease, check func(old *coordinationv1.Lease) error) (*coordinationv1.Lease, error) {
	defer c.p.awaitEndOfPause()
	err := c.send(ctx)
	if err != nil && (c.p.lives.Err() != nil || c.w.fails() || errors.Is(err, errFailed)) {
		return nil, err
	}
	// A request that its sender has given up may be carried out all the same.
	l = l.DeepCopy()
	c.w.mu.Lock()
	old := c.w.leases[l.Name]
	if err := check(old); err != nil {
		c.w.mu.Unlock()
		return nil, err
	}
	c.w.version++
	l.ResourceVersion = strconv.Itoa(c.w.version)
	if old == nil {
		l.UID = types.UID(l.ResourceVersion)
	}
	c.w.leases[l.Name] = l
	c.w.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if c.w.fails() || ctx.Err() != nil {
		return nil, errNoAnswer
	}
	return l.DeepCopy(), nil
}
