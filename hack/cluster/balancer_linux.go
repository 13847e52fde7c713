package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// checkInterval is how often the balancer asks each API server whether it is ready, and checkTimeout how long that may take.
	checkInterval = time.Second
	checkTimeout  = 3 * time.Second
	// silence is how many answers in a row a server may owe before its connections are cut. A machine without power or network ends no
	// connection, and its clients would wait for as long as TCP does.
	silence = 3
)

// balancer hands connections to the API servers in turn. One that is not ready gets no new ones, unless none is.
type balancer struct {
	servers func() []string // the addresses with ports, in the same order each time
	config  func() (*rest.Config, error)

	mu    sync.Mutex
	known map[string]*server
	turn  int
}

// server is one API server behind the balancer.
type server struct {
	ready       bool
	owes        int // answers, since the last one
	connections map[net.Conn]bool
}

// newBalancer is one for the API servers of the cluster.
func (c *cluster) newBalancer() *balancer {
	return &balancer{servers: c.apiServers, config: c.adminConfig, known: map[string]*server{}}
}

// apiServers are the addresses of the control planes there are, whether they run or not.
func (c *cluster) apiServers() []string {
	var addresses []string
	for _, m := range c.controlPlanes() {
		if number, err := m.number(); err == nil { // It may be going just now.
			addresses = append(addresses, net.JoinHostPort(address4(number), strconv.Itoa(apiPort)))
		}
	}
	return addresses
}

// adminConfig is kubeadm's, which names the balancer.
func (c *cluster) adminConfig() (*rest.Config, error) {
	files, err := filepath.Glob(c.machine("*").disk("etc/kubernetes/admin.conf"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("no control plane has an admin.conf yet")
	}
	return clientcmd.BuildConfigFromFlags("", files[0])
}

// run checks all servers, those that come later too, until ctx is done.
func (b *balancer) run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		servers := b.servers()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, address := range servers {
			if b.known[address] == nil {
				b.known[address] = &server{connections: map[net.Conn]bool{}}
				// Each by itself: one that does not answer holds nobody up.
				go wait.UntilWithContext(ctx, func(ctx context.Context) { b.check(ctx, address) }, checkInterval)
			}
		}
	}, checkInterval)
}

// check asks one server, and acts on its answer.
func (b *balancer) check(ctx context.Context, address string) {
	ready, err := b.ask(ctx, address)
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.known[address]
	if s.ready != ready {
		fmt.Println(time.Now().Format(time.TimeOnly), "balancer:", address, "ready:", ready, "error:", err)
	}
	s.ready = ready
	s.owes++
	if err == nil {
		s.owes = 0
	}
	if s.owes != silence {
		return
	}
	fmt.Println(time.Now().Format(time.TimeOnly), "balancer:", address, "does not answer: connections cut:", len(s.connections))
	for conn := range s.connections {
		conn.Close()
	}
}

// ask returns an error if there was no answer at all. Each time it connects anew, as clients are going to.
func (b *balancer) ask(ctx context.Context, address string) (ready bool, err error) {
	config, err := b.config()
	if err != nil {
		return false, err
	}
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/readyz", nil)
	if err != nil {
		return false, err
	}
	transport := &http.Transport{TLSClientConfig: tls, DisableKeepAlives: true}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return false, err
	}
	return answer.StatusCode == http.StatusOK, answer.Body.Close()
}

// serve takes connections until the listener ends.
func (b *balancer) serve(listener net.Listener) error {
	for {
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		go b.forward(client)
	}
}

// forward joins a client to the first server that takes its connection. If none does the client sees its own closed, as when the server
// itself is down.
func (b *balancer) forward(client net.Conn) {
	defer client.Close()
	for _, address := range b.order() {
		conn, err := net.DialTimeout("tcp", address, 2*time.Second)
		if err != nil {
			continue
		}
		defer b.keep(address, conn)()
		join(client, conn)
		return
	}
}

// order is that in which servers are tried: those that are ready, another one of them first each time, then the rest, since what is known
// of them is up to some seconds old.
func (b *balancer) order() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ready, rest []string
	for _, address := range slices.Sorted(maps.Keys(b.known)) {
		if b.known[address].ready {
			ready = append(ready, address)
		} else {
			rest = append(rest, address)
		}
	}
	if len(ready) > 0 {
		b.turn = (b.turn + 1) % len(ready)
		ready = slices.Concat(ready[b.turn:], ready[:b.turn])
	}
	return append(ready, rest...)
}

// keep notes a connection for as long as it lasts, so that it can be cut. The server may have gone since it was chosen.
func (b *balancer) keep(address string, conn net.Conn) (end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known[address].connections[conn] = true
	return func() {
		conn.Close()
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.known[address].connections, conn)
	}
}

// join passes on what each side sends until both have ended.
func join(client, server net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, client)
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, server)
	_ = client.(*net.TCPConn).CloseWrite()
	<-done
}
