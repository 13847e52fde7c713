package nodeipam

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// Reasons of events, all of type Warning. On Nodes:
const (
	// ReasonNotAvailable: no ClusterCIDR can serve the Node. It is served as soon as one can.
	ReasonNotAvailable = "CIDRNotAvailable"
	// ReasonConflict: the Node holds addresses that another Node or a service range has too.
	ReasonConflict = "CIDRConflict"
	// ReasonOutsideRanges: no ClusterCIDR contains any podCIDR of the Node.
	ReasonOutsideRanges = "CIDROutsideRanges"
	// ReasonAssignedByOther: another allocator gave the Node its podCIDRs while this one was the leader.
	ReasonAssignedByOther = "CIDRAssignedByOther"
	// ReasonWriteFailed: podCIDRs are chosen, and the API server does not store them.
	ReasonWriteFailed = "CIDRWriteFailed"
	// ReasonUnreadable: a podCIDR of the Node is no CIDR.
	ReasonUnreadable = "CIDRUnreadable"
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

// maxSubjectInName leaves room for the rest of an event's name, which has at most 253 characters.
const maxSubjectInName = 200

// say writes an event. It is not left to a recorder, which drops events when many come at once: five thousand Nodes that
// wait shall have five thousand events. Who says the same of the same object again, after a restart for instance, renews
// the event that is there.
func (c *Controller) say(ctx context.Context, about v1.ObjectReference, reason, message string) error {
	message = cut(message, maxMessage)
	hash := fnv.New64a()
	for _, s := range []string{string(about.UID), reason, message} {
		hash.Write([]byte(s + "\x00"))
	}
	now := metav1.NewTime(c.now().Truncate(time.Second))
	event := &v1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name:      fmt.Sprintf("%s.%016x", strings.TrimRight(about.Name[:min(len(about.Name), maxSubjectInName)], ".-"), hash.Sum64()),
			Namespace: metav1.NamespaceDefault, // where events of objects without a namespace are
		},
		InvolvedObject:      about,
		Type:                v1.EventTypeWarning,
		Reason:              reason,
		Message:             message,
		Source:              v1.EventSource{Component: Name},
		ReportingController: Name,
		FirstTimestamp:      now,
		LastTimestamp:       now,
		Count:               1,
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout) // A shutdown ends it: nobody decides by events.
	defer cancel()
	err := c.api.createEvent(ctx, event)
	if apierrors.IsAlreadyExists(err) {
		err = c.renew(ctx, event)
	}
	switch {
	case apierrors.IsForbidden(err):
		// An event is not worth asking for ever.
		klog.FromContext(ctx).Error(err, "May not write events: "+ApplyRBAC, "about", about.Name, "reason", reason, "message", message)
		return nil
	case err != nil:
		return fmt.Errorf("write event %s of %s %s: %w", reason, about.Kind, about.Name, err)
	}
	return nil
}

// renew says of an event that is there that it was so again. When it was so for the first time stays, and the count grows: kubectl describe
// shows the first time alone for as long as it is 1.
func (c *Controller) renew(ctx context.Context, event *v1.Event) error {
	// A patch that changes nothing reads it: get is a permission that nothing else needs.
	stored, err := c.api.patchEvent(ctx, event.Namespace, event.Name, []byte("{}"))
	if err != nil {
		return err
	}
	_, err = c.api.patchEvent(ctx, event.Namespace, event.Name, encode(map[string]any{"lastTimestamp": event.LastTimestamp, "count": stored.Count + 1}))
	return err
}

// reasons writes why pools refused a Node, the same text for the same reasons.
func reasons(refusals []refusal) string {
	var texts []string
	for _, r := range refusals {
		texts = append(texts, r.String())
	}
	return listed(texts)
}

