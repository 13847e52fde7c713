package worlds

import (
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/chaos/checker"
)

// judge knows what the server stored, and nothing else. Beside the rules of the checker it has that of acknowledgement: once the condition
// Ready of a ClusterCIDR shows that it is disabled or terminates, as of its generation, nothing from it is stored any more.
type judge struct {
	*checker.Checker
	begin time.Time

	mu           sync.Mutex
	history      []string
	wrong        []string
	acknowledged map[types.UID]bool
	pools        map[string]types.UID
}

func newJudge(opts checker.Options) *judge {
	return &judge{Checker: checker.New(opts), begin: time.Now(), acknowledged: map[types.UID]bool{}, pools: map[string]types.UID{}}
}

func (j *judge) logf(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.history = append(j.history, fmt.Sprintf("%10.3fs ", time.Since(j.begin).Seconds())+fmt.Sprintf(format, args...))
}

// bad notes what is wrong and none of the checker's rules.
func (j *judge) bad(format string, args ...any) {
	j.logf("WRONG: "+format, args...)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wrong = append(j.wrong, fmt.Sprintf("%.3fs: ", time.Since(j.begin).Seconds())+fmt.Sprintf(format, args...))
}

// verdict returns everything that is wrong so far.
func (j *judge) verdict() (all []string) {
	for _, v := range j.Violations() {
		all = append(all, v.String())
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return append(all, j.wrong...)
}

func (j *judge) failed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.Count() > 0 || len(j.wrong) > 0
}

// settled adds what is wrong if the controller has nothing left to do.
func (j *judge) settled() {
	j.Add(j.Unsettled()...)
	j.Add(j.Statuses()...)
}

// stored takes the next revision.
func (j *judge) stored(resource string, c change, before object, w write) {
	e := checker.Event{Revision: c.revision, At: c.at, Gone: c.event == "DELETED", AsOf: w.asOf}
	switch resource {
	case nodes:
		node := decode[*corev1.Node](c.json)
		e.Node = node
		e.Other = w.by == stock
		if len(node.Spec.PodCIDRs) > 0 && len(list(field(before, "spec", "podCIDRs"))) == 0 {
			j.allocated(node, w)
		}
		j.logf("%s Node %s by %s: %v uid=%s labels=%v deleted=%v finalizers=%v from=%s", c.event, c.name, w.by, node.Spec.PodCIDRs, node.UID, node.Labels,
			node.DeletionTimestamp != nil, node.Finalizers, node.Annotations[networkingv1.AnnotationClusterCIDR])
	case clusterCIDRs:
		cc := decode[*networkingv1.ClusterCIDR](c.json)
		e.ClusterCIDR = cc
		j.acknowledges(cc)
		j.logf("%s ClusterCIDR %s by %s: %s deleted=%v finalizers=%v status=%s", c.event, c.name, w.by, encode(cc.Spec), cc.DeletionTimestamp != nil, cc.Finalizers, ready(cc))
	case serviceCIDRs:
		e.ServiceCIDR = decode[*networkingapiv1.ServiceCIDR](c.json)
		j.logf("%s ServiceCIDR %s: %v", c.event, c.name, e.ServiceCIDR.Spec.CIDRs)
	case leases:
		e.Lease = decode[*coordinationv1.Lease](c.json)
		if holder := text(before, "spec", "holderIdentity"); e.Lease.Spec.HolderIdentity != nil && *e.Lease.Spec.HolderIdentity != holder {
			j.logf("LEASE %s is now of %q", c.name, *e.Lease.Spec.HolderIdentity)
		}
	}
	j.Observe(e)
}

func ready(cc *networkingv1.ClusterCIDR) string {
	if c := apimeta.FindStatusCondition(cc.Status.Conditions, networkingv1.ConditionReady); c != nil {
		return fmt.Sprintf("%s/%s as of %d, generation %d", c.Status, c.Reason, c.ObservedGeneration, cc.Generation)
	}
	return "none"
}

func (j *judge) acknowledges(cc *networkingv1.ClusterCIDR) {
	c := apimeta.FindStatusCondition(cc.Status.Conditions, networkingv1.ConditionReady)
	off := cc.Spec.Allocation == networkingv1.AllocationDisabled || cc.DeletionTimestamp != nil
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pools[cc.Name] = cc.UID
	j.acknowledged[cc.UID] = off && c != nil && c.Status != "True" && c.ObservedGeneration == cc.Generation
}

func (j *judge) allocated(node *corev1.Node, w write) {
	source := node.Annotations[networkingv1.AnnotationClusterCIDR]
	j.mu.Lock()
	late := j.acknowledged[j.pools[source]]
	j.mu.Unlock()
	if late {
		j.bad("Node %s got %s of ClusterCIDR %s from %s, after its condition Ready showed that nothing comes from it any more",
			node.Name, strings.Join(node.Spec.PodCIDRs, ","), source, w.by)
	}
}
