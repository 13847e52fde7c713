package nodeipam

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/multicidr/controller-manager/controllers/internal/race"
)

// The simulation. docs/engineering/simulation.md says what it is and how to use it.
var (
	seedsFlag    = flag.Uint64("simulation.seeds", race.Part(uint64(1000)), "how many histories TestSimulation makes")
	firstFlag    = flag.Uint64("simulation.first", 1, "the seed of the first of them")
	movesFlag    = flag.Int("simulation.moves", 300, "how many moves each has")
	progressFlag = flag.Bool("simulation.progress", false, "show a progress bar")
	outsideFlag  = flag.Bool("simulation.outside", false, "judge only what users can see, as if the book could not be looked into")
	judgeFlag    = flag.String("simulation.judge", "", "judge only the invariants whose names match this regular expression")
	shrinkFlag   = flag.Bool("simulation.shrink", true, "shrink the history that breaks an invariant")
	seedFlag     = flag.Uint64("simulation.seed", 0, "make the history of this seed only, and print it")
	worldFlag    = flag.String("simulation.world", "", "make only histories of this kind of world: deadlines, policy or alone")
	historyFlag  = flag.String("simulation.history", "", "play the history in this file only, and print it")
)

// worldKinds are how writes of processes that do not lead any more are kept out: by "deadlines", by the "policy", or by a wait, where there is no leader
// election and a process is "alone".
var worldKinds = []string{"deadlines", "deadlines", "policy", "policy", "alone"}

// history is how the world is made, and what happens in it.
type history struct {
	world string // one of worldKinds, or with ipv6First behind it
	moves []move
}

// result is what came of a history, or of its beginning up to the violation.
type result struct {
	history
	*world
}

// generate makes a history from a seed, and plays it.
func generate(seed uint64, moves int) result {
	d := rand.New(rand.NewPCG(seed, 1))
	h := history{world: oneOf(d, worldKinds)}
	if *worldFlag != "" {
		h.world = *worldFlag
	}
	if seed%8 == 7 {
		h.world += ipv6First
	}
	w := newWorld(h.world)
	w.notices = true
	defer w.end()
	weights, total := temper(d)
	for len(h.moves) < moves && w.violation == nil {
		h.moves = append(h.moves, w.roll(d, weights, total))
		w.make(h.moves[len(h.moves)-1])
	}
	w.quiesce()
	return result{h, w}
}

// play plays a history.
func play(h history) result {
	w := newWorld(h.world)
	w.notices = true
	defer w.end()
	for i, m := range h.moves {
		if w.make(m); w.violation != nil {
			h.moves = h.moves[:i+1]
		}
	}
	w.quiesce()
	return result{h, w}
}

// shrink returns a short history that breaks the same invariant: it leaves out ever smaller parts for as long as that works.
func shrink(r result) result {
	broken := r.violation.invariant
	for size := len(r.moves) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(r.moves); {
			shorter := play(history{r.history.world, slices.Concat(r.moves[:at], r.moves[at+size:])})
			if v := shorter.violation; v != nil && v.invariant == broken {
				r = shorter
			} else {
				at += size
			}
		}
	}
	return r
}

// String writes a history and what came of it. Without the indented lines it can be played again.
func (r result) String() string {
	text := "world " + r.history.world + "\n" + strings.Join(r.trace, "\n")
	if r.violation != nil {
		text += "\n  " + r.violation.String()
	}
	return text
}

// read reads what String wrote. Indented lines and those that start with # are for people.
func read(text string) (h history) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0, strings.HasPrefix(line, " "), strings.HasPrefix(line, "#"):
		case words[0] == "world":
			h.world = words[1]
		default:
			h.moves = append(h.moves, words)
		}
	}
	return h
}

// TestSimulationHistories plays histories that once broke an invariant.
func TestSimulationHistories(t *testing.T) {
	files, err := filepath.Glob("testdata/simulation/*.txt")
	if *historyFlag != "" {
		files = []string{*historyFlag}
	}
	if err != nil || len(files) == 0 {
		t.Fatalf("no histories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r := play(read(string(text)))
			if *historyFlag != "" {
				t.Log(r)
			}
			if r.violation != nil {
				t.Errorf("%v", r)
			}
		})
	}
}

// From how many seeds on everything has to have happened: what is common, and what is rare.
const (
	enough      = 1000
	enoughOfAll = 20_000
)

