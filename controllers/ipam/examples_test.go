package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestExamples runs the worked examples in testdata, which are meant to be read. `go test -run TestExamples -rewrite` writes the
// present answers of the core, so that you can review the difference. A command has one item on each line of its input, and
// answers line by line:
//
//	pools        name sel(label=value,...) prefix prefix hbN -prefix ...   start again with these pools; answers their order
//	pool         as above: add a pool, or replace one
//	state        pool state: change a pool's state
//	nodes        name label=value ...: allocate to a Node from the pools that select it, as a controller would
//	pick         the same, but change nothing
//	hold         Kind/ID prefix ...: make it a fact; answers the conflicts
//	release      Kind/ID
//	overlapping  prefix
//	blocks       pool: the usage, and where the search continues
//	cursor       pool address
//	forget       pool
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			var e example
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				if d.Cmd == "pools" {
					e = example{}
				}
				var answers []string
				for line := range strings.SplitSeq(d.Input, "\n") {
					answer, err := e.run(d.Cmd, strings.Fields(line))
					if err != nil {
						d.Fatalf(t, "%s: %v", line, err)
					}
					if answer != "" {
						answers = append(answers, answer)
					}
				}
				if d.Cmd == "pools" {
					answers = []string{e.order()}
				}
				return strings.Join(answers, "\n")
			})
		})
	}
}

// example is a ledger with pools that select Nodes by their labels.
type example struct {
	ledger Ledger
	pools  []Candidate
}

func (e *example) run(cmd string, args []string) (string, error) {
	if len(args) == 0 {
		return "", fmt.Errorf("an empty line")
	}
	switch cmd {
	case "pools", "pool":
		return "", e.add(args)
	case "nodes":
		return e.serve(args[0], args[1:]), nil
	case "pick":
		return args[0] + " " + e.pick(args[1:]), nil
	case "hold":
		return e.hold(args)
	case "release":
		o, err := parseOwner(args[0])
		if err == nil && len(e.ledger.Held(o)) == 0 {
			return args[0] + " held nothing", nil
		}
		e.ledger.Hold(o)
		return args[0] + " released", err
	case "overlapping":
		p, err := netip.ParsePrefix(args[0])
		return args[0] + ": " + told(slices.Collect(e.ledger.Holdings(p))), err
	}
	i := slices.IndexFunc(e.pools, func(c Candidate) bool { return c.Name == args[0] })
	if i < 0 {
		return "", fmt.Errorf("there is no pool %s", args[0])
	}
	p := e.pools[i].Pool
	switch cmd {
	case "state":
		for p.State = Enabled; p.State.String() != args[1]; p.State++ { // panics behind the last one
		}
		return fmt.Sprint(p.Name, " is ", p.State), nil
	case "blocks":
		return e.blocks(p), nil
	case "cursor":
		a, err := netip.ParseAddr(args[1])
		e.ledger.setCursor(p, FamilyOf(netip.PrefixFrom(a, 0)), a)
		return e.blocks(p), err
	case "forget":
		e.ledger.Forget(p)
		return e.blocks(p), nil
	}
	return "", fmt.Errorf("unknown command %s", cmd)
}

