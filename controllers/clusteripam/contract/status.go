package contract

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// Set returns conditions of an object in which the one of its type is now. news reports whether that was another one. Each has its generation: `kubectl wait` waits
// for that. Old API versions do not store it.
func Set(object metav1.Object, conditions []metav1.Condition, now metav1.Condition) (_ []metav1.Condition, news bool) {
	now.Message, now.ObservedGeneration = text.Cut(now.Message, text.MaxCondition), object.GetGeneration()
	before := Find(conditions, now.Type)
	news = before == nil || before.Status != now.Status || before.Reason != now.Reason || before.Message != now.Message
	if !news && before.ObservedGeneration == 0 {
		return conditions, false
	}
	conditions = slices.Clone(conditions)
	meta.SetStatusCondition(&conditions, now)
	return conditions, news
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
	before := Find(claim.Status.Conditions, v1beta2.ConditionReady)
	if (before == nil || before.Reason != w.Reason) && w.Reason != ReasonDeleting {
		c.Term.Event(claim, runner.IPAddressClaims, false, w.Reason, w.Message)
	}
	if err := c.status(ctx, claim, claim.Status.AddressRef.Name, metav1.Condition{Status: metav1.ConditionFalse, Reason: w.Reason, Message: w.Message}); err != nil {
		return err
	}
	if w.Again > 0 {
		return writes.Later(w.Again)
	}
	return nil
}

// status writes the status of a claim, if it is not so already.
func (c *Contract) status(ctx context.Context, claim *v1beta2.IPAddressClaim, address string, ready metav1.Condition) error {
	ready.Type = v1beta2.ConditionReady
	want := claim.DeepCopy()
	want.Status.AddressRef.Name = address
	want.Status.Conditions, _ = Set(claim, claim.Status.Conditions, ready)
	return Refused(c.Term.Change(ctx, runner.IPAddressClaims, claim, want, nil), "write the status")
}

// Refused says what a failed write was to do, and marks it if its object has changed or is gone: its event is coming.
func Refused(err error, what string) error {
	switch {
	case err == nil:
		return nil
	case writes.Answered(err) && (apierrors.IsConflict(err) || writes.NotThere(err)):
		return writes.RefusedLater{Err: fmt.Errorf("%s: %w", what, err)}
	}
	return fmt.Errorf("%s: %w", what, err)
}