// has to happen, beside every move. What never happens was not tested.
var hasToHappen = []string{
	"a ClusterCIDR let go",
	"a ClusterCIDR waits for Nodes",
	"a Node is deleted before it is served",
	"a Node waits with reason",
	"a deposed leader chose blocks",
	"a first list may be stale",
	"a lease runs out since a write was not answered",
	"a list lacks a Node",
	"a reservation was given up",
	"a write of podCIDRs was refused",
	"blocks are written again that may have been written",
	"a foreign Node came while a block was on its way",
	"a leader gave up",
	"a suspension that the wall clock does not show",
	"a request arrived after its deadline",
	"a request arrived after its sender gave up",
	"changes seen as one",
	"crash during: apply status",
	"crash during: patch ClusterCIDR",
	"crash during: patch Node",
	"crash during: renew lease",
	"podCIDRs assigned", "podCIDRs with IPv6 first assigned",
	"refused: apply status: Conflict",
	"refused: create ClusterCIDR: AlreadyExists",
	"refused: patch ClusterCIDR: Conflict",
	"refused: patch ClusterCIDR: Invalid",
	"refused: patch ClusterCIDR: NotFound",
	"refused: patch Node: Invalid",
	"refused: patch Node: NotFound",
	"refused: renew lease: Conflict",
	"the fence is closed",
	waitsForWritesOfBefore,
}

// rare happens a few times in a thousand histories, or in ten thousand.
var rare = []string{
	"a read told that a write was not carried out",
	"blocks are kept until the lease is renewed",
	"crash during: create event",
	"refused: patch Node: Forbidden",
}

func TestSimulation(t *testing.T) {
	if *seedFlag > 0 {
		r := generate(*seedFlag, *movesFlag)
		t.Log(r)
		if r.violation != nil {
			t.Error(shrink(r))
		}
		return
	}
	s := simulateMany(*firstFlag, *seedsFlag, *movesFlag)
	t.Log(s)
	if r := s.failed; r != nil {
		broke := r.violation.invariant
		if *shrinkFlag {
			*r = shrink(*r)
		}
		t.Fatalf("seed %d broke %s:\n%v", s.failedSeed, broke, *r)
	}
	if *seedsFlag < enough || *worldFlag != "" {
		return
	}
	for _, name := range moveNames {
		hasToHappen = append(hasToHappen, "move: "+name)
	}
	for _, outcome := range outcomes {
		hasToHappen = append(hasToHappen, "answer: "+outcome)
	}
	if *seedsFlag >= enoughOfAll {
		hasToHappen = append(hasToHappen, rare...)
	}
	for _, what := range hasToHappen {
		if s.covered[what] == 0 {
			t.Errorf("in %d histories it never happened: %s", *seedsFlag, what)
		}
	}
}

// simulated is what came of many histories.
type simulated struct {
	mu           sync.Mutex
	seeds, moves int
	took         time.Duration
	covered      map[string]int
	// failed is the first history, by its seed, that broke an invariant.
	failed     *result
	failedSeed uint64
}

// simulateMany makes histories until one breaks an invariant. Each is made by one goroutine; as many go on at once as there
// are processors.
func simulateMany(first, seeds uint64, moves int) *simulated {
	// Little of a history outlives it. To collect garbage as often as by default takes two fifths of all the time.
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	s := &simulated{covered: map[string]int{}}
	bar := progressbar.DefaultSilent(int64(seeds))
	if *progressFlag {
		bar = progressbar.NewOptions64(int64(seeds), progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("seeds"),
			progressbar.OptionSetPredictTime(true), progressbar.OptionThrottle(time.Second), progressbar.OptionSetWriter(os.Stderr), progressbar.OptionOnCompletion(func() { fmt.Fprintln(os.Stderr) }))
	}
	start := time.Now()
	var next atomic.Uint64
	var stop atomic.Bool
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for !stop.Load() {
				n := next.Add(1)
				if n > seeds {
					return
				}
				seed := first + n - 1
				r := generate(seed, moves)
				s.add(seed, r)
				if r.violation != nil {
					stop.Store(true)
				}
				_ = bar.Add(1)
			}
		})
	}
	workers.Wait()
	s.took = time.Since(start)
	return s
}

func (s *simulated) add(seed uint64, r result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seeds++
	s.moves += len(r.moves)
	for what, n := range r.covered {
		s.covered[what] += n
	}
	if r.violation != nil && (s.failed == nil || seed < s.failedSeed) {
		s.failed, s.failedSeed = &r, seed
	}
}

// String says how much was tried, and how often what happened.
func (s *simulated) String() string {
	var text strings.Builder
	seconds := s.took.Seconds()
	fmt.Fprintf(&text, "%d histories, %d moves, %d requests to the API server in %v: %.0f histories/s, %.0f moves/s\n",
		s.seeds, s.moves, s.covered[requestsSent], s.took.Round(time.Second), float64(s.seeds)/seconds, float64(s.moves)/seconds)
	for _, what := range sortedNames(s.covered) {
		fmt.Fprintf(&text, "%10d %s\n", s.covered[what], what)
	}
	return text.String()
}
