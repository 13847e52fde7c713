package infoblox

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/host"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/known"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
	"github.com/multicidr/controller-manager/controllers/text"
)

const (
	// reasonInvalid is on an InfobloxIPPool whose spec nobody can use.
	reasonInvalid = "Invalid"
	// reasonWithoutClaim is of an event about an InfobloxIPPool that has IPAddresses without a claim.
	reasonWithoutClaim = "AddressWithoutClaim"
)

// source is where a pool's addresses come from.
type source struct {
	known.Place
	dnsView, dnsZone string
	subnets          []host.Subnet
	claim            string // the ClusterIPAMClaim that writes the instance and the subnets of the pool; empty if users do
}

// otherInstance says where the InfobloxInstance of a pool is named. What users write into the pool of a ClusterIPAMClaim is taken back.
func otherInstance(p *v1alpha1.InfobloxIPPool) string {
	if claim := v1beta1.ClaimOf(p); claim != "" {
		return "name another one in the annotation " + v1beta1.AnnotationInfobloxInstance + " of the ClusterIPAMClaim " + claim
	}
	return "correct spec.instance.name"
}

// correctSubnets says where the subnets of a pool are written.
func (s *source) correctSubnets() string {
	if s.claim != "" {
		return "correct spec.nodeNetwork.cidr of the ClusterIPAMClaim " + s.claim
	}
	return "correct spec.subnets"
}

// look is what is known about a pool before it is checked.
type look struct {
	pool   *v1alpha1.InfobloxIPPool // nil if there is nothing to do
	used   bool
	strays string // names the IPAddresses without a claim
	from   source
	client WAPI
	verdict
	check bool
}

// lookAt looks at the pool of this name.
func (l *logic) lookAt(name types.NamespacedName) (p look) {
	pool, ok := l.Pools.Get(name.Namespace, name.Name)
	if !ok {
		delete(l.verdicts, name)
		l.QueueAllOf(name)
		return p
	}
	instance := pool.Spec.InstanceRef.Name
	if _, exists := l.Instances.Get("", instance); known.Paused(pool) || exists && l.servers[instance] == nil {
		return p // An InfobloxInstance that is checked for the first time queues its pools.
	}
	p.pool, p.used, p.strays = pool, len(l.ClaimsOf[name]) > 0 || len(l.AddressesOf[name]) > 0, l.StraysOf(name)
	var inputs string
	p.from, p.client, p.verdict, inputs = l.sourceOf(pool)
	old := l.verdicts[name]
	if p.check = old == nil || old.due(inputs, l.Now()); !p.check {
		p.verdict = *old
	}
	p.inputs = inputs
	return p
}

// syncPool checks whether a pool's networks exist, says so in the status, and keeps the pool while claims use it or IPAddresses of it exist.
func (l *logic) syncPool(ctx context.Context, key shell.Key) error {
	name := types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
	var p look
	l.Lock.With(func() { p = l.lookAt(name) })
	if p.pool == nil {
		return nil
	}
	v := p.verdict
	if p.check {
		if p.client != nil && v.reason == "" {
			v = checkNetworks(ctx, p.client, p.from)
		}
		v.inputs = p.inputs
		l.Lock.With(func() { l.notePool(name, &v) })
	}
	pool, err := l.protect(ctx, p.pool, p.used)
	if err != nil || pool == nil {
		return err
	}
	c := v.condition(pool.Generation)
	if p.strays != "" {
		c.Message = text.Cut(c.Message, text.MaxMessage) + " " + p.strays
	}
	before := meta.FindStatusCondition(pool.Status.Conditions, c.Type)
	if err := l.say(ctx, shell.InfobloxIPPools, pool, pool.Status.Conditions, c); err != nil {
		return err
	}
	if p.strays != "" && (before == nil || !strings.HasSuffix(before.Message, p.strays)) {
		l.Tell(shell.Event{About: pool, Kind: shell.InfobloxIPPools, Reason: reasonWithoutClaim, Message: text.Cut(p.strays, text.MaxMessage)})
	}
	return nil
}

// notePool notes what a check has shown, and lets the claims know if it matters to them.
func (l *logic) notePool(name types.NamespacedName, v *verdict) {
	v.checked = l.Now()
	if old := l.verdicts[name]; old == nil || old.ready != v.ready || old.inputs != v.inputs || old.message != v.message {
		delete(l.full, name)
		l.QueueAllOf(name)
	}
	l.verdicts[name] = v
	l.Queue.AddAfter(shell.Key{Kind: shell.InfobloxIPPools, Namespace: name.Namespace, Name: name.Name}, v.every())
}

