package standalone

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// dialBounded returns both ends of a new connection.
func dialBounded(t *testing.T, b *bounded) (client, server net.Conn) {
	t.Helper()
	client, err := net.Dial("tcp", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if server, err = b.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

func TestBounded(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	b := &bounded{Listener: listener, most: 2, stall: 50 * time.Millisecond}
	clients, servers := make([]net.Conn, 4), make([]net.Conn, 4)
	for i := range 2 {
		clients[i], servers[i] = dialBounded(t, b)
	}
	// A connection that has ended makes room for one other, even if it is closed twice.
	servers[1].Close()
	servers[1].Close()
	clients[2], servers[2] = dialBounded(t, b)
	if _, err := servers[0].Write([]byte("a")); err != nil {
		t.Errorf("two connections are open and the limit is two, but one of them was closed: %v", err)
	}
	// One more than the limit closes the oldest.
	clients[3], servers[3] = dialBounded(t, b)
	if all, err := io.ReadAll(clients[0]); string(all) != "a" || err != nil {
		t.Errorf("the oldest reads %q, %v, want what was written before it was closed", all, err)
	}
	for _, server := range servers[2:] {
		if _, err := server.Write([]byte("a")); err != nil {
			t.Errorf("the newest two should be open: %v", err)
		}
	}
	// The client does not read, so at some point a write finds no room any more.
	for err == nil {
		_, err = servers[3].Write(make([]byte, 1<<20))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write to a client that does not read: %v, want a deadline error", err)
	}
}
