package nodeipam

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The model: all histories, and not some, of two processes, two Nodes and one or two blocks, of the real controller and the real fence in the
// simulated world. docs/engineering/reliability.md says what it covers.
//
// It goes breadth first, so that what it finds is as short as it gets. A worker that waits for an answer cannot be copied, so a state is
// reached by making all moves that lead to it again; what the state is, is in model_state_test.go, and what can happen in
// model_moves_test.go.
var (
	modelFlag    = flag.Bool("model.all", false, "explore all of the model's settings, which takes minutes, and not the small ones only")
	modelRunFlag = flag.String("model.run", "", "explore only the settings whose names match this regular expression")
	modelMost    = flag.Int("model.most", 2_000_000, "stop after so many states")
)

// smallSettings are explored by every run of the tests: what can follow a slow PATCH, and a leader that is cut off, without another fault.
var smallSettings = []setting{
	{name: "a slow PATCH", world: "deadlines", clusterCIDR: oneBlock, tick: "5000", prefix: []string{"work p1 n1", "slow p1 n1"}, depth: 11},
	{name: "a slow PATCH, and a Node that comes first", world: "deadlines", clusterCIDR: oneBlock, tick: "5000", prefix: []string{"delete n1", "work p1 n2", "slow p1 n2", "create n1"}, depth: 9},
	{name: "a leader cut off", world: "deadlines", clusterCIDR: oneBlock, tick: "5000", prefix: []string{"work p1 n1", "cut p1"}, depth: 9},
}

// allSettings are what `make model` explores.
var allSettings = []setting{
	{name: "one block, one fault", world: "deadlines", clusterCIDR: oneBlock, tick: "5000", faults: 1},
	{name: "one block, one slow request, other steps", world: "deadlines", clusterCIDR: oneBlock, tick: "4000", faults: 1, kinds: []string{"slow"}},
	{name: "two blocks, one slow request", world: "deadlines", clusterCIDR: twoBlocks, tick: "5000", faults: 1, kinds: []string{"slow"}},
	{name: "one block, one slow request, the policy", world: "policy", clusterCIDR: oneBlock, tick: "5000", faults: 1, kinds: []string{"slow"}},
}

const (
	oneBlock  = "one - 0 -"
	twoBlocks = "v4 - 0 1/1"
)

var allIPv4 = netip.MustParsePrefix("0.0.0.0/0")

// exploration goes through all states of a setting.
type exploration struct {
	setting
	omit  string // what is left out of states
	every int    // of how many transitions one is looked at again, if it leads to a state that is known; 0: none
	calm  int    // 0: some states are brought to rest (calmEvery), else none
	nodes []stateNode
	seen  map[fingerprint]int32
	// again has pairs of histories that lead to the same state, some of them.
	again []pair

	transitions, depth int
	exhausted          bool
	took               time.Duration
	failed             *result
}

// stateNode is a state that was found: how one gets there, and what can happen next.
type stateNode struct {
	parent  int32
	move    string
	enabled []string
}

type pair struct{ first, second []string }

// outcome is what came of one move.
type modelOutcome struct {
	at      fingerprint
	enabled []string
	failed  *result
}

func (x *exploration) path(i int32) (path []string) {
	for ; i > 0; i = x.nodes[i].parent {
		path = append(path, x.nodes[i].move)
	}
	slices.Reverse(path)
	return path
}

