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
	// One that has ended makes room, however often it is closed.
	servers[1].Close()
	servers[1].Close()
	clients[2], servers[2] = dialBounded(t, b)
	if _, err := servers[0].Write([]byte("a")); err != nil {
		t.Errorf("there are two, and one of them was closed: %v", err)
	}
	// Of one too many the oldest goes.
	clients[3], servers[3] = dialBounded(t, b)
	if all, err := io.ReadAll(clients[0]); string(all) != "a" || err != nil {
		t.Errorf("the oldest reads %q, %v, want what was written before its end", all, err)
	}
	for _, server := range servers[2:] {
		if _, err := server.Write([]byte("a")); err != nil {
			t.Errorf("the newest two: %v", err)
		}
	}
	// Nobody reads here. Each write may be the one that finds no room any more.
	for err == nil {
		_, err = servers[3].Write(make([]byte, 1<<20))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("writing to one that does not read: %v, want that the time is over", err)
	}
}
