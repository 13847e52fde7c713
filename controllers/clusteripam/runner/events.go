package runner

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// events writes events without ever blocking a worker. Events that are dropped, because many come at once, are no loss: conditions say the same.
type events struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	said        *utilcache.LRUExpireCache // the events of late
}

// newEvents begins to write events.
func newEvents(ctx context.Context, client kubernetes.Interface, source string) *events {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(v1.NamespaceAll)})
	return &events{broadcaster, broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: source}), utilcache.NewLRUExpireCache(maxSaid)}
}

// tell writes an event unless it was written a short time ago.
func (e *events) tell(about metav1.Object, kind *Kind, apiVersion string, normal bool, reason, message string) {
	sort := v1.EventTypeWarning
	if normal {
		sort = v1.EventTypeNormal
	}
	said := [...]string{string(about.GetUID()), kind.Name, reason, message}
	if _, ok := e.said.Get(said); ok {
		return
	}
	e.said.Add(said, nil, saidFor)
	e.recorder.Event(&v1.ObjectReference{
		APIVersion: apiVersion, Kind: kind.Name, Namespace: about.GetNamespace(), Name: about.GetName(), UID: about.GetUID(),
	}, sort, reason, text.Cut(message, text.MaxMessage))
}
