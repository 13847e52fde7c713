// Package picture draws maps of the address space as SVG, and as an HTML page that needs nothing else: no script, no font, no network.
//
// A range is a strip of cells. Each cell is divided by how much of it is of which class, from the bottom up, so that a range of any size has a
// picture of the same size. Equal cells side by side are one shape.
package picture

import (
	"fmt"
	"html"
	"io"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/multicidr/controller-manager/controllers/nodeipam/inspect"
)

// Drawing is what is drawn.
type Drawing struct {
	Title string
	Time  time.Time
	Parts []inspect.Part
	Grids []Grid
}

// Grid is a part of the address space, line by line.
type Grid struct {
	View  netip.Prefix
	Name  string
	Cells []inspect.Cell // 2^n
	Parts []inspect.Part // in it
}

// Sizes in pixels.
const (
	width     = 1120
	margin    = 16
	labels    = 420 // of strips
	stripBits = 6   // 64 cells
	cell      = 10
	stripTall = 18
	rowTall   = 28
	columns   = 64 // of grids
	lineLabel = 190
	square    = 14
	maxWhat   = 29 // characters
	leastSeen = 4  // height of what hardly has any addresses
)

// classes are in the order in which they are stacked. Free is what is left.
var classes = []struct {
	class      inspect.Class
	id, text   string
	light, dim string // colors on white, and on black
}{
	{inspect.ClassConflicting, "x", "in conflict", "#d6336c", "#f06595"},
	{inspect.ClassForeign, "o", "out of range", "#e8590c", "#ff922b"},
	{inspect.ClassUsed, "a", "allocated", "#2f6fde", "#5b94f5"},
	{inspect.ClassKept, "r", "reserved", "#f0b429", "#ffd43b"},
	{inspect.ClassServices, "s", "service range", "#7b61a8", "#9f86d0"},
	{inspect.ClassExcluded, "e", "excluded", "#8d99a6", "#75808c"},
	{inspect.ClassClosed, "c", "free, but closed", "#c3ccd6", "#47515c"},
	{inspect.ClassFree, "f", "free", "#dde8f4", "#273444"},
	{inspect.ClassOutside, "n", "in no range", "#ffffff", "#14181d"},
}

// SVG draws the ranges, and then the grids.
func (d Drawing) SVG(out io.Writer) error {
	var b strings.Builder
	tall := margin + 48 + len(d.Parts)*rowTall
	for _, g := range d.Grids {
		tall += g.tall() + rowTall
	}
	open(&b, tall+margin)
	fmt.Fprintf(&b, "<style>%s</style><rect class=\"n\" width=\"100%%\" height=\"100%%\"/>", styles)
	fmt.Fprintf(&b, `<text class="h" x="%d" y="%d">%s</text>`, margin, margin+16, html.EscapeString(d.heading()))
	legend(&b, margin+34)
	y := margin + 56
	y = d.strips(&b, y, false)
	for i := range d.Grids {
		y = d.Grids[i].draw(&b, y+rowTall)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// HTML writes a page with the ranges, each of which leads to its grid.
func (d Drawing) HTML(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>%s</title>\n", html.EscapeString(d.Title))
	fmt.Fprintf(&b, "<style>%sbody{margin:0 auto;max-width:%dpx;background:var(--n)}svg{display:block;width:100%%;height:auto}</style></head><body>\n", styles, width)
	open(&b, margin+52)
	fmt.Fprintf(&b, `<text class="h" x="%d" y="%d">%s</text>`, margin, margin+16, html.EscapeString(d.heading()))
	legend(&b, margin+34)
	b.WriteString("</svg>\n")
	if len(d.Parts) > 0 {
		open(&b, len(d.Parts)*rowTall+2*margin)
		d.strips(&b, margin, true)
		b.WriteString("</svg>\n")
	}
	for i := range d.Grids {
		fmt.Fprintf(&b, `<div id="%s">`, anchor(d.Grids[i].View))
		open(&b, d.Grids[i].tall()+rowTall)
		d.Grids[i].draw(&b, 8)
		b.WriteString("</svg></div>\n")
	}
	b.WriteString("</body></html>\n")
	_, err := io.WriteString(out, b.String())
	return err
}

func (d Drawing) heading() string {
	return d.Title + ", " + d.Time.UTC().Format("2006-01-02 15:04 UTC")
}

func open(b *strings.Builder, tall int) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`, width, tall, width, tall)
}

// styles has the colors for light and dark screens.
var styles = func() string {
	var light, dark, rules strings.Builder
	for _, c := range classes {
		fmt.Fprintf(&light, "--%s:%s;", c.id, c.light)
		fmt.Fprintf(&dark, "--%s:%s;", c.id, c.dim)
		fmt.Fprintf(&rules, ".%s{fill:var(--%s)}", c.id, c.id)
	}
	return ":root{--text:#1c2733;--pale:#5f6c79;" + light.String() + "}" +
		"@media(prefers-color-scheme:dark){:root{--text:#e6edf3;--pale:#93a1af;" + dark.String() + "}}" + rules.String() +
		"text{font:13px system-ui,sans-serif;fill:var(--text)}.h{font-size:17px;font-weight:600}.m{font-family:ui-monospace,monospace}.p{fill:var(--pale)}" +
		".b{fill:none;stroke:var(--pale);stroke-width:1}.w{fill:none;stroke:var(--text);stroke-width:1.5}a:hover text{text-decoration:underline}"
}()

func legend(b *strings.Builder, y int) {
	x := margin
	for _, c := range classes {
		fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="12" height="12"/><rect class="b" x="%d.5" y="%d.5" width="11" height="11"/><text x="%d" y="%d">%s</text>`,
			c.id, x, y, x, y, x+17, y+11, c.text)
		x += 34 + 7*len(c.text)
	}
}

