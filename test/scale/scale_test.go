package main

import (
	stdcmp "cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/multicidr/controller-manager/test/results"
)

// TestMain lets the test binary be the bare loop, which is started as a process of its own.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == loopCommand || os.Args[1] == allocatorLoop) {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestBurst measures a burst of a few Nodes, so that the program is known to work before somebody waits an hour for its figures. It fails if
// a Node is not served or two have common addresses; how fast they are served is not its business.
func TestBurst(t *testing.T) {
	interleavedPart = 20 // so that there are three
	for name, args := range map[string][]string{"one after the other": nil, "interleaved": {"--interleaved"}} {
		t.Run(name, func(t *testing.T) { testBurst(t, args) })
	}
}

func testBurst(t *testing.T, args []string) {
	path := filepath.Join(t.TempDir(), "burst.json")
	cmd := command()
	cmd.SetArgs(append([]string{"burst", "--nodes=50", "--contestants=bare,ours", "--json=" + path}, args...))
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := results.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Results) != 2 || len(got.Marks) < 3 {
		t.Fatalf("%d results and %d marks, want 2 and at least 3: %+v", len(got.Results), len(got.Marks), got)
	}
	for i, want := range []string{"burst/bare", "burst/ours"} {
		result := got.Results[i]
		if result.Name != want || result.Nodes != 50 {
			t.Errorf("result %d is of %s with %d Nodes, want %s with 50", i, result.Name, result.Nodes, want)
		}
		for _, name := range []string{"nodes-per-s", "latency-p99-ms", "manager-peak-MiB", "apiserver-cpu-s"} {
			if result.Values[name] <= 0 {
				t.Errorf("%s: %s is %v, want more than 0", want, name, result.Values[name])
			}
		}
		if patches := result.Values[requestPrefix+"PATCH nodes"]; patches < 50 || patches > 60 {
			t.Errorf("%s: %v PATCHes of 50 Nodes", want, patches)
		}
	}
}

// TestClusterIPAM measures a few claims and clusters, for the same reason.
func TestClusterIPAM(t *testing.T) {
	defer func(was time.Duration) { idleTime = was }(idleTime)
	idleTime = time.Second
	for args, values := range map[string][]string{
		"addresses --nodes=20 --contestants=bare,ours": {"claims-per-s", "latency-p99-ms", "requests-per-claim"},
		"bound --nodes=2": {"bound-max-ms", "gate-max-ms", "inline-max-ms"},
	} {
		t.Run(args, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "results.json")
			cmd := command()
			cmd.SetArgs(append(strings.Fields(args), "--json="+path))
			if err := cmd.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, err := results.Read(path)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Results) == 0 {
				t.Error("there are no results")
			}
			for _, result := range got.Results {
				for _, name := range values {
					if result.Values[name] <= 0 {
						t.Errorf("%s: %s is %v, want more than 0", result.Name, name, result.Values[name])
					}
				}
			}
		})
	}
}

func TestGroups(t *testing.T) {
	for interleaved, want := range map[bool]string{
		false: "bare; ours; before; upstream-raised; ours-limited; upstream",
		true:  "ours-limited; upstream; bare and ours and before and upstream-raised",
	} {
		var got []string
		for _, group := range (&scale{interleaved: interleaved}).groups(contestants) {
			got = append(got, names(group))
		}
		if got := strings.Join(got, "; "); got != want {
			t.Errorf("interleaved %t: %s, want %s", interleaved, got, want)
		}
	}
}

// Contestants have their turns in one order, then in the other, and all are given up when one has failed.
func TestInterleaved(t *testing.T) {
	var did []string
	what := scenario{name: "test", run: func(s *scale, _ context.Context, who contestant, parts int) (sample, error) {
		for i := range parts {
			if err := s.meetOthers(); err != nil {
				did = append(did, who.name+" given up")
				return sample{}, err
			}
			if who.name == "broken" && i == 1 {
				return sample{}, errors.New("broken")
			}
			did = append(did, fmt.Sprint(who.name, i))
		}
		return sample{values: map[string]float64{who.name: 1}}, nil
	}}
	for _, tc := range []struct{ names, did, err string }{
		{"a b c", "c0 b0 a0 a1 b1 c1 c2 b2 a2", ""},
		{"a broken", "broken0 a0 a1 a given up", "test, a, 3 Nodes: another one has failed\ntest, broken, 3 Nodes: broken"},
	} {
		did = nil
		var group []contestant
		for name := range strings.FieldsSeq(tc.names) {
			group = append(group, contestant{name: name})
		}
		s := &scale{interleaved: true}
		got, err := s.run(t.Context(), what, group, 3)
		if fmt.Sprint(err) != stdcmp.Or(tc.err, "<nil>") || strings.Join(did, " ") != tc.did {
			t.Errorf("%s: %v; did %v, want %s", tc.names, err, did, tc.did)
		}
		for i, g := range got {
			if g.values[group[i].name] != 1 {
				t.Errorf("%s: got %v of %s", tc.names, g.values, group[i].name)
			}
		}
	}
}

func TestReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "idle.json")
	result := func(who string, rate float64) results.Result {
		return results.Result{Name: "idle/" + who, Nodes: 5000, Values: map[string]float64{"updates-per-s": rate, "writes": 0}}
	}
	err := results.Write(path, results.File{
		Header: results.Header{
			Command: "bin/scale idle", Commit: "0123456789abcdef",
			Machine: results.Machine{CPU: "a CPU", Cores: 2, MemoryBytes: 3 << 30, Kernel: "6.1", LoadAverage: 0.2},
		},
		Results: []results.Result{result("ours", 500), result("upstream", 3.14159), result("ours", 123.4), result("ours", 300), result("upstream", 3)},
		Marks:   []results.Mark{results.AtMost("writes", "requests", 0, 0), results.AtMost("writes", "of upstream's", 1, 0.5), results.AtMost("writes", "requests", 0, 2)},
	})
	if err != nil {
		t.Fatal(err)
	}
	document := filepath.Join(filepath.Dir(path), "document.md")
	text := "before\n<!-- results of idle.json -->\nof another day\n<!-- end of results -->\nafter\n"
	if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // what is written can be written again
		if err := reportInto(document); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	want := `before
<!-- results of idle.json -->

` + "`bin/scale idle`" + ` at commit 0123456789ab, 0001-01-01, on 2 cores of a CPU with 3 GiB, Linux 6.1, load average 0.2 before:

| Nodes | | updates/s | manager CPU ms/s | CPU ms per update | writes | peak MiB | API server CPU s |
|---:|---|---:|---:|---:|---:|---:|---:|
| 5000 | ours | 300 |  |  | 0 |  |  |
| 5000 | upstream | 3.07 |  |  | 0 |  |  |

| mark | limit | round by round | |
|---|---:|---|---|
| writes | 0 requests | 0, 2 | held in 1 of 2 |
| writes | 1 of upstream's | 0.5 | held |

<!-- end of results -->
after
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("the document (-want +got):\n%s", diff)
	}
}

// The places of the page that we publish name files that are there.
func TestPlacesOfPerformance(t *testing.T) {
	const document = "../../docs/engineering/performance.md"
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	places := place.FindAllSubmatch(text, -1)
	if len(places) == 0 {
		t.Error("no places")
	}
	for _, p := range places {
		if _, err := os.Stat(filepath.Join(filepath.Dir(document), string(p[2]))); err != nil {
			t.Error(err)
		}
	}
}

func TestOvertakenNodes(t *testing.T) {
	second := func(n int) time.Time { return time.Unix(int64(n), 0) }
	for name, tc := range map[string]struct {
		created []time.Time // in the order in which they were served
		want    int
	}{
		"oldest first":               {[]time.Time{second(1), second(1), second(2), second(3)}, 0},
		"one overtaken by two":       {[]time.Time{second(2), second(3), second(1), second(4)}, 2},
		"the same second is no age":  {[]time.Time{second(1), second(1), second(1)}, 0},
		"youngest first: all others": {[]time.Time{second(4), second(3), second(2), second(1)}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fleet{stamps: tc.created}
			for i := range tc.created {
				f.order = append(f.order, i)
			}
			if got := f.overtaken(); got != tc.want {
				t.Errorf("overtaken() = %d, want %d", got, tc.want)
			}
		})
	}
}

// In fleets of one measurement, too.
func TestOverlapIsFound(t *testing.T) {
	fleetOf := func(cidrs ...[]string) *fleet { return &fleet{prefix: "node-", cidrs: cidrs} }
	one, other := []string{"10.0.0.0/16"}, []string{"10.0.255.0/24"}
	if overlap(fleetOf(one, other)) == nil || overlap(fleetOf(one), fleetOf(other)) == nil {
		t.Error("two Nodes with common addresses are passed over")
	}
	if err := overlap(fleetOf(one), fleetOf([]string{"10.1.0.0/24"})); err != nil {
		t.Error(err)
	}
}

// TestOverload measures few Nodes by many clients, for the same reason as TestBurst.
func TestOverload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "overload.json")
	cmd := command()
	cmd.SetArgs([]string{"overload", "--nodes=60", "--clients=20", "--contestants=bare,ours", "--json=" + path})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := results.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Results) != 2 || len(got.Marks) != 2 {
		t.Fatalf("%d results and %d marks, want 2 and 2: %+v", len(got.Results), len(got.Marks), got)
	}
	for i, want := range []string{"overload/bare, 20 clients", "overload/ours, 20 clients"} {
		if got := got.Results[i]; got.Name != want || got.Values["clients"] != 20 || got.Values["latency-p99-ms"] <= 0 {
			t.Errorf("result %d is %s with %v, want %s", i, got.Name, got.Values, want)
		}
	}
	if values := got.Results[1].Values; values["work-ms"] <= 0 || values["seen-to-patched-ms"] <= 0 {
		t.Errorf("it is not known where ours spent its time: %v", values)
	}
}
