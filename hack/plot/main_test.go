package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
)

func TestAFigureShowsMedians(t *testing.T) {
	all := []result{
		{Name: "burst/ours", Nodes: 2000, Values: map[string]float64{"nodes-per-s": 7}},
		{Name: "burst/ours", Nodes: 1000, Values: map[string]float64{"nodes-per-s": 9}},
		{Name: "burst/ours", Nodes: 1000, Values: map[string]float64{"nodes-per-s": 1}},
		{Name: "burst/ours", Nodes: 1000, Values: map[string]float64{"nodes-per-s": 5}},
		{Name: "burst/ours", Nodes: 1000, Values: map[string]float64{"latency-p99-ms": 3}},
		{Name: "burst/bare", Nodes: 1000, Values: map[string]float64{"nodes-per-s": 4}},
		{Name: "burst/ours", Nodes: 1000, ClusterCIDRs: 50, Values: map[string]float64{"nodes-per-s": 6}},
	}
	f := figure{value: "nodes-per-s", scale: 10}
	for name, tc := range map[string]struct {
		series series
		want   plotter.XYs
	}{
		"any number of ClusterCIDRs": {series{result: "burst/ours"}, plotter.XYs{{X: 1000, Y: 55}, {X: 2000, Y: 70}}},
		"one number of ClusterCIDRs": {series{result: "burst/ours", clusterCIDRs: 50}, plotter.XYs{{X: 1000, Y: 60}}},
		"nothing of that name":       {series{result: "burst"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, f.points(all, tc.series)); diff != "" {
				t.Errorf("points (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAFigureIsDrawn(t *testing.T) {
	dir := t.TempDir()
	data := `{"results": [
		{"name": "restart/ours", "nodes": 1000, "values": {"manager-peak-MiB": 100}},
		{"name": "restart/ours", "nodes": 100000, "values": {"manager-peak-MiB": 900}},
		{"name": "restart/upstream", "nodes": 1000, "values": {"manager-peak-MiB": 110}}]}`
	if err := os.WriteFile(filepath.Join(dir, "scale-restart.json"), []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	f := figure{"out.svg", "scale-restart.json", "Memory", "MiB", "manager-peak-MiB", 1, false, restart}
	if err := f.draw(dir, dir); err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(filepath.Join(dir, "out.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Memory", "MiB", "100,000", "ours, 1,000 ClusterCIDRs", "in-tree, one range"} {
		if !strings.Contains(string(image), want) {
			t.Errorf("the image does not say %q", want)
		}
	}

	f.value = "no-such-value"
	if err := f.draw(dir, dir); err == nil || !strings.Contains(err.Error(), "no-such-value") {
		t.Errorf("a value that was not measured: %v, want an error that names it", err)
	}
}

func TestTicks(t *testing.T) {
	labels := func(ticks []plot.Tick) (labels []string) {
		for _, tick := range ticks {
			if tick.Label != "" {
				labels = append(labels, tick.Label)
			}
		}
		return labels
	}
	for name, tc := range map[string]struct{ got, want []string }{
		"steps to 9":              {labels(steps(0, 9)), []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}},
		"steps to 1":              {labels(steps(0, 1)), []string{"0", "0.25", "0.5", "0.75", "1"}},
		"steps to 2500":           {labels(steps(0, 2500)), []string{"0", "500", "1000", "1500", "2000", "2500"}},
		"decades from 30 to 1200": {labels(decades(30, 1200)), []string{"50", "100", "200", "500", "1000"}},
		"sizes":                   {labels(ticksAt([]float64{100000, 1000, 1000, 50})), []string{"50", "1,000", "100,000"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.got); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}
