package infoblox

import (
	"context"
	"time"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// A write without an answer may still be carried out. It replaces the lists of a record, or finds a later record of the same name by its reference. So until it is over,
// nothing is sent about records of that name, and nothing that they say is used.

// settled is how long after a write without an answer Infoblox cannot carry it out any more.
const settled = 15 * time.Second

// record is what goes on with the host records of one name.
type record struct {
	busy  bool      // a claim works on them
	until time.Time // until when nothing is sent: a write without an answer can still be carried out, or Infoblox fails
	fails error     // how Infoblox fails, if that is why
	of    string    // the name of the InfobloxInstance that fails
}

// work keeps others from the host records of a name until done is called. It fails while somebody else works on them, and while nothing is sent about them.
func (l *logic) work(at recordName) (done func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.record(at)
	switch rest := time.Until(r.until); {
	case rest > 0 && r.fails != nil && r.of == at.instance:
		return nil, r.fails
	case rest > 0:
		return nil, writes.Later(rest)
	case r.busy:
		return nil, writes.Later(100 * time.Millisecond)
	}
	r.busy = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if r.busy = false; time.Until(r.until) <= 0 {
			delete(l.records, recordName{place{"", at.networkView}, at.name})
		}
	}, nil
}

// record returns what goes on with the host records of a name. The caller holds the lock.
func (l *logic) record(at recordName) *record {
	at.instance = ""
	if l.records[at] == nil {
		l.records[at] = &record{}
	}
	return l.records[at]
}

// unsettle notes that nothing is sent about the host records of a name for a while: a write may still be carried out.
func (l *logic) unsettle(at recordName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quiet(at, nil)
}

// quiet notes that nothing is sent about the host records of a name for a while, and why if Infoblox fails. The caller holds the lock.
func (l *logic) quiet(at recordName, fails error) {
	r := l.record(at)
	r.fails, r.of, r.until = fails, at.instance, time.Now().Add(settled)
}

// send sends a write about the host records of a name, once. A shutdown does not interrupt it: its outcome would not be known.
func (l *logic) send(ctx context.Context, at recordName, write func(context.Context) error) error {
	ctx, leave, err := l.fence.Enter(context.WithoutCancel(ctx), writes.Timeout)
	if err != nil {
		return err
	}
	if err = write(ctx); wapi.Answered(err) {
		leave()
	} else {
		l.unsettle(at)
	}
	return err
}

// hosts returns the host records of a name. An Infoblox that fails is not asked about them again for a while: the condition of the claim says how it fails, and a condition
// that changes has the claim worked on at once.
func (l *logic) hosts(ctx context.Context, c *wapi.Client, at recordName) (found []wapi.Record, err error) {
	if found, err = c.Hosts(ctx, at.name, at.networkView); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.quiet(at, err)
	}
	return found, err
}

// put replaces what a host record has. One without addresses is deleted.
func (l *logic) put(ctx context.Context, c *wapi.Client, at recordName, r wapi.Record) error {
	return l.send(ctx, at, func(ctx context.Context) error {
		if len(r.Addresses()) == 0 {
			return c.DeleteHost(ctx, r.Ref)
		}
		return c.UpdateHost(ctx, r)
	})
}

// ClaimShown implements contract.Provider. When this process first sees a claim that has a host record, writes of an earlier process, or of the cluster from
// which the claim was moved, may still be carried out.
func (l *logic) ClaimShown(before, now *v1beta2.IPAddressClaim) {
	if at, ok := recordOf(now); ok && before == nil && ofInfoblox(now.Spec.PoolRef) {
		l.unsettle(at)
		l.asks(now)
	}
}
