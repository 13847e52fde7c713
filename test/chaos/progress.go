package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/term"
)

// progress is the line at the bottom of a terminal that says how far things are; elsewhere a line every now and then.
type progress struct {
	to       *os.File
	terminal bool
	interval time.Duration
	printed  time.Time
}

func newProgress(to *os.File) *progress {
	p := &progress{to: to, terminal: term.IsTerminal(int(to.Fd())), interval: 10 * time.Second}
	if p.terminal {
		p.interval = time.Second
	}
	return p
}

// line shows what is true now; not every call is shown.
func (p *progress) line(text string) {
	if time.Since(p.printed) < p.interval*9/10 {
		return
	}
	p.printed = time.Now()
	if !p.terminal {
		fmt.Fprintf(p.to, "  %s\n", text)
		return
	}
	if width, _, err := term.GetSize(int(p.to.Fd())); err == nil {
		text = text[:min(len(text), max(0, width-3))]
	}
	fmt.Fprintf(p.to, "\r\033[K  %s", text)
}

// phase says what begins now.
func (p *progress) phase(name string) {
	p.end()
	fmt.Fprintf(p.to, "  %s\n", name)
}

// end leaves the line as it is.
func (p *progress) end() {
	if p.terminal && !p.printed.IsZero() {
		fmt.Fprintln(p.to)
	}
	p.printed = time.Time{}
}
