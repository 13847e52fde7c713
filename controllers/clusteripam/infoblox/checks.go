package infoblox

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/text"
)

// An InfobloxInstance is checked when it or its Secret changes, and once in a while. Each time it gets a new client, since its files may have changed, and then
// its InfobloxIPPools are checked. What a check has shown is the condition Ready. Claims use a pool as it was checked.

const (
	// checkEvery is how often an Infoblox is asked whether everything is still there, and checkFailed how often if it is not.
	checkEvery  = time.Minute
	checkFailed = 10 * time.Second
	// reasonInvalid is on an InfobloxIPPool whose spec nobody can use.
	reasonInvalid = "Invalid"
	// reasonWithoutClaim is of an event about an InfobloxIPPool that has IPAddresses without a claim.
	reasonWithoutClaim = "AddressWithoutClaim"
)

// verdict is what a check has shown. The debug page shows it without the message, which can name a Secret.
type verdict struct {
	Ready   bool
	Reason  string
	message string
}

func notReady(reason, format string, args ...any) verdict {
	return verdict{Reason: reason, message: text.Cut(fmt.Sprintf(format, args...), text.MaxCondition)}
}

// server is an InfobloxInstance that was checked.
type server struct {
	verdict
	client *wapi.Client // nil if there is none
}

// checked is an InfobloxIPPool that was checked.
type checked struct {
	verdict
	source // if it is ready
	of     *v1alpha1.InfobloxIPPool
	// full: since the check no subnet had a free address, and no claim is gone. Infoblox is not asked for one.
	full bool
}

// source is where a pool's addresses come from.
type source struct {
	place
	client           *wapi.Client
	dnsView, dnsZone string // empty if the records are not in the DNS
	subnets          []subnet
}

func (l *logic) instanceChanged(before, now *v1alpha1.InfobloxInstance) {
	l.term.Queue.Add(runner.KeyOf(runner.InfobloxInstances, cmp.Or(now, before)))
}

func (l *logic) secretChanged(before, now *corev1.Secret) {
	for _, i := range l.instances.List() {
		if i.Spec.CredentialsSecretRef.Name == cmp.Or(now, before).Name {
			l.term.Queue.Add(runner.KeyOf(runner.InfobloxInstances, i))
		}
	}
}

func (l *logic) poolChanged(before, now *v1alpha1.InfobloxIPPool) {
	pool := cmp.Or(now, before)
	l.term.Queue.Add(runner.KeyOf(runner.InfobloxIPPools, pool))
	l.contract.QueuePool(v1alpha1.KindInfobloxIPPool, pool.Namespace, pool.Name)
}

// left queues a pool that is being deleted once neither claims nor IPAddresses name it.
func (l *logic) left(namespace string, ref v1beta2.IPPoolReference) {
	pool, ok := l.pools.Get(namespace, ref.Name)
	if ok && ofInfoblox(ref) && pool.DeletionTimestamp != nil && len(l.contract.ClaimsOf(ref.Kind, namespace, ref.Name)) == 0 {
		l.term.Queue.Add(runner.KeyOf(runner.InfobloxIPPools, pool))
	}
}

// syncInstance checks whether an Infoblox answers and has its views, and says so in the status.
func (l *logic) syncInstance(ctx context.Context, name string) error {
	instance, ok := l.instances.Get("", name)
	if !ok {
		l.noteServer(name, nil)
		return nil
	}
	c, v := l.connectTo(instance)
	if c != nil {
		s := source{client: c, place: place{name, instance.Spec.DefaultNetworkView}, dnsView: instance.Spec.DefaultDNSView}
		v = s.check(ctx, verdict{true, v1alpha1.ReasonConfigurationValid, "Infoblox answers."}, "")
	}
	l.noteServer(name, &server{v, c})
	again := checkFailed
	if v.Ready {
		again = checkEvery
	}
	l.term.Queue.AddAfter(runner.KeyOf(runner.InfobloxInstances, instance), again)
	_, err := l.say(ctx, runner.InfobloxInstances, instance, instance.Status.Conditions, v)
	return err
}

