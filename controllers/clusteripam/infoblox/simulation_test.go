package infoblox

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/internal/race"
)

// The simulation: the controller as it is, between an API server and an Infoblox of paper. One goroutine runs at a time, and chance decides which
// request is answered next and how. docs/engineering/simulation.md says more of the one in controllers/nodeipam, which this one resembles.
var (
	seedsFlag = flag.Uint64("simulation.seeds", race.Part(uint64(400)), "how many histories TestSimulation makes")
	firstFlag = flag.Uint64("simulation.first", 1, "the seed of the first of them")
	movesFlag = flag.Int("simulation.moves", 250, "how many moves each has")
	traceFlag = flag.Bool("simulation.trace", false, "print every history")
)

// has to happen in a thousand histories: what never happens was not tested.
var hasToHappen = []string{
	"IPAddress created", "claim released", "host record shared", "name of another namespace avoided", "the gateway avoided", "the pool is full",
	"write to Infoblox: late and carried out", "write to Infoblox: lost after", "write to Infoblox: lost before", "write to Infoblox: error",
	"write: lost after", "write: lost before", "write: late and carried out", "crash", "another leader", "a deposed leader wants to write",
	"somebody makes a record", "somebody deletes a record of ours", "Infoblox is down", "somebody forces a pool away", "somebody deletes the InfobloxInstance",
	"a pool names another InfobloxInstance", "user edits the hostname", "somebody forces an IPAddress away", "a claim does not get another address",
	"a machine ends after its claim is deleted", "user edits the spec of a claim", "user edits the spec of an IPAddress", "somebody renames a record of ours",
	"the InfobloxInstances become another Infoblox, or the first one again", "an event names a record that was renamed",
	"a watch is later than another one",
}

func TestSimulation(t *testing.T) {
	covered := map[string]int{}
	for seed := *firstFlag; seed < *firstFlag+*seedsFlag; seed++ {
		w := simulate(seed, *movesFlag)
		for what, n := range w.covered {
			covered[what] += n
		}
		if *traceFlag || w.violation != "" {
			t.Logf("seed %d:\n%s", seed, strings.Join(w.trace, "\n"))
		}
		if w.violation != "" {
			t.Fatalf("seed %d: %s", seed, w.violation)
		}
	}
	if *seedsFlag < 400 {
		return
	}
	for _, what := range slices.Concat(hasToHappen, widely, moving, changing, copying) {
		if covered[what] == 0 {
			t.Errorf("in %d histories it never happened: %s", *seedsFlag, what)
		}
	}
	t.Logf("%v", covered)
}

func simulate(seed uint64, moves int) *world {
	w := newWorld(rand.New(rand.NewPCG(seed, 1)))
	defer w.end()
	w.shows = seed/2%2 == 0
	w.skews = seed/6%3 == 1
	if seed%6 == 0 {
		w.widen()
	}
	w.around = seed%6 == 3
	if seed%12 == 9 {
		w.copies = map[types.UID]bool{}
	}
	if seed%6 == 5 {
		w.change()
	}
	w.elect()
	if w.wide || w.around {
		w.begin()
	}
	for range moves {
		if w.violation != "" {
			return w
		}
		w.move()
		w.judge()
	}
	w.quiesce()
	return w
}

// move makes one move.
func (w *world) move() {
	if w.wide && w.chance.IntN(25) == 0 {
		w.moveWidely()
		return
	}
	if w.around && w.chance.IntN(12) == 0 || w.copies != nil && w.chance.IntN(10) == 0 {
		w.moveAround()
		return
	}
	if w.changes && w.chance.IntN(12) == 0 {
		w.moveSubnets()
		return
	}
	switch n := w.chance.IntN(100); {
	case n < 7:
		w.createClaim()
	case n < 12:
		w.deleteClaim()
	case n < 15:
		w.somebodyElse()
	case n < 16:
		w.note("crash")
		w.leader.end()
		w.leader = nil
		w.elect()
	case n < 17:
		w.depose()
	case n < 20:
		w.pass(w.oneOf(1, 3, 10, 40))
	case n < 24:
		w.executeLate()
	case n < 25 && w.chance.IntN(4) == 0:
		w.takeAway()
	case n < 26 && w.chance.IntN(2) == 0:
		w.bringBack()
	case n < 27 && w.chance.IntN(3) == 0:
		w.rename()
	case n < 28:
		w.edit()
	case n < 29 && w.chance.IntN(2) == 0:
		w.forceAway()
	case n < 31:
		w.endMachine()
	case n < 32:
		w.editSpecs()
	case n < 33 && w.chance.IntN(4) == 0:
		w.goWell()
	case n < 34 && w.chance.IntN(12) == 0:
		w.note("the InfobloxInstances become another Infoblox, or the first one again")
		w.moveInstances([]string{"h", "elsewhere"}[w.chance.IntN(2)])
	default:
		p := w.leader
		if len(w.old) > 0 && w.chance.IntN(3) == 0 {
			p = w.old[w.chance.IntN(len(w.old))]
		}
		w.step(p, false)
	}
}

// step lets a process do one thing: hear of a change, begin with an object, or get an answer.
func (w *world) step(p *process, well bool) bool {
	var ways []func()
	behind := p.behind()
	if behind && (!w.skews || !p.lag()) {
		ways = append(ways, p.hear)
	}
	if key, ok := p.ready(w.chance); ok {
		ways = append(ways, func() { p.begin(key) })
	}
	if len(p.calls) > 0 {
		ways = append(ways, func() { p.answer(w.chance.IntN(len(p.calls)), well) })
	}
	switch {
	case len(ways) > 0:
		ways[w.chance.IntN(len(ways))]()
	case behind:
		p.hear()
	default:
		return false
	}
	return true
}

// quiesce lets everything come to rest: requests are answered, and nobody changes anything.
func (w *world) quiesce() {
	for _, p := range w.old {
		p.end()
	}
	w.old = nil
	for len(w.late) > 0 {
		w.executeLate()
	}
	w.down = false
	w.bringBack()
	w.moveInstances("h")
	w.narrow()
	if w.around {
		w.settleDown()
	}
	if w.copies != nil {
		w.endCopies()
	}
	if w.changes {
		w.settleSubnets()
	}
	rest := 0
	for range 3000 {
		for w.step(w.leader, true) && w.violation == "" {
		}
		if w.judge(); w.violation != "" {
			return
		}
		if w.wide || w.copies != nil {
			w.tidy()
		}
		before := w.writes
		w.pass(5)
		for w.step(w.leader, true) && w.violation == "" {
		}
		if rest++; w.writes != before {
			rest = 0
		}
		if rest > 30 {
			w.judgeRest()
			return
		}
	}
	w.violate("it does not come to rest")
}

func (w *world) oneOf(all ...int) int { return all[w.chance.IntN(len(all))] }

func (w *world) note(what string) {
	w.covered[what]++
	w.trace = append(w.trace, fmt.Sprintf("%6.1fs %s", w.now.Sub(start).Seconds(), what))
}

func (w *world) violate(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
	}
}
