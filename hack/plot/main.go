// plot draws docs/data/*.json, what `make scale` and `make bench` have measured, as docs/images/performance-*.svg.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"image/color"
	"log"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// figure is one picture: a value by the number of Nodes, with a line for each series.
type figure struct {
	image, data  string // names of files
	title, yAxis string
	value        string  // its name in the results
	scale        float64 // of the value to the unit on the axis
	logarithmic  bool    // also the value; the number of Nodes always is
	series       []series
}

// series are the results of one name, and of one number of ClusterCIDRs unless that is 0.
type series struct {
	result       string
	clusterCIDRs int
	label        string
	color        color.Color
	shape        draw.GlyphDrawer
}

// The colours are Okabe and Ito's, which people with any colour vision tell apart. Shapes differ as well.
var (
	blue   = color.RGBA{R: 0, G: 114, B: 178, A: 255}
	orange = color.RGBA{R: 230, G: 159, B: 0, A: 255}
	grey   = color.RGBA{R: 110, G: 110, B: 110, A: 255}
)

var (
	burst = []series{
		{"burst/bare", 0, "a bare loop of PATCHes", grey, draw.PyramidGlyph{}},
		{"burst/ours", 0, "ours, default flags", blue, draw.CircleGlyph{}},
		{"burst/upstream-raised", 0, "in-tree, raised limits", orange, draw.BoxGlyph{}},
	}
	restart = []series{
		{"restart/ours", 0, "ours, 1,000 ClusterCIDRs", blue, draw.CircleGlyph{}},
		{"restart/upstream", 0, "in-tree, one range", orange, draw.BoxGlyph{}},
	}
	core = []series{
		{"serve", 1, "1 ClusterCIDR", grey, draw.PyramidGlyph{}},
		{"serve", 50, "50 ClusterCIDRs", orange, draw.BoxGlyph{}},
		{"serve", 1000, "1,000 ClusterCIDRs", blue, draw.CircleGlyph{}},
	}
)

var figures = []figure{
	{"performance-rate.svg", "scale-growth.json", "Nodes join at once: rate", "Nodes per second", "nodes-per-s", 1, false, burst},
	{"performance-latency.svg", "scale-growth.json", "Nodes join at once: from create to podCIDRs, p99", "milliseconds", "latency-p99-ms", 1, true, burst},
	{"performance-cpu.svg", "scale-growth.json", "Nodes join at once: CPU time of the manager", "seconds", "manager-cpu-s", 1, true, burst},
	{"performance-memory.svg", "scale-restart.json", "Restart: peak memory of the manager", "MiB", "manager-peak-MiB", 1, false, restart},
	{"performance-restart.svg", "scale-restart.json", "Restart: from the lease to the first assignment", "seconds", "lease-to-first-node-s", 1, false, restart},
	{"performance-choose.svg", "bench.json", "Choose and hold a block, p99", "microseconds", "choose-p99-ns", 1e-3, false, core},
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("plot: ")
	if len(os.Args) != 3 {
		log.Fatal("usage: plot DATA_DIRECTORY IMAGE_DIRECTORY")
	}
	for _, f := range figures {
		if err := f.draw(os.Args[1], os.Args[2]); err != nil {
			log.Fatalf("%s: %v", f.image, err)
		}
	}
}

// result is what is read of package test/results. Its module would bring all of Kubernetes along.
type result struct {
	Name         string             `json:"name"`
	Nodes        int                `json:"nodes"`
	ClusterCIDRs int                `json:"clusterCIDRs"`
	Values       map[string]float64 `json:"values"`
}

