// Command mutants puts one defect of test/defects.md after another into the sources and runs the test that has to notice. A mutant
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
	// rareSeeds is how many random histories are played at most where `make test` plays fewer: some defects are rare. A world takes longer.
	rareSeeds, worlds = 5_000, 300
	// times is how often other tests run: in some two goroutines meet, and a mutant may be lucky once.
	times = 20
	// patience is how long one run of a test may take: a mutant may never come to an end.
	patience = 10 * time.Minute
)

func main() {
	only := flag.String("run", "", "try only the defects that match this regular expression")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	all, err := read(".")
	if err != nil {
		return err
	}
	chosen := slices.DeleteFunc(all, func(m mutant) bool { return !pattern.MatchString(m.defect) })
	tests := map[string]map[string]bool{} // by package
	for _, m := range chosen {
		if tests[m.pkg] == nil {
			tests[m.pkg] = map[string]bool{}
		}
		tests[m.pkg][m.test] = true
	}
	start := time.Now()
	r := runner{}
	if r.binaries, err = build(ctx, dir, chosen, slices.Sorted(maps.Keys(tests))); err != nil {
		return err
	}
	fmt.Printf("compiled (%v)\n", time.Since(start).Round(time.Second))
	// What fails without a mutant says nothing about one.
	for pkg, of := range tests {
		names := slices.Sorted(maps.Keys(of))
		args := []string{"-test.run=^(" + strings.Join(names, "|") + ")$"}
		if slices.ContainsFunc(names, histories.MatchString) {
			args = append(args, "-seeds=20") // It takes the flag.
		}
		failed, err := r.fails(ctx, mutant{pkg: pkg}, args...)
		if err != nil || failed {
			return fmt.Errorf("%s without any mutant: failed %t, error %w", pkg, failed, err)
		}
	}
	fmt.Printf("no mutant: all tests pass (%v)\n", time.Since(start).Round(time.Second))

	wrong := r.tryAll(ctx, chosen)
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%d of %d mutants were not caught:\n%s", len(wrong), len(chosen), strings.Join(wrong, "\n"))
	}
	fmt.Printf("all %d mutants were caught, in %v\n", len(chosen), time.Since(start).Round(time.Second))
	return nil
}

// verdict is what came of a mutant.
type verdict struct {
	by  string // the test that failed, empty if none did
	err error  // nothing was found out
}

func (v verdict) String() string {
	switch {
	case v.err != nil:
		return "ERROR " + v.err.Error()
	case v.by == "":
		return "SURVIVED"
	}
	return "caught by " + v.by
}

type runner struct {
	binaries map[string]string // by package
}

// tryAll tries all mutants, as many at once as there are CPUs, and returns what is to be said of those that were not caught.
func (r runner) tryAll(ctx context.Context, chosen []mutant) []string {
	var wrong []string
	next := make(chan mutant)
	var mu sync.Mutex
	var workers sync.WaitGroup
	done := 0
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for m := range next {
				began := time.Now()
				v := r.try(ctx, m)
				mu.Lock()
				done++
				fmt.Printf("%3d/%d  %s: %v (%v)\n", done, len(chosen), m.defect, v, time.Since(began).Round(time.Second))
				if v.err != nil || v.by == "" {
					wrong = append(wrong, fmt.Sprintf("%s: %v", m.defect, v))
				}
				mu.Unlock()
			}
		})
	}
	for _, m := range chosen {
		select {
		case next <- m:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	return wrong
}

// histories are tests that play random histories, each with a seed, until one of them fails.
var histories = regexp.MustCompile("^Test(Simulation|.*Histories|Worlds)$")

// try runs the test of a mutant.
func (r runner) try(ctx context.Context, m mutant) verdict {
	more := fmt.Sprintf("-test.count=%d", times)
	if histories.MatchString(m.test) {
		more = fmt.Sprintf("-seeds=%d", rareSeeds)
	}
	if m.test == "TestWorlds" {
		more = fmt.Sprintf("-seeds=%d", worlds)
	}
	failed, err := r.fails(ctx, m, "-test.run=^"+m.test+"$", "-test.failfast", more)
	if err != nil || !failed {
		return verdict{err: err}
	}
	return verdict{by: m.test}
}

// fails runs a test with a mutant in it and reports whether it fails.
func (r runner) fails(ctx context.Context, m mutant, args ...string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.binaries[m.pkg], args...)
	cmd.Dir, cmd.Env = m.pkg, append(os.Environ(), variable+"="+m.defect)
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return false, nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return false, fmt.Errorf("%s has not ended after %v", strings.Join(args, " "), patience)
	case errors.As(err, &exit):
		return true, nil
	}
	return false, err
}
