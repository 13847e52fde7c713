// Package seeds gives all tests with chance the same flags, and their failures the same look: the seed, what to type to see it again, and the shortest
// history that leads there.
package seeds

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	first = flag.Uint64("seed", 1, "the first seed of a test with chance; 0 takes one from the clock")
	count = flag.Uint64("seeds", 0, "how many seeds, one after the other; 0: as many as the test has by itself; 1 with -v prints the history in any case")
)

// lastLines is how much of a history is printed.
const lastLines = 400

// First is the seed for a test that needs only one.
func First() uint64 {
	if *first == 0 {
		*first = uint64(time.Now().UnixNano())
	}
	return *first
}

// Each runs a subtest for each seed until one fails: usual of them, if no flag says how many. It returns how many there are.
func Each(t *testing.T, usual uint64, run func(t *testing.T, seed uint64)) (n uint64) {
	t.Helper()
	n = cmp.Or(*count, usual)
	for i := range n {
		seed := First() + i
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { run(t, seed) }) {
			break
		}
	}
	return n
}

// Report is called at the end of a test with a history, one line for each step, oldest first; the first line says what was chosen for all of it. It prints that if the test has failed, or if somebody asked
// for it.
func Report(t *testing.T, seed uint64, history []string) {
	t.Helper()
	asked := *count == 1 && testing.Verbose()
	if !t.Failed() && !asked {
		return
	}
	if cut := len(history) - lastLines; cut > 0 && !asked {
		history = slices.Concat(history[:1], []string{fmt.Sprintf("... %d lines, which -seeds=1 -v shows", cut)}, history[cut+1:])
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	t.Logf("seed %[1]d; again: go test -run='^%[2]s$' -v . -seed=%[1]d -seeds=1\n%[3]s", seed, test, strings.Join(history, "\n"))
}
