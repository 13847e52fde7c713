package picture

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/multicidr/controller-manager/controllers/nodeipam/inspect"
)

// A picture is well-formed whatever names are, needs nothing from elsewhere, and does not grow with the number of Nodes.
func TestPicturesStandAlone(t *testing.T) {
	d := drawing(200, 100)
	for name, write := range map[string]func(io.Writer) error{"SVG": d.SVG, "HTML": d.HTML} {
		var b strings.Builder
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		if name == "SVG" {
			wellFormed(t, text)
		}
		for _, elsewhere := range []string{"src=", "url(", "@import", "<script", `href="h`, "<b>"} {
			if strings.Contains(text, elsewhere) {
				t.Errorf("%s: it has %s", name, elsewhere)
			}
		}
		if most := 512 << 10; len(text) > most {
			t.Errorf("%s: it has %d bytes", name, len(text))
		}
	}
}

func wellFormed(t *testing.T, text string) {
	for decoder := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// drawing has ranges with runs of Nodes here and there.
func drawing(parts, nodes int) Drawing {
	random := rand.New(rand.NewPCG(1, 2))
	d := Drawing{Title: "<b>&", Time: time.Unix(0, 0)}
	for i := range parts {
		p := inspect.Part{CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i / 4), byte(i % 4 * 64), 0}), 18), What: []string{fmt.Sprint("ClusterCIDR <b>&pool-", i)}}
		base, at := p.CIDR.Addr().As4(), 0
		address := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, base[1], base[2] + byte(n>>8), byte(n)}) }
		for j := range nodes {
			end := min(at+64*(1+random.IntN(4)), 1<<14)
			p.Runs = append(p.Runs, inspect.Run{First: address(at), Last: address(end - 1), Class: []inspect.Class{inspect.ClassFree, inspect.ClassUsed}[j%2]})
			at = end
		}
		if at < 1<<14 {
			p.Runs = append(p.Runs, inspect.Run{First: address(at), Last: address(1<<14 - 1), Class: inspect.ClassFree})
		}
		d.Parts = append(d.Parts, p)
		if i < 3 {
			d.Grids = append(d.Grids, Grid{View: p.CIDR, Name: "<b>", Cells: inspect.Cells(p.CIDR, 8, p.Runs), Parts: []inspect.Part{p, {CIDR: netip.PrefixFrom(netip.AddrFrom4(base), 20), What: []string{"<b>"}}}})
		}
	}
	return d
}

// Whatever a cell has is seen, and all of it is as high as the cell.
func TestCellsAreDividedByWhatTheyHave(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		var c inspect.Cell
		left, last := 1.0, random.IntN(int(inspect.Classes))
		kinds := 0
		for class := range inspect.Classes {
			if int(class) != last && random.IntN(5) == 0 && kinds < 3 {
				c.Has[class], c.Share[class] = true, left*random.Float64()*random.Float64()
				left -= c.Share[class]
				kinds++
			}
		}
		c.Has[last], c.Share[last] = true, left
		sum := 0.0
		for _, s := range divide(c, stripTall) {
			if sum += s.tall; s.tall <= 0 {
				t.Fatalf("%+v: %+v has no height", c, s)
			}
		}
		if n := len(divide(c, stripTall)); sum < stripTall-0.001 || sum > stripTall+0.001 || n != kinds+1 {
			t.Fatalf("%+v: %d parts are %v high", c, n, sum)
		}
	}
}
