// Command mutants breaks the controller in one place after another and runs its tests, to see that they notice. A mutant
// that no test notices is a safety mechanism that could be lost one day without anybody knowing, and so an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// seeds is how many `make test` plays.
	seeds = 1000
	// rareSeeds is how many are played of what those do not find.
	rareSeeds = 10_000
	// patience is how long one run of a test may take: a mutant may never come to an end.
	patience = 10 * time.Minute
)

func main() {
	write := flag.Bool("write", false, "write the table in "+document)
	only := flag.String("run", "", "try only the mutants whose name matches this regular expression")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *only, *write); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, write bool) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	if write && only != "" {
		return errors.New("-write wants all mutants: leave out -run")
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	chosen := slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool { return !pattern.MatchString(m.name) })
	pkgs, tests := map[string]bool{}, map[string]bool{}
	for _, m := range chosen {
		pkg, _ := m.caughtBy()
		pkgs[pkg], tests[m.test] = true, true
	}
	start := time.Now()
	r := runner{}
	if r.binaries, err = build(ctx, dir, chosen, slices.Sorted(maps.Keys(pkgs))); err != nil {
		return err
	}
	fmt.Printf("compiled (%v)\n", time.Since(start).Round(time.Second))
	// What fails without a mutant says nothing about one.
	for test := range tests {
		if v := r.try(ctx, mutant{test: test}); v.err != nil || v.by != "" {
			return fmt.Errorf("fails without any mutant: %v", v)
		}
	}
	fmt.Printf("no mutant: %d seeds pass (%v)\n", seeds, time.Since(start).Round(time.Second))

	verdicts := make([]verdict, len(chosen))
	next := make(chan int)
	var mu sync.Mutex
	var workers sync.WaitGroup
	done := 0
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				began := time.Now()
				v := r.try(ctx, chosen[i])
				verdicts[i] = v
				mu.Lock()
				done++
				fmt.Printf("%3d/%d  %-38s %v (%v)\n", done, len(chosen), chosen[i].name, v, time.Since(began).Round(time.Second))
				mu.Unlock()
			}
		})
	}
	for i := range chosen {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}

	var wrong []string
	for i, v := range verdicts {
		if v.err != nil || v.by == "" {
			wrong = append(wrong, fmt.Sprintf("%s: %v", chosen[i].name, v))
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%d of %d mutants were not caught:\n%s", len(wrong), len(chosen), strings.Join(wrong, "\n"))
	}
	fmt.Printf("all %d mutants were caught, in %v\n", len(chosen), time.Since(start).Round(time.Second))
	if write {
		return writeTable(chosen, verdicts)
	}
	return nil
}

// verdict is what came of a mutant.
type verdict struct {
	by    string // the test that failed, empty if none did
	broke string // what it says was wrong
	seed  string // of the simulation
	err   error  // nothing was found out
}

func (v verdict) String() string {
	switch {
	case v.err != nil:
		return "ERROR " + v.err.Error()
	case v.by == "":
		return "SURVIVED"
	case v.seed == "":
		return "caught by " + v.by
	}
	return fmt.Sprintf("caught by %s, seed %s: %s", v.by, v.seed, v.broke)
}

// judges are how the simulation is run, one after the other until something is found: what is promised to users first, then all that
// they see, then what is in the controller's book.
var judges = []struct {
	name string
	args []string
}{
	{"users", []string{"-simulation.outside", "-simulation.judge=^invariant"}},
	{"users", []string{"-simulation.outside"}},
	{"the book", nil},
}

type runner struct {
	binaries map[string]string // by package
}

// try runs the test of a mutant.
func (r runner) try(ctx context.Context, m mutant) verdict {
	pkg, test := m.caughtBy()
	if m.test != "" {
		count := 20 // In some two goroutines meet, and a mutant may be lucky once.
		if m.test == testModel || m.test == testPools || m.test == testClaims || m.test == testInfoblox {
			count = 1 // which is many histories
		}
		args := []string{"-test.run=^" + test + "$", "-test.failfast", fmt.Sprintf("-test.count=%d", count)}
		if m.test == testInfoblox {
			args = append(args, fmt.Sprintf("-simulation.seeds=%d", rareSeeds/2)) // It stops at the first that fails, and some are rare.
		}
		failed, _, err := r.fails(ctx, m, pkg, args...)
		if err != nil || !failed {
			return verdict{err: err}
		}
		return verdict{by: test}
	}
	for i, judge := range slices.Concat(judges, judges) {
		n := seeds
		if i >= len(judges) {
			n = rareSeeds
		}
		if n > seeds && m.name == "" {
			break
		}
		args := append([]string{"-test.run=^" + test + "$", fmt.Sprintf("-simulation.seeds=%d", n), "-simulation.shrink=false"}, judge.args...)
		failed, out, err := r.fails(ctx, m, pkg, args...)
		if err != nil {
			return verdict{err: err}
		}
		if found := violation.FindStringSubmatch(out); found != nil {
			return verdict{by: judge.name, seed: found[1], broke: found[2]}
		}
		if failed && m.name == "" { // A mutant may well keep things from happening that have to; that is not enough to catch it.
			return verdict{err: errors.New(out)}
		}
	}
	return verdict{}
}

// violation is how TestSimulation says what it found.
var violation = regexp.MustCompile(`seed (\d+) broke (.*):\n`)

// fails runs a test with a mutant in it and reports whether it fails, and what it prints.
func (r runner) fails(ctx context.Context, m mutant, pkg string, args ...string) (failed bool, out string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.binaries[pkg], args...)
	cmd.Dir, cmd.Env = pkg, append(os.Environ(), variable+"="+m.name)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return false, string(text), nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return false, "", fmt.Errorf("%s has not ended after %v", strings.Join(args, " "), patience)
	case errors.As(err, &exit):
		return true, string(text), nil
	}
	return false, "", err
}
