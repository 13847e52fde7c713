package gate

import (
	"cmp"
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/claims"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
)

// Name is the controller's name.
const Name = "cluster-deployment-ipam-controller"

// Config is the input of New. Of the runner's Config it needs the Client; Name, Reads, Workers and New are set by New.
type Config struct {
	runner.Config
	// Workers is how many ClusterDeployments are worked on concurrently.
	Workers int
	// Namespace has the ClusterDeployments that are worked on; empty means all.
	Namespace string
}

// New returns the controller. It does no I/O.
func New(cfg Config) (*runner.Controller, error) {
	c := cfg.Config
	c.Name, c.Workers = Name, map[*runner.Kind]int{runner.ClusterDeployments: cfg.Workers}
	for _, kind := range []*runner.Kind{runner.ClusterDeployments, runner.ClusterIPAMClaims, runner.ClusterIPAMs} {
		c.Reads = append(c.Reads, runner.Reads{Kind: kind, Namespace: cfg.Namespace})
	}
	c.New = func(t *runner.Term) runner.Logic { return newLogic(t) }
	return runner.New(c)
}

type logic struct {
	*runner.Term

	deployments runner.Lister[*v1beta1.ClusterDeployment]
	claims      runner.Lister[*v1beta1.ClusterIPAMClaim]
	ipams       runner.Lister[*v1beta1.ClusterIPAM]

	// waiting is since when a ClusterDeployment has waited for its addresses. Only observe uses it, which is not called concurrently.
	waiting map[types.UID]time.Time
	moved   claims.Moved

	mu sync.Mutex
	// users are the ClusterDeployments of each claim. Guarded by mu.
	users map[types.NamespacedName]map[runner.Key]bool
}

func newLogic(t *runner.Term) *logic {
	l := &logic{Term: t, waiting: map[types.UID]time.Time{}, users: map[types.NamespacedName]map[runner.Key]bool{}}
	l.deployments = runner.Read(t, runner.ClusterDeployments, l.observe)
	l.claims = runner.Read(t, runner.ClusterIPAMClaims, func(before, now *v1beta1.ClusterIPAMClaim) {
		claims.See(&l.moved, before, now)
		l.wake(cmp.Or(now, before))
	})
	l.ipams = runner.Read(t, runner.ClusterIPAMs, func(before, now *v1beta1.ClusterIPAM) { l.wake(cmp.Or(now, before)) })
	return l
}

// wake queues the ClusterDeployments of the claim that has the name of an object.
func (l *logic) wake(object metav1.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for user := range l.users[types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}] {
		l.Queue.Add(user)
	}
}

// observe notes which claim a ClusterDeployment has, and how long it waits, and queues it.
func (l *logic) observe(before, now *v1beta1.ClusterDeployment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before != nil {
		claim, key := l.keys(before)
		delete(l.users[claim], key)
		if len(l.users[claim]) == 0 {
			delete(l.users, claim)
		}
	}
	if now == nil {
		delete(l.waiting, before.UID)
		l.moved.Forget(before)
		return
	}
	claim, key := l.keys(now)
	if l.users[claim] == nil {
		l.users[claim] = map[runner.Key]bool{}
	}
	l.users[claim][key] = true
	since, waits := l.waiting[now.UID]
	switch ready := meta.IsStatusConditionTrue(now.Status.Conditions, v1beta1.ConditionIPAMReady); {
	case ready && waits:
		l.Took(time.Since(since))
		delete(l.waiting, now.UID)
	case claim.Name == "":
		delete(l.waiting, now.UID)
	case !ready && !waits:
		l.waiting[now.UID] = time.Now()
	}
	l.Queue.Add(key)
}

// keys are the name of the claim of a ClusterDeployment, and its own key.
func (l *logic) keys(d *v1beta1.ClusterDeployment) (claim types.NamespacedName, key runner.Key) {
	name, _ := ClaimName(d)
	return types.NamespacedName{Namespace: d.Namespace, Name: name}, runner.KeyOf(runner.ClusterDeployments, d)
}

// Reconcile implements runner.Logic.
func (l *logic) Reconcile(ctx context.Context, key runner.Key) error {
	d, ok := l.deployments.Get(key.Namespace, key.Name)
	if !ok || l.moved.From(d) {
		return nil
	}
	v := View{Deployment: d, Now: metav1.Now()}
	name, _ := ClaimName(d)
	v.Claim, _ = l.claims.Get(key.Namespace, name)
	v.IPAM, _ = l.ipams.Get(key.Namespace, name)
	return claims.Carry(ctx, l.Term, func(refused string) []claims.Write {
		v.Refused = refused
		return Decide(v)
	})
}

// Show implements runner.Logic.
func (l *logic) Show() any {
	shown := []map[string]any{}
	for d, c := range l.all() {
		claim, _ := ClaimName(d)
		shown = append(shown, map[string]any{"namespace": d.Namespace, "name": d.Name, "claim": claim, "ready": c.Status == metav1.ConditionTrue, "message": c.Message})
	}
	return map[string]any{"clusterDeployments": shown}
}

// Figures implements runner.Logic.
func (l *logic) Figures() runner.Figures {
	f := runner.Figures{Waiting: map[string]int{}}
	for _, c := range l.all() {
		if c.Status == metav1.ConditionTrue {
			f.Bound++
		} else {
			f.Waiting[c.Reason]++
		}
	}
	return f
}

// all are the ClusterDeployments that have a claim, and their conditions.
func (l *logic) all() map[*v1beta1.ClusterDeployment]*metav1.Condition {
	all := map[*v1beta1.ClusterDeployment]*metav1.Condition{}
	for _, d := range l.deployments.List() {
		if claim, _ := ClaimName(d); claim != "" {
			all[d] = cmp.Or(meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionIPAMReady), &metav1.Condition{Reason: ReasonClaimNotBound})
		}
	}
	return all
}
