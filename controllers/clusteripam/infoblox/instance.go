package infoblox

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/text"
)

const (
	// checkEvery is how often an Infoblox is asked whether everything is still there, and checkFailed how often if it is not.
	checkEvery  = time.Minute
	checkFailed = 10 * time.Second
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

// checkLater queues an object for its next check. It is called after every look: a queue keeps only the earliest time of a key, so a retry takes the place of it.
func (l *logic) checkLater(key runner.Key, v verdict) {
	l.term.Queue.AddAfter(key, time.Until(v.checked.Add(v.every())))
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
	client *client // nil as long as there is none
	change int     // the last one of what pools have to know
}

func (l *logic) instanceChanged(before, now *v1alpha1.InfobloxInstance) {
	if now == nil {
		now = before
	}
	l.term.Queue.Add(runner.KeyOf(runner.InfobloxInstances, now))
}

func (l *logic) secretChanged(before, now *corev1.Secret) {
	if now == nil {
		now = before
	}
	for _, i := range l.instances.List() {
		if i.Spec.CredentialsSecretRef.Name == now.Name {
			l.term.Queue.Add(runner.KeyOf(runner.InfobloxInstances, i))
		}
	}
}

// syncInstance checks whether an Infoblox answers and has its views, and says so in the status.
func (l *logic) syncInstance(ctx context.Context, name string) error {
	instance, ok := l.instances.Get("", name)
	if !ok {
		l.forgetServer(name)
		return nil
	}
	config, inputs, problem := l.configOf(instance)
	l.mu.Lock()
	s := l.servers[name]
	if s == nil {
		s = &server{}
	}
	v, usable, due := s.verdict, s.client, s.due(inputs, time.Now())
	l.mu.Unlock()
	if due {
		if !v.ready || v.inputs != inputs { // The CA file, too, may have been renewed or corrected.
			usable, v = l.connectTo(config, problem)
		}
		if usable != nil {
			v = checkServer(ctx, *usable, instance)
		}
		v.inputs, v.checked = inputs, time.Now()
		l.noteServer(instance, s, usable, v)
	}
	l.checkLater(runner.KeyOf(runner.InfobloxInstances, instance), v)
	return l.say(ctx, runner.InfobloxInstances, instance, instance.Status.Conditions, v.condition(instance.Generation))
}

// noteServer notes what a check has shown, and lets the pools know if it matters to them.
func (l *logic) noteServer(instance *v1alpha1.InfobloxInstance, s *server, c *client, v verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.client != c || s.ready != v.ready || s.inputs != v.inputs {
		l.changes++
		s.change = l.changes
		l.queuePoolsOf(instance.Name)
	}
	if s.client != nil && s.client != c {
		s.client.Close()
	}
	s.verdict, s.client = v, c
	l.servers[instance.Name] = s
}

func (l *logic) forgetServer(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.servers[name]; s != nil && s.client != nil {
		s.client.Close()
	}
	delete(l.servers, name)
	l.queuePoolsOf(name)
}

func (l *logic) queuePoolsOf(instance string) {
	for _, p := range l.pools.List() {
		if p.Spec.InstanceRef.Name == instance {
			l.term.Queue.Add(runner.KeyOf(runner.InfobloxIPPools, p))
		}
	}
}

// configOf returns how to connect to an Infoblox, and a text that changes whenever that does. If the credentials are missing, problem says so.
func (l *logic) configOf(i *v1alpha1.InfobloxInstance) (c wapi.Config, inputs string, problem verdict) {
	inputs = fmt.Sprintf("%s %d", i.UID, i.Generation)
	c = wapi.Config{Host: i.Spec.Host, Port: i.Spec.Port, Version: i.Spec.WAPIVersion, CAFile: i.Spec.CustomCAPath, Insecure: i.Spec.DisableTLSVerification}
	if l.cfg.SecretNamespace == "" {
		return c, inputs, notReady(v1alpha1.ReasonAuthenticationFailed, "The controller reads no Secrets. "+
			"Set --cluster-ipam-infoblox-namespace to the namespace of the Secret %s.", i.Spec.CredentialsSecretRef.Name)
	}
	secret, ok := l.secrets.Get(l.cfg.SecretNamespace, i.Spec.CredentialsSecretRef.Name)
	if !ok {
		return c, inputs, notReady(v1alpha1.ReasonAuthenticationFailed, "The Secret %s does not exist in the namespace %s. Create it there, "+
			"with username and password or with clientCert and clientKey.",
			i.Spec.CredentialsSecretRef.Name, l.cfg.SecretNamespace)
	}
	c.Username, c.Password = string(secret.Data[v1alpha1.SecretUsername]), string(secret.Data[v1alpha1.SecretPassword])
	c.ClientCert, c.ClientKey = secret.Data[v1alpha1.SecretClientCertificate], secret.Data[v1alpha1.SecretClientKey]
	return c, fmt.Sprintf("%s %s %s", inputs, secret.UID, secret.ResourceVersion), verdict{}
}

// connectTo returns a new client of an Infoblox; nil if there can be none, and why.
func (l *logic) connectTo(config wapi.Config, problem verdict) (*client, verdict) {
	if problem.reason != "" {
		return nil, problem
	}
	c, err := l.connect(config)
	if err != nil {
		return nil, notReady(v1alpha1.ReasonAuthenticationFailed, "There is no connection: %v. Correct the InfobloxInstance, its Secret or the file.", err)
	}
	return &client{c, l.cfg.Fence}, verdict{}
}

// checkServer asks an Infoblox for the views that its InfobloxInstance names. Whether there is a view "default", which its users need not be allowed to see, matters
// only to pools that use it.
func checkServer(ctx context.Context, c client, i *v1alpha1.InfobloxInstance) verdict {
	view := i.Spec.DefaultNetworkView
	switch ok, err := c.NetworkView(ctx, cmp.Or(view, "default")); {
	case err != nil:
		return unreachable(err)
	case !ok && view != "":
		return notReady(v1alpha1.ReasonNetworkViewNotFound, "Infoblox has no network view %s. Create it there, "+
			"or correct spec.defaultNetworkView.", text.Cut(view, text.MaxValue))
	}
	if view = i.Spec.DefaultDNSView; view != "" {
		switch ok, err := c.DNSView(ctx, view); {
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

// say writes the condition Ready of an object, unless it is there already. Some CustomResourceDefinitions drop observedGeneration.
func (l *logic) say(ctx context.Context, kind *runner.Kind, object metav1.Object, conditions []metav1.Condition, c metav1.Condition) error {
	before := contract.Find(conditions, c.Type)
	same := before != nil && contract.Same(*before, c)
	if same && (before.ObservedGeneration == c.ObservedGeneration || before.ObservedGeneration == 0) {
		return nil
	}
	patch := runner.MergePatchOfVersion(object, map[string]any{"status": map[string]any{"conditions": contract.With(conditions, c)}})
	patch.Status = true
	if err := l.term.API.Patch(ctx, kind, contract.NameOf(object), patch, nil); err != nil {
		return err
	}
	if !same && c.Status == metav1.ConditionFalse {
		l.term.Event(object, kind, false, c.Reason, text.Cut(c.Message, text.MaxMessage))
	}
	return nil
}