// run explores until there is nothing new, an invariant is broken, or there are too many states.
func (x *exploration) run(most int) {
	start := time.Now()
	m := newPlay(x.setting)
	_, at := m.state(x.omit)
	x.nodes = []stateNode{{enabled: m.enabled()}}
	x.seen = map[fingerprint]int32{at: 0}
	m.w.end()
	type job struct {
		from int32
		move string
	}
	frontier, told := []int32{0}, time.Now()
	for len(frontier) > 0 && len(x.nodes) < most && x.failed == nil && (x.setting.depth == 0 || x.depth < x.setting.depth) {
		var jobs []job
		for _, i := range frontier {
			for _, move := range x.nodes[i].enabled {
				jobs = append(jobs, job{i, move})
			}
			x.nodes[i].enabled = nil
		}
		outcomes := make([]modelOutcome, len(jobs))
		var next atomic.Int64
		var workers sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			workers.Go(func() {
				for i := int(next.Add(1)) - 1; i < len(jobs); i = int(next.Add(1)) - 1 {
					outcomes[i] = x.try(append(x.path(jobs[i].from), jobs[i].move))
				}
			})
		}
		workers.Wait()
		frontier = nil
		x.depth++
		for i, o := range outcomes {
			x.transitions++
			if o.failed != nil {
				x.failed = o.failed
				break
			}
			if known, ok := x.seen[o.at]; ok {
				if x.every > 0 && x.transitions%x.every == 0 {
					x.again = append(x.again, pair{x.path(known), append(x.path(jobs[i].from), jobs[i].move)})
				}
				continue
			}
			x.seen[o.at] = int32(len(x.nodes))
			frontier = append(frontier, int32(len(x.nodes)))
			x.nodes = append(x.nodes, stateNode{jobs[i].from, jobs[i].move, o.enabled})
		}
		if *modelFlag && time.Since(told) > 10*time.Second {
			told = time.Now()
			fmt.Fprintf(os.Stderr, "%s: depth %d, %d states, %d transitions, %d states to go on from, %v\n", x.name, x.depth, len(x.nodes), x.transitions, len(frontier), time.Since(start).Round(time.Second))
		}
	}
	x.took, x.exhausted = time.Since(start), len(frontier) == 0 && x.failed == nil
}

// calmEvery is of how many states one is brought to rest: faults cease, and nobody may wait any more who could be served.
const calmEvery = 16

func (x *exploration) try(path []string) modelOutcome {
	m := replay(x.setting, path)
	defer m.w.end()
	if m.w.violation != nil {
		return modelOutcome{failed: &result{history{world: x.world}, m.w}}
	}
	_, at := m.state(x.omit)
	o := modelOutcome{at: at, enabled: m.enabled()}
	if x.calm == 0 && at[0]%calmEvery == 0 {
		if m.w.quiesce(); m.w.violation != nil {
			o.failed = &result{history{world: x.world}, m.w}
		}
	}
	return o
}

// String says how much was explored.
func (x *exploration) String() string {
	verdict := "all there is"
	if !x.exhausted {
		verdict = "not all there is"
	}
	return fmt.Sprintf("%-44s %8d states, %8d transitions, depth %3d, %v: %s", x.name, len(x.nodes), x.transitions, x.depth, x.took.Round(time.Second), verdict)
}

// TestModel explores the model: its small settings, or all.
func TestModel(t *testing.T) {
	settings := smallSettings
	if *modelFlag {
		settings = allSettings
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	for _, s := range settings {
		if !regexp.MustCompile(*modelRunFlag).MatchString(s.name) {
			continue
		}
		x := &exploration{setting: s}
		x.run(*modelMost)
		t.Log(x)
		if x.failed != nil {
			t.Fatalf("%s: %s is broken by\n%v", s.name, x.failed.violation.invariant, *x.failed)
		}
	}
}

// different says in what the futures of two histories differ, as far as one move goes: empty if they do not.
func (x *exploration) different(p pair) string {
	next := func(path []string) map[string]string {
		m := replay(x.setting, path)
		enabled := m.enabled()
		m.w.end()
		all := map[string]string{}
		for _, move := range enabled {
			o := x.try(append(slices.Clip(slices.Clone(path)), move))
			broken := ""
			if o.failed != nil {
				broken = o.failed.violation.invariant
			}
			all[fmt.Sprintf("%x %s", o.at, broken)] = move
		}
		return all
	}
	first, second := next(p.first), next(p.second)
	for at, move := range first {
		if _, ok := second[at]; !ok {
			return fmt.Sprintf("after\n  %s\nthe move %q leads to where nothing leads after\n  %s", strings.Join(p.first, "; "), move, strings.Join(p.second, "; "))
		}
	}
	if len(first) != len(second) {
		return x.different(pair{p.second, p.first})
	}
	return ""
}
