package contract

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/text"
)

// Protect gives a pool its finalizer, and takes it away when the pool is deleted and not used.
func Protect(pool metav1.Object, used bool) {
	switch goes := pool.GetDeletionTimestamp() != nil; {
	case !goes && !has(pool, v1beta2.FinalizerProtectPool):
		pool.SetFinalizers(append(pool.GetFinalizers(), v1beta2.FinalizerProtectPool))
	case goes && !used:
		pool.SetFinalizers(slices.DeleteFunc(pool.GetFinalizers(), func(f string) bool { return f == v1beta2.FinalizerProtectPool }))
	}
}

// Correct says where users correct a pool: what they write into the pool of a ClusterIPAMClaim is taken back.
func Correct(pool metav1.Object, here, inClaim string) string {
	if claim := v1beta1.ClaimOf(pool); claim != "" {
		return inClaim + " of the ClusterIPAMClaim " + claim
	}
	return here
}

// WithoutClaim names those IPAddresses that have no claim although they are protected like those of claims, as the end of a text; empty if there are none. They
// stay until somebody deletes them: machines may use them.
func (c *Contract) WithoutClaim(names []types.NamespacedName) string {
	var all []string
	for _, name := range names {
		address, exists := c.Addresses.Get(name.Namespace, name.Name)
		claim, claimed := c.Claims.Get(name.Namespace, name.Name)
		if exists && (!claimed || !Owns(claim, address)) && address.DeletionTimestamp == nil && has(address, v1beta2.FinalizerProtectAddress) {
			all = append(all, name.String())
		}
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return fmt.Sprintf(" IPAddresses without an IPAddressClaim: %d (%s). They keep their addresses: delete those that no machine uses.",
		len(all), text.ListedFirst(all))
}

// Report writes the status of a pool, or of what it needs: want is a changed copy of is, and conditions are in want. Each of now replaces the one of its type. An
// event tells of those that are new and bad: Ready is, if it is not True, and all others if they are.
func (c *Contract) Report(ctx context.Context, kind *runner.Kind, is, want metav1.Object, conditions *[]metav1.Condition, now ...metav1.Condition) error {
	var bad []metav1.Condition
	for _, condition := range now {
		var news bool
		*conditions, news = Set(is, *conditions, condition)
		if news && (condition.Status == metav1.ConditionTrue) != (condition.Type == v1beta2.ConditionReady) {
			bad = append(bad, condition)
		}
	}
	if err := c.Term.Change(ctx, kind, is, want, nil); err != nil {
		return Refused(err, fmt.Sprintf("write the status of the %v", kind))
	}
	for _, condition := range bad {
		c.Term.Event(is, kind, false, condition.Reason, condition.Message)
	}
	return nil
}
