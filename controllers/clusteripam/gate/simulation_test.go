package gate

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/multicidr/controller-manager/controllers/internal/race"
)

// The simulation of both controllers of claims. docs/engineering/simulation.md says how simulations are used here.
var (
	seedsFlag  = flag.Uint64("simulation.seeds", race.Part(uint64(1000)), "how many histories TestSimulation makes")
	firstFlag  = flag.Uint64("simulation.first", 1, "the seed of the first of them")
	movesFlag  = flag.Int("simulation.moves", 300, "how many moves each has")
	shrinkFlag = flag.Bool("simulation.shrink", true, "shrink the history that breaks an invariant")
	seedFlag   = flag.Uint64("simulation.seed", 0, "make the history of this seed only, and print it")
)

// play makes a world and what happens in it.
func play(moves []uint64) (w *world) {
	w = newWorld()
	defer func() {
		if r := recover(); r != nil {
			w.violate("nothing panics: %v\n%s", r, debug.Stack())
		}
	}()
	for _, m := range moves {
		if w.make(m); w.violation != "" {
			return w
		}
	}
	if w.quiesce(); w.violation == "" {
		w.atRest()
	}
	return w
}

func generate(seed uint64, n int) []uint64 {
	d := rand.New(rand.NewPCG(seed, 1))
	moves := make([]uint64, n)
	for i := range moves {
		moves[i] = d.Uint64()
	}
	return moves
}

// shrink leaves out moves as long as the same invariant breaks.
func shrink(moves []uint64, broken string) []uint64 {
	invariant, _, _ := strings.Cut(broken, ":")
	for size := len(moves) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(moves); {
			shorter := slices.Concat(moves[:at], moves[at+size:])
			if is, _, _ := strings.Cut(play(shorter).violation, ":"); is == invariant {
				moves = shorter
			} else {
				at += size
			}
		}
	}
	return moves
}

// hasToHappen: what never happens was not tested.
var hasToHappen = []string{
	"answer lost", "request lost", "request late", "taken back", "restart", "sync failed", "took", "a pool was adopted", "the config was renewed",
	"at rest: bound", "at rest: gate open", "at rest: pool of somebody else", "at rest: pool of somebody else in the config", "at rest: ClusterIPAM of somebody else",
	"event: Bound", "event: IPAMReady", "event: InvalidClaim", "event: ClusterIPAMConflict", "event: ClusterIPAMDeleting", "event: PoolConflict", "event: PoolDeleting",
	"event: NoUsableAddress", "event: InstanceUnknown", "event: InstanceKept", "event: ClusterChanged", "event: OldPoolInUse", "event: PrefixMissing", "event: GatewayOutside",
	"event: Refused", "event: ClaimMissing", "event: ClaimConflict", "event: ClusterMismatch", "event: ConfigInvalid", "event: IPAMDisabled",
	"written: ClusterIPAMClaim", "written: ClusterIPAM", "written: InClusterIPPool", "written: InfobloxIPPool", "written: ClusterDeployment",
}

func TestSimulation(t *testing.T) {
	if *seedFlag > 0 {
		*firstFlag, *seedsFlag = *seedFlag, 1
	}
	var (
		next    atomic.Uint64
		mu      sync.Mutex
		workers sync.WaitGroup
		failed  uint64
		covered = map[string]int{}
	)
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for {
				n := next.Add(1) - 1
				mu.Lock()
				stop := n >= *seedsFlag || failed != 0
				mu.Unlock()
				if stop {
					return
				}
				w := play(generate(*firstFlag+n, *movesFlag))
				mu.Lock()
				for what, n := range w.covered {
					covered[what] += n
				}
				if w.violation != "" && (failed == 0 || *firstFlag+n < failed) {
					failed = *firstFlag + n
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	if failed != 0 {
		moves := generate(failed, *movesFlag)
		if *shrinkFlag {
			moves = shrink(moves, play(moves).violation)
		}
		w := play(moves)
		t.Fatalf("seed %d, %d moves:\n%s\n%s", failed, len(moves), strings.Join(w.trace, "\n"), w.violation)
	}
	var text strings.Builder
	for _, what := range sortedKeys(covered) {
		fmt.Fprintf(&text, "%10d %s\n", covered[what], what)
	}
	t.Logf("%d histories\n%s", *seedsFlag, &text)
	if *seedsFlag < 1000 {
		return
	}
	for _, what := range hasToHappen {
		if covered[what] == 0 {
			t.Errorf("in %d histories it never happened: %s", *seedsFlag, what)
		}
	}
}
