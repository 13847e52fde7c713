package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/cluster"
	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/show"
	"github.com/multicidr/controller-manager/controllers/nodeipam/inspect"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
)

// Cells of a map: one line for each range, or a grid.
const (
	lineBits = 5  // 32 cells
	gridBits = 10 // 1024 cells
	columns  = 64 // of a grid
)

func (p *program) mapCommand() *cobra.Command {
	var in string
	c := &cobra.Command{
		Use:   "map [CLUSTERCIDR] [--in CIDR]",
		Short: "Draw the ranges of ClusterCIDRs: what is allocated, free, unavailable, and where",
		Long: "Draws a line for each range of a ClusterCIDR. Every character is an equal part of it, but none is smaller than a block. With a ClusterCIDR, or with --in, it draws these ranges, " +
			"or the part of them, larger: in up to 1024 parts. -o json has the number of free blocks of each.",
		Example: "  # All ranges\n  kubectl node-ipam map\n\n  # One of them, and then a part of it\n  kubectl node-ipam map edge\n  kubectl node-ipam map --in 10.245.0.0/24",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("%s takes the name of one ClusterCIDR, or none: %s --help shows examples", c.CommandPath(), c.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: p.complete(cluster.ClusterCIDRs),
		RunE: func(c *cobra.Command, args []string) error {
			return p.drawMap(c, strings.TrimPrefix(strings.Join(args, ""), clusterCIDRName), in)
		},
	}
	c.Flags().StringVar(&in, "in", "", "the part of the address space to draw, as a CIDR")
	p.addOutput(c, show.Table, show.JSON, show.YAML)
	return c
}

func (p *program) drawMap(c *cobra.Command, name, in string) error {
	var view netip.Prefix
	if in != "" {
		var err error
		if view, err = pool.ParseCIDR(in); err != nil {
			return usage("--in=%s: %w: write for example 10.244.0.0/16", in, err)
		}
	}
	_, objects, err := p.read(c.Context())
	if err != nil {
		return err
	}
	bits := lineBits
	if name != "" || in != "" {
		bits = gridBits
	}
	if name != "" && !slices.ContainsFunc(objects.ClusterCIDRs, func(cc *networkingv1.ClusterCIDR) bool { return cc.Name == name }) {
		return noSuch("ClusterCIDR", name, "kubectl get clustercidrs.networking.x-k8s.io")
	}
	strips := inspect.New(objects.Objects).Map(name, view, bits)
	return p.write(strips, nil, func(w *show.Writer) {
		switch {
		case len(strips) == 0 && view.IsValid():
			w.Printf("%v is in no range of these ClusterCIDRs.", view)
		case len(strips) == 0:
			w.Printf("There is no range.")
		case bits == lineBits:
			writeLines(w, strips)
		default:
			writeGrids(w, strips)
		}
	})
}

func writeLines(w *show.Writer, strips []inspect.Strip) {
	rows := show.NewRows("RANGE", "CLUSTERCIDR", "BLOCK", "STATE", "MAP")
	for _, s := range strips {
		rows.Add(s.CIDR, s.ClusterCIDR, fmt.Sprintf("/%d", s.BlockPrefixLength), s.State, draw(w, s, s.Cells, (1<<lineBits)/len(s.Cells)))
	}
	w.Rows(rows)
	w.Printf("%s", legend(w))
}

func writeGrids(w *show.Writer, strips []inspect.Strip) {
	for _, s := range strips {
		line := min(len(s.Cells), columns)
		w.Printf("ClusterCIDR %s, %v, blocks /%d, %s: a cell is a /%d, a line has %d", s.ClusterCIDR, s.CIDR, s.BlockPrefixLength, s.State, s.Cells[0].CIDR.Bits(), line)
		rows := show.NewRows("FROM", "MAP")
		for i := 0; i < len(s.Cells); i += line {
			rows.Add(s.Cells[i].CIDR.Addr(), draw(w, s, s.Cells[i:i+line], columns/line))
		}
		w.Rows(rows)
	}
	w.Printf("%s", legend(w))
}

// symbol is how a cell is drawn.
type symbol struct {
	unicode, ascii string
	color          show.Color
	text           string
}

var (
	conflict    = symbol{"!", "!", show.Red, "in conflict"}
	allocated   = symbol{"█", "#", show.Green, "allocated"}
	reserved    = symbol{"▓", "+", show.Yellow, "reserved"}
	partly      = symbol{"▄", "o", show.Green, "partly allocated"}
	service     = symbol{"s", "s", show.Gray, "service range"}
	unavailable = symbol{"x", "x", show.Gray, "unavailable"}
	free        = symbol{"░", ".", 0, "free"}
	closed      = symbol{"·", "-", show.Gray, "free, and not allocated now"}
)

func (s symbol) in(w *show.Writer, n int) string {
	if w.Unicode {
		return w.In(s.color, strings.Repeat(s.unicode, n))
	}
	return w.In(s.color, strings.Repeat(s.ascii, n))
}

func symbolOf(s inspect.Strip, c inspect.Cell) symbol {
	switch {
	case c.Conflict:
		return conflict
	case (c.Allocated || c.Reserved) && c.Free > 0:
		return partly
	case c.Allocated:
		return allocated
	case c.Reserved:
		return reserved
	case c.Free == 0 && c.Service:
		return service
	case c.Free == 0:
		return unavailable
	case inspect.Serves(s.State):
		return free
	default:
		return closed
	}
}

// draw draws cells side by side, each so many characters wide.
func draw(w *show.Writer, s inspect.Strip, cells []inspect.Cell, wide int) string {
	var text strings.Builder
	for first := 0; first < len(cells); {
		next := first
		for next < len(cells) && symbolOf(s, cells[next]) == symbolOf(s, cells[first]) {
			next++
		}
		text.WriteString(symbolOf(s, cells[first]).in(w, (next-first)*wide))
		first = next
	}
	return text.String()
}

func legend(w *show.Writer) string {
	var texts []string
	for _, s := range []symbol{allocated, partly, reserved, free, closed, unavailable, service, conflict} {
		texts = append(texts, s.in(w, 1)+" "+s.text)
	}
	return strings.Join(texts, "   ")
}
