package infoblox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// logic implements runner.Logic and contract.Provider.
type logic struct {
	term     *runner.Term
	cfg      Config
	connect  func(wapi.Config) (*wapi.Client, error)
	contract *contract.Contract
	began    time.Time

	instances runner.Lister[*v1alpha1.InfobloxInstance]
	pools     runner.Lister[*v1alpha1.InfobloxIPPool]
	secrets   runner.Lister[*corev1.Secret]

	mu       sync.Mutex // guards what follows
	servers  map[string]*server
	changes  int                               // of all servers: an InfobloxInstance that is created again does not repeat the numbers of the last one
	verdicts map[types.NamespacedName]*verdict // of pools
	records  map[recordKey]*record
	full     map[types.NamespacedName]time.Time // until when pools are not asked that were full when they were asked last
	claims   map[types.UID]bool                 // claims that were seen, and whether this process has removed their part from Infoblox
	holders  map[netip.Addr]map[types.NamespacedName]bool
	looks    map[types.UID]look // by UID of the claim
}

// look is what this process has found under the name of a claim's host record when it looked first, and is still there.
type look struct {
	at    recordName
	found []netip.Addr
}

// recordKey is a name of host records, the same in every Infoblox: two InfobloxInstances can be one Infoblox.
type recordKey struct{ networkView, name string }

// record is what goes on with the host records of one name.
type record struct {
	busy  bool      // a claim works on them
	until time.Time // until when a write without an answer can still be carried out
}

func newLogic(t *runner.Term, cfg Config, connect func(wapi.Config) (*wapi.Client, error)) *logic {
	l := &logic{
		term: t, cfg: cfg, connect: connect, began: time.Now(),
		servers: map[string]*server{}, verdicts: map[types.NamespacedName]*verdict{}, records: map[recordKey]*record{},
		full: map[types.NamespacedName]time.Time{}, claims: map[types.UID]bool{}, holders: map[netip.Addr]map[types.NamespacedName]bool{}, looks: map[types.UID]look{},
	}
	l.instances = runner.Read(t, runner.InfobloxInstances, l.instanceChanged)
	l.pools = runner.Read(t, runner.InfobloxIPPools, l.poolChanged)
	if cfg.SecretNamespace != "" {
		l.secrets = runner.Read(t, runner.Secrets, l.secretChanged)
	}
	l.contract = contract.New(contract.Config{
		Term: t, Provider: l, PoolVersion: runner.InfobloxIPPools.Versions[0], WatchFilter: cfg.WatchFilter, Says: l.says, Unmarked: unmarked,
		Carries:    []string{AnnotationPlace, AnnotationName, AnnotationAddress},
		ClaimShown: func(_, now *v1beta2.IPAddressClaim) { l.claimShown(now) }, ClaimGone: l.claimGone, AddressShown: l.addressShown,
	})
	return l
}

// Reconcile implements runner.Logic.
func (l *logic) Reconcile(ctx context.Context, key runner.Key) error {
	switch key.Kind {
	case runner.InfobloxInstances:
		return l.syncInstance(ctx, key.Name)
	case runner.InfobloxIPPools:
		return l.syncPool(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name})
	case runner.IPAddressClaims:
		return l.contract.Reconcile(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name})
	}
	return fmt.Errorf("%v: nobody works on that: %w", key, errors.ErrUnsupported)
}

// claimShown notes a claim. Of one that is unfinished when it is first seen, the writes to Infoblox of an earlier process, or of the cluster from which it was moved,
// may still be carried out.
func (l *logic) claimShown(claim *v1beta2.IPAddressClaim) {
	if !ofInfoblox(claim.Spec.PoolRef) {
		return
	}
	l.noteHolder(said(claim), contract.NameOf(claim))
	l.mu.Lock()
	_, seen := l.claims[claim.UID]
	if !seen {
		l.claims[claim.UID] = false
	}
	l.mu.Unlock()
	if seen {
		return
	}
	if unfinished(claim) {
		l.doubt(claim)
	}
	l.queuePool(claim.Namespace, claim.Spec.PoolRef)
}

func (l *logic) claimGone(claim *v1beta2.IPAddressClaim) {
	l.mu.Lock()
	delete(l.claims, claim.UID)
	delete(l.looks, claim.UID)
	l.mu.Unlock()
	l.queuePool(claim.Namespace, claim.Spec.PoolRef)
}

