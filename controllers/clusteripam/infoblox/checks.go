package infoblox

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
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
)

// verdict is what a check has shown. The debug page shows it without the message, which can name a Secret.
type verdict struct {
	Ready   bool
	Reason  string
	message string
}

func notReady(reason, format string, args ...any) verdict {
	return verdict{Reason: reason, message: fmt.Sprintf(format, args...)}
}

// condition returns the condition Ready.
func (v verdict) condition() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v.Reason, Message: v.message}
	if v.Ready {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// server is an InfobloxInstance that was checked.
type server struct {
	verdict
	client *wapi.Client // nil if there is none
}

// source is where a pool's addresses come from.
type source struct {
	place
	client           *wapi.Client
	dnsView, dnsZone string // empty if the records are not in the DNS
	subnets          []subnet
}

func (l *logic) instanceChanged(before, now *v1alpha1.InfobloxInstance) {
	if before != nil && now != nil && before.Spec == now.Spec { // What a check has shown is no reason for the next one: an Infoblox can fail in another way each time.
		return
	}
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
	was := cmp.Or(before, pool).DeepCopy()
	was.Status, was.ResourceVersion = pool.Status, pool.ResourceVersion
	if before == nil || now == nil || !equality.Semantic.DeepEqual(was, now) { // Not only what a check has shown.
		l.term.Queue.Add(runner.KeyOf(runner.InfobloxIPPools, pool))
	}
	l.contract.QueuePool(v1alpha1.KindInfobloxIPPool, pool.Namespace, pool.Name)
}

// left queues a pool that is being deleted when a claim or an IPAddress of it is gone.
func (l *logic) left(namespace string, ref v1beta2.IPPoolReference) {
	if pool, ok := l.pools.Get(namespace, ref.Name); ok && ofInfoblox(ref) && pool.DeletionTimestamp != nil {
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
		if v = s.check(ctx, "correct the spec"); v.Ready {
			v.Reason, v.message = v1alpha1.ReasonConfigurationValid, "Infoblox answers."
		}
	}
	l.noteServer(name, &server{v, c})
	again := checkFailed
	if v.Ready {
		again = checkEvery
	}
	l.term.Queue.AddAfter(runner.KeyOf(runner.InfobloxInstances, instance), again)
	want := instance.DeepCopy()
	return l.contract.Report(ctx, runner.InfobloxInstances, instance, want, &want.Status.Conditions, v.condition())
}

// noteServer notes what a check has shown, or nil if the InfobloxInstance is gone. It queues its pools and, if they can be told something else now, their claims.
func (l *logic) noteServer(name string, s *server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.servers[name]
	if l.servers[name] = s; s == nil {
		delete(l.servers, name)
	}
	for _, p := range l.pools.List() {
		if p.Spec.InstanceRef.Name == name {
			l.term.Queue.Add(runner.KeyOf(runner.InfobloxIPPools, p))
			if before == nil || s == nil || before.verdict != s.verdict {
				l.contract.QueuePool(v1alpha1.KindInfobloxIPPool, p.Namespace, p.Name)
			}
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

// check asks an Infoblox for the views and networks of a source. correct says where they are corrected. The view "default" of an InfobloxInstance that names none
// need not be there: its user may be allowed to see another one only.
func (s source) check(ctx context.Context, correct string) verdict {
	if ok, err := s.client.NetworkView(ctx, cmp.Or(s.networkView, "default")); err != nil || !ok && s.networkView != "" {
		return missing(err, v1alpha1.ReasonNetworkViewNotFound, "network view "+s.networkView, correct)
	}
	if s.dnsView != "" {
		if ok, err := s.client.DNSView(ctx, s.dnsView); err != nil || !ok {
			return missing(err, v1alpha1.ReasonDNSViewNotFound, "DNS view "+s.dnsView, correct)
		}
	}
	for _, n := range s.subnets {
		if ok, err := s.client.Network(ctx, n.prefix, s.networkView); err != nil || !ok {
			return missing(err, v1alpha1.ReasonNetworkNotFound, fmt.Sprintf("network %s in the network view %s", n.prefix, s.networkView), correct)
		}
	}
	return verdict{Ready: true}
}

// missing says that Infoblox does not have something, or what is wrong with its answer.
func missing(err error, reason, what, correct string) verdict {
	if err != nil {
		return notReady(v1alpha1.ReasonAuthenticationFailed, "Infoblox does not answer as it should: %v. "+
			"Check the host, the port, the certificate and the network, and in the Secret the user, who needs permissions in Infoblox.", err)
	}
	return notReady(reason, "Infoblox has no %s. Create it there, or %s.", what, correct)
}

// syncPool keeps a pool while claims use it or IPAddresses of it exist, checks whether its networks exist, and says so in the status.
func (l *logic) syncPool(ctx context.Context, name types.NamespacedName) error {
	pool, ok := l.pools.Get(name.Namespace, name.Name)
	if !ok || contract.Paused(pool) || contract.GoingAway(pool) {
		return nil
	}
	users := l.contract.ClaimsOf(v1alpha1.KindInfobloxIPPool, name.Namespace, name.Name)
	want := pool.DeepCopy()
	contract.Protect(want, len(users) > 0)
	from, v, known := l.sourceOf(pool)
	if pool.DeletionTimestamp != nil || len(want.Finalizers) != len(pool.Finalizers) || !known { // Its event, or that of its InfobloxInstance, queues the pool.
		return l.contract.Report(ctx, runner.InfobloxIPPools, pool, want, &want.Status.Conditions)
	}
	if v.message == "" {
		if v = from.check(ctx, contract.Correct(pool, "correct the spec", "correct spec.nodeNetwork")); v.Ready {
			v.Reason, v.message = v1alpha1.ReasonReady, "All networks exist in Infoblox."
		}
	}
	if !v.Ready {
		l.term.Queue.AddAfter(runner.KeyOf(runner.InfobloxIPPools, pool), checkFailed)
	}
	v.message += l.contract.WithoutClaim(users)
	return l.contract.Report(ctx, runner.InfobloxIPPools, pool, want, &want.Status.Conditions, v.condition())
}

// sourceOf returns where a pool's addresses come from, or in v why it has none. known is false if its InfobloxInstance was not checked yet.
func (l *logic) sourceOf(p *v1alpha1.InfobloxIPPool) (from source, v verdict, known bool) {
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
			contract.Correct(p, "correct spec.instance.name", "name another one in the annotation "+v1beta1.AnnotationInfobloxInstance)), true
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

// subnetsOf returns the subnets of a pool, or what is wrong with them. Our CustomResourceDefinition refuses that, others may not.
func subnetsOf(p *v1alpha1.InfobloxIPPool) (subnets []subnet, problem string) {
	for _, given := range p.Spec.Subnets {
		prefix, err := netip.ParsePrefix(given.CIDR)
		gateway, err2 := netip.ParseAddr(given.Gateway)
		if err != nil || prefix != prefix.Masked() || given.Gateway != "" && (err2 != nil || gateway.BitLen() != prefix.Addr().BitLen()) {
			return nil, fmt.Sprintf("The subnet %q with the gateway %q cannot be used. Write a CIDR that begins with its first address, like 10.0.0.0/24, "+
				"and an address of its family.", text.Cut(given.CIDR, text.MaxValue), text.Cut(given.Gateway, text.MaxValue))
		}
		subnets = append(subnets, subnet{prefix, gateway})
	}
	if len(subnets) == 0 {
		return nil, "The pool has no subnet. Add one to spec.subnets."
	}
	return subnets, ""
}
