// Package events writes events. It does not leave them to a recorder, which drops some when many come at once.
package events

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/nodeipam/text"
)

// Reasons of events, all of type Warning. On Nodes:
const (
	// ReasonNotAvailable: no ClusterCIDR can serve the Node. It is served as soon as one can.
	ReasonNotAvailable = "CIDRNotAvailable"
	// ReasonWriteFailed: podCIDRs are chosen, and the API server does not store them.
	ReasonWriteFailed = "CIDRWriteFailed"
)

// And on ClusterCIDRs:
const (
	// ReasonExhausted: a family has no free block any more.
	ReasonExhausted = "Exhausted"
	// ReasonDeletionBlocked: it was deleted, and Nodes belong to it.
	ReasonDeletionBlocked = "DeletionBlocked"
	// ReasonInvalid: it breaks a rule and serves nobody.
	ReasonInvalid = "Invalid"
	// ReasonStatusWriteFailed: the API server does not store its status.
	ReasonStatusWriteFailed = "StatusWriteFailed"
	// ReasonFinalizerMissing: its finalizer cannot be added, or is not kept, so it serves nobody.
	ReasonFinalizerMissing = "FinalizerMissing"
)

// eventWriter writes events to an API server.
type Writer struct {
	API requests.API
	Now func() time.Time
}

// The kinds of subjects in keys.
const (
	AboutNode        = "Node"
	AboutClusterCIDR = "ClusterCIDR"
)

// maxSubjectInName leaves room for the rest of an event's name, which has at most 253 characters.
const maxSubjectInName = 200

// Write writes an event. It is not left to a recorder, which drops events when many come at once: five thousand Nodes that
// wait shall have five thousand events. Who says the same of the same object again, after a restart for instance, renews
// the event that is there.
func (w Writer) Write(ctx context.Context, about v1.ObjectReference, reason, message string) error {
	message = text.Cut(message, text.MaxMessage)
	hash := fnv.New64a()
	for _, s := range []string{string(about.UID), reason, message} {
		hash.Write([]byte(s + "\x00"))
	}
	now := metav1.NewTime(w.Now().Truncate(time.Second))
	event := &v1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name:      fmt.Sprintf("%s.%016x", strings.TrimRight(about.Name[:min(len(about.Name), maxSubjectInName)], ".-"), hash.Sum64()),
			Namespace: metav1.NamespaceDefault, // where events of objects without a namespace are
		},
		InvolvedObject:      about,
		Type:                v1.EventTypeWarning,
		Reason:              reason,
		Message:             message,
		Source:              v1.EventSource{Component: requests.Manager},
		ReportingController: requests.Manager,
		FirstTimestamp:      now,
		LastTimestamp:       now,
		Count:               1,
	}
	ctx, cancel := context.WithTimeout(ctx, requests.Timeout) // A shutdown ends it: nobody decides by events.
	defer cancel()
	err := w.API.CreateEvent(ctx, event)
	if apierrors.IsAlreadyExists(err) {
		err = w.renew(ctx, event)
	}
	switch {
	case apierrors.IsForbidden(err):
		// An event is not worth asking for ever.
		klog.FromContext(ctx).Error(err, "May not write events: "+health.ApplyRBAC, "about", about.Name, "reason", reason, "message", message)
		return nil
	case err != nil:
		return fmt.Errorf("write event %s of %s %s: %w", reason, about.Kind, about.Name, err)
	}
	return nil
}

// renew says of an event that is there that it was so again. When it was so for the first time stays, and the count grows: kubectl describe
// shows the first time alone for as long as it is 1.
func (w Writer) renew(ctx context.Context, event *v1.Event) error {
	// A patch that changes nothing reads it: get is a permission that nothing else needs.
	stored, err := w.API.PatchEvent(ctx, event.Namespace, event.Name, []byte("{}"))
	if err != nil {
		return err
	}
	_, err = w.API.PatchEvent(ctx, event.Namespace, event.Name, requests.Encode(map[string]any{"lastTimestamp": event.LastTimestamp, "count": stored.Count + 1}))
	return err
}

func OfNode(name string, uid types.UID) v1.ObjectReference {
	return v1.ObjectReference{APIVersion: "v1", Kind: AboutNode, Name: name, UID: uid}
}

func OfClusterCIDR(name string, uid types.UID) v1.ObjectReference {
	return v1.ObjectReference{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: AboutClusterCIDR, Name: name, UID: uid}
}

// eventKey names an event by its subject and reason. None of the words has a slash.
func Key(kind, name, reason string) string { return kind + "/" + name + "/" + reason }
