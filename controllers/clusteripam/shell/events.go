package shell

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/queues"
	"github.com/multicidr/controller-manager/controllers/text"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// reasonFails is the reason of events about objects on which the work fails.
const reasonFails = "WriteFailed"

// maxPending limits the events that wait to be written. More are dropped: nothing is decided by events.
const maxPending = 20000

// maxSubjectInName leaves room for the rest of an event's name, which is limited to 253 characters.
const maxSubjectInName = 200

// teller writes events, without delaying what they are about, and without an event recorder, which drops some when many arrive at once. An
// event is identified by its object, reason and message. If it exists already, for example after a restart, it is renewed.
type teller struct {
	clients *clients
	now     func() time.Time
	queue   queues.Queue[types.NamespacedName] // of the events' names

	mu      sync.Mutex
	pending map[types.NamespacedName]*v1.Event
}

func newTeller(c *clients, name string, now func() time.Time) *teller {
	return &teller{clients: c, now: now, queue: queues.New[types.NamespacedName](name+"_events", time.Minute), pending: map[types.NamespacedName]*v1.Event{}}
}

// tell queues an event.
func (t *teller) tell(e Event) {
	event := t.event(e)
	name := types.NamespacedName{Namespace: event.Namespace, Name: event.Name}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pending) < maxPending {
		t.pending[name] = event
		t.queue.Add(name)
	}
}

func (t *teller) event(e Event) *v1.Event {
	apiVersion, _ := t.clients.served(e.Kind)
	about := v1.ObjectReference{
		APIVersion: apiVersion, Kind: e.Kind.Name, Namespace: e.About.GetNamespace(), Name: e.About.GetName(), UID: e.About.GetUID(),
	}
	message := text.Cut(e.Message, text.MaxMessage)
	hash := fnv.New64a()
	for _, s := range []string{string(about.UID), e.Kind.Name, e.Reason, message} {
		hash.Write([]byte(s + "\x00"))
	}
	sort := v1.EventTypeWarning
	if e.Normal {
		sort = v1.EventTypeNormal
	}
	now := metav1.NewTime(t.now().Truncate(time.Second))
	return &v1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      fmt.Sprintf("%s.%016x", strings.TrimRight(about.Name[:min(len(about.Name), maxSubjectInName)], ".-"), hash.Sum64()),
			Namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault), // events of cluster-scoped objects belong there
		},
		InvolvedObject: about, Type: sort, Reason: e.Reason, Message: message,
		Source: v1.EventSource{Component: t.clients.manager}, ReportingController: t.clients.manager,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}

// write writes a queued event.
func (t *teller) write(ctx context.Context, name types.NamespacedName) error {
	t.mu.Lock()
	event := t.pending[name]
	t.mu.Unlock()
	if event == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writes.Timeout) // A shutdown interrupts it.
	defer cancel()
	path := []string{"api/v1/namespaces", event.Namespace, "events"}
	err := t.clients.rest.Post().AbsPath(path...).SetHeader("Content-Type", "application/json").Param("fieldManager", t.clients.manager).Body(Encode(event)).Do(ctx).Error()
	if apierrors.IsAlreadyExists(err) {
		err = t.renew(ctx, append(path, event.Name), event)
	}
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write event %s of %s %s: %w", event.Reason, event.InvolvedObject.Kind, event.InvolvedObject.Name, err)
	}
	if err != nil { // The namespace may be terminating or gone. Do not retry forever for an event.
		klog.FromContext(ctx).Error(err, "Cannot write an event", "about", event.InvolvedObject.Name, "reason", event.Reason, "message", event.Message)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pending[name] == event {
		delete(t.pending, name)
	}
	return nil
}

// renew notes another occurrence of an event. It keeps the time of the first one and increases the count: while the count is 1, kubectl
// describe only shows the first time.
func (t *teller) renew(ctx context.Context, path []string, event *v1.Event) error {
	patch := func(body []byte) ([]byte, error) {
		answer := t.clients.rest.Patch(types.MergePatchType).AbsPath(path...).Param("fieldManager", t.clients.manager).Body(body).Do(ctx)
		if err := answer.Error(); err != nil {
			return nil, err
		}
		return answer.Raw()
	}
	// An empty patch reads the event. A get would need a permission that nothing else needs.
	answer, err := patch([]byte("{}"))
	if err != nil {
		return err
	}
	var stored v1.Event
	if err := json.Unmarshal(answer, &stored); err != nil {
		return err
	}
	_, err = patch(Encode(map[string]any{"lastTimestamp": event.LastTimestamp, "count": stored.Count + 1}))
	return err
}
