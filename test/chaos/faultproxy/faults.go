package faultproxy

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Fault is what can happen to one request.
type Fault string

const (
	// None: the request and its answer pass.
	None Fault = ""
	// LostAnswer: the request is carried out, but the client sees its connection reset or a 504.
	LostAnswer Fault = "lost answer"
	// LateRequest: the request arrives late, even if its client has given up by then.
	LateRequest Fault = "late request"
	// LateAnswer: the request is carried out in time and its answer is late.
	LateAnswer Fault = "late answer"
	// Refused: 429, 500, 503 or 504, and the request is not carried out.
	Refused Fault = "refused"
	// Dropped: the connection is reset, and the request is not carried out.
	Dropped Fault = "dropped"
	// HeldUp: a PATCH of a Node is held up on its way and arrives afterwards, even if its client has given up by then.
	HeldUp Fault = "held up"
	// Hanging: a request for an event is not answered until its client gives up, and is not carried out.
	Hanging Fault = "hanging"
	// CutWatch: a watch that was going on ends without a word.
	CutWatch Fault = "cut watch"
	// Closed: a connection was reset with all that was going on in it.
	Closed Fault = "closed connection"
)

// Faults is how many of the requests suffer what, each as a share from 0 to 1; the shares add up to 1 at most. The zero
// value lets everything pass. A watch is only ever late, refused or dropped at its start.
type Faults struct {
	LoseAnswers   float64
	DelayRequests float64
	DelayAnswers  float64
	Refuse        float64
	Drop          float64
	// MaxDelay bounds the delays, which are evenly distributed.
	MaxDelay time.Duration

	// HangEvents is the share of requests that write events which hang, and HoldPatches that of PATCHes of Nodes which are held up. Both come
	// before the shares above.
	HangEvents, HoldPatches float64
	// MinHold and MaxHold bound for how long, which is evenly distributed. Config.Deadline may make it shorter.
	MinHold, MaxHold time.Duration
}

// refusals are the answers of a server in trouble. To a 504 the client may not know whether the request was carried out.
var refusals = []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout}

// verdict is what happens to one request.
type verdict struct {
	fault  Fault
	delay  time.Duration
	share  float64 // of the longest time for which it may be held up
	status int     // of a refusal; of a lost answer, where 0 resets the connection
}

// dice draws verdicts. Requests come from many goroutines, so the seed repeats the numbers, not the run.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newDice(seed uint64) *dice { return &dice{rng: rand.New(rand.NewPCG(seed, 0))} }

// drawFor draws for a request.
func (d *dice) drawFor(f Faults, r *http.Request) verdict {
	switch {
	case isEventWrite(r) && f.HangEvents > 0 && d.float() < f.HangEvents:
		return verdict{fault: Hanging}
	case isNodePatch(r) && f.HoldPatches > 0 && d.float() < f.HoldPatches:
		return verdict{fault: HeldUp, share: d.float()}
	}
	return d.draw(f, isWatch(r))
}

func (d *dice) float() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.Float64()
}

func (d *dice) draw(f Faults, watch bool) verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.rng.Float64()
	chosen := func(share float64) bool {
		x -= share
		return x < 0
	}
	delay := func() time.Duration { return time.Duration(d.rng.Float64() * float64(f.MaxDelay)) }
	switch {
	case chosen(f.LoseAnswers):
		if watch {
			return verdict{}
		}
		return verdict{fault: LostAnswer, status: []int{0, http.StatusGatewayTimeout}[d.rng.IntN(2)]}
	case chosen(f.DelayRequests):
		return verdict{fault: LateRequest, delay: delay()}
	case chosen(f.DelayAnswers):
		if watch {
			return verdict{}
		}
		return verdict{fault: LateAnswer, delay: delay()}
	case chosen(f.Refuse):
		return verdict{fault: Refused, status: refusals[d.rng.IntN(len(refusals))]}
	case chosen(f.Drop):
		return verdict{fault: Dropped}
	}
	return verdict{}
}
