package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary be the bare loop, which is started as a process of its own.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && loops[os.Args[1]] != nil {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestScenarios measures a little of each scenario, so that the program is known to work before somebody waits an hour for its figures. It fails if one is
// not served, or two have common addresses; how fast they are served is not its business.
func TestScenarios(t *testing.T) {
	defer func(was time.Duration) { idleTime = was }(idleTime)
	defer func(was int) { groups = was }(groups)
	idleTime, groups, atOnce = time.Second, 10, 20
	for args, want := range map[string]struct {
		who   string
		units string
	}{
		"burst --nodes=50 --contestants=bare,ours":     {"bare ours", "nodes/s p99-ms manager-peak-MiB apiserver-cpu-s"},
		"overload --nodes=60 --contestants=ours":       {"ours", "nodes/s p99-ms"},
		"restart --nodes=20 --contestants=ours":        {"ours", "lease-to-node-s caches-to-node-s manager-cpu-s"},
		"idle --nodes=50 --contestants=ours":           {"ours", "updates/s"},
		"addresses --nodes=50 --contestants=bare,ours": {"bare ours", "claims/s p99-ms"},
		"bound --nodes=2":                              {"ours", "bound-max-ms gate-max-ms inline-max-ms"},
	} {
		t.Run(args, func(t *testing.T) {
			var out strings.Builder
			cmd := command()
			cmd.SetArgs(strings.Fields(args))
			cmd.SetOut(&out)
			if err := cmd.ExecuteContext(t.Context()); err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
			var who []string
			for line := range strings.Lines(out.String()) {
				name, values, ok := strings.Cut(line, "\t")
				if !ok {
					continue
				}
				_, contestant, _ := strings.Cut(name, "/who=")
				who = append(who, strings.TrimSuffix(contestant, " 1"))
				for unit := range strings.FieldsSeq(want.units) {
					if !slices.Contains(strings.Fields(values), unit) || strings.Contains(values, "\t0 "+unit) {
						t.Errorf("want more than 0 %s in %s", unit, line)
					}
				}
			}
			if got := strings.Join(who, " "); got != want.who {
				t.Errorf("measured %s, want %s:\n%s", got, want.who, &out)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	s := scenario{limits: metrics{"writes": 0, "requests/node": 1.05}, marks: []mark{{unit: "nodes/s", of: bare, least: .95}, {unit: "p99-ms", of: bare, most: 1.2}}}
	loop := metrics{"nodes/s": 400, "p99-ms": 100}
	for name, tc := range map[string]struct {
		round map[string]metrics
		want  int
	}{
		"all kept":                       {map[string]metrics{ours: {"writes": 0, "requests/node": 1.05, "nodes/s": 380, "p99-ms": 120}, bare: loop}, 0},
		"the bare loop did not run":      {map[string]metrics{ours: {"writes": 0, "requests/node": 1, "nodes/s": 1, "p99-ms": 999}}, 0},
		"one is above, one is missing":   {map[string]metrics{ours: {"writes": 1, "nodes/s": 380, "p99-ms": 120}, bare: loop}, 2},
		"slower than the marks":          {map[string]metrics{ours: {"writes": 0, "requests/node": 1, "nodes/s": 379, "p99-ms": 121}, bare: loop}, 2},
		"ours did not run":               {map[string]metrics{bare: loop}, 0},
		"what a mark needs was not seen": {map[string]metrics{ours: {"writes": 0, "requests/node": 1, "nodes/s": 380}, bare: {"nodes/s": 400}}, 1},
	} {
		if errs := s.missed(tc.round); len(errs) != tc.want {
			t.Errorf("%s: %v, want %d errors", name, errs, tc.want)
		}
	}
}
