package contract

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// release gives back what a claim in deletion has: first its IPAddress goes, then what the provider holds, then the finalizer.
func (c *Contract) release(ctx context.Context, claim *v1beta2.IPAddressClaim) error {
	if !has(claim, v1beta2.FinalizerReleaseAddress) {
		return nil
	}
	if others := KeptBy(claim); len(others) > 0 {
		return c.wait(ctx, claim, Waits{Reason: ReasonDeleting,
			Message: fmt.Sprintf("The claim is being deleted, and keeps its address until others have removed their finalizers: %s.", strings.Join(others, ", "))})
	}
	if err := c.Provider.MayRelease(claim); err != nil {
		return c.wait(ctx, claim, err)
	}
	address, err := c.addressOf(ctx, claim, true)
	switch {
	case err != nil:
		return err
	case address == nil || !Owns(claim, address):
		if err := c.Provider.Release(ctx, claim); err != nil {
			return c.wait(ctx, claim, err)
		}
		return c.removeFinalizer(ctx, runner.IPAddressClaims, claim, v1beta2.FinalizerReleaseAddress)
	}
	if claim, err = c.mark(ctx, claim, address, c.Provider.Says(address)); err != nil { // Afterwards nothing says what it was.
		return err
	}
	if Unmarked(address) {
		if err := c.Provider.Confirm(ctx, claim, address); err != nil {
			return c.wait(ctx, claim, err)
		}
	}
	return c.wait(ctx, claim, c.end(ctx, address))
}

// end removes the finalizer of an IPAddress and deletes it. Its end, which the watch shows, queues its claim; until then the error says that it waits.
func (c *Contract) end(ctx context.Context, address *v1beta2.IPAddress) error {
	if err := movedAway(address); err != nil {
		return err
	}
	if err := c.removeFinalizer(ctx, runner.IPAddresses, address, v1beta2.FinalizerProtectAddress); err != nil {
		return err
	}
	if address.DeletionTimestamp == nil {
		klog.FromContext(ctx).Info("Releasing an address", "ipAddress", klog.KObj(address), "address", address.Spec.Address)
		if err := c.Term.API.Delete(ctx, runner.IPAddresses, NameOf(address), address.UID); !isGone(err) {
			return Refused(err, "delete the IPAddress")
		}
	}
	others := slices.DeleteFunc(slices.Clone(address.Finalizers), func(f string) bool { return f == v1beta2.FinalizerProtectAddress })
	if len(others) > 0 {
		return Waits{Reason: ReasonDeleting,
			Message: fmt.Sprintf("The IPAddress is being deleted, and stays until others have removed their finalizers: %s.", strings.Join(others, ", "))}
	}
	return writes.Pending{}
}

// isGone reports whether a write was carried out, or its object is gone.
func isGone(err error) bool { return err == nil || writes.Answered(err) && writes.NotThere(err) }

// removeFinalizer removes a finalizer. An object that is gone has none.
func (c *Contract) removeFinalizer(ctx context.Context, kind *runner.Kind, is metav1.Object, finalizer string) error {
	want := is.(runtime.Object).DeepCopyObject().(metav1.Object)
	want.SetFinalizers(slices.DeleteFunc(want.GetFinalizers(), func(f string) bool { return f == finalizer }))
	if err := c.Term.Change(ctx, kind, is, want, nil); !isGone(err) {
		return Refused(err, fmt.Sprintf("remove the finalizer of the %v", kind))
	}
	return nil
}

// letGoOfOrphan lets an IPAddress go that is being deleted and whose claim is gone. One that is not being deleted stays: its machine may use it. shown is the claim
// of its name; both may be nil.
func (c *Contract) letGoOfOrphan(ctx context.Context, shown *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) error {
	if address == nil || !keepsInDeletion(address) || shown != nil && Owns(shown, address) {
		return nil
	}
	claim := &v1beta2.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: address.Namespace, Name: address.Name}}
	claim.Spec.PoolRef = address.Spec.PoolRef
	if pool, ours := c.Provider.Pool(claim); !ours || c.paused(claim, pool) || GoingAway(pool) {
		return nil
	}
	live := &v1beta2.IPAddressClaim{}
	switch err := c.Term.API.Get(ctx, runner.IPAddressClaims, NameOf(address), live); {
	case err == nil && Owns(live, address):
		return nil // The watch will show it.
	case !isGone(err):
		return fmt.Errorf("find out whether the claim of a deleted IPAddress exists: %w", err)
	}
	return c.removeFinalizer(ctx, runner.IPAddresses, address, v1beta2.FinalizerProtectAddress)
}

// keepsInDeletion reports whether our finalizer keeps an IPAddress that is being deleted here.
func keepsInDeletion(address *v1beta2.IPAddress) bool {
	return address.DeletionTimestamp != nil && !GoingAway(address) && has(address, v1beta2.FinalizerProtectAddress)
}

// depart ends what claims of a name have left that are gone. Without an error nothing is left.
func (c *Contract) depart(ctx context.Context, name types.NamespacedName) error {
	for {
		c.mu.Lock()
		all := c.gone[name]
		c.mu.Unlock()
		if len(all) == 0 {
			return nil
		}
		claim := all[0]
		if err := c.leave(ctx, claim); err != nil {
			return err
		}
		c.mu.Lock()
		delete(c.creating, claim.UID)
		if c.gone[name] = all[1:]; len(c.gone[name]) == 0 {
			delete(c.gone, name)
		}
		c.mu.Unlock()
		c.Provider.ClaimGone(claim)
	}
}

// lookAgain is how long a claim that is gone waits if its pool or its Cluster is paused. No event names it any more.
const lookAgain = 10 * time.Second

// leave does for a claim that is gone what is left to do. Without an error nothing is left.
func (c *Contract) leave(ctx context.Context, claim *v1beta2.IPAddressClaim) error {
	pool, ours := c.Provider.Pool(claim)
	switch early := ours && c.chosen(claim) && deletedEarly(claim); {
	case early && (c.paused(claim, pool) || GoingAway(pool)):
		return writes.Later(lookAgain)
	case early:
		return c.releaseGone(ctx, claim)
	}
	address, err := c.addressOf(ctx, claim, false)
	if _, shown := c.Addresses.Get(claim.Namespace, claim.Name); err == nil && address != nil && !shown {
		return writes.Later(time.Second) // It holds its address by itself, once the watch shows it.
	}
	return err
}

// deletedEarly reports whether a claim that is gone, which the watch showed with our finalizer and without having been marked as deleted, was deleted before the
// finalizer counted: the API server looks once, and then deletes later versions, too.
func deletedEarly(claim *v1beta2.IPAddressClaim) bool {
	return claim.DeletionTimestamp == nil && has(claim, v1beta2.FinalizerReleaseAddress) && !GoingAway(claim)
}

// releaseGone does for a claim that is gone what release does. Without an error nothing is left.
func (c *Contract) releaseGone(ctx context.Context, claim *v1beta2.IPAddressClaim) error {
	address, err := c.addressOf(ctx, claim, true)
	switch {
	case err != nil:
		return err
	case address != nil && made(claim, address):
		err = c.end(ctx, address)
	default:
		err = c.Provider.Release(ctx, claim)
	}
	if w, ok := errors.AsType[Waits](err); ok { // There is no claim to tell.
		return writes.Later(cmp.Or(w.Again, lookAgain))
	}
	return err
}

// made reports whether an IPAddress was made for a claim that is gone. The garbage collector may have removed the owner.
func made(claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) bool {
	token, ok := Owner(claim)
	its, _ := Owner(address)
	return madeFor(address) == claim.UID || ok && its == token
}
