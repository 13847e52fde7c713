package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

// requestPrefix begins the name of a value that says how many requests of a kind there were.
const requestPrefix = "requests "

// sample is what was measured in one turn of a contestant, or in several.
type sample struct {
	values    map[string]float64 // by a name with its unit
	latencies []time.Duration    // of every Node, where they are of interest
}

// worst are the values of which that of the worst turn counts, not the mean.
var worst = []string{"requests-while-waiting", "first-node-s", "overtaken-by-nodes"}

// together makes one sample of all turns of each contestant.
func together(turns map[string][]sample) map[string]sample {
	all := map[string]sample{}
	for who, samples := range turns {
		sum := sample{values: map[string]float64{}}
		for _, s := range samples {
			for name, value := range s.values {
				if slices.Contains(worst, name) {
					sum.values[name] = max(sum.values[name], value)
				} else {
					sum.values[name] += value / float64(len(samples))
				}
			}
			sum.latencies = append(sum.latencies, s.latencies...)
		}
		all[who] = sum
	}
	return all
}

// measurement is what was used up when it began.
type measurement struct {
	cluster  *cluster
	runner   *runner
	requests requests
	cpu      map[string]time.Duration
}

// measure begins a measurement, when nothing goes on any more.
func (c *cluster) measure(ctx context.Context, r *runner) (*measurement, error) {
	m := &measurement{cluster: c, runner: r}
	if err := c.settle(ctx); err != nil {
		return nil, err
	}
	var err error
	if m.requests, err = c.requestsSoFar(ctx); err != nil {
		return nil, err
	}
	m.cpu, err = m.used()
	return m, err
}

// used is the CPU time of each process so far.
func (m *measurement) used() (map[string]time.Duration, error) {
	used := map[string]time.Duration{}
	for name, pid := range map[string]int{"manager": m.runner.PID(), "apiserver": m.cluster.APIServer().PID(), "etcd": m.cluster.Etcd().PID(), "harness": os.Getpid()} {
		var err error
		if used[name], err = cpuTime(pid); err != nil {
			return nil, err
		}
	}
	return used, nil
}

// values is what has been used since the beginning. own are the requests of this program, which are not the contestant's.
func (m *measurement) values(ctx context.Context, own requests) (map[string]float64, error) {
	values := map[string]float64{}
	if err := m.cluster.settle(ctx); err != nil { // what the contestant does afterwards is part of it
		return nil, err
	}
	used, err := m.used()
	if err != nil {
		return nil, err
	}
	for name, cpu := range used {
		values[name+"-cpu-s"] = round((cpu - m.cpu[name]).Seconds())
	}
	asked, err := m.cluster.requestsSoFar(ctx)
	if err != nil {
		return nil, err
	}
	for what, n := range asked.since(m.requests, own) {
		values[requestPrefix+what] = float64(n)
	}
	values["manager-peak-MiB"], err = peakMemory(m.runner.PID())
	values["manager-peak-MiB"] = round(values["manager-peak-MiB"])
	return values, err
}

// sumOf adds up the values whose names begin with prefix.
func sumOf(values map[string]float64, prefix string) (sum float64) {
	for name, value := range values {
		if strings.HasPrefix(name, prefix) {
			sum += value
		}
	}
	return sum
}

// round keeps two decimals: nothing here is known better.
func round(x float64) float64 { return math.Round(x*100) / 100 }

func round3(x float64) float64 { return math.Round(x*1000) / 1000 }

func sortedKeys(values map[string]float64) []string { return slices.Sorted(maps.Keys(values)) }

// tail is the end of a log, for an error message.
func tail(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprint(err)
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
