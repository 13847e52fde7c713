package claims

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/claims/binding"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
)

// Name is the controller's name.
const Name = "cluster-ipam-controller"

// Config is the input of New. Of the shell's Config it needs the Client; Name, Lines and Logic are set by New.
type Config struct {
	shell.Config
	// Workers is how many claims are worked on concurrently.
	Workers int
	// DefaultInstance is the InfobloxInstance for claims that name none; empty for none.
	DefaultInstance string
}

// New returns the controller. It does no I/O.
func New(cfg Config) (*shell.Controller, error) {
	s := cfg.Config
	s.Name = Name
	s.Lines = []shell.Line{{Kind: shell.ClusterIPAMClaims, Workers: cfg.Workers}}
	s.Logic = func(parts shell.Parts) shell.Logic { return NewLogic(parts, cfg.DefaultInstance) }
	return shell.New(s)
}

type logic struct {
	shell.Parts
	defaultInstance string

	claims    *shell.Store[*v1beta1.ClusterIPAMClaim]
	ipams     *shell.Store[*v1beta1.ClusterIPAM]
	inCluster *shell.Store[*v1alpha2.InClusterIPPool]
	infoblox  *shell.Store[*v1alpha1.InfobloxIPPool]
	instances *shell.Store[*v1alpha1.InfobloxInstance]

	// waiting is since when a claim has waited to be bound. Guarded by the Lock.
	waiting map[types.UID]time.Time
}

// NewLogic returns what the controller runs for one term. A simulation runs it, too.
func NewLogic(parts shell.Parts, defaultInstance string) shell.Logic {
	return &logic{
		Parts:           parts,
		defaultInstance: defaultInstance,
		claims:          shell.NewStore[v1beta1.ClusterIPAMClaim](shell.Reads{Kind: shell.ClusterIPAMClaims}),
		ipams:           shell.NewStore[v1beta1.ClusterIPAM](shell.Reads{Kind: shell.ClusterIPAMs}),
		inCluster:       shell.NewStore[v1alpha2.InClusterIPPool](shell.Reads{Kind: shell.InClusterIPPools, Optional: true}),
		infoblox:        shell.NewStore[v1alpha1.InfobloxIPPool](shell.Reads{Kind: shell.InfobloxIPPools, Optional: true}),
		instances:       shell.NewStore[v1alpha1.InfobloxInstance](shell.Reads{Kind: shell.InfobloxInstances, Optional: true}),
		waiting:         map[types.UID]time.Time{},
	}
}

// Reads implements shell.Logic.
func (l *logic) Reads() []shell.Source {
	return []shell.Source{l.claims, l.ipams, l.inCluster, l.infoblox, l.instances}
}

// Fill implements shell.Logic.
func (l *logic) Fill() {
	for _, claim := range l.claims.List() {
		l.observe(claim)
		l.Queue.Add(shell.KeyOf(shell.ClusterIPAMClaims, claim))
	}
}

// Heard implements shell.Logic.
func (l *logic) Heard(c shell.Change) {
	switch c.Kind {
	case shell.InfobloxInstances:
		for _, claim := range l.claims.List() {
			if claim.Spec.Provider == v1beta1.ProviderInfoblox {
				l.Queue.Add(shell.KeyOf(shell.ClusterIPAMClaims, claim))
			}
		}
		return
	case shell.ClusterIPAMClaims:
		if c.Now == nil {
			delete(l.waiting, c.Before.GetUID())
		} else if claim, ok := c.Now.(*v1beta1.ClusterIPAMClaim); ok {
			l.observe(claim)
		}
	}
	l.Queue.Add(shell.KeyOf(shell.ClusterIPAMClaims, c.Object()))
}

// observe notes how long a claim waits.
func (l *logic) observe(claim *v1beta1.ClusterIPAMClaim) {
	since, waits := l.waiting[claim.UID]
	switch {
	case claim.Status.Bound && waits:
		l.Took(l.Now().Sub(since))
		delete(l.waiting, claim.UID)
	case !claim.Status.Bound && !waits:
		l.waiting[claim.UID] = l.Now()
	}
}

// Sync implements shell.Logic.
func (l *logic) Sync(ctx context.Context, key shell.Key) error {
	v, ok := l.view(key)
	if !ok {
		return nil
	}
	return Carry(ctx, l.Parts, func(refused string) []binding.Write {
		v.Refused = refused
		return binding.Decide(v)
	})
}

// view collects what a decision about a claim depends on. ok is false if the claim is gone, or if something about it cannot be read, which
// the shell reports.
func (l *logic) view(key shell.Key) (v binding.View, ok bool) {
	v = binding.View{DefaultInstance: l.defaultInstance, Now: metav1.NewTime(l.Now())}
	l.Lock.With(func() {
		if v.Claim, ok = l.claims.Get(key.Namespace, key.Name); !ok || l.claims.Broken(v.Claim) != nil {
			ok = false
			return
		}
		var ipam, inCluster, infoblox bool
		v.IPAM, ipam = ofClaim(l.ipams, key)
		v.InCluster, inCluster = ofClaim(l.inCluster, key)
		v.Infoblox, infoblox = ofClaim(l.infoblox, key)
		ok = ipam && inCluster && infoblox
		if v.Claim.Spec.Provider == v1beta1.ProviderInfoblox {
			for _, instance := range l.instances.List() {
				v.Instances = append(v.Instances, instance.Name)
			}
		}
	})
	for _, kind := range []*shell.Kind{shell.InClusterIPPools, shell.InfobloxIPPools} {
		if _, served := l.Served(kind); !served {
			v.NotInstalled = append(v.NotInstalled, kind.Name)
		}
	}
	return v, ok
}

// ofClaim returns the object that has the name of a claim; nil if there is none. ok is false if it cannot be read: to take it for missing would
// be to create it anew.
func ofClaim[T metav1.Object](store *shell.Store[T], key shell.Key) (object T, ok bool) {
	object, found := store.Get(key.Namespace, key.Name)
	return object, !found || store.Broken(object) == nil
}

// shownClaim is a claim on the debug page.
type shownClaim struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Provider  string            `json:"provider"`
	Cluster   string            `json:"cluster,omitempty"`
	Bound     bool              `json:"bound"`
	Problems  map[string]string `json:"problems,omitempty"` // messages of conditions, by type
}

// Show implements shell.Logic.
func (l *logic) Show() any {
	shown := []shownClaim{}
	for _, claim := range l.claims.List() {
		s := shownClaim{Namespace: claim.Namespace, Name: claim.Name, Provider: claim.Spec.Provider, Cluster: binding.Cluster(claim), Bound: claim.Status.Bound, Problems: map[string]string{}}
		for _, c := range claim.Status.Conditions {
			if c.Status == metav1.ConditionTrue && c.Type != binding.ConditionBoundToCluster {
				s.Problems[c.Type] = c.Message
			}
		}
		shown = append(shown, s)
	}
	return map[string]any{"claims": shown}
}

// Figures implements shell.Logic.
func (l *logic) Figures() shell.Figures {
	f := shell.Figures{Waiting: map[string]int{}}
	for _, claim := range l.claims.List() {
		if claim.Status.Bound {
			f.Bound++
			continue
		}
		reason := binding.ReasonPoolNotReady
		for _, kind := range []string{v1beta1.ConditionProviderError, v1beta1.ConditionInvalidClaim} {
			if c := meta.FindStatusCondition(claim.Status.Conditions, kind); c != nil {
				reason = c.Reason
			}
		}
		f.Waiting[reason]++
	}
	return f
}