// strips draws a line for each range, and returns where the next thing can be.
func (d Drawing) strips(b *strings.Builder, y int, link bool) int {
	grids := map[netip.Prefix]bool{}
	for _, g := range d.Grids {
		grids[g.View] = link
	}
	for _, p := range d.Parts {
		cells := inspect.Cells(p.CIDR, stripBits, p.Runs)
		wide := cell << stripBits / len(cells)
		if grids[p.CIDR] {
			fmt.Fprintf(b, `<a href="#%s">`, anchor(p.CIDR))
		}
		indent := margin + 14*p.Depth
		fmt.Fprintf(b, `<g><title>%s</title><text class="m" x="%d" y="%d">%v</text><text class="p" x="%d" y="%d">%s</text>`, html.EscapeString(p.CIDR.String()+": "+strings.Join(p.What, ", ")+"\n"+summary(cells)),
			indent, y+13, p.CIDR, margin+200, y+13, html.EscapeString(clip(strings.Join(p.What, ", "), maxWhat)))
		stack(b, cells, func(i int) (float64, float64) { return float64(margin + labels + i*wide), float64(y) }, float64(wide), stripTall)
		fmt.Fprintf(b, `<rect class="b" x="%d.5" y="%d.5" width="%d" height="%d"/></g>`, margin+labels, y, cell<<stripBits-1, stripTall-1)
		if grids[p.CIDR] {
			b.WriteString("</a>")
		}
		y += rowTall
	}
	return y
}

// stack draws cells, each of which is divided by its classes. Neighbors in a line that are divided in the same way are one shape.
func stack(b *strings.Builder, cells []inspect.Cell, at func(i int) (x, y float64), wide, tall float64) {
	paths := map[string]*strings.Builder{}
	for first := 0; first < len(cells); {
		x, y := at(first)
		last := first
		for last+1 < len(cells) {
			if _, line := at(last + 1); line != y || cells[last+1].Has != cells[first].Has || cells[last+1].Share != cells[first].Share {
				break
			}
			last++
		}
		low := tall
		for _, part := range divide(cells[first], tall) {
			if paths[part.id] == nil {
				paths[part.id] = &strings.Builder{}
			}
			low -= part.tall
			fmt.Fprintf(paths[part.id], "M%s %sh%sv%sh-%sz", n(x), n(y+low), n(wide*float64(last-first+1)), n(part.tall), n(wide*float64(last-first+1)))
		}
		first = last + 1
	}
	for _, c := range classes {
		if path := paths[c.id]; path != nil {
			fmt.Fprintf(b, `<path class="%s" d="%s"/>`, c.id, path)
		}
	}
}

type slice struct {
	id   string
	tall float64
}

