package contract

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Reconcile works on the claim of a name, and on the IPAddress of that name. It is called for one name at a time.
func (c *Contract) Reconcile(ctx context.Context, name types.NamespacedName) error {
	if err := c.depart(ctx, name); err != nil {
		return err
	}
	claim, exists := c.Claims.Get(name.Namespace, name.Name)
	address, _ := c.Addresses.Get(name.Namespace, name.Name)
	if err := c.letGoOfOrphan(ctx, claim, address); err != nil || !exists {
		return err
	}
	switch pool, ours := c.Provider.Pool(claim); {
	case !ours || !c.works(claim, pool):
		return nil
	case movedAway(claim, pool) != nil:
		return c.wait(ctx, claim, movedAway(claim, pool))
	case claim.DeletionTimestamp != nil:
		return c.release(ctx, claim)
	case c.withoutCluster(claim):
		if address != nil || claim.Status.AddressRef.Name != "" { // Perhaps it is paused.
			return nil
		}
		return c.wait(ctx, claim, Waits{Reason: v1beta2.ReasonAllocationFailed,
			Message: fmt.Sprintf("Cluster %s/%s does not exist. Create it, or correct spec.clusterName.", claim.Namespace, clusterOf(claim))})
	default:
		return c.serve(ctx, claim, pool)
	}
}

// serve brings a claim to its address.
func (c *Contract) serve(ctx context.Context, claim *v1beta2.IPAddressClaim, pool metav1.Object) error {
	address, err := c.addressOf(ctx, claim, false)
	if err != nil {
		return err
	}
	switch {
	case address == nil:
		return c.allocate(ctx, claim, pool)
	case !Owns(claim, address):
		return c.wait(ctx, claim, Waits{Reason: v1beta2.ReasonAllocationFailed, Message: fmt.Sprintf("The IPAddress of the same name has an address of %s %s for the claim %s. "+
			"Delete the IPAddress if no machine uses it. Otherwise give this claim another name.", address.Spec.PoolRef.Kind, address.Spec.PoolRef.Name, address.Spec.ClaimRef.Name)})
	case GoingAway(address):
		return c.wait(ctx, claim, movedAway(address))
	}
	if claim, err = c.mark(ctx, claim, address, c.Provider.Says(address)); err != nil {
		return err
	}
	if claim.Status.AddressRef.Name != address.Name || Unmarked(address) || madeFor(address) != claim.UID { // The claim was not told, or by another program.
		if err := c.Provider.Confirm(ctx, claim, address); err != nil {
			return c.wait(ctx, claim, err)
		}
	}
	if err := c.adopt(ctx, claim, pool, address); err != nil {
		return err
	}
	return c.tell(ctx, claim, address)
}

// movedAway says which of the objects of a claim clusterctl has marked as copied to another cluster, and what to do if that is not so: a move that was interrupted and
// repeated copies the mark, too. It is nil if there is none.
func movedAway(objects ...metav1.Object) error {
	i := slices.IndexFunc(objects, GoingAway)
	if i < 0 {
		return nil
	}
	what := "pool"
	switch objects[i].(type) {
	case *v1beta2.IPAddressClaim:
		what = "claim"
	case *v1beta2.IPAddress:
		what = "IPAddress"
	}
	return Waits{Reason: ReasonMoved,
		Message: fmt.Sprintf("The %s has the annotation %s: clusterctl has moved it to another cluster, so nothing is allocated or released here. If it belongs here, remove the annotation.",
			what, AnnotationDeleteForMove)}
}

// allocate creates the IPAddress of a claim, unless clusterctl has deleted it because it is in another cluster by now.
func (c *Contract) allocate(ctx context.Context, claim *v1beta2.IPAddressClaim, pool metav1.Object) error {
	c.mu.Lock()
	moved := c.moved[claim.UID]
	c.mu.Unlock()
	if moved {
		return c.wait(ctx, claim, Waits{Reason: ReasonMoved, Message: "clusterctl has deleted the IPAddress, because it has moved it to another cluster. " +
			"If the move was given up, and the other cluster does not have the claim, restart this controller: the IPAddress comes back."})
	}
	for range 2 {
		given, unable := c.Provider.Allocate(ctx, claim, pool)
		stored, err := c.mark(ctx, claim, nil, given.Annotations)
		switch {
		case err != nil:
			return err
		case unable != nil:
			return c.wait(ctx, stored, unable)
		case given.Address.IsValid():
			return c.create(ctx, stored, pool, given)
		}
		claim = stored
	}
	return writes.Pending{} // Somebody takes the annotations away.
}

