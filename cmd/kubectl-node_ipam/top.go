package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/cluster"
	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/show"
	"github.com/multicidr/controller-manager/controllers/nodeipam/inspect"
)

func (p *program) topCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "top",
		Short: "Watch allocations, pending Nodes, how full ClusterCIDRs are, and the leader",
		Long: "Shows what status shows, and how many Nodes get podCIDRs per second, as it changes. It watches objects, so it costs the API server little after the start.\n\n" +
			"Keys: up, down, page up, page down and home scroll; q or Ctrl-C ends it.",
		Example: "  kubectl node-ipam top",
		Args:    exactly(0, "no arguments"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error { return p.top(c.Context()) },
	}
}

func (p *program) top(ctx context.Context) error {
	if !p.terminal {
		return usage("top needs a terminal: %s status says how it is now", display)
	}
	services, err := p.serviceRanges()
	if err != nil {
		return err
	}
	r, err := p.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fmt.Fprint(p.ErrOut, "reading the cluster")
	watch, err := r.Watch(ctx)
	fmt.Fprint(p.ErrOut, "\r\x1b[K")
	if err != nil {
		return err
	}
	p.warn(watch.Missing)
	_, err = tea.NewProgram(newScreen(p, watch, services), tea.WithContext(ctx), tea.WithInput(p.In), tea.WithOutput(p.Out)).Run()
	return err
}

// interval is how often the screen is drawn anew: ages and rates change without an event.
const interval = time.Second

// screen is what top shows.
type screen struct {
	p        *program
	watch    *cluster.Watch
	services []netip.Prefix

	status   status
	lines    []string // below the head
	busy     bool     // a status is being computed
	paused   time.Duration
	computed time.Time
	counts   []int64 // of allocations, one for each interval
	height   int
	top      int // the first line that is seen
}

func newScreen(p *program, watch *cluster.Watch, services []netip.Prefix) *screen {
	return &screen{p: p, watch: watch, services: services, height: 24, counts: []int64{0}}
}

type tick struct{}

// computed is the status of a moment, and how long it took to compute.
type computed struct {
	status status
	took   time.Duration
}

func (s *screen) Init() tea.Cmd { return tea.Batch(s.compute, next) }

func next() tea.Msg {
	time.Sleep(interval)
	return tick{}
}

// compute computes what is shown.
func (s *screen) compute() tea.Msg {
	begin := time.Now()
	s.watch.Changed()
	objects := s.watch.Objects()
	objects.ServiceRanges = s.services
	answer := status{Status: inspect.New(objects.Objects).Status(), Leaders: s.watch.Leaders(objects.Nodes, s.p.now()), Missing: objects.Missing}
	if objects.Lacks(cluster.Nodes) {
		answer.Status = inspect.Published(objects.Objects)
	}
	return computed{answer, time.Since(begin)}
}

func (s *screen) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch m := message.(type) {
	case tea.WindowSizeMsg:
		s.height = m.Height
	case tea.KeyPressMsg:
		return s, s.key(m.String())
	case computed:
		s.show(m)
	case tick:
		return s, s.tick()
	}
	return s, nil
}

// key scrolls or ends.
func (s *screen) key(name string) tea.Cmd {
	page := max(s.room()-1, 1)
	switch name {
	case "q", "ctrl+c":
		return tea.Quit
	case "up", "k":
		s.top--
	case "down", "j":
		s.top++
	case "pgup":
		s.top -= page
	case "pgdown", "space":
		s.top += page
	case "home", "g":
		s.top = 0
	}
	s.top = max(min(s.top, len(s.lines)-s.room()), 0)
	return nil
}

// show takes over a status.
func (s *screen) show(m computed) {
	s.status, s.busy, s.computed = m.status, false, time.Now()
	s.paused = 4 * m.took // A large cluster must not keep a processor busy.
	var text strings.Builder
	w := s.p.writer()
	w.Out = &text
	writeStatus(w, s.status)
	s.lines = strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
}

// tick counts allocations and computes a new status if something has changed.
func (s *screen) tick() tea.Cmd {
	const kept = 61
	s.counts = append(s.counts, s.watch.Allocations())
	s.counts = s.counts[max(len(s.counts)-kept, 0):]
	if s.busy || time.Since(s.computed) < s.paused || !s.watch.Changed() {
		return next
	}
	s.busy = true
	return tea.Batch(s.compute, next)
}

// rates returns how many Nodes got podCIDRs in each interval.
func (s *screen) rates() []int64 {
	rates := make([]int64, len(s.counts)-1)
	for i := range rates {
		rates[i] = s.counts[i+1] - s.counts[i]
	}
	return rates
}

// head is what is always seen.
func (s *screen) head() []string {
	w := s.p.writer()
	rates := s.rates()
	const recent = 10
	sum, last := int64(0), rates[max(len(rates)-recent, 0):]
	for _, n := range last {
		sum += n
	}
	perSecond := float64(sum) / max(float64(len(last)), 1) / interval.Seconds()
	lines := []string{fmt.Sprintf("Allocations: %s %.1f per second, %d since the start", w.Sparks(rates), perSecond, s.counts[len(s.counts)-1])}
	if problem := s.watch.Problem(); problem != nil {
		lines = append(lines, w.In(show.Red, fmt.Sprintf("What follows can be old: %v", problem)))
	}
	return lines
}

// room is how many lines of the status are seen.
func (s *screen) room() int { return max(s.height-len(s.head())-1, 1) }

func (s *screen) View() tea.View {
	lines := s.head()
	seen := s.lines[min(s.top, len(s.lines)):]
	seen = seen[:min(len(seen), s.room())]
	lines = append(lines, seen...)
	foot := "q: end"
	if more := len(s.lines) - s.top - len(seen); more > 0 {
		foot = fmt.Sprintf("%d more lines below; q: end", more)
	}
	lines = append(lines, s.p.writer().In(show.Gray, foot))
	view := tea.NewView(strings.Join(lines, "\n"))
	view.AltScreen = true
	return view
}
