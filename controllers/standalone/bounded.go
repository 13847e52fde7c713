package standalone

import (
	"container/list"
	"net"
	"sync"
	"time"
)

// bounded is a listener with a limit on its open connections. When another one arrives, it closes the connection that has been open
// longest. If new connections had to wait instead, a client that holds connections open would block the kubelet's probes.
type bounded struct {
	net.Listener
	most int
	// stall is how long one write to a connection may take. 0: the server has its own deadline.
	stall time.Duration

	mu   sync.Mutex
	open list.List // of *boundedConn, oldest first
}

func (b *bounded) Accept() (net.Conn, error) {
	conn, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	accepted := &boundedConn{Conn: conn, listener: b}
	var oldest *boundedConn
	b.mu.Lock()
	accepted.place = b.open.PushBack(accepted)
	if b.open.Len() > b.most {
		oldest = b.open.Front().Value.(*boundedConn)
	}
	b.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close() // Its server notices at the next read or write.
	}
	return accepted, nil
}

type boundedConn struct {
	net.Conn
	listener *bounded
	place    *list.Element // in the listener's list
}

func (c *boundedConn) Write(data []byte) (int, error) {
	if c.listener.stall > 0 {
		if err := c.SetWriteDeadline(time.Now().Add(c.listener.stall)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(data)
}

// Close may be called more than once.
func (c *boundedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.open.Remove(c.place) // Does nothing if it is no longer in the list.
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