// mark writes what the claim of an address carries: the finalizer, the owner annotation, the annotations of the provider, and the label that has it moved with
// its pool. It takes them from its IPAddress, which may be nil: the claim can have lost them, or come from a backup of the time before. It returns the claim as
// it is stored.
func (c *Contract) mark(ctx context.Context, claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress, said map[string]string) (*v1beta2.IPAddressClaim, error) {
	carried := c.carried(claim, address)
	maps.Copy(carried, said)
	want := claim.DeepCopy()
	// A claim that has nothing stays behind: in the other cluster it could be given what claims have that arrive there after it.
	if _, labelled := claim.Labels[LabelMove]; !labelled && (address != nil || len(carried) > 0) {
		metav1.SetMetaDataLabel(&want.ObjectMeta, LabelMove, "")
	}
	carried[AnnotationOwner] = fmt.Sprintf("%s/%s/%s", claim.Namespace, claim.Name, c.Token(claim, address))
	c.carry(want, carried)
	if !has(claim, v1beta2.FinalizerReleaseAddress) {
		want.Finalizers = append(want.Finalizers, v1beta2.FinalizerReleaseAddress)
	}
	stored := &v1beta2.IPAddressClaim{}
	switch err := c.Term.Change(ctx, runner.IPAddressClaims, claim, want, stored); {
	case err != nil:
		return nil, Refused(err, "write the finalizer and the annotations")
	case stored.UID == "": // Nothing was to be changed.
		return claim, nil
	}
	return stored, nil
}

// carried returns what a claim carries, or else its IPAddress, which may be nil. The IPAddress knows better, unless it is of a former claim of the name.
func (c *Contract) carried(claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) map[string]string {
	all := map[string]string{}
	for _, key := range c.Carries {
		if value, ok := Own(claim)[key]; ok {
			all[key] = value
		}
		if address != nil && Own(address)[key] != "" && (all[key] == "" || !former(claim, address)) {
			all[key] = Own(address)[key]
		}
	}
	return all
}

// former reports whether an IPAddress says that it is of another claim than this one of its name.
func former(claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) bool {
	is, marked := Owner(claim)
	was, also := Owner(address)
	return marked && also && is != was
}

// carry replaces the annotations of an object that are the contract's or the provider's.
func (c *Contract) carry(object metav1.Object, carried map[string]string) {
	all := maps.Clone(object.GetAnnotations())
	maps.DeleteFunc(all, func(key, _ string) bool { return slices.Contains(c.Carries, key) })
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, carried)
	object.SetAnnotations(all)
}

// create creates the IPAddress of a claim, and tells the claim.
func (c *Contract) create(ctx context.Context, claim *v1beta2.IPAddressClaim, pool metav1.Object, a Allocation) error {
	// Logged before it is sent, for somebody who later must find out what this process may have allocated: an answer can be lost.
	ref := claim.Spec.PoolRef
	klog.FromContext(ctx).Info("Allocating an address", "claim", klog.KObj(claim), "address", a.Address, "kind", ref.Kind, "pool", ref.Name)
	prefix := int32(a.Prefix) // at most 128
	o := &v1beta2.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name}, Spec: v1beta2.IPAddressSpec{
		ClaimRef: v1beta2.IPAddressClaimReference{Name: claim.Name}, PoolRef: ref, Address: a.Address.String(), Prefix: &prefix, Gateway: a.Gateway}}
	c.belong(o, claim, pool)
	c.expect(claim, time.Time{}) // The watch may show it before the answer comes.
	err := c.Term.API.Create(ctx, runner.IPAddresses, o, nil)
	switch {
	case err == nil:
		return c.tell(ctx, claim, o)
	case !writes.Answered(err):
		c.expect(claim, time.Now().Add(c.Term.Unanswered()))
		return fmt.Errorf("create the IPAddress: %w", err)
	case apierrors.IsAlreadyExists(err):
		return writes.Later(time.Second)
	case !writes.NotSent(err):
		if told := c.wait(ctx, claim, Waits{Reason: v1beta2.ReasonAllocationFailed, Message: "The API server refused the IPAddress: " + err.Error()}); told != nil {
			return told
		}
	}
	return fmt.Errorf("create the IPAddress: %w", err)
}

