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
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/transport"

	"github.com/multicidr/controller-manager/test/chaos/checker"
)

// history is what etcd has stored of Nodes and ranges, every revision of it, also while members are away.
type history struct {
	checker  *checker.Checker
	follower *checker.Follower

	mu     sync.Mutex
	served map[types.UID]bool
	waits  []nodeWait
}

// nodeWait is how long a Node was pending, by the clock of the API servers: from its creationTimestamp to the time of the write of its
// podCIDRs, each in whole seconds. It does not depend on when anybody saw it.
type nodeWait struct {
	node string
	wait time.Duration
}

// startHistory follows the etcd of these control planes from now on. The stock manager gives blocks of static, without an annotation.
func (c *cluster) startHistory(t *testing.T, static checker.Range, services netip.Prefix, controlPlanes ...string) *history {
	t.Helper()
	pki := c.disk("etc/kubernetes/pki")
	var endpoints []string
	for _, machine := range controlPlanes {
		endpoints = append(endpoints, c.listenFor(t, net.JoinHostPort(c.addressOf(t, machine), "2379")))
	}
	client, err := checker.Connect(transport.TLSConfig{
		CAFile:   filepath.Join(pki, "etcd/ca.crt"),
		CertFile: filepath.Join(pki, "apiserver-etcd-client.crt"),
		KeyFile:  filepath.Join(pki, "apiserver-etcd-client.key"),
	}, endpoints...)
	if err != nil {
		t.Fatal(err)
	}
	h := &history{
		checker: checker.New(checker.Options{
			Static: []checker.Range{static}, ServiceRanges: []netip.Prefix{services}, Slack: time.Minute, Lease: managerPod, Flags: true,
		}),
		served: map[types.UID]bool{},
	}
	h.follower = checker.NewFollower(client, h.observe)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := h.follower.Run(ctx); err != nil {
			t.Errorf("a part of etcd's history is missing: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		client.Close()
	})
	return h
}

func (h *history) observe(e checker.Event) {
	h.checker.Observe(e)
	if e.Node == nil || e.Gone {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	served, known := h.served[e.Node.UID]
	h.served[e.Node.UID] = len(e.Node.Spec.PodCIDRs) > 0
	if !known || served || len(e.Node.Spec.PodCIDRs) == 0 {
		return // Of one that was served before all began nobody knows how long it was pending.
	}
	h.waits = append(h.waits, nodeWait{e.Node.Name, lastWrite(e.Node).Sub(e.Node.CreationTimestamp.Time)})
}

// lastWrite is the time of the write that made this revision.
func lastWrite(node *corev1.Node) time.Time {
	last := node.CreationTimestamp.Time
	for _, entry := range node.ManagedFields {
		if entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// take returns the waits of the Nodes that were served since the last call, longest first.
func (h *history) take(t *testing.T) []nodeWait {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := h.follower.CatchUp(ctx); err != nil {
		t.Fatalf("read etcd's history up to now: %v", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	waits := h.waits
	h.waits = nil
	slices.SortFunc(waits, func(a, b nodeWait) int { return int(b.wait - a.wait) })
	return waits
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
