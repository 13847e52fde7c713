package gate

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/claims"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
)

// Name is the controller's name.
const Name = "cluster-deployment-ipam-controller"

// New returns the controller, which works on as many ClusterDeployments of a namespace as it has workers; an empty namespace means all. It sets Name, Reads,
// Workers and New of the configuration, and does no I/O.
func New(c runner.Config, workers int, namespace string) (*runner.Controller, error) {
	c.Name, c.Workers = Name, map[*runner.Kind]int{runner.ClusterDeployments: workers}
	for _, kind := range []*runner.Kind{runner.ClusterDeployments, runner.ClusterIPAMClaims, runner.ClusterIPAMs} {
		c.Reads = append(c.Reads, runner.Reads{Kind: kind, Namespace: namespace})
	}
	c.New = func(t *runner.Term) runner.Logic { return newLogic(t) }
	return runner.New(c)
}

type logic struct {
	*runner.Term

	deployments runner.Lister[*v1beta1.ClusterDeployment]
	claims      runner.Lister[*v1beta1.ClusterIPAMClaim]
	ipams       runner.Lister[*v1beta1.ClusterIPAM]
}

func newLogic(t *runner.Term) *logic {
	l := &logic{Term: t}
	l.deployments = runner.Read(t, runner.ClusterDeployments, func(_, now *v1beta1.ClusterDeployment) {
		if now == nil {
			return
		}
		if name, _ := claimName(now); name != "" {
			l.Waits(now, !meta.IsStatusConditionTrue(now.Status.Conditions, v1beta1.ConditionIPAMReady))
		}
		l.queue(now)
	})
	l.deployments.Index(byClaim, func(d *v1beta1.ClusterDeployment) []string {
		name, _ := claimName(d)
		return []string{types.NamespacedName{Namespace: d.Namespace, Name: name}.String()}
	})
	l.claims = runner.Read(t, runner.ClusterIPAMClaims, func(before, now *v1beta1.ClusterIPAMClaim) { l.wake(cmp.Or(now, before)) })
	l.ipams = runner.Read(t, runner.ClusterIPAMs, func(before, now *v1beta1.ClusterIPAM) { l.wake(cmp.Or(now, before)) })
	return l
}

func (l *logic) queue(d *v1beta1.ClusterDeployment) {
	l.Queue.Add(runner.KeyOf(runner.ClusterDeployments, d))
}

// byClaim is the index of ClusterDeployments by the name of their claim.
const byClaim = "claim"

// wake queues the ClusterDeployments of the claim that has the name of an object. clusterctl deletes an inline claim before its ClusterDeployment, which
// must not make it again.
func (l *logic) wake(object metav1.Object) {
	if contract.GoingAway(object) {
		return
	}
	for _, d := range l.deployments.By(byClaim, types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}.String()) {
		l.queue(d)
	}
}

// Reconcile implements runner.Logic.
func (l *logic) Reconcile(ctx context.Context, key runner.Key) error {
	d, ok := l.deployments.Get(key.Namespace, key.Name)
	if !ok {
		return nil
	}
	v := view{Deployment: d, Now: metav1.Now()}
	name, _ := claimName(d)
	v.Claim, _ = l.claims.Get(key.Namespace, name)
	v.IPAM, _ = l.ipams.Get(key.Namespace, name)
	return claims.Carry(ctx, l.Term, func(refused string) *claims.Write {
		v.Refused = refused
		return decide(v)
	})
}

// Show implements runner.Logic. Everything else stands in the objects.
func (l *logic) Show() any { return l.Figures() }

// Figures implements runner.Logic.
func (l *logic) Figures() runner.Figures {
	f := runner.Figures{Waiting: map[string]int{}}
	for _, d := range l.deployments.List() {
		if claim, _ := claimName(d); claim == "" {
			continue
		}
		if c := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionIPAMReady); c == nil {
			f.Waiting[reasonClaimNotBound]++
		} else if c.Status == metav1.ConditionTrue {
			f.Bound++
		} else {
			f.Waiting[c.Reason]++
		}
	}
	return f
}
