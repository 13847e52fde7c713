package main

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/cluster"
	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/picture"
	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/show"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/inspect"
	"github.com/multicidr/controller-manager/controllers/text"
)

// mapFlags are the flags of map.
type mapFlags struct{ in, html, svg string }

func (p *program) mapCommand() *cobra.Command {
	var f mapFlags
	c := &cobra.Command{
		Use:   "map [CLUSTERCIDR | --in CIDR] [--html FILE] [--svg FILE]",
		Short: "Draw the address space: what is allocated, free, excluded, and where",
		Long: "Draws all ranges, each below those that contain it. Every character of a range is an equal part of it. With a ClusterCIDR, or with --in, it draws that part of the address space larger: " +
			"in up to 1024 parts, but none smaller than a block.\n\n--html and --svg write a picture instead, which needs nothing but the file.",
		Example: "  # All ranges\n  kubectl node-ipam map\n\n  # One of them, and then a part of it\n  kubectl node-ipam map edge\n  kubectl node-ipam map --in 10.245.0.0/24\n\n" +
			"  # A page for a browser\n  kubectl node-ipam map --html map.html",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && f.in != "" {
				return usage("%s takes the name of one ClusterCIDR, or --in: %s --help shows examples", c.CommandPath(), c.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: p.complete(cluster.ClusterCIDRs),
		RunE: func(c *cobra.Command, args []string) error {
			return p.drawMap(c, strings.TrimPrefix(strings.Join(args, ""), clusterCIDRName), f)
		},
	}
	c.Flags().StringVar(&f.in, "in", "", "the part of the address space to draw, as a CIDR")
	c.Flags().StringVar(&f.html, "html", "", "write a page for a browser to this file; - is the standard output")
	c.Flags().StringVar(&f.svg, "svg", "", "write an image to this file; - is the standard output")
	p.addOutput(c, show.Table, show.Wide, show.JSON, show.YAML)
	return c
}

func (p *program) drawMap(c *cobra.Command, name string, f mapFlags) error {
	var view netip.Prefix
	if f.in != "" {
		var err error
		if view, err = clustercidr.ParseCIDR(f.in); err != nil {
			return usage("--in=%s: %w: write for example 10.244.0.0/16", f.in, err)
		}
	}
	_, objects, err := p.read(c.Context(), cluster.Nodes, cluster.ClusterCIDRs)
	if err != nil {
		return err
	}
	all := inspect.New(objects.Objects)
	views := []netip.Prefix{view}
	if name != "" {
		var ok bool
		if views, ok = all.Ranges(name); !ok {
			return fmt.Errorf("there is no ClusterCIDR %s: kubectl get clustercidrs.networking.x-k8s.io lists their names", name)
		}
	}
	maps := []inspect.Map{}
	for _, v := range views {
		maps = append(maps, all.Map(v))
	}
	if f.html != "" || f.svg != "" {
		return p.picture(all, maps, name, f)
	}
	return p.write(maps, nil, func(w *show.Writer) {
		for i, m := range maps {
			if i > 0 {
				w.Printf("")
			}
			writeMap(w, all, m)
		}
	})
}

// maxGrids is how many ranges a page shows larger.
const maxGrids = 24

// picture writes the files of --html and --svg.
func (p *program) picture(all *inspect.Cluster, maps []inspect.Map, name string, f mapFlags) error {
	d := picture.Drawing{Title: "Address space of Pods", Time: p.now()}
	if name != "" {
		d.Title = "ClusterCIDR " + name
	}
	for _, m := range maps {
		if m.View.IsValid() {
			d.Grids = append(d.Grids, gridOf(all, m.View, ""))
			continue
		}
		d.Parts = m.Parts
	}
	if f.svg != "" {
		if err := p.toFile(f.svg, d.SVG); err != nil {
			return err
		}
	}
	for _, part := range d.Parts {
		if len(part.Runs) > 1 && len(d.Grids) < maxGrids { // not all the same
			d.Grids = append(d.Grids, gridOf(all, part.CIDR, strings.Join(part.What, ", ")))
		}
	}
	if f.html != "" {
		return p.toFile(f.html, d.HTML)
	}
	return nil
}

// toFile writes a file, or to the standard output.
func (p *program) toFile(name string, write func(io.Writer) error) error {
	if name == "-" {
		return write(p.Out)
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := write(file); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// gridBits limits the cells of a grid to 1024.
const gridBits = 10

func gridOf(all *inspect.Cluster, view netip.Prefix, name string) picture.Grid {
	inside := all.Map(view).Parts
	return picture.Grid{View: view, Name: name, Cells: inspect.Cells(view, min(gridBits, all.SmallestBlock(view)-view.Bits()), all.Runs(view)), Parts: inside}
}

// symbols are the characters of classes, in Unicode and in ASCII.
var symbols = [inspect.Classes]struct {
	unicode, ascii rune
	color          show.Color
	text           string
}{
	inspect.ClassOutside:     {' ', ' ', 0, "in no range"},
	inspect.ClassFree:        {'░', '.', 0, "free"},
	inspect.ClassClosed:      {'·', '-', show.Gray, "free, but no ClusterCIDR allocates it"},
	inspect.ClassExcluded:    {'x', 'x', show.Gray, "excluded"},
	inspect.ClassServices:    {'s', 's', show.Gray, "service range"},
	inspect.ClassUsed:        {'█', '#', show.Green, "allocated"},
	inspect.ClassKept:        {'▓', '+', show.Yellow, "reserved"},
	inspect.ClassForeign:     {'?', '?', show.Yellow, "podCIDRs out of range"},
	inspect.ClassConflicting: {'!', '!', show.Red, "in conflict"},
}

// partly are cells of which some is allocated, in eighths.
var partly = []rune("▁▂▃▄▅▆▇")

// look is how a cell is shown: allocated ones by how much of them is, the others by what most of them is.
type look struct {
	class  inspect.Class
	eighth int // how much is allocated or reserved, from 0 to 7; all of it if it is -1, and also if none is
}

func lookOf(c inspect.Cell) look {
	most := c.Most()
	used := c.Share[inspect.ClassUsed] + c.Share[inspect.ClassKept]
	if most == inspect.ClassForeign || most == inspect.ClassConflicting || !c.Has[inspect.ClassUsed] && !c.Has[inspect.ClassKept] || used > 0.999 {
		return look{most, -1}
	}
	return look{inspect.ClassUsed, min(int(used*8), len(partly)-1)}
}

func (l look) symbol(w *show.Writer) (rune, show.Color) {
	s := symbols[l.class]
	switch {
	case l.eighth < 0 && w.Unicode:
		return s.unicode, s.color
	case l.eighth < 0:
		return s.ascii, s.color
	case w.Unicode:
		return partly[l.eighth], s.color
	default:
		return 'o', s.color
	}
}

// strip writes cells side by side, each as wide as the others.
func strip(w *show.Writer, cells []inspect.Cell, wide int) string {
	var text strings.Builder
	var run []rune
	var color show.Color
	end := func() {
		text.WriteString(w.In(color, string(run)))
		run = nil
	}
	for _, c := range cells {
		r, its := lookOf(c).symbol(w)
		if its != color {
			end()
			color = its
		}
		run = append(run, slices.Repeat([]rune{r}, wide)...)
	}
	end()
	return text.String()
}

const (
	stripBits = 5  // of the ranges in a table
	columns   = 64 // of a grid
	maxParts  = 40 // ranges in a table; -o wide has all
)

func writeMap(w *show.Writer, all *inspect.Cluster, m inspect.Map) {
	switch {
	case m.View.IsValid() && len(m.Parts) == 0:
		w.Printf("%v is in no ClusterCIDR, service range or podCIDR.", m.View)
		return
	case m.View.IsValid():
		writeGrid(w, all, m.View)
		if len(m.Parts) == 1 && m.Parts[0].CIDR == m.View {
			return
		}
		w.Printf("")
	case len(m.Parts) == 0:
		w.Printf("There is no ClusterCIDR, service range or podCIDR.")
		return
	}
	seen := writeParts(w, m.Parts)
	if m.OutOfRange > 0 {
		w.Printf("%s. kubectl node-ipam status names the Nodes.", text.Counted(m.OutOfRange, "podCIDR is out of range", "podCIDRs are out of range"))
	}
	if !m.View.IsValid() {
		writeLegend(w, seen)
	}
}

// writeParts writes a table, and returns the cells in it.
func writeParts(w *show.Writer, parts []inspect.Part) (seen []inspect.Cell) {
	shown := parts
	if !w.Wide {
		shown = parts[:min(len(parts), maxParts)]
	}
	rows := show.NewRows("RANGE", "WHAT", "MAP")
	for _, part := range shown {
		cells := inspect.Cells(part.CIDR, stripBits, part.Runs)
		seen = append(seen, cells...)
		what := part.What
		if !w.Wide {
			what = []string{show.Few(part.What, 3)}
		}
		rows.Add(strings.Repeat("  ", part.Depth)+part.CIDR.String(), strings.Join(what, ", "), strip(w, cells, 1<<stripBits/len(cells)))
	}
	w.Rows(rows)
	if more := len(parts) - len(shown); more > 0 {
		w.Printf("%s", w.In(show.Gray, fmt.Sprintf("and %d more: -o wide has all, --in shows a part of the address space", more)))
	}
	return seen
}

func writeGrid(w *show.Writer, all *inspect.Cluster, view netip.Prefix) {
	grid := gridOf(all, view, "")
	line := min(len(grid.Cells), columns)
	label := 0
	for i := 0; i < len(grid.Cells); i += line {
		label = max(label, len(grid.Cells[i].Prefix.Addr().String()))
	}
	each := "each character is"
	if line < columns {
		each = fmt.Sprintf("%d characters are", columns/line)
	}
	w.Printf("%v: %s a /%d", view, each, grid.Cells[0].Prefix.Bits())
	for i := 0; i < len(grid.Cells); i += line {
		first := grid.Cells[i].Prefix.Addr().String()
		w.Printf("%s", strings.TrimRight(first+show.Padding(first, label+2)+strip(w, grid.Cells[i:i+line], columns/line), " "))
	}
	writeLegend(w, grid.Cells)
}

// writeLegend explains the symbols that were used.
func writeLegend(w *show.Writer, cells []inspect.Cell) {
	seen := map[look]bool{}
	some := false
	for _, c := range cells {
		l := lookOf(c)
		seen[l] = true
		some = some || l.eighth >= 0
	}
	var texts []string
	for class := inspect.Classes - 1; class > inspect.ClassOutside; class-- {
		if l := (look{class, -1}); seen[l] {
			r, color := l.symbol(w)
			texts = append(texts, w.In(color, string(r))+" "+symbols[class].text)
		}
	}
	if some {
		part := "o"
		if w.Unicode {
			part = string(partly[1]) + string(partly[5])
		}
		texts = append(texts, w.In(symbols[inspect.ClassUsed].color, part)+" partly allocated")
	}
	if len(texts) > 0 {
		w.Printf("%s", strings.Join(texts, "   "))
	}
}