func (r refusal) String() string {
	switch {
	case r.pool.State != ipam.Enabled && r.pool.problem != "":
		return fmt.Sprintf("%s is %s (%s)", r.pool.Name, strings.ToLower(r.pool.State.String()), r.pool.problem)
	case r.pool.State != ipam.Enabled:
		return fmt.Sprintf("%s is %s", r.pool.Name, strings.ToLower(r.pool.State.String()))
	}
	why := families(r.full)
	if r.cover != "" {
		why += "; " + r.cover
	}
	if r.excludes {
		why += "; it has spec.excludedCIDRs"
	}
	return fmt.Sprintf("%s is full (%s)", r.pool.Name, why)
}

func families(fs []ipam.Family) string {
	var texts []string
	for _, f := range fs {
		texts = append(texts, f.String())
	}
	return strings.Join(texts, " and ")
}

// counted writes a number with the word that goes with it.
func counted(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// notAvailable says why a Node waits and what to do.
func notAvailable(refusals []refusal, pools int) string {
	switch {
	case pools == 0:
		return "No ClusterCIDR exists. Create one that selects this Node."
	case len(refusals) == 0:
		return fmt.Sprintf("None of the %d ClusterCIDRs selects this Node. Change its labels or create a ClusterCIDR that selects it.", pools)
	default:
		return fmt.Sprintf("No ClusterCIDR that selects this Node can serve it: %s. %s.", reasons(refusals), wayOut(refusals))
	}
}

// wayOut says what to do about refusals: besides another ClusterCIDR, only what helps.
func wayOut(refusals []refusal) string {
	ways := []string{"Create another one"}
	if slices.ContainsFunc(refusals, func(r refusal) bool { return r.pool.State == ipam.Disabled && !r.pool.superseded }) {
		ways = append(ways, "set spec.allocation: Enabled")
	}
	if slices.ContainsFunc(refusals, func(r refusal) bool { return r.pool.State == ipam.Enabled && r.used }) {
		ways = append(ways, "delete Nodes that are not needed")
	}
	if slices.ContainsFunc(refusals, func(r refusal) bool { return r.excludes }) {
		ways = append(ways, "shorten spec.excludedCIDRs where the condition Ready names some")
	}
	return strings.Join(ways, ", or ")
}

// findings returns what is wrong with the podCIDRs that a Node shows, message by reason.
func (b *book) findings(node *v1.Node) map[string]string {
	found := map[string]string{}
	blocks, unreadable := podCIDRsOf(node)
	if len(unreadable) > 0 {
		found[ReasonUnreadable] = fmt.Sprintf("podCIDRs %s cannot be read, so nothing keeps their addresses from being given to another Node. Delete the Node and reboot its machine, which registers it again.", valuesText(unreadable))
	}
	if e, ok := b.nodes[node.Name]; ok && e.byOther != "" {
		found[ReasonAssignedByOther] = e.byOther
	}
	if len(blocks) > 0 && b.outside(blocks) {
		wayOut := "Create a ClusterCIDR that contains them, or delete the Node and reboot its machine, which registers it again."
		if slices.ContainsFunc(blocks, b.services.Overlaps) || slices.ContainsFunc(blocks, mapped.Overlaps) {
			// A ClusterCIDR would overlap the service range, or be refused.
			wayOut = "Drain and delete the Node and reboot its machine, which registers it again."
		}
		found[ReasonOutsideRanges] = fmt.Sprintf("podCIDRs %s lie in no ClusterCIDR. They stay as they are and are given to nobody else. %s", blocksText(blocks), wayOut)
	}
	var others []string
	for h := range b.conflicts(node.UID) {
		if others = append(others, fmt.Sprintf("%s (%v)", b.nameOf(h.Owner), h.Prefix)); len(others) > maxNamed {
			break
		}
	}
	if len(others) > 0 {
		found[ReasonConflict] = fmt.Sprintf("podCIDRs %s share addresses with %s. Two Pods, or a Pod and a Service, may get the same address: drain and delete this Node or the others and reboot their machines, which registers them again.", blocksText(blocks), listedFew(others))
	}
	return found
}
