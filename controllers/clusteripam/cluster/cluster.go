// Package cluster is what the controllers need of a Cluster of Cluster API: whether its addresses are to be left alone.
package cluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
)

// Cluster is what the controllers need of a Cluster of Cluster API.
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Paused *bool `json:"paused"`
	} `json:"spec"`
}

// Paused reports whether the cluster is paused, by its spec or by the annotation.
func (c *Cluster) Paused() bool {
	_, annotated := c.Annotations[v1beta2.AnnotationPaused]
	return annotated || c.Spec.Paused != nil && *c.Spec.Paused
}
