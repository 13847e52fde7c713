package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
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
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/internal/race"
	"github.com/multicidr/controller-manager/test/seeds"
)

// TestRandomHistories: client-go's electors, with its LeaseLock, compete for a Lease. Wall clocks step forward, processes are paused, machines suspended and cut
// off, the API server is slow, fails and loses answers. No process may write while a write of another one can still arrive, or
// after another one has written. When all that is over, the leader writes.
func TestRandomHistories(t *testing.T) {
	var leaders, writes int
	n := seeds.Each(t, race.Part(uint64(200)), func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			h := newElectionHistory(t, seed)
			defer func() { seeds.Report(t, seed, h.told) }()
			h.run()
			leaders, writes = leaders+h.leaders, writes+h.writes
		})
	})
	if n >= 50 && !t.Failed() && (leaders < 2 || writes == 0) {
		t.Errorf("%d leaders and %d writes", leaders, writes)
	}
}

type electionHistory struct {
	t            *testing.T
	times        struct{ lease, deadline, retry time.Duration }
	contestants  []*contestant
	begun        int
	clocksOnly   bool
	mixed        bool // the settings of the processes differ, as during a rollout
	began        time.Time
	mu           sync.Mutex
	told         []string // what happened, with the time
	leaders      int
	writes       int
	rand         *rand.Rand
	failing      float64
	lease        *coordinationv1.Lease
	version      int
	writer       *contestant
	former       map[*contestant]bool // wrote before writer did
	wroteAt      time.Time
	arrivesUntil time.Time
}

// contestant is a process on a machine of its own.
type contestant struct {
	h     *electionHistory
	id    string
	fence *Fence
	lives context.Context
	kill  func()
	ended chan struct{}

	mu          sync.Mutex
	set         time.Duration // how far the wall clock is ahead of true time
	paused      time.Time     // the process does nothing until then
	suspended   time.Duration // how long the machine was suspended: its monotonic clock stood still
	suspendedAt time.Time     // the suspension began
	asleep      bool          // the pause is a suspension
	cut         time.Time     // no request arrives until then
}

func newElectionHistory(t *testing.T, seed uint64) *electionHistory {
	h := &electionHistory{t: t, rand: rand.New(rand.NewPCG(seed, 7)), began: time.Now(), former: map[*contestant]bool{}}
	h.times.lease, h.times.deadline, h.times.retry = 15*time.Second, 10*time.Second, 2*time.Second
	switch h.rand.IntN(4) {
	case 0, 1:
		h.times.retry = time.Second
	case 2:
		h.times.lease, h.times.deadline, h.times.retry = 7500*time.Millisecond, 5*time.Second, 1100*time.Millisecond
	}
	h.clocksOnly, h.mixed = h.rand.IntN(4) == 0, h.rand.IntN(3) == 0
	h.tell("times %+v, only clocks: %t, mixed: %t", h.times, h.clocksOnly, h.mixed)
	time.Sleep(time.Duration(h.rand.IntN(1000)) * time.Millisecond)
	for range 2 + h.rand.IntN(2) {
		h.contestants = append(h.contestants, h.start())
		time.Sleep(h.upTo(time.Second))
	}
	return h
}

func (h *electionHistory) tell(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, fmt.Sprintf("%8.3f ", time.Since(h.began).Seconds())+fmt.Sprintf(format, args...))
}

func (h *electionHistory) run() {
	time.Sleep(5 * time.Second)
	leader := h.holder()
	for range 15 {
		h.step()
		if h.clocksOnly {
			if now := h.holder(); now != leader {
				h.t.Errorf("only clocks were set, and the leader is %q, not %q", now, leader)
			}
		}
		if h.upTo(10*time.Second) < 3*time.Second {
			h.calm()
		}
	}
	h.calm()
	for _, c := range h.contestants {
		c.kill()
	}
	for _, c := range h.contestants {
		<-c.ended
	}
}

func (h *electionHistory) holder() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lease == nil {
		return ""
	}
	return *h.lease.Spec.HolderIdentity
}

