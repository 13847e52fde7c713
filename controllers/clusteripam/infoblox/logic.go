package infoblox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/known"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
)

const (
	// checkEvery is how often an Infoblox is asked whether everything is still there, and checkFailed how often if it is not.
	checkEvery  = time.Minute
	checkFailed = 10 * time.Second
	// settled is how long after a write without an answer Infoblox cannot carry it out any more.
	settled = 15 * time.Second
	// fullFor is how long a pool that was full is not asked again, unless an address of its server is released.
	fullFor = 30 * time.Second
	// lostServerAfter is how long the release of a host record waits for an InfobloxInstance that is gone.
	lostServerAfter = 10 * time.Minute
	// movedWithin is how long after a claim that is not paused the IPAddress comes that is moved with it.
	movedWithin = time.Minute
	// missedEvery is how often it is noted that an InfobloxInstance is still gone. If that was last noted missedAnew ago, the wait for it begins anew.
	missedEvery, missedAnew = time.Minute, 3 * time.Minute
)

// annotationMissing on an IPAddressClaim, or on an IPAddress without one, is since when its release has missed the InfobloxInstance, and when it did last:
// two times with a slash between them.
const annotationMissing = "networking.x-k8s.io/infoblox-instance-missing-since"

// recordState is what is going on with the host records of one name.
type recordState struct {
	busy bool // a claim works on them
	// unsettled is until when a write without an answer can still be carried out, and changing until when one that is not a create can.
	unsettled, changing time.Time
}

// logic implements shell.Logic.
type logic struct {
	shell.Parts
	*known.World
	connect func(wapi.Config) (WAPI, error)
	// unanswered is for how long the API server may still carry out a write that was not answered.
	unanswered func() time.Duration

	began time.Time // when Fill was called
	// unsure is until when an IPAddress can be created that the last process sent. Which address it has, only a host record tells, which somebody may have
	// deleted in Infoblox.
	unsure time.Time

	// The state of Infoblox, guarded by Lock.
	servers  map[string]*server
	changes  int                                // of all servers: an InfobloxInstance that is created again does not repeat the numbers of the last one
	verdicts map[types.NamespacedName]*verdict  // of pools
	records  map[known.RecordName]*recordState  // by recordKey
	full     map[types.NamespacedName]time.Time // until when pools are not asked that were full when they were asked last
}

func newLogic(p shell.Parts, secretNamespace string, connect func(wapi.Config) (WAPI, error), unanswered func() time.Duration) *logic {
	l := &logic{
		Parts:      p,
		connect:    connect,
		unanswered: unanswered,
		servers:    map[string]*server{},
		verdicts:   map[types.NamespacedName]*verdict{},
		records:    map[known.RecordName]*recordState{},
		full:       map[types.NamespacedName]time.Time{},
	}
	l.World = known.New(secretNamespace, p.Queue, p.Now, func(instance string) (networkView string) {
		if s := l.servers[instance]; s != nil {
			networkView = s.networkView
		}
		return networkView
	})
	return l
}

// Reads implements shell.Logic.
func (l *logic) Reads() []shell.Source {
	return []shell.Source{l.Instances, l.Pools, l.Claims, l.Addresses, l.Clusters, l.Secrets}
}

// Fill implements shell.Logic.
func (l *logic) Fill() {
	l.began = l.Now()
	for _, a := range l.Addresses.List() {
		l.HeardOfAddress(nil, a)
		if name, ok := known.RecordOf(a); ok && known.IsLeaving(a) && known.OfInfoblox(a.Spec.PoolRef) { // It may have no claim of its own.
			l.recordState(name).unsettle(false, l.Now())
		}
	}
	for _, c := range l.Claims.List() {
		l.HeardOfClaim(nil, c)
		l.doubt(c)
	}
	for _, a := range l.Addresses.List() { // now that all claims are known
		l.NoteStray(a)
	}
	for _, i := range l.Instances.List() {
		l.Queue.Add(shell.KeyOf(shell.InfobloxInstances, i))
	}
	for _, p := range l.Pools.List() {
		l.Queue.Add(shell.KeyOf(shell.InfobloxIPPools, p))
	}
}

// doubt notes that an earlier leader may have sent a write for a claim, also a create of its IPAddress, or one that tells the claim of it.
func (l *logic) doubt(c *v1beta2.IPAddressClaim) {
	name, ok := known.RecordOf(c)
	if !ok {
		return
	}
	a, has := l.Addresses.Get(c.Namespace, c.Name)
	if !has || !known.WasServed(c) {
		l.Creating[c.UID] = l.began.Add(l.unanswered())
	}
	if _, ok := l.Creating[c.UID]; ok && (!has || a.Annotations[known.AnnotationClaim] != string(c.UID)) { // One that goes may be in the way of the claim's.
		l.unsure = l.Creating[c.UID]
	}
	if !has || c.DeletionTimestamp != nil || l.HasAnother(c, a) {
		l.recordState(name).unsettle(false, l.Now())
	}
}

