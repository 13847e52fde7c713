package faultproxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// gate holds bytes back while it is shut. The zero value is open.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // nil while open; closed when it opens again
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = make(chan struct{})
	}
}

func (g *gate) reopen() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil {
		close(g.open)
		g.open = nil
	}
}

// wait returns when the gate is open, or done is closed.
func (g *gate) wait(done <-chan struct{}) {
	for {
		g.mu.Lock()
		open := g.open
		g.mu.Unlock()
		if open == nil {
			return
		}
		select {
		case <-open:
		case <-done:
			return
		}
	}
}

// listener gives connections that pass through the gate, and knows those that are open.
type listener struct {
	net.Listener
	gate *gate

	mu        sync.Mutex
	conns     map[*conn]bool
	resetting bool // new connections are reset at once
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{TCPConn: accepted.(*net.TCPConn), listener: l, closed: make(chan struct{})}
		l.mu.Lock()
		resetting := l.resetting
		if !resetting {
			l.conns[c] = true
		}
		l.mu.Unlock()
		if !resetting {
			return c, nil
		}
		c.reset()
	}
}

func (l *listener) setResetting(resetting bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resetting = resetting
}

// resetAll resets every connection and returns how many there were.
func (l *listener) resetAll() int {
	l.mu.Lock()
	conns := make([]*conn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	for _, c := range conns {
		c.reset()
	}
	return len(conns)
}

// conn is a connection of the manager.
//
// While the gate is shut it is as if packets were lost: what the manager has sent waits in the kernel, and goes on when the
// gate opens, as TCP sends again what was not acknowledged, also when the sender has closed its end.
type conn struct {
	*net.TCPConn
	listener *listener
	once     sync.Once
	closed   chan struct{}
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.listener.gate.wait(c.closed)
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	c.listener.gate.wait(c.closed)
	return c.TCPConn.Write(b)
}

func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		delete(c.listener.conns, c)
	})
	return c.TCPConn.Close()
}

// reset closes the connection with a RST, as a firewall that has forgotten it would.
func (c *conn) reset() {
	_ = c.SetLinger(0)
	_ = c.Close()
}

type connKey struct{}

// keepConn lets a handler find the connection that its request came on.
func keepConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c.(*tls.Conn).NetConn())
}

func connOf(r *http.Request) *conn { return r.Context().Value(connKey{}).(*conn) }
