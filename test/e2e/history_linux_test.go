package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/transport"

	"github.com/multicidr/controller-manager/test/chaos/checker"
)

// history is what etcd has stored of Nodes and ranges, every revision of it, also while members are away.
type history struct {
	checker  *checker.Checker
	follower *checker.Follower

	mu    sync.Mutex
	nodes map[types.UID]*nodeTimes
}

// nodeTimes are when the first member of etcd has told of a Node's creation, and of its podCIDRs. Each member is watched by itself, so that
// no watch that has to move to another member makes them late.
type nodeTimes struct {
	name            string
	created, served time.Time
	before          bool // it had podCIDRs when all began
	taken           bool
}

// wait is how long the Node was pending after that time.
func (n *nodeTimes) wait(after time.Time) time.Duration {
	if n.created.After(after) {
		after = n.created
	}
	return n.served.Sub(after)
}

// startHistory follows the etcd of these control planes from now on. A stock manager gives blocks of static, without an annotation.
func (c *cluster) startHistory(t *testing.T, static []checker.Range, services netip.Prefix, controlPlanes ...string) *history {
	t.Helper()
	h := &history{
		checker: checker.New(checker.Options{
			Static: static, ServiceRanges: []netip.Prefix{services}, Slack: time.Minute, Lease: managerPod, Flags: true,
		}),
		nodes: map[types.UID]*nodeTimes{},
	}
	var endpoints []string
	for _, machine := range controlPlanes {
		endpoints = append(endpoints, c.listenFor(t, net.JoinHostPort(c.addressOf(t, machine), "2379")))
	}
	h.follower = c.follow(t, h.checker.Observe, endpoints...)
	for _, endpoint := range endpoints {
		c.follow(t, h.observe, endpoint)
	}
	return h
}

// follow follows etcd until the test ends, and returns when it has seen what there is now.
func (c *cluster) follow(t *testing.T, observe func(checker.Event), endpoints ...string) *checker.Follower {
	t.Helper()
	pki := c.disk("etc/kubernetes/pki")
	client, err := checker.Connect(transport.TLSConfig{
		CAFile:   filepath.Join(pki, "etcd/ca.crt"),
		CertFile: filepath.Join(pki, "apiserver-etcd-client.crt"),
		KeyFile:  filepath.Join(pki, "apiserver-etcd-client.key"),
	}, endpoints...)
	if err != nil {
		t.Fatal(err)
	}
	follower := checker.NewFollower(client, observe)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := follower.Run(ctx); err != nil {
			t.Errorf("a part of etcd's history is missing: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		client.Close()
	})
	catchUp(t, follower)
	return follower
}

func catchUp(t *testing.T, follower *checker.Follower) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := follower.CatchUp(ctx); err != nil {
		t.Fatalf("read etcd's history up to now: %v", err)
	}
}

func (h *history) observe(e checker.Event) {
	if e.Node == nil || e.Gone {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	served := len(e.Node.Spec.PodCIDRs) > 0
	n := h.nodes[e.Node.UID]
	if n == nil {
		n = &nodeTimes{name: e.Node.Name, created: e.At, before: served}
		h.nodes[e.Node.UID] = n
	}
	if served && n.served.IsZero() {
		n.served = e.At
	}
}

// take returns the Nodes that were served since the last call.
func (h *history) take(t *testing.T) []*nodeTimes {
	t.Helper()
	catchUp(t, h.follower)
	h.mu.Lock()
	defer h.mu.Unlock()
	var served []*nodeTimes
	for _, n := range h.nodes {
		if !n.before && !n.taken && !n.served.IsZero() {
			n.taken = true
			served = append(served, n)
		}
	}
	return served
}

// check reports every rule that was broken since the beginning.
func (h *history) check(t *testing.T) {
	t.Helper()
	for _, violation := range h.checker.Violations() {
		t.Error(violation)
	}
}

// addressOf is a machine's IPv4 address on the network of the machines.
func (c *cluster) addressOf(t *testing.T, machine string) string {
	t.Helper()
	number, err := os.ReadFile(filepath.Join(c.dir, "machines", machine, "number"))
	if err != nil {
		t.Fatal(err)
	}
	return "172.18.0." + string(number)
}

// listenFor returns an address of the host behind which is an address of the machines' network.
func (c *cluster) listenFor(t *testing.T, address string) string {
	t.Helper()
	pid, err := os.ReadFile(filepath.Join(c.dir, "router/pid"))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // It is closed.
			}
			go func() {
				defer client.Close()
				server, err := dialIn("/proc/"+strings.TrimSpace(string(pid))+"/ns/net", address)
				if err != nil {
					return // The client sees its connection closed.
				}
				defer server.Close()
				go func() {
					_, _ = io.Copy(server, client)
					server.Close()
				}()
				_, _ = io.Copy(client, server)
			}()
		}
	}()
	return listener.Addr().String()
}

// dialIn connects in another network namespace. A socket stays in the one that it was made in.
func dialIn(namespace, address string) (net.Conn, error) {
	there, err := os.Open(namespace)
	if err != nil {
		return nil, err
	}
	defer there.Close()
	runtime.LockOSThread()
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer here.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter %s: %w", namespace, err)
	}
	conn, err := net.DialTimeout("tcp4", address, 3*time.Second)
	if back := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); back != nil {
		return nil, errors.Join(err, back) // The thread stays locked, so that it is nobody else's.
	}
	runtime.UnlockOSThread()
	return conn, err
}