// noteServer notes what a check has shown, or nil if the InfobloxInstance is gone, and queues its pools.
func (l *logic) noteServer(name string, s *server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.servers[name] = s; s == nil {
		delete(l.servers, name)
	}
	for _, p := range l.pools.List() {
		if p.Spec.InstanceRef.Name == name {
			l.term.Queue.Add(runner.KeyOf(runner.InfobloxIPPools, p))
		}
	}
}

// connectTo returns a new client of an Infoblox; nil if there can be none, and why.
func (l *logic) connectTo(i *v1alpha1.InfobloxInstance) (*wapi.Client, verdict) {
	secret := &corev1.Secret{}
	ok := false
	if l.secretNamespace != "" {
		secret, ok = l.secrets.Get(l.secretNamespace, i.Spec.CredentialsSecretRef.Name)
	}
	if !ok {
		return nil, notReady(v1alpha1.ReasonAuthenticationFailed, "The Secret %s does not exist in the namespace %q, the only one whose Secrets are read "+
			"(--cluster-ipam-infoblox-namespace). Create it there, with username and password or with clientCert and clientKey.", i.Spec.CredentialsSecretRef.Name, l.secretNamespace)
	}
	c, err := l.connect(wapi.Config{
		Host: i.Spec.Host, Port: i.Spec.Port, Version: i.Spec.WAPIVersion, CAFile: i.Spec.CustomCAPath, Insecure: i.Spec.DisableTLSVerification,
		Username: string(secret.Data[v1alpha1.SecretUsername]), Password: string(secret.Data[v1alpha1.SecretPassword]),
		ClientCert: secret.Data[v1alpha1.SecretClientCertificate], ClientKey: secret.Data[v1alpha1.SecretClientKey],
	})
	if err != nil {
		return nil, notReady(v1alpha1.ReasonAuthenticationFailed, "There is no connection: %v. Correct the InfobloxInstance, its Secret or the file.", err)
	}
	return c, verdict{}
}

// check asks an Infoblox for the views and networks of a source. It returns ready if they are there. correct says where to correct the networks. The view "default"
// of an InfobloxInstance that names none need not be there: its user may be allowed to see another one only.
func (s source) check(ctx context.Context, ready verdict, correct string) verdict {
	switch ok, err := s.client.NetworkView(ctx, cmp.Or(s.networkView, "default")); {
	case err != nil:
		return unreachable(err)
	case !ok && s.networkView != "":
		return notReady(v1alpha1.ReasonNetworkViewNotFound, "Infoblox has no network view %s. Create it there, or correct the spec.", text.Cut(s.networkView, text.MaxValue))
	}
	if s.dnsView != "" {
		switch ok, err := s.client.DNSView(ctx, s.dnsView); {
		case err != nil:
			return unreachable(err)
		case !ok:
			return notReady(v1alpha1.ReasonDNSViewNotFound, "Infoblox has no DNS view %s. Create it there, or correct the spec.", text.Cut(s.dnsView, text.MaxValue))
		}
	}
	for _, n := range s.subnets {
		switch ok, err := s.client.Network(ctx, n.prefix, s.networkView); {
		case err != nil:
			return unreachable(err)
		case !ok:
			return notReady(v1alpha1.ReasonNetworkNotFound, "Infoblox has no network %s in the network view %s. Create it there, or %s.",
				n.prefix, text.Cut(s.networkView, text.MaxValue), correct)
		}
	}
	return ready
}

func unreachable(err error) verdict {
	return notReady(v1alpha1.ReasonAuthenticationFailed, "Infoblox does not answer as it should: %v. "+
		"Check the host, the port, the certificate and the network, and in the Secret the user, who needs permissions in Infoblox.", err)
}

