package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/multicidr/controller-manager/test/results"
)

// One turn of a small situation goes all the way: measured, printed, written.
func TestOneSituation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.json")
	var out strings.Builder
	if err := run(options{out: path, only: "serve/nodes=1000$/clusterCIDRs=50$", benchtime: "10x"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"commit", "choose", "confirm"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("printed %s\nwant %q in it", &out, want)
		}
	}
	got, err := results.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Results) != 1 || got.Results[0].Name != "serve" || got.Results[0].Nodes != 1000 || got.Results[0].ClusterCIDRs != 50 {
		t.Fatalf("written %+v\nwant one result, of serve with 1000 Nodes and 50 ClusterCIDRs", got)
	}
	for _, metric := range []string{"choose-mean-ns", "choose-p50-ns", "choose-p99-ns", "choose-max-ns", "confirm-p99-ns"} {
		if got.Results[0].Values[metric] <= 0 {
			t.Errorf("%s is %v, want more than 0", metric, got.Results[0].Values[metric])
		}
	}
}

func TestUnknownSituation(t *testing.T) {
	if err := run(options{only: "no such thing", benchtime: "1x"}, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("error %v, want one that names it", err)
	}
}

// A mark for which nothing was measured is not passed over.
func TestMissingResult(t *testing.T) {
	if _, err := marks([]results.Result{{Name: "serve", Nodes: 100_000, ClusterCIDRs: 100, Values: map[string]float64{"choose-p99-ns": 1}}}); err == nil ||
		!strings.Contains(err.Error(), "rebuild-mean-ns") || strings.Contains(err.Error(), "100 ClusterCIDRs") {
		t.Errorf("error %v, want one that names rebuild-mean-ns, and not what was measured", err)
	}
}