// divide divides the height of a cell by its classes. What is there is seen, however small it is.
func divide(c inspect.Cell, tall float64) (slices []slice) {
	later := -1 // how many classes are still to come
	for _, has := range c.Has {
		if has {
			later++
		}
	}
	left := tall
	for _, k := range classes {
		if !c.Has[k.class] {
			continue
		}
		h := left // of the last one
		if later > 0 {
			least := min(leastSeen, left/float64(later+1))
			h = min(max(c.Share[k.class]*tall, least), left-least*float64(later))
		}
		slices = append(slices, slice{k.id, h})
		left -= h
		later--
	}
	return slices
}

// n formats a length without needless digits.
func n(x float64) string { return fmt.Sprint(math.Round(x*10) / 10) }

// summary says how much of a range is of which class.
func summary(cells []inspect.Cell) string {
	var texts []string
	for _, k := range classes {
		share, has := 0.0, false
		for i := range cells {
			share += cells[i].Share[k.class] / float64(len(cells))
			has = has || cells[i].Has[k.class]
		}
		if has {
			texts = append(texts, fmt.Sprintf("%s %s", percent(share), k.text))
		}
	}
	return strings.Join(texts, ", ")
}

func percent(share float64) string {
	if share < 0.001 {
		return "<0.1%"
	}
	return fmt.Sprintf("%.3g %%", share*100)
}

func clip(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

func anchor(p netip.Prefix) string {
	return "r" + strings.NewReplacer("/", "-", ":", "_").Replace(p.String())
}

func (g *Grid) lines() int { return max(len(g.Cells)/columns, 1) }

func (g *Grid) tall() int { return 34 + g.lines()*(square+2) + margin }

// draw draws a grid, and returns where the next thing can be.
func (g *Grid) draw(b *strings.Builder, y int) int {
	fmt.Fprintf(b, `<text class="h" x="%d" y="%d">%v</text><text class="p" x="%d" y="%d">%s</text>`, margin, y+14, g.View, margin+14+11*len(g.View.String()), y+14,
		html.EscapeString(clip(g.Name, 100)))
	y += 30
	line := min(columns, len(g.Cells))
	wide := float64(columns*square) / float64(line)
	at := func(i int) (float64, float64) {
		return float64(margin+lineLabel) + float64(i%line)*wide, float64(y + i/line*(square+2))
	}
	for i := 0; i < len(g.Cells); i += line {
		_, top := at(i)
		fmt.Fprintf(b, `<text class="m p" x="%d" y="%s">%v</text>`, margin, n(top+11), g.Cells[i].Prefix.Addr())
	}
	stack(b, g.Cells, at, wide, square)
	for i := range g.Cells {
		if !occupied(g.Cells[i]) {
			continue
		}
		x, top := at(i)
		fmt.Fprintf(b, `<rect x="%s" y="%s" width="%s" height="%d" fill-opacity="0"><title>%v: %s</title></rect>`, n(x), n(top), n(wide), square, g.Cells[i].Prefix, summary(g.Cells[i:i+1]))
	}
	for _, p := range g.Parts {
		g.outline(b, p, at, wide)
	}
	return y + g.lines()*(square+2)
}

// occupied reports whether there is anything to say about a cell.
func occupied(c inspect.Cell) bool {
	for class, has := range c.Has {
		if has && inspect.Class(class) != inspect.ClassFree && inspect.Class(class) != inspect.ClassOutside {
			return true
		}
	}
	return false
}

// outline draws the border of a range in a grid. Its cells are whole lines, or part of one, since all numbers are powers of two.
func (g *Grid) outline(b *strings.Builder, p inspect.Part, at func(int) (float64, float64), wide float64) {
	first, count := -1, 0
	for i := range g.Cells {
		if p.CIDR.Bits() <= g.Cells[i].Prefix.Bits() && p.CIDR.Contains(g.Cells[i].Prefix.Addr()) {
			if first < 0 {
				first = i
			}
			count++
		}
	}
	if first < 0 || p.CIDR.Bits() <= g.View.Bits() {
		return
	}
	x, y := at(first)
	across := min(count, columns)
	down := max(count/columns, 1)
	fmt.Fprintf(b, `<rect class="w" x="%s" y="%s" width="%s" height="%d"><title>%s</title></rect>`, n(x), n(y-1), n(float64(across)*wide), down*(square+2), html.EscapeString(p.CIDR.String()+": "+strings.Join(p.What, ", ")))
}