// add reads a pool. "hbN" sets the host bits of the prefixes before it, and "-prefix" is an exclusion.
func (e *example) add(args []string) error {
	c := Candidate{Pool: pool(args[0])}
	var prefixes []netip.Prefix
	for _, arg := range args[1:] {
		if labels, ok := strings.CutPrefix(arg, "sel("); ok {
			c.Selective, c.Selector = true, strings.TrimSuffix(labels, ")")
			c.Specificity = 1 + strings.Count(labels, ",")
		} else if n, ok := strings.CutPrefix(arg, "hb"); ok {
			hostBits, err := strconv.Atoi(n)
			if err != nil {
				return err
			}
			for _, p := range prefixes {
				r, err := NewRange(p, hostBits)
				if err != nil {
					return err
				}
				c.Ranges = append(c.Ranges, r)
			}
			prefixes = nil
		} else if excluded, ok := strings.CutPrefix(arg, "-"); ok {
			p, err := netip.ParsePrefix(excluded)
			if err != nil {
				return err
			}
			c.Excluded.Insert(p)
		} else if n, ok := strings.CutPrefix(arg, "priority="); ok {
			priority, err := strconv.ParseInt(n, 10, 32)
			if err != nil {
				return err
			}
			c.Priority = int32(priority)
		} else {
			p, err := netip.ParsePrefix(arg)
			if err != nil {
				return err
			}
			prefixes = append(prefixes, p)
		}
	}
	e.pools = slices.DeleteFunc(e.pools, func(old Candidate) bool { return old.Name == c.Name })
	e.pools = append(e.pools, c)
	slices.SortFunc(e.pools, Compare)
	return nil
}

func (e *example) order() string {
	var names []string
	for _, c := range e.pools {
		names = append(names, c.Name)
	}
	return "order: " + strings.Join(names, " ")
}

// selecting returns the pools that select a Node with these labels, in the order in which they are tried.
func (e *example) selecting(labels []string) []*Pool {
	var pools []*Pool
	for _, c := range e.pools {
		if !slices.ContainsFunc(strings.Split(c.Selector, ","), func(want string) bool {
			return want != "" && !slices.Contains(labels, want)
		}) {
			pools = append(pools, c.Pool)
		}
	}
	return pools
}

func (e *example) pick(labels []string) string {
	p, blocks := choose(&e.ledger, e.selecting(labels)...)
	if p == nil {
		return "waits"
	}
	return fmt.Sprint(blocks, " from ", p.Name)
}

func (e *example) serve(name string, labels []string) string {
	o := Owner{Node, name}
	if held := e.ledger.Held(o); len(held) > 0 {
		return fmt.Sprint(name, " ", held, " already")
	}
	answer := fmt.Sprint(name, " ", e.pick(labels))
	if p, _ := choose(&e.ledger, e.selecting(labels)...); p != nil {
		e.ledger.Reserve(o, p)
	}
	return answer
}

func (e *example) hold(args []string) (string, error) {
	o, err := parseOwner(args[0])
	if err != nil {
		return "", err
	}
	var prefixes []netip.Prefix
	for _, arg := range args[1:] {
		p, _ := netip.ParsePrefix(arg) // unreadable ones are told to the ledger as well
		prefixes = append(prefixes, p)
	}
	e.ledger.Hold(o, prefixes...)
	return fmt.Sprint(o, " holds ", e.ledger.Held(o), ", conflicts: ", told(slices.Collect(e.ledger.Conflicts(o)))), nil
}

func (e *example) blocks(p *Pool) string {
	var lines []string
	for _, r := range p.Ranges {
		cursor := "start"
		if a := e.ledger.Cursor(p, r.Family()); a.IsValid() {
			cursor = a.String()
		}
		lines = append(lines, fmt.Sprintf("%s %v: %d of %d /%d free, goes on at %s",
			p.Name, r.Prefix, e.ledger.Usage(p, r).Free, r.Blocks(), r.BlockBits, cursor))
	}
	if full := e.ledger.Full(p); len(full) > 0 {
		lines = append(lines, fmt.Sprintf("%s is full: %v", p.Name, full))
	}
	return strings.Join(lines, "\n")
}

func told(holdings []Holding) string {
	var all []string
	for _, h := range holdings {
		all = append(all, fmt.Sprint(h.Owner, " ", h.Prefix))
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

func parseOwner(s string) (Owner, error) {
	kind, id, _ := strings.Cut(s, "/")
	for k := Node; k <= Service; k++ {
		if k.String() == kind {
			return Owner{k, id}, nil
		}
	}
	return Owner{}, fmt.Errorf("%q is not Kind/ID", s)
}
