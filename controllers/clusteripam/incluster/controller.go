package incluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/cluster"
	"github.com/multicidr/controller-manager/controllers/clusteripam/incluster/book"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Name is the controller's name.
const Name = "in-cluster-ip-pool-controller"

// Config is the input of New. Of the shell's Config it needs the Client; Name, Lines and Logic are set by New.
type Config struct {
	shell.Config
	// Workers is how many IPAddressClaims are worked on concurrently; 10 if it is zero.
	Workers int
}

// New returns the controller. It does no I/O.
func New(cfg Config) (*shell.Controller, error) {
	if cfg.Workers == 0 {
		cfg.Workers = 10
	}
	s := cfg.Config
	s.Name = Name
	s.Lines = []shell.Line{{Kind: shell.IPAddressClaims, Workers: cfg.Workers}, {Kind: shell.InClusterIPPools, Workers: 2}, {Kind: shell.GlobalInClusterIPPools, Workers: 2}}
	s.Logic = func(parts shell.Parts) shell.Logic { return newLogic(parts, cfg.Fence) }
	return shell.New(s)
}

type logic struct {
	shell.Parts
	fence writes.Fence

	pools     *shell.Store[*v1alpha2.InClusterIPPool]
	globals   *shell.Store[*v1alpha2.GlobalInClusterIPPool]
	claims    *shell.Store[*v1beta2.IPAddressClaim]
	addresses *shell.Store[*v1beta2.IPAddress]
	clusters  *shell.Store[*cluster.Cluster]

	// The Lock guards these.
	book *book.Book
	// since is when a claim without an address was first seen.
	since map[types.UID]time.Time
	// rests is until when nothing is written about an object, because all that was written was taken back.
	rests map[shell.Key]time.Time
}

func newLogic(parts shell.Parts, fence writes.Fence) *logic {
	return &logic{
		Parts: parts, fence: fence,
		pools:     shell.NewStore[v1alpha2.InClusterIPPool](shell.Reads{Kind: shell.InClusterIPPools}),
		globals:   shell.NewStore[v1alpha2.GlobalInClusterIPPool](shell.Reads{Kind: shell.GlobalInClusterIPPools, Optional: true}),
		claims:    shell.NewStore[v1beta2.IPAddressClaim](shell.Reads{Kind: shell.IPAddressClaims}),
		addresses: shell.NewStore[v1beta2.IPAddress](shell.Reads{Kind: shell.IPAddresses}),
		clusters:  shell.NewStore[cluster.Cluster](shell.Reads{Kind: shell.Clusters, Optional: true}),
		book:      book.New(),
		since:     map[types.UID]time.Time{},
		rests:     map[shell.Key]time.Time{},
	}
}

// Reads implements shell.Logic.
func (l *logic) Reads() []shell.Source {
	return []shell.Source{l.pools, l.globals, l.claims, l.addresses, l.clusters}
}

// Fill implements shell.Logic.
func (l *logic) Fill() {
	_, served := l.Served(shell.Clusters)
	l.book.SetClustersServed(served)
	for _, o := range l.pools.List() {
		l.shows(o)
	}
	for _, o := range l.globals.List() {
		l.shows(o)
	}
	for _, o := range l.clusters.List() {
		l.shows(o)
	}
	for _, o := range l.addresses.List() {
		l.shows(o)
	}
	for _, o := range l.claims.List() {
		l.shows(o)
	}
	l.book.Start()
	l.queue(shell.Key{})
}

// Heard implements shell.Logic.
func (l *logic) Heard(c shell.Change) {
	if c.Now != nil {
		l.shows(c.Now)
	} else {
		l.gone(c.Before)
	}
	l.queue(shell.Key{})
}

// shows tells the book what is stored.
func (l *logic) shows(object metav1.Object) {
	switch o := object.(type) {
	case *v1alpha2.InClusterIPPool:
		p := &book.Pool{Kind: shell.InClusterIPPools.Name, ObjectMeta: o.ObjectMeta, Spec: o.Spec, Status: o.Status}
		if err := l.pools.Broken(o); err != nil {
			p.Unreadable = err.Error()
		}
		l.book.SetPool(p)
	case *v1alpha2.GlobalInClusterIPPool:
		p := &book.Pool{Kind: shell.GlobalInClusterIPPools.Name, ObjectMeta: o.ObjectMeta, Spec: o.Spec, Status: o.Status}
		if err := l.globals.Broken(o); err != nil {
			p.Unreadable = err.Error()
		}
		l.book.SetPool(p)
	case *v1beta2.IPAddressClaim:
		if l.claims.Broken(o) != nil {
			l.book.SetBrokenClaim(o)
			return
		}
		if _, seen := l.since[o.UID]; !seen && o.Status.AddressRef.Name == "" {
			l.since[o.UID] = l.Now()
		}
		l.book.SetClaim(o)
	case *v1beta2.IPAddress:
		l.book.SetAddress(o)
	case *cluster.Cluster:
		l.book.SetCluster(o.Namespace, o.Name, o.Paused())
	}
}

