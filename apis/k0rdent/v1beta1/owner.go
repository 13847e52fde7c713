package v1beta1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClaimOf returns the name of the ClusterIPAMClaim that owns a pool, and that writes most of its spec. It is empty if there is none.
func ClaimOf(pool metav1.Object) string {
	for _, o := range pool.GetOwnerReferences() {
		if o.Kind == KindClusterIPAMClaim && strings.HasPrefix(o.APIVersion, GroupName+"/") {
			return o.Name
		}
	}
	return ""
}