// Heard implements shell.Logic.
func (l *logic) Heard(c shell.Change) {
	switch c.Kind {
	case shell.InfobloxInstances:
		before, _ := c.Before.(*v1alpha1.InfobloxInstance)
		now, _ := c.Now.(*v1alpha1.InfobloxInstance)
		l.HeardOfInstance(before, now)
		l.Queue.Add(shell.KeyOf(c.Kind, c.Object()))
	case shell.InfobloxIPPools:
		l.Queue.Add(shell.KeyOf(c.Kind, c.Object()))
		if c.Before != nil && c.Now != nil && known.Paused(c.Before) != known.Paused(c.Now) {
			l.QueueAllOf(known.NameOf(c.Now))
		}
	case shell.Secrets:
		l.HeardOfSecret(c.Object())
	case shell.Clusters:
		l.HeardOfCluster(c.Object())
	case shell.IPAddressClaims:
		before, _ := c.Before.(*v1beta2.IPAddressClaim)
		now, _ := c.Now.(*v1beta2.IPAddressClaim)
		l.HeardOfClaim(before, now)
	case shell.IPAddresses:
		before, _ := c.Before.(*v1beta2.IPAddress)
		now, _ := c.Now.(*v1beta2.IPAddress)
		l.HeardOfAddress(before, now)
	}
}

// recordKey returns under which key the state of host records is kept: the same in every Infoblox. Two InfobloxInstances can be one Infoblox, and one can be
// deleted, or get another host, while a write is on its way. Who writes a host record writes all of its addresses.
func recordKey(name known.RecordName) known.RecordName {
	return known.RecordName{Place: known.Place{NetworkView: name.NetworkView}, Name: name.Name}
}

// recordState returns what is going on with the host records of a name. The caller holds the lock.
func (l *logic) recordState(name known.RecordName) *recordState {
	key := recordKey(name)
	if l.records[key] == nil {
		l.records[key] = &recordState{}
	}
	return l.records[key]
}

// unsettle notes a write without an answer.
func (r *recordState) unsettle(create bool, now time.Time) {
	if r.unsettled = now.Add(settled); !create {
		r.changing = r.unsettled
	}
}

// Sync implements shell.Logic.
func (l *logic) Sync(ctx context.Context, key shell.Key) error {
	switch key.Kind {
	case shell.InfobloxInstances:
		return l.syncInstance(ctx, key)
	case shell.InfobloxIPPools:
		return l.syncPool(ctx, key)
	case shell.IPAddressClaims:
		return l.syncClaim(ctx, key)
	}
	return fmt.Errorf("%v: nobody works on that: %w", key, errors.ErrUnsupported)
}

// shown is what the debug page shows.
type shown struct {
	Instances map[string]shownVerdict
	Pools     map[string]shownVerdict
	Waiting   map[string]string `json:",omitempty"` // reasons by claim
	Addresses int
	Unsettled []string `json:",omitempty"` // host records with a write whose outcome is not known
}

// shownVerdict has no message: it can name a Secret.
type shownVerdict struct {
	Ready   bool
	Reason  string
	Checked time.Time
}

// Show implements shell.Logic.
func (l *logic) Show() any {
	s := shown{Instances: map[string]shownVerdict{}, Pools: map[string]shownVerdict{}, Waiting: map[string]string{}, Addresses: len(l.Holders)}
	for name, i := range l.servers {
		s.Instances[name] = shownVerdict{i.ready, i.reason, i.checked}
	}
	for name, p := range l.verdicts {
		s.Pools[name.String()] = shownVerdict{p.ready, p.reason, p.checked}
	}
	for uid, reason := range l.Waiting {
		s.Waiting[l.Names[uid].String()] = reason
	}
	for name, r := range l.records {
		if l.Now().Before(r.unsettled) {
			s.Unsettled = append(s.Unsettled, name.NetworkView+" "+name.Name)
		}
	}
	slices.Sort(s.Unsettled)
	return s
}

// Figures implements shell.Logic.
func (l *logic) Figures() shell.Figures {
	f := shell.Figures{Waiting: map[string]int{}}
	for _, reason := range l.Waiting {
		f.Waiting[reason]++
	}
	for _, names := range l.Holders {
		if f.Bound += len(names); l.Conflict(names) {
			f.Conflicts++
		}
	}
	return f
}