// syncPool checks whether a pool's networks exist, says so in the status, and keeps the pool while claims use it or IPAddresses of it exist.
func (l *logic) syncPool(ctx context.Context, name types.NamespacedName) error {
	pool, ok := l.pools.Get(name.Namespace, name.Name)
	if !ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.checked, name)
		return nil
	}
	if contract.Paused(pool) || contract.GoingAway(pool) {
		return nil
	}
	from, v, ok := l.sourceOf(pool)
	if !ok { // Its InfobloxInstance is checked for the first time, and queues it then.
		return nil
	}
	if v == (verdict{}) {
		v = from.check(ctx, verdict{true, v1alpha1.ReasonReady, "All networks exist in Infoblox."}, correct(pool, "correct spec.subnets", "correct spec.nodeNetwork.cidr"))
	}
	l.notePool(name, &checked{verdict: v, source: from, of: pool})
	if !v.Ready {
		l.term.Queue.AddAfter(runner.KeyOf(runner.InfobloxIPPools, pool), checkFailed)
	}
	users := l.contract.ClaimsOf(v1alpha1.KindInfobloxIPPool, name.Namespace, name.Name)
	if changes := protection(pool, len(users) > 0); changes != nil { // Its event queues the pool.
		return contract.Refused(l.term.API.Patch(ctx, runner.InfobloxIPPools, name, runner.MergePatchOfVersion(pool, changes), nil), "write the finalizer of the pool")
	}
	strays := l.strays(users)
	if strays != "" {
		v.message = text.Cut(v.message, text.MaxMessage) + " " + strays
	}
	news, err := l.say(ctx, runner.InfobloxIPPools, pool, pool.Status.Conditions, v)
	if news && strays != "" {
		l.term.Event(pool, runner.InfobloxIPPools, false, reasonWithoutClaim, text.Cut(strays, text.MaxMessage))
	}
	return err
}

// notePool notes what a check has shown, and lets the claims know if it matters to them.
func (l *logic) notePool(name types.NamespacedName, now *checked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.checked[name]
	if l.checked[name] = now; before == nil || before.verdict != now.verdict || !equality.Semantic.DeepEqual(before.of.Spec, now.of.Spec) || before.full {
		l.contract.QueuePool(v1alpha1.KindInfobloxIPPool, name.Namespace, name.Name)
	}
}

// sourceOf returns where a pool's addresses come from, or in v why that is not known. ok is false if its InfobloxInstance was not checked yet.
func (l *logic) sourceOf(p *v1alpha1.InfobloxIPPool) (from source, v verdict, ok bool) {
	subnets, problem := subnetsOf(p)
	name := p.Spec.InstanceRef.Name
	instance, exists := l.instances.Get("", name)
	l.mu.Lock()
	s := l.servers[name]
	l.mu.Unlock()
	switch {
	case problem != "":
		return from, notReady(reasonInvalid, "%s", problem), true
	case !exists:
		return from, notReady(v1alpha1.ReasonAuthenticationFailed, "The InfobloxInstance %s does not exist. Create it, or %s.", name,
			correct(p, "correct spec.instance.name", "name another one in the annotation "+v1beta1.AnnotationInfobloxInstance)), true
	case s == nil:
		return from, v, false
	case !s.Ready: // What its condition says is for administrators: it can name a Secret.
		return from, notReady(s.Reason, "The InfobloxInstance %s is not ready. See its condition Ready.", name), true
	}
	from = source{place: l.placeOf(p), client: s.client, dnsZone: p.Spec.DNSZone, subnets: subnets}
	if from.dnsZone != "" {
		view := "default." + from.networkView
		if from.networkView == "default" {
			view = "default"
		}
		from.dnsView = cmp.Or(p.Spec.DNSView, instance.Spec.DefaultDNSView, view)
	}
	return from, v, true
}

// placeOf returns where the host records of a pool are.
func (l *logic) placeOf(pool *v1alpha1.InfobloxIPPool) place {
	view := pool.Spec.NetworkView
	if i, ok := l.instances.Get("", pool.Spec.InstanceRef.Name); ok {
		view = cmp.Or(view, i.Spec.DefaultNetworkView)
	}
	return place{pool.Spec.InstanceRef.Name, cmp.Or(view, "default")}
}

