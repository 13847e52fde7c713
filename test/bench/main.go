// bench measures the core: it runs BenchmarkCore of controllers/nodeipam/allocator, prints what it says as a table, holds it against the marks that
// were set, and writes it as JSON. `make bench` is the usual way to call it.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchunit"

	"github.com/multicidr/controller-manager/test/results"
)

func main() {
	var o options
	flag.StringVar(&o.out, "out", "docs/data/bench.json", "file to write; empty for none")
	flag.StringVar(&o.only, "only", "", "regular expressions, joined by slashes, of the situations to measure, for instance 'serve/nodes=1000$/clusterCIDRs=50'; nothing is held against the marks then")
	flag.StringVar(&o.benchtime, "benchtime", "2s", "how long, or with an x at the end how often, to measure each situation")
	flag.StringVar(&o.cpuProfile, "cpuprofile", "", "file for a CPU profile of what is measured, for go tool pprof; -only makes it useful")
	flag.StringVar(&o.memProfile, "memprofile", "", "the same of what is allocated")
	flag.Parse()
	if err := run(o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct{ out, only, benchtime, cpuProfile, memProfile string }

const core = "github.com/multicidr/controller-manager/controllers/nodeipam/allocator"

func run(o options, out io.Writer) error {
	file := results.File{Header: results.Collect("make bench")}
	args := []string{"test", "-run=^$", "-timeout=0", "-bench=^BenchmarkCore$/" + o.only, "-benchtime=" + o.benchtime}
	for name, path := range map[string]string{"cpuprofile": o.cpuProfile, "memprofile": o.memProfile} {
		if path != "" {
			args = append(args, "-"+name+"="+path, "-o="+path+".test") // the program, to read the profile with
		}
	}
	benchmark := exec.Command("go", append(args, core)...)
	benchmark.Stderr = os.Stderr
	lines, err := benchmark.StdoutPipe()
	if err != nil {
		return err
	}
	if err := benchmark.Start(); err != nil {
		return err
	}
	var said strings.Builder
	reader := benchfmt.NewReader(io.TeeReader(lines, &said), "go test")
	writeHeader(out, file.Header)
	for reader.Scan() {
		if r, ok := reader.Result().(*benchfmt.Result); ok {
			result := resultOf(r)
			writeRows(out, result)
			file.Results = append(file.Results, result)
		}
	}
	if err := errors.Join(reader.Err(), benchmark.Wait()); err != nil {
		return fmt.Errorf("%w; go test said:\n%s", err, withoutResults(said.String()))
	}
	if len(file.Results) == 0 {
		return fmt.Errorf("no situation is called %q", o.only)
	}
	if o.only == "" {
		if file.Marks, err = marks(file.Results); err != nil {
			return err
		}
		writeMarks(out, file.Marks)
	}
	if o.out == "" {
		return nil
	}
	return results.Write(o.out, file)
}

func withoutResults(said string) string {
	var rest strings.Builder
	for line := range strings.Lines(said) {
		if !strings.HasPrefix(line, "Benchmark") {
			rest.WriteString(line)
		}
	}
	return rest.String()
}

// resultOf reads a name such as Core/layout/a_8_of_28s/nodes=15000/clusterCIDRs=1, and the values as they were reported.
func resultOf(r *benchfmt.Result) results.Result {
	result := results.Result{Values: map[string]float64{}}
	_, parts := r.Name.Parts()
	var name []string
	for _, part := range parts {
		text := strings.TrimPrefix(string(part), "/")
		key, value, _ := strings.Cut(text, "=")
		n, _ := strconv.Atoi(value)
		switch {
		case strings.HasPrefix(text, "-"): // GOMAXPROCS, which the header has
		case key == "nodes":
			result.Nodes = n
		case key == "clusterCIDRs":
			result.ClusterCIDRs = n
		default:
			name = append(name, strings.ReplaceAll(text, "_", " "))
		}
	}
	result.Name = strings.Join(name, ": ")
	for _, v := range r.Values {
		if v.OrigUnit != "" { // benchfmt makes seconds of nanoseconds
			v.Unit, v.Value = v.OrigUnit, v.OrigValue
		}
		result.Values[v.Unit] = v.Value
	}
	return result
}

// marks are those that the project set itself.
func marks(all []results.Result) ([]results.Mark, error) {
	var missing error
	value := func(name string, nodes, clusterCIDRs int, metric string) float64 {
		for _, r := range all {
			if v, ok := r.Values[metric]; ok && r.Name == name && r.Nodes == nodes && r.ClusterCIDRs == clusterCIDRs {
				return v
			}
		}
		missing = errors.Join(missing, fmt.Errorf("nothing was measured of %q with %d Nodes and %d ClusterCIDRs: %s", name, nodes, clusterCIDRs, metric))
		return 0
	}
	marks := []results.Mark{
		results.AtMost("choose and hold, 100,000 Nodes and 100 ClusterCIDRs, p99", "µs", 50, value("serve", 100_000, 100, "choose-p99-ns")/1e3),
		results.AtMost("choose and hold, 100,000 Nodes and 1,000 ClusterCIDRs, p99", "µs", 200, value("serve", 100_000, 1_000, "choose-p99-ns")/1e3),
		results.AtMost("rebuild, 100,000 Nodes and 1,000 ClusterCIDRs, mean", "ms", 1000, value("rebuild", 100_000, 1_000, "rebuild-mean-ns")/1e6),
	}
	return marks, missing
}

func writeHeader(out io.Writer, h results.Header) {
	fmt.Fprintf(out, "%s, %d cores, %sB, %s %s, %s, load average %.2f\ncommit %s\n\n", cmp.Or(h.Machine.CPU, "unknown CPU"), h.Machine.Cores,
		benchunit.Scale(float64(h.Machine.MemoryBytes), benchunit.Binary), h.Machine.OS, h.Machine.Kernel, h.GoVersion, h.Machine.LoadAverage, h.Commit)
	fmt.Fprintf(out, row, "situation", "Nodes", "ClusterCIDRs", "what", "mean", "p50", "p99", "max")
}

const row = "%-50s %9v %12v  %-8s %9s %9s %9s %9s\n"

// writeRows writes a row for each operation that was timed.
func writeRows(out io.Writer, r results.Result) {
	seconds := func(ns float64) string { return benchunit.Scale(ns/1e9, benchunit.Decimal) + "s" }
	for _, what := range []string{"choose", "confirm", "scrape", "rebuild"} {
		if mean, ok := r.Values[what+"-mean-ns"]; ok {
			fmt.Fprintf(out, row, r.Name, r.Nodes, r.ClusterCIDRs, what, seconds(mean), seconds(r.Values[what+"-p50-ns"]), seconds(r.Values[what+"-p99-ns"]), seconds(r.Values[what+"-max-ns"]))
		}
	}
}

func writeMarks(out io.Writer, marks []results.Mark) {
	fmt.Fprintln(out)
	for _, m := range marks {
		verdict := "held    "
		if !m.Held {
			verdict = "NOT HELD"
		}
		fmt.Fprintf(out, "%s  %.4g of at most %g %s: %s\n", verdict, m.Got, m.Limit, m.Unit, m.Name)
	}
}