// expect notes until when a create of an IPAddress can be carried out.
func (c *Contract) expect(claim *v1beta2.IPAddressClaim, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.creating[claim.UID] = until
}

// addressOf returns the IPAddress of a claim's name as the watch shows it; nil if there is none. While a create of it can still be carried out, the error says
// when to come back. It is read from etcd after a create that the watch does not show, and where live is true and the watch shows none.
func (c *Contract) addressOf(ctx context.Context, claim *v1beta2.IPAddressClaim, live bool) (*v1beta2.IPAddress, error) {
	shown, ok := c.Addresses.Get(claim.Namespace, claim.Name)
	c.mu.Lock()
	until, creating := c.creating[claim.UID]
	c.mu.Unlock()
	switch rest := time.Until(until); {
	case creating && rest > 0: // Also while the watch shows one: it may be gone before the create is carried out.
		return nil, writes.Later(rest)
	case !creating && (ok || !live):
		return shown, nil
	}
	found := &v1beta2.IPAddress{}
	err := c.Term.API.Get(ctx, runner.IPAddresses, NameOf(claim), found)
	switch {
	case err == nil && !ok:
		return found, nil
	case err != nil && !writes.NotThere(err):
		return nil, fmt.Errorf("find out whether the IPAddress exists: %w", err)
	case err != nil:
		found = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.creating, claim.UID)
	return found, nil
}

// belong makes an IPAddress what that of a claim is, besides its spec: finalizer, owners, label and annotations. pool may be nil.
func (c *Contract) belong(o *v1beta2.IPAddress, claim *v1beta2.IPAddressClaim, pool metav1.Object) {
	if !has(o, v1beta2.FinalizerProtectAddress) {
		o.Finalizers = append(o.Finalizers, v1beta2.FinalizerProtectAddress)
	}
	yes, no, ref := true, false, claim.Spec.PoolRef
	version, _ := c.Term.Served(runner.IPAddressClaims)
	own(o, metav1.OwnerReference{APIVersion: version, Kind: v1beta2.KindIPAddressClaim, Name: claim.Name, UID: claim.UID, Controller: &yes, BlockOwnerDeletion: &yes})
	if pool != nil && pool.GetDeletionTimestamp() == nil {
		own(o, metav1.OwnerReference{APIVersion: ref.APIGroup + "/" + c.PoolVersion, Kind: ref.Kind, Name: ref.Name, UID: pool.GetUID(), Controller: &no, BlockOwnerDeletion: &yes})
	}
	if name, ok := claim.Labels[v1beta2.LabelClusterName]; ok {
		metav1.SetMetaDataLabel(&o.ObjectMeta, v1beta2.LabelClusterName, name)
	}
	carried := maps.Clone(claim.Annotations)
	maps.DeleteFunc(carried, func(key, _ string) bool { return key != AnnotationOwner && !slices.Contains(c.Carries, key) })
	c.carry(o, carried)
}

// own adds an owner to an IPAddress in place of one of that name that is gone.
func own(o *v1beta2.IPAddress, owner metav1.OwnerReference) {
	same := func(r metav1.OwnerReference) bool { return r.Kind == owner.Kind && r.Name == owner.Name }
	if i := slices.IndexFunc(o.OwnerReferences, same); i < 0 || o.OwnerReferences[i].UID != owner.UID {
		o.OwnerReferences = append(slices.DeleteFunc(o.OwnerReferences, same), owner)
	}
}

// adopt makes an existing IPAddress that of a claim. That comes after it is confirmed: its annotations say whose it is. While it is being deleted, no
// finalizer can be added, and the claim keeps it as it is.
func (c *Contract) adopt(ctx context.Context, claim *v1beta2.IPAddressClaim, pool metav1.Object, address *v1beta2.IPAddress) error {
	if address.DeletionTimestamp != nil {
		return nil
	}
	want := address.DeepCopy()
	c.belong(want, claim, pool)
	return Refused(c.Term.Change(ctx, runner.IPAddresses, address, want, nil), "adopt the IPAddress")
}

// has reports whether an object has a finalizer.
func has(object metav1.Object, finalizer string) bool {
	return slices.Contains(object.GetFinalizers(), finalizer)
}
