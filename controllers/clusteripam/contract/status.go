package contract

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/text"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Reasons of the condition Ready of a claim, besides those of Cluster API.
const (
	ReasonReady = "Ready"
	// ReasonDeleting (False): the claim is being deleted, and keeps its address for now; the message says why.
	ReasonDeleting = "Deleting"
	// ReasonMoved (False): clusterctl says that the claim, its IPAddress or its pool is in another cluster by now.
	ReasonMoved = "Moved"
)

// Find returns the condition of a type; nil if there is none.
func Find(conditions []metav1.Condition, kind string) *metav1.Condition {
	return meta.FindStatusCondition(conditions, kind)
}

// Same reports whether two conditions say the same, of whatever generation.
func Same(a, b metav1.Condition) bool {
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

// Stored reports whether conditions have this one already, of its generation: `kubectl wait` waits for that. Old API versions do not store the generation.
func Stored(conditions []metav1.Condition, c metav1.Condition) bool {
	before := Find(conditions, c.Type)
	return before != nil && Same(*before, c) && (before.ObservedGeneration == c.ObservedGeneration || before.ObservedGeneration == 0)
}

// With returns the conditions with c in place of the one of its type.
func With(conditions []metav1.Condition, c metav1.Condition) []metav1.Condition {
	conditions = slices.Clone(conditions)
	meta.SetStatusCondition(&conditions, c)
	return conditions
}

// tell writes into the status of a claim that it has an address, or a prefix.
func (c *Contract) tell(ctx context.Context, claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) error {
	message := fmt.Sprintf("The address is %s.", address.Spec.Address)
	if strings.HasSuffix(address.Spec.PoolRef.Kind, "PrefixPool") && address.Spec.Prefix != nil {
		message = fmt.Sprintf("The prefix is %s/%d.", address.Spec.Address, *address.Spec.Prefix)
	}
	return c.status(ctx, claim, address.Name, metav1.Condition{Status: metav1.ConditionTrue, Reason: ReasonReady, Message: message})
}

// wait writes into the status of a claim why it waits, if err is a Waits, and returns when to try again. Other errors it returns.
func (c *Contract) wait(ctx context.Context, claim *v1beta2.IPAddressClaim, err error) error {
	w, ok := errors.AsType[Waits](err)
	if !ok {
		return err
	}
	ready := metav1.Condition{Status: metav1.ConditionFalse, Reason: w.Reason, Message: text.Cut(w.Message, text.MaxCondition)}
	before := Find(claim.Status.Conditions, v1beta2.ConditionReady)
	if news := before == nil || before.Status != ready.Status || before.Reason != ready.Reason; news && w.Reason != ReasonDeleting {
		c.Term.Event(claim, runner.IPAddressClaims, false, ready.Reason, ready.Message)
	}
	if err := c.status(ctx, claim, claim.Status.AddressRef.Name, ready); err != nil {
		return err
	}
	if w.Again > 0 {
		return writes.Later(w.Again)
	}
	return nil
}

// status writes the status of a claim, if it is not so already.
func (c *Contract) status(ctx context.Context, claim *v1beta2.IPAddressClaim, address string, ready metav1.Condition) error {
	ready.Type, ready.ObservedGeneration = v1beta2.ConditionReady, claim.Generation
	if address == claim.Status.AddressRef.Name && Stored(claim.Status.Conditions, ready) {
		return nil
	}
	status := map[string]any{"conditions": With(claim.Status.Conditions, ready)}
	if address != "" {
		status["addressRef"] = map[string]any{"name": address}
	}
	patch := runner.MergePatchOfVersion(claim, map[string]any{"status": status})
	patch.Status = true
	return Refused(c.Term.API.Patch(ctx, runner.IPAddressClaims, NameOf(claim), patch, nil), "write the status")
}

// Refused says what a failed write was to do, and marks it if its object has changed or is gone: its event is coming.
func Refused(err error, what string) error {
	switch {
	case err == nil:
		return nil
	case changed(err):
		return writes.RefusedLater{Err: fmt.Errorf("%s: %w", what, err)}
	}
	return fmt.Errorf("%s: %w", what, err)
}