func (l *logic) addressShown(before, now *v1beta2.IPAddress) {
	object := cmp.Or(now, before)
	if !ofInfoblox(object.Spec.PoolRef) {
		return
	}
	claim, claimed := l.contract.Claims.Get(object.Namespace, object.Name)
	if now != nil {
		l.noteHolder(has(nil, now), contract.NameOf(now))
	}
	switch {
	case !claimed:
		l.queuePool(object.Namespace, object.Spec.PoolRef)
	case before == nil && unfinished(claim) && l.contract.Token(claim, now) != claim.UID: // The claim may have lost its own annotations.
		l.doubt(now)
	}
}

// doubt notes that a write about the host record of an object may still be carried out that this process has not sent.
func (l *logic) doubt(object metav1.Object) {
	if at, ok := recordOf(object); ok {
		l.unsettle(at)
	}
}

// unfinished reports whether a claim has not been told of its address, or gives it back, or is not known to be in the host record of another program.
func unfinished(claim *v1beta2.IPAddressClaim) bool {
	return claim.Status.AddressRef.Name == "" || claim.DeletionTimestamp != nil || claim.Annotations[AnnotationName] == ""
}

// queuePool queues an InfobloxIPPool: it may have to say something else, or may go.
func (l *logic) queuePool(namespace string, ref v1beta2.IPPoolReference) {
	if ofInfoblox(ref) {
		l.term.Queue.Add(runner.Key{Kind: runner.InfobloxIPPools, Namespace: namespace, Name: ref.Name})
	}
}

func ofInfoblox(r v1beta2.IPPoolReference) bool {
	return r.APIGroup == runner.GroupIPAM && r.Kind == v1alpha1.KindInfobloxIPPool
}

// work keeps others from the host records of a name until done is called. It fails while somebody else works on them, or a write without an answer can still
// be carried out: it could take away what is written or used now.
func (l *logic) work(at recordName) (done func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.recordOf(at)
	switch wait := time.Until(r.until); {
	case wait > 0:
		return nil, writes.Later(wait)
	case r.busy:
		return nil, writes.Later(100 * time.Millisecond)
	}
	r.busy = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if r.busy = false; time.Until(r.until) <= 0 {
			delete(l.records, recordKey{at.networkView, at.name})
		}
	}, nil
}

// recordOf returns what goes on with the host records of a name. The caller holds the lock.
func (l *logic) recordOf(at recordName) *record {
	key := recordKey{at.networkView, at.name}
	if l.records[key] == nil {
		l.records[key] = &record{}
	}
	return l.records[key]
}

// unsettle notes that a write to the host records of a name may still be carried out.
func (l *logic) unsettle(at recordName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recordOf(at).until = time.Now().Add(settled)
}

// sent notes the outcome of a write to Infoblox.
func (l *logic) sent(at recordName, err error) error {
	if wapi.InFlight(err) {
		l.unsettle(at)
	}
	return err
}

// shown is what the debug page shows.
type shown struct {
	Instances, Pools map[string]shownVerdict
	Waiting          map[string]string `json:",omitempty"` // reasons by claim
	Addresses        int
}

// shownVerdict has no message: it can name a Secret.
type shownVerdict struct {
	Ready   bool
	Reason  string
	Checked time.Time
}

// Show implements runner.Logic.
func (l *logic) Show() any {
	s := shown{Instances: map[string]shownVerdict{}, Pools: map[string]shownVerdict{}, Waiting: map[string]string{}}
	for _, claim := range l.contract.Claims.List() {
		if ready := contract.Find(claim.Status.Conditions, v1beta2.ConditionReady); ofInfoblox(claim.Spec.PoolRef) && claim.Status.AddressRef.Name == "" && ready != nil {
			s.Waiting[contract.NameOf(claim).String()] = ready.Reason
		}
	}
	for _, address := range l.contract.Addresses.List() {
		if ofInfoblox(address.Spec.PoolRef) {
			s.Addresses++
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, i := range l.servers {
		s.Instances[name] = shownVerdict{i.ready, i.reason, i.checked}
	}
	for name, p := range l.verdicts {
		s.Pools[name.String()] = shownVerdict{p.ready, p.reason, p.checked}
	}
	return s
}

// Figures implements runner.Logic.
func (l *logic) Figures() (f runner.Figures) {
	f.Waiting, f.Bound = l.contract.Figures()
	l.mu.Lock()
	defer l.mu.Unlock()
	for a := range l.holders {
		places := map[place]bool{}
		holders := l.holdersOf(a)
		for _, in := range holders {
			places[in.place] = true
		}
		if len(places) < len(holders) {
			f.Conflicts++
		}
	}
	return f
}
