package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/multicidr/controller-manager/test/results"
)

// TestMain lets the test binary be the bare loop, which is started as a process of its own.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == loopCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestBurst measures a burst of a few Nodes, so that the program is known to work before somebody waits an hour for its figures. It fails if
// a Node is not served or two have common addresses; how fast they are served is not its business.
func TestBurst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "burst.json")
	cmd := command()
	cmd.SetArgs([]string{"burst", "--nodes=50", "--contestants=bare,ours", "--json=" + path})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got results.File
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Results) != 2 || len(got.Marks) != 3 {
		t.Fatalf("%d results and %d marks, want 2 and 3:\n%s", len(got.Results), len(got.Marks), text)
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
		if patches := result.Values[requestPrefix+"PATCH nodes"]; patches < 50 {
			t.Errorf("%s: %v PATCHes of 50 Nodes", want, patches)
		}
	}
}

func TestOverlapIsFound(t *testing.T) {
	for name, tc := range map[string]struct {
		cidrs [][]string
		want  bool
	}{
		"neighbours":                   {[][]string{{"10.0.0.0/24", "fd00::/64"}, {"10.0.1.0/24", "fd00:0:0:1::/64"}}, false},
		"the same block":               {[][]string{{"10.0.0.0/24"}, {"10.0.1.0/24"}, {"10.0.0.0/24"}}, true},
		"a block inside another":       {[][]string{{"10.0.0.0/16"}, {"10.0.255.0/24"}}, true},
		"the second family overlaps":   {[][]string{{"10.0.0.0/24", "fd00::/64"}, {"10.0.1.0/24", "fd00::/72"}}, true},
		"behind the one that overlaps": {[][]string{{"10.0.0.0/8"}, {"10.0.0.0/24"}, {"10.9.0.0/24"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := (&fleet{prefix: "node-", cidrs: tc.cidrs}).overlap(); (err != nil) != tc.want {
				t.Errorf("overlap() = %v, want one: %t", err, tc.want)
			}
		})
	}
}