func (l *logic) gone(object metav1.Object) {
	switch o := object.(type) {
	case *v1alpha2.InClusterIPPool:
		l.book.PoolGone(book.Key{Kind: shell.InClusterIPPools.Name, Namespace: o.Namespace, Name: o.Name}, o.UID)
	case *v1alpha2.GlobalInClusterIPPool:
		l.book.PoolGone(book.Key{Kind: shell.GlobalInClusterIPPools.Name, Name: o.Name}, o.UID)
	case *v1beta2.IPAddressClaim:
		delete(l.since, o.UID)
		l.book.ClaimGone(o.Namespace, o.Name, o.UID)
	case *v1beta2.IPAddress:
		l.book.AddressGone(o.Namespace, o.Name, o.UID)
	case *cluster.Cluster:
		l.book.ClusterGone(o.Namespace, o.Name)
	}
}

// kinds are the kinds of which the book has keys.
var kinds = map[string]*shell.Kind{
	shell.InClusterIPPools.Name:       shell.InClusterIPPools,
	shell.GlobalInClusterIPPools.Name: shell.GlobalInClusterIPPools,
	shell.IPAddressClaims.Name:        shell.IPAddressClaims,
	shell.IPAddresses.Name:            shell.IPAddresses,
}

// queue queues what the book wants to be asked about, except for the key that is worked on.
func (l *logic) queue(but shell.Key) {
	for _, k := range l.book.Changes() {
		if key := (shell.Key{Kind: kinds[k.Kind], Namespace: k.Namespace, Name: k.Name}); key != but {
			l.Queue.Add(key)
		}
	}
}

// Something else may take back what is written, for example a mutating admission policy. An attempt sends the same request sameRequests times at
// most. Then the object rests, because events of these writes may follow, and would begin the next attempt.
const (
	sameRequests = 3
	restsFor     = 10 * time.Second
)

var errTakenBack = errors.New("what is written is taken back at once: see which admission webhook, admission policy or other program changes the object")

