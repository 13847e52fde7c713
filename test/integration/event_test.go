package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestRenewedEvent: a new process says of a Node that is still pending what the last one said. The event tells since when.
func TestRenewedEvent(t *testing.T) {
	c := sharedCluster(t)
	if err := createNode(c, []string{"pending"}); err != nil {
		t.Fatal(err)
	}
	event := func(count int32) (found corev1.Event) {
		t.Helper()
		err := eventually(patience, func(ctx context.Context) error {
			events, err := c.kube.CoreV1().Events("").List(ctx, metav1.ListOptions{
				FieldSelector: fields.Set{"involvedObject.name": "pending", "reason": nodeipam.ReasonNotAvailable}.String(),
			})
			if err == nil && (len(events.Items) != 1 || events.Items[0].Count != count) {
				err = fmt.Errorf("the events are %v, want one with count %d", events.Items, count)
			}
			if err == nil {
				found = events.Items[0]
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if found.Namespace != metav1.NamespaceDefault {
			t.Errorf("it is in the namespace %s, where the controller may not write it", found.Namespace)
		}
		return found
	}
	first := event(1)
	// Timestamps count seconds.
	time.Sleep(time.Until(first.FirstTimestamp.Add(time.Second)))
	if err := errors.Join(c.stopManager((*controlplane.Process).Stop), c.startManager(c.program.usual...)); err != nil {
		t.Fatal(err)
	}
	second := event(2)
	if second.UID != first.UID || !second.FirstTimestamp.Equal(&first.FirstTimestamp) || !first.LastTimestamp.Before(&second.LastTimestamp) {
		t.Errorf("the event was %v to %v, and is %v to %v", first.FirstTimestamp, first.LastTimestamp, second.FirstTimestamp, second.LastTimestamp)
	}
}
