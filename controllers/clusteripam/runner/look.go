package runner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// lookInterval is the pause between two looks at what the watches have shown. A look makes no request.
const lookInterval = time.Second

// terms runs one term after the other until ctx is done.
func (c *Controller) terms(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		served, waitsFor := c.look()
		if c.health.waitFor(waitsFor); waitsFor != "" {
			return
		}
		ctx, end := context.WithCancel(ctx)
		defer end()
		go wait.UntilWithContext(ctx, func(context.Context) {
			if now, _ := c.look(); now == nil || !maps.Equal(now, served) && !c.terminating() {
				end()
			}
		}, lookInterval)
		c.term(ctx, served)
	}, lookInterval)
}

// terminating reports whether a CustomResourceDefinition is being deleted. Then the term goes on: finalizers of its objects have to go.
func (c *Controller) terminating() bool {
	return slices.ContainsFunc(c.cfg.Reads, func(r Reads) bool { return c.definitionOf(r.Kind).DeletionTimestamp != nil })
}

// look returns the versions of the kinds that are served, and what the controller waits for; empty if it may work. If it must not work,
// whatever is served, there are no versions.
func (c *Controller) look() (served map[*Kind]string, waitsFor string) {
	if why := c.yields(); why != "" {
		return nil, why
	}
	served = map[*Kind]string{}
	var missing []string
	for _, r := range c.cfg.Reads {
		if version := serves(c.definitionOf(r.Kind), r.Kind); version != "" {
			served[r.Kind] = version
		} else if !r.Optional {
			missing = append(missing, fmt.Sprintf("%s (%s/%s)", r.Kind, r.Kind.Group, strings.Join(r.Kind.Versions, " or ")))
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		waitsFor = "these kinds, which the API server does not have: " + strings.Join(missing, ", ") + ". To install them, " + install
	}
	return served, waitsFor
}

// yields returns why the controller must not work now; empty if it may.
func (c *Controller) yields() string {
	if c.cfg.Yield != nil {
		labels := map[*Kind]map[string]string{}
		for _, r := range c.cfg.Reads {
			labels[r.Kind] = c.definitionOf(r.Kind).Labels
		}
		if why := c.cfg.Yield(labels); why != "" {
			return why
		}
	}
	if c.other == nil {
		return ""
	}
	return c.other.leads()
}

// serves returns the version in which a kind is read; empty if it is not served. d is its CustomResourceDefinition, or the zero value.
func serves(d *apiextensionsv1.CustomResourceDefinition, kind *Kind) string {
	for _, version := range kind.Versions {
		if kind.Group == "" || apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) && apihelpers.HasServedCRDVersion(d, version) {
			return version // Every API server has the core group.
		}
	}
	return ""
}

// definitionOf returns what the watch has shown last.
func (c *Controller) definitionOf(kind *Kind) *apiextensionsv1.CustomResourceDefinition {
	if store, ok := c.definitions[kind]; ok {
		if d, ok, _ := store.GetByKey(kind.crd()); ok {
			return d.(*apiextensionsv1.CustomResourceDefinition)
		}
	}
	return &apiextensionsv1.CustomResourceDefinition{}
}

// definitions is read, besides Config.Reads.
var definitions = &Kind{Name: "CustomResourceDefinition", Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions", Versions: []string{"v1"}}

// watch reads the CustomResourceDefinitions of the kinds, and the Lease of the other program, until ctx is done. It returns when they have been
// read; false if ctx was done before. Each CustomResourceDefinition has a watch of its own, because those of a management cluster are large.
func (c *Controller) watch(ctx context.Context) bool {
	c.definitions = map[*Kind]cache.Store{}
	var synced []cache.InformerSynced
	for _, r := range c.cfg.Reads {
		if r.Kind.Group != "" {
			informer := c.informer(definitions, "v1", "", "metadata.name="+r.Kind.crd(), into[apiextensionsv1.CustomResourceDefinition])
			c.definitions[r.Kind] = informer.GetStore()
			synced = append(synced, informer.HasSynced)
			go informer.RunWithContext(ctx) // A reflector may sleep for a minute before it ends.
		}
	}
	if c.other != nil {
		synced = append(synced, c.other.watch(ctx, c))
	}
	c.health.waitFor("all " + definitions.plural() + " to be read")
	return cache.WaitForCacheSync(ctx.Done(), synced...)
}