// correct says where a pool is corrected. What users write into the pool of a ClusterIPAMClaim is taken back.
func correct(p *v1alpha1.InfobloxIPPool, here, inClaim string) string {
	if claim := v1beta1.ClaimOf(p); claim != "" {
		return inClaim + " of the ClusterIPAMClaim " + claim
	}
	return here
}

// subnetsOf returns the subnets of a pool, or what is wrong with them. Most of that our CustomResourceDefinition refuses, others may not.
func subnetsOf(p *v1alpha1.InfobloxIPPool) (subnets []subnet, problem string) {
	for _, given := range p.Spec.Subnets {
		prefix, err := netip.ParsePrefix(given.CIDR)
		if err != nil || prefix != prefix.Masked() {
			return nil, fmt.Sprintf("The subnet %q is not a CIDR that begins with its first address, like 10.0.0.0/24. Correct spec.subnets.", text.Cut(given.CIDR, text.MaxValue))
		}
		gateway, err := netip.ParseAddr(given.Gateway)
		if given.Gateway != "" && (err != nil || gateway.BitLen() != prefix.Addr().BitLen()) {
			return nil, fmt.Sprintf("The gateway %q of the subnet %s is not an address of its family. Correct spec.subnets.", text.Cut(given.Gateway, text.MaxValue), prefix)
		}
		subnets = append(subnets, subnet{prefix, gateway})
	}
	if len(subnets) == 0 {
		return nil, "The pool has no subnet. Add one to spec.subnets."
	}
	return subnets, ""
}

// protection returns what changes a pool to have its finalizer until it is deleted and neither claims nor IPAddresses need it; nil if it is so.
func protection(pool *v1alpha1.InfobloxIPPool, used bool) map[string]any {
	finalizers := slices.DeleteFunc(slices.Clone(pool.Finalizers), func(f string) bool { return f == v1beta2.FinalizerProtectPool })
	leaves := pool.DeletionTimestamp != nil
	if !leaves {
		finalizers = append(finalizers, v1beta2.FinalizerProtectPool)
	}
	if leaves && used || len(finalizers) == len(pool.Finalizers) {
		return nil
	}
	return map[string]any{"metadata": map[string]any{"finalizers": finalizers}}
}

// strays names the IPAddresses among the users of a pool that have no claim; empty if there are none.
func (l *logic) strays(users []types.NamespacedName) string {
	var all []string
	for _, name := range users {
		_, claimed := l.contract.Claims.Get(name.Namespace, name.Name)
		if address, ok := l.contract.Addresses.Get(name.Namespace, name.Name); ok && !claimed && address.DeletionTimestamp == nil {
			all = append(all, name.Name)
		}
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return fmt.Sprintf("IPAddresses without an IPAddressClaim: %d (%s). They keep their addresses: delete those that no machine uses.",
		len(all), text.Cut(strings.Join(all, ", "), text.MaxListed))
}

// say writes the condition Ready of an object, unless it is there already; news is whether that is another one than before.
func (l *logic) say(ctx context.Context, kind *runner.Kind, object metav1.Object, conditions []metav1.Condition, v verdict) (news bool, err error) {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v.Reason, Message: v.message, ObservedGeneration: object.GetGeneration()}
	if v.Ready {
		c.Status = metav1.ConditionTrue
	}
	if contract.Stored(conditions, c) {
		return false, nil
	}
	before := contract.Find(conditions, c.Type)
	news = before == nil || !contract.Same(*before, c)
	patch := runner.MergePatchOfVersion(object, map[string]any{"status": map[string]any{"conditions": contract.With(conditions, c)}})
	patch.Status = true
	if err := l.term.API.Patch(ctx, kind, contract.NameOf(object), patch, nil); err != nil {
		return false, contract.Refused(err, "write the status")
	}
	if news && !v.Ready {
		l.term.Event(object, kind, false, c.Reason, text.Cut(c.Message, text.MaxMessage))
	}
	return news, nil
}
