package claims

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
)

// Name is the controller's name.
const Name = "cluster-ipam-controller"

// New returns the controller, which works on as many claims of a namespace as it has workers; an empty namespace means all. Claims that name no
// InfobloxInstance get defaultInstance, if that is not empty. New sets Name, Reads, Workers and New of the configuration. It does no I/O.
func New(c runner.Config, workers int, namespace, defaultInstance string) (*runner.Controller, error) {
	c.Name, c.Workers = Name, map[*runner.Kind]int{runner.ClusterIPAMClaims: workers}
	c.Reads = []runner.Reads{
		{Kind: runner.ClusterIPAMClaims, Namespace: namespace}, {Kind: runner.ClusterIPAMs, Namespace: namespace},
		{Kind: runner.InClusterIPPools, Namespace: namespace, Optional: true}, {Kind: runner.InfobloxIPPools, Namespace: namespace, Optional: true},
		{Kind: runner.InfobloxInstances, Optional: true},
	}
	c.New = func(t *runner.Term) runner.Logic { return newLogic(t, defaultInstance) }
	return runner.New(c)
}

type logic struct {
	*runner.Term
	defaultInstance string

	claims    runner.Lister[*v1beta1.ClusterIPAMClaim]
	ipams     runner.Lister[*v1beta1.ClusterIPAM]
	inCluster runner.Lister[*v1alpha2.InClusterIPPool]
	infoblox  runner.Lister[*v1alpha1.InfobloxIPPool]
	instances runner.Lister[*v1alpha1.InfobloxInstance]
}

func newLogic(t *runner.Term, defaultInstance string) *logic {
	l := &logic{Term: t, defaultInstance: defaultInstance}
	l.claims = runner.Read(t, runner.ClusterIPAMClaims, func(_, now *v1beta1.ClusterIPAMClaim) {
		if now != nil {
			l.Waits(now, !now.Status.Bound)
			l.queue(now)
		}
	})
	l.ipams = readChild[v1beta1.ClusterIPAM](l, runner.ClusterIPAMs)
	l.inCluster = readChild[v1alpha2.InClusterIPPool](l, runner.InClusterIPPools)
	l.infoblox = readChild[v1alpha1.InfobloxIPPool](l, runner.InfobloxIPPools)
	l.instances = runner.Read(t, runner.InfobloxInstances, func(_, _ *v1alpha1.InfobloxInstance) {
		for _, claim := range l.claims.List() {
			if claim.Spec.Provider == v1beta1.ProviderInfoblox {
				l.queue(claim)
			}
		}
	})
	return l
}

// queue queues the claim that has the name of an object.
func (l *logic) queue(object metav1.Object) {
	l.Queue.Add(runner.KeyOf(runner.ClusterIPAMClaims, object))
}

// readChild reads a kind whose objects belong to the claim of their name. clusterctl deletes those before the claim. Then the claim is not queued: a pool that
// was made again would give waiting machines the addresses that machines of the other cluster use.
func readChild[T any, P runner.Pointer[T]](l *logic, kind *runner.Kind) runner.Lister[P] {
	return runner.Read(l.Term, kind, func(before, now P) {
		if last := cmp.Or(now, before); !contract.GoingAway(last) {
			l.queue(last)
		}
	})
}

// Reconcile implements runner.Logic.
func (l *logic) Reconcile(ctx context.Context, key runner.Key) error {
	claim, ok := l.claims.Get(key.Namespace, key.Name)
	if !ok {
		return nil
	}
	v := view{Claim: claim, DefaultInstance: l.defaultInstance, Now: metav1.Now()}
	v.IPAM, _ = l.ipams.Get(key.Namespace, key.Name)
	v.InCluster, _ = l.inCluster.Get(key.Namespace, key.Name)
	v.Infoblox, _ = l.infoblox.Get(key.Namespace, key.Name)
	if claim.Spec.Provider == v1beta1.ProviderInfoblox {
		for _, instance := range l.instances.List() {
			v.Instances = append(v.Instances, instance.Name)
		}
		slices.Sort(v.Instances)
	}
	for _, kind := range []*runner.Kind{runner.InClusterIPPools, runner.InfobloxIPPools} {
		if _, served := l.Served(kind); !served {
			v.NotInstalled = append(v.NotInstalled, kind)
		}
	}
	return Carry(ctx, l.Term, func(refused string) *Write {
		v.Refused = refused
		return decide(v)
	})
}

// Show implements runner.Logic. Everything else stands in the objects.
func (l *logic) Show() any { return l.Figures() }

// Figures implements runner.Logic.
func (l *logic) Figures() runner.Figures {
	f := runner.Figures{Waiting: map[string]int{}}
	for _, claim := range l.claims.List() {
		if ipam, _ := l.ipams.Get(claim.Namespace, claim.Name); Owned(ipam, claim) {
			f.IPAMs = append(f.IPAMs, runner.IPAMFigures{Namespace: claim.Namespace, Name: claim.Name, Bound: claim.Status.Bound})
		}
		if claim.Status.Bound {
			f.Bound++
			continue
		}
		reason := ReasonPoolNotReady
		for _, kind := range []string{v1beta1.ConditionProviderError, v1beta1.ConditionInvalidClaim} {
			if c := meta.FindStatusCondition(claim.Status.Conditions, kind); c != nil {
				reason = c.Reason
			}
		}
		f.Waiting[reason]++
	}
	return f
}