func (h *electionHistory) step() {
	c := h.contestants[h.roll(len(h.contestants))]
	if h.roll(3) > 0 { // rather the leader
		for _, l := range h.contestants {
			if l.id == h.holder() {
				c = l
			}
		}
	}
	kind := h.roll(8)
	if h.clocksOnly {
		kind = 7
	}
	defer func() {
		h.tell("move %d of %s: set %v, paused until %v, asleep %t, cut off until %v, %.0f %% fail", kind, c.id, c.set, c.paused.Sub(h.began), c.asleep, c.cut.Sub(h.began), 100*h.failing)
	}()
	switch kind {
	case 0, 1:
		asleep := kind == 1
		c.stoodStill()
		c.mu.Lock()
		if !time.Now().Before(c.paused) {
			c.paused, c.asleep, c.suspendedAt = time.Now().Add(h.upTo(40*time.Second)), asleep, time.Now()
		}
		c.mu.Unlock()
		if h.roll(2) == 0 {
			time.Sleep(h.upTo(40 * time.Second))
		}
	case 2, 3:
		c.mu.Lock()
		c.cut = time.Now().Add(h.upTo(40 * time.Second))
		c.mu.Unlock()
		time.Sleep(h.upTo(10 * time.Second))
	case 4:
		h.mu.Lock()
		h.failing = 0.6 * h.rand.Float64()
		h.mu.Unlock()
		time.Sleep(h.upTo(30 * time.Second))
	default:
		c.mu.Lock()
		if !c.asleep || !time.Now().Before(c.paused) { // Nobody sets the clock of a sleeping machine.
			c.set += []time.Duration{h.upTo(5 * time.Second), h.upTo(2 * time.Minute), 2 * time.Second, time.Hour}[h.roll(4)]
		}
		c.mu.Unlock()
		time.Sleep(h.upTo(10 * time.Second))
	}
}

// calm waits until nothing is wrong any more, and then until somebody writes.
func (h *electionHistory) calm() {
	h.mu.Lock()
	h.failing = 0
	h.mu.Unlock()
	for _, c := range h.contestants {
		c.mu.Lock()
		until := c.paused
		if c.cut.After(until) {
			until = c.cut
		}
		c.mu.Unlock()
		time.Sleep(time.Until(until))
	}
	begun := time.Now()
	for {
		for i, c := range h.contestants {
			select {
			case <-c.ended:
				h.contestants[i] = h.start()
			default:
			}
		}
		h.mu.Lock()
		wrote := h.wroteAt.After(begun)
		h.mu.Unlock()
		since := time.Since(begun)
		if wrote {
			return
		}
		if since > 2*h.longest()+10*time.Second {
			h.t.Errorf("nobody has written for %v", since)
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// longest is the longest lease that any process asks for.
func (h *electionHistory) longest() time.Duration {
	if h.mixed {
		return 2 * h.times.lease
	}
	return h.times.lease
}

func (h *electionHistory) start() *contestant {
	h.begun++
	times := h.times
	if h.mixed && h.roll(2) == 0 {
		times.lease, times.deadline = 2*times.lease, 2*times.deadline
	}
	c := &contestant{h: h, id: "p" + strconv.Itoa(h.begun), ended: make(chan struct{})}
	c.lives, c.kill = context.WithCancel(klog.NewContext(h.t.Context(), logr.Discard()))
	start := time.Now()
	inner := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "lease"}, Client: electionClient{c: c}, LockConfig: resourcelock.ResourceLockConfig{Identity: c.id}}
	lock, fence := wrap(inner, Clocks{Read: func() (wall time.Time, boot, monotonic time.Duration) {
		return c.wall(), time.Since(start), time.Since(start) - c.stoodStill()
	}})
	c.fence = fence
	leading := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		defer c.kill()
		leaderelection.RunOrDie(c.lives, leaderelection.LeaderElectionConfig{
			Lock: shownClock{lock, c}, LeaseDuration: times.lease, RenewDeadline: times.deadline, RetryPeriod: times.retry, ReleaseOnCancel: h.roll(2) == 0,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { close(leading) }, OnStoppedLeading: func() {}},
		})
	})
	running.Go(func() {
		select {
		case <-leading:
		case <-c.lives.Done():
			return
		}
		h.mu.Lock()
		h.leaders++
		h.mu.Unlock()
		for c.lives.Err() == nil {
			c.await()
			h.write(c)
			time.Sleep(50*time.Millisecond + h.upTo(100*time.Millisecond))
		}
	})
	go func() {
		running.Wait()
		close(c.ended)
	}()
	return c
}

// write sends a write if the fence permits it. One in three is never answered, the others are at once.
func (h *electionHistory) write(c *contestant) {
	ctx, leave, err := c.fence.Enter(c.lives, time.Minute)
	if err != nil {
		return
	}
	// It takes a third of the lease, and as long on its way.
	deadline, _ := ctx.Deadline()
	until := deadline.Add(time.Until(deadline))
	h.tell("%s writes", c.id)
	if h.roll(3) > 0 {
		leave()
		until = time.Now()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.writer != c && time.Now().Before(h.arrivesUntil) {
		h.t.Errorf("%s writes, and a write of %s may arrive for another %v", c.id, h.writer.id, time.Until(h.arrivesUntil))
	}
	if h.former[c] {
		h.t.Errorf("%s writes again, after another process has led", c.id)
	}
	if h.writer != nil && h.writer != c {
		h.former[h.writer] = true
	}
	h.writes++
	h.writer, h.wroteAt = c, time.Now()
	if until.After(h.arrivesUntil) {
		h.arrivesUntil = until
	}
}

func (c *contestant) wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Round(0).Add(c.set)
}

