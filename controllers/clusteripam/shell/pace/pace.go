// Package pace keeps one object from being written all the time, by whatever makes the controller do that.
package pace

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/writes"
)

// How often one object is patched: patchesAtOnce without a pause, then patchesPerSecond. No object needs as many, unless what the controller writes
// is changed back each time. The event of such a write asks for the next one at once, so without a limit a few objects would take all workers.
const (
	patchesAtOnce    = 30
	patchesPerSecond = 2
	// restlessPause is how long an object is left alone that has had all of its patches.
	restlessPause = 10 * time.Second
)

// ErrRestless is the error of a patch that is not sent because of that.
var ErrRestless = fmt.Errorf("%w, of one object", writes.ErrThrottled)

// Pace counts the patches of objects. The zero value has counted none. Safe for concurrent use.
type Pace struct {
	mu      sync.Mutex
	objects map[types.UID]*paced
	sweepAt int // how many objects there may be before those are forgotten that rest
}

// paced is an object that was patched.
type paced struct {
	left  float64 // patches that it may have, as of last
	last  time.Time
	pause time.Time // until then it is left alone
}

// Permits counts a merge patch, and reports whether it may be sent. One that does not name the UID of its object may be sent always.
func (p *Pace) Permits(patch []byte) bool {
	var of struct {
		Metadata struct {
			UID types.UID `json:"uid"`
		} `json:"metadata"`
	}
	if json.Unmarshal(patch, &of) != nil || of.Metadata.UID == "" {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.sweep(now)
	o := p.objects[of.Metadata.UID]
	if o == nil {
		o = &paced{left: patchesAtOnce, last: now}
		p.objects[of.Metadata.UID] = o
	}
	o.left, o.last = min(patchesAtOnce, o.left+patchesPerSecond*now.Sub(o.last).Seconds()), now
	switch {
	case now.Before(o.pause):
		return false
	case o.left < 1:
		o.pause = now.Add(restlessPause)
		return false
	}
	o.left--
	return true
}

// sweep forgets objects that may have all patches again.
func (p *Pace) sweep(now time.Time) {
	if len(p.objects) < p.sweepAt {
		return
	}
	all := map[types.UID]*paced{}
	for uid, o := range p.objects {
		if now.Sub(o.last) < patchesAtOnce/patchesPerSecond*time.Second {
			all[uid] = o
		}
	}
	p.objects, p.sweepAt = all, 2*len(all)+1000
}
