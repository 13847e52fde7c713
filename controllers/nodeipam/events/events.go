// Package events writes events without an event recorder, because a recorder drops some when many arrive at once.
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
	"github.com/multicidr/controller-manager/controllers/text"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Reasons of events on Nodes. All events have type Warning.
const (
	// ReasonNotAvailable: no ClusterCIDR can serve the Node. It gets podCIDRs as soon as one can.
	ReasonNotAvailable = "CIDRNotAvailable"
	// ReasonWriteFailed: blocks are reserved, but the API server does not store them.
	ReasonWriteFailed = "CIDRWriteFailed"
)

// Reasons of events on ClusterCIDRs.
const (
	// ReasonExhausted: a family has no free block.
	ReasonExhausted = "Exhausted"
	// ReasonDeletionBlocked: the ClusterCIDR is being deleted, but Nodes belong to it.
	ReasonDeletionBlocked = "DeletionBlocked"
	// ReasonInvalid: the ClusterCIDR breaks a rule and allocates nothing.
	ReasonInvalid = "Invalid"
	// ReasonStatusWriteFailed: the API server does not store the status.
	ReasonStatusWriteFailed = "StatusWriteFailed"
	// ReasonFinalizerMissing: the finalizer cannot be added or is not kept, so the ClusterCIDR allocates nothing.
	ReasonFinalizerMissing = "FinalizerMissing"
)

// Writer writes events to an API server.
type Writer struct {
	API requests.API
	Now func() time.Time
}

// Kinds of objects in keys.
const (
	AboutNode        = "Node"
	AboutClusterCIDR = "ClusterCIDR"
)

// maxSubjectInName leaves room for the rest of an event's name, which is limited to 253 characters.
const maxSubjectInName = 200

// Write writes an event. It uses no recorder, because recorders drop events when many arrive at once: five thousand pending Nodes need five
// thousand events. If the same event exists already, for example after a restart, Write renews it.
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
			Namespace: metav1.NamespaceDefault, // events of cluster-scoped objects belong there
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
	ctx, cancel := context.WithTimeout(ctx, writes.Timeout) // A shutdown interrupts it: no decision depends on events.
	defer cancel()
	err := w.API.CreateEvent(ctx, event)
	if apierrors.IsAlreadyExists(err) {
		err = w.renew(ctx, event)
	}
	switch {
	case apierrors.IsForbidden(err):
		// Do not retry forever for an event.
		klog.FromContext(ctx).Error(err, "May not write events: "+health.ApplyRBAC, "about", about.Name, "reason", reason, "message", message)
		return nil
	case err != nil:
		return fmt.Errorf("write event %s of %s %s: %w", reason, about.Kind, about.Name, err)
	}
	return nil
}

// renew notes another occurrence of an existing event. It keeps the time of the first occurrence and increases the count: while the count
// is 1, kubectl describe only shows the first time.
func (w Writer) renew(ctx context.Context, event *v1.Event) error {
	// An empty patch reads the event. A get would need a permission that nothing else needs.
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

// Key identifies an event by its object and reason. None of the parts contains a slash.
func Key(kind, name, reason string) string { return kind + "/" + name + "/" + reason }
