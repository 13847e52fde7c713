package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/multicidr/controller-manager/test/chaos/checker"
)

// streamKeeps is how many Nodes of a stream there are at a time.
const streamKeeps = 50

// nodeStream registers Nodes without a machine, one after the other, each as soon as the last one is served: whenever nobody
// serves Nodes, one of them has to wait.
type nodeStream struct {
	client  kubernetes.Interface
	kubelet string // the version that the Nodes say
	cancel  context.CancelFunc
	done    chan struct{}

	mu    sync.Mutex
	waits []time.Duration
}

// startNodeStream takes a pause after each Node, on a machine that has other things to do as well. Each stream has a connection of its own: the
// balancer gives them to the API servers in turn, so that not all streams have to wait when one API server does not answer.
func (c *cluster) startNodeStream(t *testing.T, name string, pause time.Duration) *nodeStream {
	t.Helper()
	client, err := c.connect()
	if err != nil {
		t.Fatal(err)
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &nodeStream{client: client, kubelet: version.GitVersion, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for ctx.Err() == nil {
			begin := time.Now()
			if !s.serveOne(ctx, fmt.Sprintf("%s-%03d", name, s.served()+1)) {
				return
			}
			s.mu.Lock()
			s.waits = append(s.waits, time.Since(begin))
			n := len(s.waits)
			s.mu.Unlock()
			// The range of the flags has 256 blocks, and a stream goes on for as long as it takes.
			if n > streamKeeps {
				s.deleteNode(ctx, fmt.Sprintf("%s-%03d", name, n-streamKeeps))
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}()
	t.Cleanup(s.end)
	return s
}

func (s *nodeStream) served() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waits)
}

func (s *nodeStream) longestWait() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Max(s.waits)
}

// waitForMore waits until so many more Nodes are served, none of which was waiting before.
func (s *nodeStream) waitForMore(t *testing.T, more int) {
	t.Helper()
	want := s.served() + 1 + more
	eventually(t, 2*time.Minute, fmt.Sprintf("%d Nodes of the stream are served", want), func(context.Context) (bool, string) {
		return s.served() >= want, fmt.Sprintf("%d", s.served())
	})
}

// serveOne registers a Node and returns when it has podCIDRs; an API server that does not answer is asked again.
func (s *nodeStream) serveOne(ctx context.Context, name string) bool {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Status.NodeInfo.KubeletVersion = s.kubelet // kubeadm upgrades no cluster with a kubelet of which it does not know the version.
	for created := false; ; {
		if !created {
			_, err := s.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
			created = err == nil || apierrors.IsAlreadyExists(err) // An earlier answer may have been lost.
		} else if node, err := s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); err == nil && len(node.Spec.PodCIDRs) > 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
}

// deleteNode deletes a Node; an API server that does not answer is asked again.
func (s *nodeStream) deleteNode(ctx context.Context, name string) {
	for ctx.Err() == nil {
		err := s.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
		if err == nil || apierrors.IsNotFound(err) {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// end waits until nobody registers Nodes any more.
func (s *nodeStream) end() {
	s.cancel()
	<-s.done
}

// checkNoOverlap looks at every Node there is.
func (c *cluster) checkNoOverlap(t *testing.T) {
	t.Helper()
	nodes, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := checker.Overlaps(nodes.Items); err != nil {
		t.Error(err)
	}
}