func (c *contestant) stoodStill() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.suspended
	if c.asleep {
		end := time.Now()
		if end.After(c.paused) {
			end = c.paused
		}
		d += end.Sub(c.suspendedAt)
		if end.Equal(c.paused) {
			c.suspended, c.asleep = d, false
		}
	}
	return d
}

func (c *contestant) await() {
	for {
		c.mu.Lock()
		d := time.Until(c.paused)
		c.mu.Unlock()
		if d <= 0 {
			c.stoodStill()
			return
		}
		time.Sleep(d)
	}
}

// shownClock puts into the records what the wall clock of the machine shows.
type shownClock struct {
	resourcelock.Interface
	c *contestant
}

func (l shownClock) put(r resourcelock.LeaderElectionRecord) resourcelock.LeaderElectionRecord {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	r.RenewTime = metav1.NewTime(r.RenewTime.Add(l.c.set))
	return r
}

func (l shownClock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	l.c.await()
	return l.Interface.Create(ctx, l.put(r))
}

func (l shownClock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	l.c.await()
	return l.Interface.Update(ctx, l.put(r))
}

type electionClient struct {
	coordinationv1client.LeaseInterface
	c *contestant
}

func (e electionClient) Leases(string) coordinationv1client.LeaseInterface { return e }

var (
	electionLeases = schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}
	errElection    = errors.New("no answer, or a bad one")
)

// send is the way of a request. It reports whether the request arrives.
func (e electionClient) send(ctx context.Context) (arrives bool, err error) {
	h := e.c.h
	e.c.await()
	ctx, cancel := context.WithTimeout(ctx, h.times.deadline/2)
	defer cancel()
	takes := h.upTo(20 * time.Millisecond)
	if h.fails() {
		takes = h.upTo(h.times.deadline/2 + time.Second)
	}
	select {
	case <-ctx.Done():
		return h.roll(2) == 0, ctx.Err()
	case <-time.After(takes):
	}
	e.c.mu.Lock()
	cut := time.Now().Before(e.c.cut)
	e.c.mu.Unlock()
	if cut {
		<-ctx.Done()
		return h.roll(4) == 0, ctx.Err() // only its answer was lost
	}
	if h.fails() {
		return false, errElection
	}
	return true, nil
}

func (e electionClient) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	defer e.c.await()
	if _, err := e.send(ctx); err != nil {
		return nil, err
	}
	h := e.c.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lease == nil {
		return nil, apierrors.NewNotFound(electionLeases, name)
	}
	return decoded(h.lease), nil
}

// decoded is a Lease as it comes from the API server: its times have microseconds.
func decoded(l *coordinationv1.Lease) *coordinationv1.Lease {
	raw, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	var got coordinationv1.Lease
	if err := json.Unmarshal(raw, &got); err != nil {
		panic(err)
	}
	return &got
}

func (e electionClient) Create(ctx context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return e.write(ctx, l, func(old *coordinationv1.Lease) error {
		if old != nil {
			return apierrors.NewAlreadyExists(electionLeases, l.Name)
		}
		return nil
	})
}

func (e electionClient) Update(ctx context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return e.write(ctx, l, func(old *coordinationv1.Lease) error {
		if old == nil {
			return apierrors.NewNotFound(electionLeases, l.Name)
		}
		if old.ResourceVersion != l.ResourceVersion {
			return apierrors.NewConflict(electionLeases, l.Name, errElection)
		}
		return nil
	})
}

func (e electionClient) write(ctx context.Context, l *coordinationv1.Lease, check func(old *coordinationv1.Lease) error) (*coordinationv1.Lease, error) {
	defer e.c.await()
	h := e.c.h
	l = decoded(l)
	arrives, err := e.send(ctx)
	if !arrives {
		return nil, err
	}
	h.mu.Lock()
	if refused := check(h.lease); refused != nil {
		h.mu.Unlock()
		return nil, errors.Join(err, refused)
	}
	h.version++
	l.ResourceVersion = strconv.Itoa(h.version)
	h.lease = l
	h.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if h.fails() {
		return nil, errElection
	}
	return decoded(l), nil
}

func (h *electionHistory) roll(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rand.IntN(n)
}

func (h *electionHistory) upTo(d time.Duration) time.Duration {
	return time.Duration(h.roll(int(d.Milliseconds()))) * time.Millisecond
}

func (h *electionHistory) fails() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rand.Float64() < h.failing
}