// Sync implements shell.Logic: it sends one request after the other about a claim or a pool, until there is nothing left to do.
func (l *logic) Sync(ctx context.Context, key shell.Key) error {
	sent := map[string]int{}
	for {
		now := l.Now()
		next, rests := l.ask(key, now)
		for _, e := range next.Events {
			about := &metav1.ObjectMeta{Namespace: e.Key.Namespace, Name: e.Key.Name, UID: e.UID}
			l.Tell(shell.Event{About: about, Kind: kinds[e.Key.Kind], Reason: e.Reason, Message: e.Message})
		}
		if next.Request == nil {
			return l.pause(key, next, rests, now)
		}
		sent[next.Request.What]++
		vain := sent[next.Request.What] > sameRequests
		answer, err := l.carryOut(ctx, key, next.Request, vain)
		switch {
		case err == nil || next.Request.Verb == book.Read && answer.Result == book.NotFound:
		case answer.Result == book.Exists: // the next request reads what is there
		case answer.Result == book.Conflicted || answer.Result == book.NotFound:
			return writes.RefusedLater{Err: err} // an event will tell why
		default:
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// ask asks the book what to do next about a key, unless that rests.
func (l *logic) ask(key shell.Key, now time.Time) (next book.Next, rests time.Duration) {
	l.Lock.With(func() {
		if rests = l.rests[key].Sub(now); rests > 0 {
			return
		}
		if next = l.next(key, now); next.Request == nil {
			delete(l.rests, key)
		}
		l.queue(key)
	})
	return next, rests
}

// pause ends an attempt: nothing is to be done now.
func (l *logic) pause(key shell.Key, next book.Next, rests time.Duration, now time.Time) error {
	switch {
	case rests > 0:
		return writes.Later(rests)
	case next.Again.IsZero():
		return nil
	case next.Rests:
		l.Queue.AddAfter(key, next.Again.Sub(now))
		return nil
	}
	return writes.Later(max(next.Again.Sub(now), time.Millisecond))
}

// carryOut sends a request, unless it is in vain, and tells the book what became of it.
func (l *logic) carryOut(ctx context.Context, key shell.Key, r *book.Request, vain bool) (answer book.Answer, err error) {
	if vain {
		answer, err = book.Answer{Result: book.NotSent}, writes.RefusedLater{Err: errTakenBack}
	} else {
		answer, err = l.send(ctx, r)
	}
	l.Lock.With(func() {
		if vain {
			l.rests[key] = l.Now().Add(restsFor)
		}
		l.book.Done(r, answer, l.Now())
		l.note(r, answer)
		l.queue(key)
	})
	return answer, err
}

func (l *logic) next(key shell.Key, now time.Time) book.Next {
	k := book.Key{Kind: key.Kind.Name, Namespace: key.Namespace, Name: key.Name}
	if key.Kind == shell.IPAddressClaims {
		return l.book.NextForClaim(k, now)
	}
	return l.book.NextForPool(k, now)
}

// note records how long a claim waited for its address.
func (l *logic) note(r *book.Request, answer book.Answer) {
	if r.Verb != book.Create || answer.Result != book.Stored {
		return
	}
	uid := r.Object.OwnerReferences[0].UID
	if since, ok := l.since[uid]; ok {
		l.Took(l.Now().Sub(since))
		delete(l.since, uid)
	}
}

// send sends a request, and says what became of it.
func (l *logic) send(ctx context.Context, r *book.Request) (answer book.Answer, err error) {
	kind, of := kinds[r.Key.Kind], types.NamespacedName{Namespace: r.Key.Namespace, Name: r.Key.Name}
	logger := klog.FromContext(ctx)
	stored := blank(kind)
	switch r.Verb {
	case book.Create:
		// Logged before it is sent, for somebody who later must find out what this process may have allocated: an answer can be lost.
		spec := &r.Object.Spec
		logger.Info("Allocating an address", "claim", klog.KRef(of.Namespace, of.Name), "address", spec.Address, "kind", spec.PoolRef.Kind, "pool", spec.PoolRef.Name)
		err = l.API.Create(ctx, kind, r.Object, stored)
	case book.Read:
		err = l.API.Get(ctx, kind, of, stored)
	case book.Delete:
		stored = nil
		logger.Info("Releasing an address", "ipAddress", klog.KRef(of.Namespace, of.Name))
		err = l.API.Delete(ctx, kind, of, r.UID, "")
	default:
		err = l.API.Patch(ctx, kind, of, shell.Patch{Status: r.Verb == book.PatchStatus, Body: r.Body}, stored)
	}
	logger.V(4).Info("Sent a request", "request", r, "why", r.What, "err", err)
	if err != nil {
		return l.failed(r, err), fmt.Errorf("%s: %w", r.What, err)
	}
	if r.Verb == book.Read && stored.GetUID() == "" {
		return book.Answer{Result: book.Unknown}, fmt.Errorf("%s: the answer is not an %v", r.What, kind)
	}
	if stored != nil && stored.GetUID() != "" {
		answer.Claim, answer.Address, answer.Pool = objects(stored)
	}
	return answer, nil
}

// failed says what an error means.
func (l *logic) failed(r *book.Request, err error) book.Answer {
	answer := book.Answer{Result: book.Rejected, Why: why(err)}
	switch {
	case writes.NotSent(err):
		answer.Result = book.NotSent
	case !writes.Answered(err):
		answer.Result, answer.Until = book.Unknown, l.Now().Add(l.unanswered())
	case r.Verb == book.Create && apierrors.IsAlreadyExists(err):
		answer.Result = book.Exists
	case r.Verb != book.Create && writes.NotThere(err):
		answer.Result = book.NotFound
	case r.Verb != book.Create && apierrors.IsConflict(err):
		answer.Result = book.Conflicted
	}
	return answer
}

// unanswered is for how long the API server may still carry out a request that was not answered.
func (l *logic) unanswered() time.Duration {
	if l.fence == nil {
		return lease.OverWithoutLease(writes.Timeout)
	}
	return l.fence.Unanswered()
}

// why returns what the API server says about a request that it refused.
func why(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}

func blank(kind *shell.Kind) metav1.Object {
	switch kind {
	case shell.IPAddressClaims:
		return &v1beta2.IPAddressClaim{}
	case shell.IPAddresses:
		return &v1beta2.IPAddress{}
	case shell.InClusterIPPools:
		return &v1alpha2.InClusterIPPool{}
	}
	return &v1alpha2.GlobalInClusterIPPool{}
}

func objects(stored metav1.Object) (*v1beta2.IPAddressClaim, *v1beta2.IPAddress, *book.Pool) {
	switch o := stored.(type) {
	case *v1beta2.IPAddressClaim:
		return o, nil, nil
	case *v1beta2.IPAddress:
		return nil, o, nil
	case *v1alpha2.InClusterIPPool:
		return nil, nil, &book.Pool{Kind: shell.InClusterIPPools.Name, ObjectMeta: o.ObjectMeta, Spec: o.Spec, Status: o.Status}
	case *v1alpha2.GlobalInClusterIPPool:
		return nil, nil, &book.Pool{Kind: shell.GlobalInClusterIPPools.Name, ObjectMeta: o.ObjectMeta, Spec: o.Spec, Status: o.Status}
	}
	return nil, nil, nil
}

// Show implements shell.Logic.
func (l *logic) Show() any { return l.book.View() }

// Figures implements shell.Logic.
func (l *logic) Figures() shell.Figures {
	f := l.book.Figures()
	figures := shell.Figures{Waiting: f.Waiting, Bound: f.Assigned, Conflicts: f.Conflicts}
	for _, key := range slices.SortedFunc(maps.Keys(f.Pools), book.Compare) {
		n := f.Pools[key]
		figures.Pools = append(figures.Pools, shell.PoolFigures{Kind: kinds[key.Kind], Namespace: key.Namespace, Name: key.Name,
			Total: float64(n.Total), Used: float64(n.Used), Free: float64(n.Free), OutOfRange: float64(n.OutOfRange)})
	}
	return figures
}
