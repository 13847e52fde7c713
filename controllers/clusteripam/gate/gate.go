package gate

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/claims"
	"github.com/multicidr/controller-manager/controllers/clusteripam/claims/binding"
	"github.com/multicidr/controller-manager/controllers/clusteripam/gate/opening"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
)

// Name is the controller's name.
const Name = "cluster-deployment-ipam-controller"

// Config is the input of New. Of the shell's Config it needs the Client; Name, Lines and Logic are set by New.
type Config struct {
	shell.Config
	// Workers is how many ClusterDeployments are worked on concurrently.
	Workers int
}

// New returns the controller. It does no I/O.
func New(cfg Config) (*shell.Controller, error) {
	s := cfg.Config
	s.Name = Name
	s.Lines = []shell.Line{{Kind: shell.ClusterDeployments, Workers: cfg.Workers}}
	s.Logic = func(parts shell.Parts) shell.Logic { return newLogic(parts) }
	return shell.New(s)
}

type logic struct {
	shell.Parts

	deployments *shell.Store[*v1beta1.ClusterDeployment]
	claims      *shell.Store[*v1beta1.ClusterIPAMClaim]
	ipams       *shell.Store[*v1beta1.ClusterIPAM]

	// The Lock guards these. claimOf is the claim of each ClusterDeployment that has one, and users are the reverse.
	claimOf map[types.NamespacedName]types.NamespacedName
	users   map[types.NamespacedName]map[types.NamespacedName]bool
	// waiting is since when a ClusterDeployment has waited for its addresses.
	waiting map[types.UID]time.Time
}

func newLogic(parts shell.Parts) *logic {
	return &logic{
		Parts:       parts,
		deployments: shell.NewStore[v1beta1.ClusterDeployment](shell.Reads{Kind: shell.ClusterDeployments}),
		claims:      shell.NewStore[v1beta1.ClusterIPAMClaim](shell.Reads{Kind: shell.ClusterIPAMClaims}),
		ipams:       shell.NewStore[v1beta1.ClusterIPAM](shell.Reads{Kind: shell.ClusterIPAMs}),
		claimOf:     map[types.NamespacedName]types.NamespacedName{},
		users:       map[types.NamespacedName]map[types.NamespacedName]bool{},
		waiting:     map[types.UID]time.Time{},
	}
}

// Reads implements shell.Logic.
func (l *logic) Reads() []shell.Source { return []shell.Source{l.deployments, l.claims, l.ipams} }

// Fill implements shell.Logic.
func (l *logic) Fill() {
	for _, d := range l.deployments.List() {
		l.observe(nameOf(d), d)
		l.Queue.Add(shell.KeyOf(shell.ClusterDeployments, d))
	}
}

// Heard implements shell.Logic.
func (l *logic) Heard(c shell.Change) {
	if c.Kind != shell.ClusterDeployments {
		for user := range l.users[nameOf(c.Object())] {
			l.Queue.Add(shell.Key{Kind: shell.ClusterDeployments, Namespace: user.Namespace, Name: user.Name})
		}
		return
	}
	if c.Now == nil {
		delete(l.waiting, c.Before.GetUID())
		l.observe(nameOf(c.Before), nil)
	} else if d, ok := c.Now.(*v1beta1.ClusterDeployment); ok {
		l.observe(nameOf(d), d)
		l.Queue.Add(shell.KeyOf(shell.ClusterDeployments, d))
	}
}

// observe notes which claim a ClusterDeployment has, and how long it waits; nil for one that is gone.
func (l *logic) observe(name types.NamespacedName, d *v1beta1.ClusterDeployment) {
	if claim, ok := l.claimOf[name]; ok {
		delete(l.claimOf, name)
		if delete(l.users[claim], name); len(l.users[claim]) == 0 {
			delete(l.users, claim)
		}
	}
	if d == nil {
		return
	}
	claimName, _ := opening.ClaimName(d)
	if claimName == "" {
		delete(l.waiting, d.UID)
		return
	}
	claim := types.NamespacedName{Namespace: d.Namespace, Name: claimName}
	l.claimOf[name] = claim
	if l.users[claim] == nil {
		l.users[claim] = map[types.NamespacedName]bool{}
	}
	l.users[claim][name] = true

	since, waits := l.waiting[d.UID]
	switch ready := meta.IsStatusConditionTrue(d.Status.Conditions, v1beta1.ConditionIPAMReady); {
	case ready && waits:
		l.Took(l.Now().Sub(since))
		delete(l.waiting, d.UID)
	case !ready && !waits:
		l.waiting[d.UID] = l.Now()
	}
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Sync implements shell.Logic.
func (l *logic) Sync(ctx context.Context, key shell.Key) error {
	v, ok := l.view(key)
	if !ok {
		return nil
	}
	return claims.Carry(ctx, l.Parts, func(refused string) []binding.Write {
		v.Refused = refused
		return opening.Decide(v)
	})
}

// view collects what a decision about a ClusterDeployment depends on. ok is false if it is gone, or if something about it cannot be read,
// which the shell reports.
func (l *logic) view(key shell.Key) (v opening.View, ok bool) {
	v.Now = metav1.NewTime(l.Now())
	l.Lock.With(func() {
		if v.Deployment, ok = l.deployments.Get(key.Namespace, key.Name); !ok || l.deployments.Broken(v.Deployment) != nil {
			ok = false
			return
		}
		name, _ := opening.ClaimName(v.Deployment)
		var found bool
		if v.Claim, found = l.claims.Get(key.Namespace, name); found {
			ok = ok && l.claims.Broken(v.Claim) == nil
		}
		if v.IPAM, found = l.ipams.Get(key.Namespace, name); found {
			ok = ok && l.ipams.Broken(v.IPAM) == nil
		}
	})
	return v, ok
}

// shownDeployment is a ClusterDeployment on the debug page.
type shownDeployment struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Claim     string `json:"claim"`
	Ready     bool   `json:"ready"`
	Message   string `json:"message,omitempty"`
}

// Show implements shell.Logic.
func (l *logic) Show() any {
	shown := []shownDeployment{}
	l.each(func(d *v1beta1.ClusterDeployment, claim string, c *metav1.Condition) {
		shown = append(shown, shownDeployment{d.Namespace, d.Name, claim, c.Status == metav1.ConditionTrue, c.Message})
	})
	return map[string]any{"clusterDeployments": shown}
}

// Figures implements shell.Logic.
func (l *logic) Figures() shell.Figures {
	f := shell.Figures{Waiting: map[string]int{}}
	l.each(func(_ *v1beta1.ClusterDeployment, _ string, c *metav1.Condition) {
		if c.Status == metav1.ConditionTrue {
			f.Bound++
		} else {
			f.Waiting[c.Reason]++
		}
	})
	return f
}

// each calls f with every ClusterDeployment that has a claim, and with its condition.
func (l *logic) each(f func(d *v1beta1.ClusterDeployment, claim string, c *metav1.Condition)) {
	for _, d := range l.deployments.List() {
		claim, _ := opening.ClaimName(d)
		if claim == "" {
			continue
		}
		c := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionIPAMReady)
		if c == nil {
			c = &metav1.Condition{Status: metav1.ConditionUnknown, Reason: opening.ReasonClaimNotBound}
		}
		f(d, claim, c)
	}
}
