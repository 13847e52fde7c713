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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// release gives back what a claim in deletion has: first its IPAddress goes, then what the provider holds, then the finalizer.
func (c *Contract) release(ctx context.Context, claim *v1beta2.IPAddressClaim, pool metav1.Object) error {
	if !has(claim, v1beta2.FinalizerReleaseAddress) {
		return nil
	}
	if others := KeptBy(claim); len(others) > 0 {
		return c.wait(ctx, claim, Waits{Reason: ReasonDeleting,
			Message: fmt.Sprintf("The claim is being deleted, and keeps its address until others have removed their finalizers: %s.", strings.Join(others, ", "))})
	}
	if err := c.Provider.MayRelease(claim, pool); err != nil {
		return c.wait(ctx, claim, err)
	}
	address, err := c.last(ctx, claim, func(a *v1beta2.IPAddress) bool { return Owns(claim, a) })
	if err != nil {
		return err
	}
	if address != nil { // Afterwards nothing says what it was.
		if claim, err = c.mark(ctx, claim, address, c.says(address)); err != nil {
			return err
		}
	}
	if address != nil && c.unmarked(address) {
		if err := c.Provider.Confirm(ctx, claim, pool, address); err != nil {
			return c.wait(ctx, claim, err)
		}
	}
	if address != nil {
		return c.wait(ctx, claim, c.end(ctx, address))
	}
	if err := c.Provider.Release(ctx, claim); err != nil {
		return c.wait(ctx, claim, err)
	}
	return c.removeFinalizer(ctx, runner.IPAddressClaims, claim, v1beta2.FinalizerReleaseAddress)
}

// last returns the IPAddress that a claim still has; nil if there is none, and none can be created any more.
func (c *Contract) last(ctx context.Context, claim *v1beta2.IPAddressClaim, owns func(*v1beta2.IPAddress) bool) (*v1beta2.IPAddress, error) {
	found, err := c.settled(ctx, claim) // also while the watch shows one: it may be gone before the create is carried out
	if err != nil {
		return nil, err
	}
	if found == nil {
		found, _ = c.Addresses.Get(claim.Namespace, claim.Name)
	}
	if found == nil || !owns(found) {
		return nil, nil
	}
	return found, nil
}

// end removes the finalizer of an IPAddress and deletes it. Its end, which the watch shows, queues its claim.
func (c *Contract) end(ctx context.Context, address *v1beta2.IPAddress) error {
	if GoingAway(address) {
		return movedAway("IPAddress")
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
	return nil
}

// isGone reports whether a write was carried out, or its object is gone.
func isGone(err error) bool { return err == nil || writes.Answered(err) && writes.NotThere(err) }

// removeFinalizer removes a finalizer. An object that is gone has none.
func (c *Contract) removeFinalizer(ctx context.Context, kind *runner.Kind, object metav1.Object, finalizer string) error {
	if !has(object, finalizer) {
		return nil
	}
	rest := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(f string) bool { return f == finalizer })
	patch := runner.MergePatchOfVersion(object, map[string]any{"metadata": map[string]any{"finalizers": rest}})
	if err := c.Term.API.Patch(ctx, kind, NameOf(object), patch, nil); !isGone(err) {
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
	if pool, ours := c.Provider.Pool(claim); !ours || c.heldUp(claim, pool) || GoingAway(pool) {
		return nil
	}
	live := &v1beta2.IPAddressClaim{}
	err := c.Term.API.Get(ctx, runner.IPAddressClaims, NameOf(address), live)
	if err == nil && Owns(live, address) {
		return nil // The watch will show it.
	}
	if !isGone(err) {
		return fmt.Errorf("find out whether the claim of a deleted IPAddress exists: %w", err)
	}
	return c.removeFinalizer(ctx, runner.IPAddresses, address, v1beta2.FinalizerProtectAddress)
}

// keepsInDeletion reports whether only our finalizer keeps an IPAddress that is being deleted here.
func keepsInDeletion(address *v1beta2.IPAddress) bool {
	return address.DeletionTimestamp != nil && !GoingAway(address) && has(address, v1beta2.FinalizerProtectAddress)
}

// depart ends what claims of a name have left that are gone. over is whether nothing is left.
func (c *Contract) depart(ctx context.Context, name types.NamespacedName) (over bool, err error) {
	for {
		c.mu.Lock()
		all := c.departures[name]
		c.mu.Unlock()
		if len(all) == 0 {
			return true, nil
		}
		claim := all[0].claim
		if all[0].release {
			over, err = c.releaseGone(ctx, claim)
		} else { // An IPAddress that exists holds its address by itself.
			over = true
			_, err = c.settled(ctx, claim)
		}
		if err != nil || !over {
			return false, err
		}
		c.mu.Lock()
		delete(c.creates, claim.UID)
		if c.departures[name] = c.departures[name][1:]; len(c.departures[name]) == 0 {
			delete(c.departures, name)
		}
		c.mu.Unlock()
		c.over(claim)
	}
}

// lookAgain is how long a claim that is gone waits if it, its pool or its Cluster is paused. No event names it any more.
const lookAgain = 10 * time.Second

// releaseGone does for a claim that was deleted before its finalizer counted what release does. over is whether nothing is left.
func (c *Contract) releaseGone(ctx context.Context, claim *v1beta2.IPAddressClaim) (over bool, err error) {
	pool, _ := c.Provider.Pool(claim)
	if c.heldUp(claim, pool) || GoingAway(pool) {
		return false, writes.Later(lookAgain)
	}
	// The garbage collector may have removed the owner that is gone.
	address, err := c.last(ctx, claim, func(a *v1beta2.IPAddress) bool {
		token, ok := Owner(claim)
		its, also := Owner(a)
		return madeFor(a) == claim.UID || ok && also && its == token
	})
	if err != nil {
		return false, err
	}
	if address != nil {
		err = c.end(ctx, address)
	} else {
		over, err = true, c.Provider.Release(ctx, claim)
	}
	if w, ok := errors.AsType[Waits](err); ok { // There is no claim to tell.
		return false, writes.Later(cmp.Or(w.Again, lookAgain))
	}
	return over, err
}
