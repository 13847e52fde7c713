package infoblox

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/known"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
	"github.com/multicidr/controller-manager/controllers/text"
)

// verdict is what a check has shown. It holds for the inputs that it was made from.
type verdict struct {
	ready           bool
	reason, message string
	inputs          string
	checked         time.Time
}

// due reports whether to check again: after a change at once, otherwise once in a while.
func (v *verdict) due(inputs string, now time.Time) bool {
	return v.inputs != inputs || now.Sub(v.checked) >= v.every()
}

func (v *verdict) every() time.Duration {
	if v.ready {
		return checkEvery
	}
	return checkFailed
}

func notReady(reason, format string, args ...any) verdict {
	return verdict{reason: reason, message: text.Cut(fmt.Sprintf(format, args...), text.MaxCondition)}
}

// condition returns the condition Ready that says the same.
func (v *verdict) condition(generation int64) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v.reason, Message: v.message, ObservedGeneration: generation}
	if v.ready {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// server is an Infoblox.
type server struct {
	verdict
	client WAPI // nil as long as there is none
	// networkView and dnsView are those of pools that name none. dnsView is empty if the InfobloxInstance names none, either.
	networkView, dnsView string
	change               int // the last one of what pools have to know
}

// syncInstance checks whether an Infoblox answers and has its views, and says so in the status.
func (l *logic) syncInstance(ctx context.Context, key shell.Key) error {
	var instance *v1alpha1.InfobloxInstance
	var s *server
	var config wapi.Config
	var inputs string
	var problem verdict
	check := false
	l.Lock.With(func() {
		var ok bool
		if instance, ok = l.Instances.Get("", key.Name); !ok {
			l.forgetServer(key.Name)
			return
		}
		config, inputs, problem = l.configOf(instance)
		if s = l.servers[key.Name]; s == nil {
			s = &server{}
		}
		check = s.due(inputs, l.Now())
	})
	if instance == nil {
		return nil
	}
	if check {
		client, v := l.client(config, problem, s, inputs)
		if client != nil {
			v = checkServer(ctx, client, instance)
		}
		l.Lock.With(func() { l.noteServer(instance, s, client, v, inputs) })
	}
	return l.say(ctx, shell.InfobloxInstances, instance, instance.Status.Conditions, s.condition(instance.Generation))
}

// noteServer notes what a check has shown, and lets the pools know if it matters to them.
func (l *logic) noteServer(instance *v1alpha1.InfobloxInstance, s *server, client WAPI, v verdict, inputs string) {
	networkView, dnsView := cmp.Or(instance.Spec.DefaultNetworkView, "default"), instance.Spec.DefaultDNSView
	if s.client != client || s.ready != v.ready || s.checked.IsZero() || s.networkView != networkView || s.dnsView != dnsView {
		l.changes++
		s.change = l.changes
		l.queuePoolsOf(instance.Name)
	}
	if s.client != nil && s.client != client {
		s.client.Close()
	}
	v.inputs, v.checked = inputs, l.Now()
	s.verdict, s.client, s.networkView, s.dnsView = v, client, networkView, dnsView
	l.servers[instance.Name] = s
	l.Queue.AddAfter(shell.KeyOf(shell.InfobloxInstances, instance), s.every())
}

func (l *logic) forgetServer(name string) {
	if s := l.servers[name]; s != nil && s.client != nil {
		s.client.Close()
	}
	delete(l.servers, name)
	l.queuePoolsOf(name)
}

func (l *logic) queuePoolsOf(instance string) {
	for _, p := range l.Pools.List() {
		if p.Spec.InstanceRef.Name == instance {
			l.Queue.Add(shell.KeyOf(shell.InfobloxIPPools, p))
		}
	}
}

// configOf returns how to connect to an Infoblox, and a text that changes whenever that does. If the credentials are missing, problem says so.
func (l *logic) configOf(i *v1alpha1.InfobloxInstance) (c wapi.Config, inputs string, problem verdict) {
	inputs = fmt.Sprintf("%s %d", i.UID, i.Generation)
	if err := l.Instances.Broken(i); err != nil {
		return c, inputs, notReady(v1alpha1.ReasonAuthenticationFailed, "The spec cannot be read: %v", err)
	}
	c = wapi.Config{Host: i.Spec.Host, Port: i.Spec.Port, Version: i.Spec.WAPIVersion, CAFile: i.Spec.CustomCAPath, Insecure: i.Spec.DisableTLSVerification}
	namespace := l.Secrets.Reads().Namespace
	secret, ok := l.Secrets.Get(namespace, i.Spec.CredentialsSecretRef.Name)
	if !ok {
		return c, inputs, notReady(v1alpha1.ReasonAuthenticationFailed, "The Secret %s does not exist in the namespace %s. Create it there, with username and password or with clientCert and clientKey.",
			i.Spec.CredentialsSecretRef.Name, namespace)
	}
	c.Username, c.Password = string(secret.Data[v1alpha1.SecretUsername]), string(secret.Data[v1alpha1.SecretPassword])
	c.ClientCert, c.ClientKey = secret.Data[v1alpha1.SecretClientCertificate], secret.Data[v1alpha1.SecretClientKey]
	return c, fmt.Sprintf("%s %s %s", inputs, secret.UID, secret.ResourceVersion), verdict{}
}

// client returns the client of an Infoblox: the one that there is, if it has done well and nothing has changed. Otherwise the CA file may have been
// renewed or corrected.
func (l *logic) client(config wapi.Config, problem verdict, s *server, inputs string) (client WAPI, v verdict) {
	l.Lock.With(func() {
		if s.ready && s.inputs == inputs {
			client = s.client
		}
	})
	switch {
	case client != nil:
		return client, verdict{}
	case problem.reason != "":
		return nil, problem
	}
	client, err := l.connect(config)
	if err != nil {
		return nil, notReady(v1alpha1.ReasonAuthenticationFailed, "There is no connection: %v. Correct the InfobloxInstance, its Secret or the file.", err)
	}
	return client, verdict{}
}

// checkServer asks an Infoblox for its views. A DNS view that nobody has named need not exist.
func checkServer(ctx context.Context, client WAPI, i *v1alpha1.InfobloxInstance) verdict {
	view := cmp.Or(i.Spec.DefaultNetworkView, "default")
	switch ok, err := client.NetworkView(ctx, view); {
	case err != nil:
		return unreachable(err)
	case !ok:
		return notReady(v1alpha1.ReasonNetworkViewNotFound, "Infoblox has no network view %s. Create it there, or correct spec.defaultNetworkView.", text.Cut(view, text.MaxValue))
	}
	if view = i.Spec.DefaultDNSView; view != "" {
		switch ok, err := client.DNSView(ctx, view); {
		case err != nil:
			return unreachable(err)
		case !ok:
			return notReady(v1alpha1.ReasonDNSViewNotFound, "Infoblox has no DNS view %s. Create it there, or correct spec.defaultDNSView.", text.Cut(view, text.MaxValue))
		}
	}
	return verdict{ready: true, reason: v1alpha1.ReasonConfigurationValid, message: "Infoblox answers."}
}

func unreachable(err error) verdict {
	if wapi.IsUnauthorized(err) {
		return notReady(v1alpha1.ReasonAuthenticationFailed, "Infoblox refuses the credentials (%v). Correct the Secret, or the permissions of its user in Infoblox.", err)
	}
	return notReady(v1alpha1.ReasonAuthenticationFailed, "Infoblox does not answer as it should: %v. Check the host, the port, the certificate and the network.", err)
}

// said reports whether a condition says what another one says. Some CustomResourceDefinitions drop observedGeneration.
func said(before, c metav1.Condition) bool {
	return before.Status == c.Status && before.Reason == c.Reason && before.Message == c.Message &&
		(before.ObservedGeneration == c.ObservedGeneration || before.ObservedGeneration == 0)
}

// say writes the condition Ready of an object, unless it is there already.
func (l *logic) say(ctx context.Context, kind *shell.Kind, object metav1.Object, conditions []metav1.Condition, c metav1.Condition) error {
	conditions = append([]metav1.Condition{}, conditions...)
	before := meta.FindStatusCondition(conditions, c.Type)
	if before != nil && said(*before, c) {
		return nil
	}
	changed := before == nil || before.Reason != c.Reason || before.Message != c.Message
	c.LastTransitionTime = metav1.NewTime(l.Now().Truncate(time.Second))
	meta.SetStatusCondition(&conditions, c)
	patch := shell.MergePatchOfVersion(object, map[string]any{"status": map[string]any{"conditions": conditions}})
	patch.Status = true
	if err := l.API.Patch(ctx, kind, known.NameOf(object), patch, nil); err != nil {
		return err
	}
	if changed && c.Status == metav1.ConditionFalse {
		l.Tell(shell.Event{About: object, Kind: kind, Reason: c.Reason, Message: text.Cut(c.Message, text.MaxMessage)})
	}
	return nil
}
