// Package events writes events about objects, without ever blocking a worker. Events that are dropped, because many come at once, are no loss: conditions and
// metrics say the same.
package events

import (
	"time"

	v1 "k8s.io/api/core/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/multicidr/controller-manager/controllers/text"
)

const (
	// saidFor is how long an event is not repeated.
	saidFor = 10 * time.Minute
	// maxSaid limits how many events are remembered.
	maxSaid = 100_000
)

// Writer writes events. Safe for concurrent use.
type Writer struct {
	client      kubernetes.Interface
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	// said is the message of the last event, by object and reason.
	said *utilcache.LRUExpireCache
}

// New returns a writer of a controller's events, which writes none before Start.
func New(client kubernetes.Interface, controller string) *Writer {
	broadcaster := record.NewBroadcaster()
	return &Writer{
		client: client, broadcaster: broadcaster, said: utilcache.NewLRUExpireCache(maxSaid),
		recorder: broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: controller}),
	}
}

// Start begins to write, and returns what ends it.
func (w *Writer) Start() (stop func()) {
	w.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: w.client.CoreV1().Events(v1.NamespaceAll)})
	return w.broadcaster.Shutdown
}

// Warn writes a Warning, unless the last event about this object and reason had the same message and is recent.
func (w *Writer) Warn(about v1.ObjectReference, reason, message string) {
	w.tell(about, v1.EventTypeWarning, reason, message)
}

// Note is Warn for what is well.
func (w *Writer) Note(about v1.ObjectReference, reason, message string) {
	w.tell(about, v1.EventTypeNormal, reason, message)
}

func (w *Writer) tell(about v1.ObjectReference, kind, reason, message string) {
	key := string(about.UID) + "/" + reason
	if last, ok := w.said.Get(key); ok && last == message {
		return
	}
	w.said.Add(key, message, saidFor)
	w.recorder.Event(&about, kind, reason, text.Cut(message, text.MaxMessage))
}
