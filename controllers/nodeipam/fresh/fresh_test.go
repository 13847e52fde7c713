package fresh

import (
	"context"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// mute is an API server, or a proxy before it, that loses the answer of every list.
type mute struct {
	kubernetes.Interface
	corev1.CoreV1Interface
	corev1.NodeInterface
}

func (m mute) CoreV1() corev1.CoreV1Interface { return m }
func (m mute) Nodes() corev1.NodeInterface    { return m }
func (m mute) List(ctx context.Context, _ metav1.ListOptions) (*v1.NodeList, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestLostAnswer: a read whose answer is lost ends, so that it is repeated.
func TestLostAnswer(t *testing.T) {
	for name, read := range map[string]func(context.Context) error{
		"one Node": func(ctx context.Context) error { _, err := ReadNodes(ctx, mute{}); return err },
		"pages":    func(ctx context.Context) error { _, _, err := ReadPages(mute{}.List)(ctx, ""); return err },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*answered)
				defer cancel()
				if err := read(ctx); err == nil || ctx.Err() != nil {
					t.Errorf("the read ends with %v, and its caller is done: %v", err, ctx.Err())
				}
			})
		})
	}
}
