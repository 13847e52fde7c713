package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestForeignStatusIsRepaired writes into a status what only the controller should. That is set right within seconds, and a condition of
// another type stays.
func TestForeignStatusIsRepaired(t *testing.T) {
	c := freshCluster(t, controlplane.Options{})
	must(t, createClusterCIDR(c, []string{"a", "10.0.0.0/22", "hb8"}))
	must(t, condition(c, []string{"a", "Ready", "True", "Available"}))
	clusterCIDRs := c.clusterCIDRs.NetworkingV1().ClusterCIDRs()
	old := metav1.NewTime(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC))
	for name, change := range map[string]func(*networkingv1.ClusterCIDRStatus){
		"wrong numbers": func(s *networkingv1.ClusterCIDRStatus) { s.IPv4.Free, s.IPv4.Allocated = 1, 3 },
		"a condition of ours with another content": func(s *networkingv1.ClusterCIDRStatus) {
			meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Exhausted", Message: "Written by hand."})
		},
		"nothing at all": func(s *networkingv1.ClusterCIDRStatus) { *s = networkingv1.ClusterCIDRStatus{} },
	} {
		t.Run(name, func(t *testing.T) {
			theirs := metav1.Condition{Type: "example.com/Theirs", Status: metav1.ConditionTrue, Reason: "Theirs", Message: name, LastTransitionTime: old}
			must(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
				cc, err := clusterCIDRs.Get(t.Context(), "a", metav1.GetOptions{})
				if err != nil {
					return err
				}
				change(&cc.Status)
				meta.RemoveStatusCondition(&cc.Status.Conditions, theirs.Type)
				cc.Status.Conditions = append(cc.Status.Conditions, theirs)
				_, err = clusterCIDRs.UpdateStatus(t.Context(), cc, metav1.UpdateOptions{FieldManager: "somebody"})
				return err
			}))
			expect(t, eventually(5*time.Second, func(ctx context.Context) error {
				cc, err := clusterCIDRs.Get(ctx, "a", metav1.GetOptions{})
				if err != nil {
					return err
				}
				s := cc.Status
				if s.IPv6 != nil || s.IPv4 == nil || *s.IPv4 != (networkingv1.RangeStatus{CIDR: "10.0.0.0/22", BlockPrefixLength: 24, Total: 4, Free: 4}) {
					return fmt.Errorf("the ranges are %+v and %+v", s.IPv4, s.IPv6)
				}
				for _, conditionType := range []string{"Ready", "Overlapping", "Conflicted"} {
					condition := meta.FindStatusCondition(s.Conditions, conditionType)
					if condition == nil || (condition.Status == metav1.ConditionTrue) != (conditionType == "Ready") {
						return fmt.Errorf("%s is %+v", conditionType, condition)
					}
				}
				if got := meta.FindStatusCondition(s.Conditions, theirs.Type); got == nil || got.Message != name {
					return fmt.Errorf("the condition of somebody else is %+v", got)
				}
				return nil
			}))
		})
	}
}