func (f figure) draw(dataDir, imageDir string) error {
	text, err := os.ReadFile(filepath.Join(dataDir, f.data))
	if err != nil {
		return err
	}
	var file struct {
		Results []result `json:"results"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return fmt.Errorf("read %s: %w", f.data, err)
	}
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = f.title, "Nodes", f.yAxis
	p.Title.TextStyle.Font.Size, p.Title.Padding = 13, 8
	p.X.Scale = plot.LogScale{}
	if f.logarithmic {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(decades)
	} else {
		p.Y.Min, p.Y.Tick.Marker = 0, plot.TickerFunc(steps)
	}
	p.Legend.Padding, p.Legend.YPosition = 2, draw.PosCenter
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 215}, color.Gray{Y: 215}
	p.Add(grid)
	var sizes []float64
	for _, s := range f.series {
		points := f.points(file.Results, s)
		if len(points) == 0 {
			return fmt.Errorf("%s has no %s of %s", f.data, f.value, s.result)
		}
		for _, point := range points {
			sizes = append(sizes, point.X)
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color, line.Width = s.color, vg.Points(1.8)
		marks.Color, marks.Shape, marks.Radius = s.color, s.shape, vg.Points(3.5)
		p.Add(line, marks)
		p.Legend.Add(s.label, line, marks)
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticksAt(sizes))
	p.Y.Max *= 1.35 // The legend goes above the lines.
	if f.logarithmic {
		p.Y.Max *= math.Pow(p.Y.Max/p.Y.Min, 0.3)
	}
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs, p.Legend.YOffs = vg.Points(8), vg.Points(-4)
	return save(p, filepath.Join(imageDir, f.image))
}

// save leaves a margin, which the plot needs for the labels at the ends of its axes.
func save(p *plot.Plot, path string) error {
	const margin = 12
	canvas := vgsvg.New(6.4*vg.Inch, 3.8*vg.Inch)
	all := draw.New(canvas)
	all.SetColor(p.BackgroundColor)
	all.Fill(all.Path())
	p.Draw(draw.Crop(all, margin, -2*margin, margin, -margin))
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = canvas.WriteTo(file)
	return errors.Join(err, file.Close())
}

// points are the medians of what was measured, by the number of Nodes.
func (f figure) points(all []result, s series) plotter.XYs {
	values := map[int][]float64{}
	for _, r := range all {
		value, ok := r.Values[f.value]
		if ok && r.Name == s.result && (s.clusterCIDRs == 0 || r.ClusterCIDRs == s.clusterCIDRs) {
			values[r.Nodes] = append(values[r.Nodes], value*f.scale)
		}
	}
	var points plotter.XYs
	for nodes, rounds := range values {
		slices.Sort(rounds)
		points = append(points, plotter.XY{X: float64(nodes), Y: (rounds[(len(rounds)-1)/2] + rounds[len(rounds)/2]) / 2})
	}
	slices.SortFunc(points, func(a, b plotter.XY) int { return int(a.X - b.X) })
	return points
}

// ticksAt labels the numbers of Nodes that were measured, rather than powers of ten.
func ticksAt(sizes []float64) []plot.Tick {
	slices.Sort(sizes)
	var ticks []plot.Tick
	for _, size := range slices.Compact(sizes) {
		ticks = append(ticks, plot.Tick{Value: size, Label: grouped(int(size))})
	}
	return ticks
}

// steps labels four to ten round numbers from 0 on.
func steps(_, high float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10(high)))
	for _, smaller := range []float64{1, 2, 4, 5} {
		if high/(step/smaller) >= 4 {
			step /= smaller
			break
		}
	}
	var ticks []plot.Tick
	for n := 0.0; n*step <= high; n++ {
		ticks = append(ticks, plot.Tick{Value: n * step, Label: strconv.FormatFloat(n*step, 'g', 6, 64)})
	}
	return ticks
}

// decades labels 1, 2 and 5 of each power of ten: between one power and the next there may be everything that was measured.
func decades(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for digit := 1.0; digit < 10; digit++ {
			tick := plot.Tick{Value: digit * power}
			if digit == 1 || digit == 2 || digit == 5 {
				tick.Label = strconv.FormatFloat(tick.Value, 'g', 6, 64)
			}
			if low <= tick.Value && tick.Value <= high {
				ticks = append(ticks, tick)
			}
		}
	}
	return ticks
}

// grouped writes 100000 as 100,000.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
