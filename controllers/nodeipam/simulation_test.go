package nodeipam

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	seedFlag    = flag.Uint64("simulation.seed", 0, "play this seed only, and print its history")
	historyFlag = flag.String("simulation.history", "", "play the history in this file only")
	seedsFlag   = flag.Uint64("simulation.seeds", 1000, "how many seeds TestSimulation plays")
	stepsFlag   = flag.Int("simulation.steps", 300, "moves per seed")
)

// history is how the world is made, and what happens in it.
type history struct {
	world string // how writes of deposed leaders are kept out: by "deadlines" or by the "policy"
	moves []move
}

// result is what came of a history, or of its beginning up to the violation.
type result struct {
	history
	*world
}

// generate makes a history from a seed, and plays it.
func generate(seed uint64, steps int) result {
	d := rand.New(rand.NewPCG(seed, 1))
	h := history{world: must(d, []string{"deadlines", "policy"})}
	w := newWorld(h.world)
	defer w.end()
	weights, total := temper(d)
	for len(h.moves) < steps && w.violation == nil {
		h.moves = append(h.moves, w.roll(d, weights, total))
		w.make(h.moves[len(h.moves)-1])
	}
	w.quiesce()
	return result{h, w}
}

// play plays a history.
func play(h history) result {
	w := newWorld(h.world)
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

func TestSimulation(t *testing.T) {
	if *seedFlag > 0 {
		r := generate(*seedFlag, *stepsFlag)
		t.Log(r)
		if r.violation != nil {
			t.Error(shrink(r))
		}
		return
	}
	var (
		next    atomic.Uint64
		failed  atomic.Bool
		mu      sync.Mutex
		covered = map[string]int{}
		steps   int
	)
	start := time.Now()
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed := next.Add(1); seed <= *seedsFlag && !failed.Load(); seed = next.Add(1) {
				r := generate(seed, *stepsFlag)
				mu.Lock()
				for what, n := range r.covered {
					covered[what] += n
				}
				steps += len(r.moves)
				mu.Unlock()
				if r.violation != nil && !failed.Swap(true) {
					t.Errorf("seed %d broke %s:\n%v", seed, r.violation.invariant, shrink(r))
				}
			}
		})
	}
	workers.Wait()
	took := time.Since(start)
	var lines []string
	for _, what := range slices.Sorted(maps.Keys(covered)) {
		lines = append(lines, fmt.Sprintf("%9d %s", covered[what], what))
	}
	t.Logf("%d seeds, %d moves in %v: %.0f seeds/s\n%s", *seedsFlag, steps, took, float64(*seedsFlag)/took.Seconds(), strings.Join(lines, "\n"))
}
