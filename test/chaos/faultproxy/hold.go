package faultproxy

import (
	"net/http"
	"sync"
)

// Held are the requests that are held up on their way, until Release. They arrive then, also those whose sender has gone.
type Held struct {
	matches func(method, path string) bool
	arrived chan string
	release chan struct{}
	once    sync.Once
}

// Hold holds up every request from now on that matches, in place of what was held up before. None is lost.
func (p *Proxy) Hold(matches func(method, path string) bool) *Held {
	h := &Held{matches: matches, arrived: make(chan string, 1), release: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = h
	return h
}

// Arrived gets the path of the first request that is held up.
func (h *Held) Arrived() <-chan string { return h.arrived }

// Release lets what is held up pass, and what comes later.
func (h *Held) Release() { h.once.Do(func() { close(h.release) }) }

// pass returns when the request may pass.
func (h *Held) pass(r *http.Request) {
	if h == nil || !h.matches(r.Method, r.URL.Path) {
		return
	}
	select {
	case h.arrived <- r.URL.Path:
	default:
	}
	<-h.release
}
