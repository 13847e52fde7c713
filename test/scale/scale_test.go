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
		"restart --nodes=20 --contestants=ours":        {"ours", "lease-to-node-s manager-cpu-s"},
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
	limits := metrics{"writes": 0, "requests/node": 1.05}
	if errs := (metrics{"writes": 0, "requests/node": 1.05, "nodes/s": 400}).above(limits); len(errs) > 0 {
		t.Error(errs)
	}
	if errs := (metrics{"writes": 1}).above(limits); len(errs) != 2 { // one is above, one is missing
		t.Errorf("%v, want two errors", errs)
	}
}