// sourceOf returns where a pool's addresses come from. v says why that is not known. inputs changes whenever the source does.
func (l *logic) sourceOf(p *v1alpha1.InfobloxIPPool) (from source, client WAPI, v verdict, inputs string) {
	inputs = fmt.Sprintf("%s %d", p.UID, p.Generation)
	if err := l.Pools.Broken(p); err != nil {
		return from, nil, notReady(reasonInvalid, "The spec cannot be read: %v", err), inputs
	}
	subnets, problem := subnetsOf(p)
	instance := p.Spec.InstanceRef.Name
	s := l.servers[instance]
	switch {
	case problem != "":
		return from, nil, notReady(reasonInvalid, "%s", problem), inputs
	case s == nil:
		return from, nil, notReady(v1alpha1.ReasonAuthenticationFailed, "The InfobloxInstance %s does not exist. Create it, or %s.", instance, otherInstance(p)), inputs
	}
	inputs = fmt.Sprintf("%s %d", inputs, s.change)
	if !s.ready || s.client == nil {
		// What its condition says is for administrators: it can name a Secret.
		return from, nil, notReady(cmp.Or(s.reason, v1alpha1.ReasonAuthenticationFailed), "The InfobloxInstance %s is not ready. See its condition Ready.", instance), inputs
	}
	from = source{
		Place:   known.Place{Instance: instance, NetworkView: cmp.Or(p.Spec.NetworkView, s.networkView)},
		dnsZone: p.Spec.DNSZone,
		subnets: subnets,
		claim:   v1beta1.ClaimOf(p),
	}
	if from.dnsView = cmp.Or(p.Spec.DNSView, s.dnsView); from.dnsView == "" {
		from.dnsView = "default"
		if from.NetworkView != "default" {
			from.dnsView = "default." + from.NetworkView
		}
	}
	return from, s.client, verdict{}, inputs
}

// subnetsOf returns the subnets of a pool, or what is wrong with them. Most of that our CustomResourceDefinition refuses, others may not.
func subnetsOf(p *v1alpha1.InfobloxIPPool) (subnets []host.Subnet, problem string) {
	for _, given := range p.Spec.Subnets {
		s := host.Subnet{}
		var err error
		switch s.Prefix, err = netip.ParsePrefix(given.CIDR); {
		case err != nil:
			return nil, fmt.Sprintf("The subnet %q is not a CIDR. Correct spec.subnets.", text.Cut(given.CIDR, text.MaxValue))
		case s.Prefix != s.Prefix.Masked():
			return nil, fmt.Sprintf("The subnet %s does not begin with its first address. Write %s.", s.Prefix, s.Prefix.Masked())
		case given.Gateway == "":
		default:
			if s.Gateway, err = netip.ParseAddr(given.Gateway); err != nil || s.Gateway.BitLen() != s.Prefix.Addr().BitLen() {
				return nil, fmt.Sprintf("The gateway %q of the subnet %s is not an address of its family. Correct spec.subnets.", text.Cut(given.Gateway, text.MaxValue), s.Prefix)
			}
		}
		subnets = append(subnets, s)
	}
	if len(subnets) == 0 {
		return nil, "The pool has no subnet. Add one to spec.subnets."
	}
	return subnets, ""
}

// checkNetworks asks an Infoblox for the views and the networks of a pool. A DNS view matters only for records in the DNS.
func checkNetworks(ctx context.Context, client WAPI, from source) verdict {
	switch ok, err := client.NetworkView(ctx, from.NetworkView); {
	case err != nil:
		return unreachable(err)
	case !ok:
		return notReady(v1alpha1.ReasonNetworkViewNotFound, "Infoblox has no network view %s. Create it there, or correct spec.NetworkView.", text.Cut(from.NetworkView, text.MaxValue))
	}
	message := "All networks exist in Infoblox."
	switch ok, err := client.DNSView(ctx, from.dnsView); {
	case err != nil:
		return unreachable(err)
	case !ok && from.dnsZone != "":
		return notReady(v1alpha1.ReasonDNSViewNotFound, "Infoblox has no DNS view %s. Create it there, or correct spec.dnsView.", text.Cut(from.dnsView, text.MaxValue))
	}
	for _, s := range from.subnets {
		switch ok, err := client.Network(ctx, s.Prefix, from.NetworkView); {
		case err != nil:
			return unreachable(err)
		case !ok:
			return notReady(v1alpha1.ReasonNetworkNotFound, "Infoblox has no network %s in the network view %s. Create it there, or %s.", s.Prefix, text.Cut(from.NetworkView, text.MaxValue), from.correctSubnets())
		}
	}
	return verdict{ready: true, reason: v1alpha1.ReasonReady, message: message}
}

// protect writes the finalizer of a pool, or removes it once the pool is deleted and neither claims nor IPAddresses need it. It returns the pool as it is then; nil if it
// may be gone.
func (l *logic) protect(ctx context.Context, pool *v1alpha1.InfobloxIPPool, used bool) (*v1alpha1.InfobloxIPPool, error) {
	finalizers, missing := known.Without(pool.Finalizers, v1beta2.FinalizerProtectPool)
	leaves := pool.DeletionTimestamp != nil
	switch {
	case !leaves && missing:
		finalizers = append(finalizers, v1beta2.FinalizerProtectPool)
	case leaves && !missing && !used:
	default:
		return pool, nil
	}
	stored := &v1alpha1.InfobloxIPPool{}
	patch := shell.MergePatchOfVersion(pool, map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
	if err := l.API.Patch(ctx, shell.InfobloxIPPools, known.NameOf(pool), patch, stored); err != nil || leaves {
		return nil, err
	}
	return stored, nil
}
