package runner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// lookInterval is the pause between two looks while the controller waits, or something has changed.
	lookInterval = 2 * time.Second
	// looksAfterChange: discovery follows a change within that many looks.
	looksAfterChange = 5
)

// again asks for another look. It never blocks.
func (c *Controller) again() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// terms runs one term after the other until ctx is done.
func (c *Controller) terms(ctx context.Context) {
	for ctx.Err() == nil {
		served, waits := c.look()
		if waits.What != "" {
			if c.health.waitFor(waits) {
				klog.FromContext(ctx).Info("The controller waits", "controller", c.cfg.Name, "for", waits)
			}
			select {
			case <-ctx.Done():
			case <-time.After(lookInterval):
			case <-c.changed:
			}
			continue
		}
		term, end := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { c.term(term, served) })
		c.untilOver(ctx, served)
		end()
		wg.Wait()
	}
}

// untilOver returns when the kinds that are served have changed, or the controller must not work any more. It looks only after a watch has shown
// a change, and then several times, because discovery follows late.
func (c *Controller) untilOver(ctx context.Context, served map[*Kind]string) {
	differs := false
	for looks := 0; ctx.Err() == nil; looks-- {
		changed, pause := c.changed, (<-chan time.Time)(nil)
		if looks > 0 {
			pause = time.After(lookInterval)
		}
		if differs {
			changed = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-pause:
		case <-changed:
			looks = looksAfterChange
		}
		now, waits := c.look()
		switch {
		case waits.Err != nil:
			looks = looksAfterChange
		case now == nil, differs && !maps.Equal(now, served):
			klog.FromContext(ctx).Info("The controller starts again: what the API server has, has changed", "controller", c.cfg.Name, "waitsFor", waits)
			return
		default: // An API server that has just started may not know all its kinds yet, so one look does not count.
			differs = !maps.Equal(now, served)
		}
	}
}

// look returns the API versions of the kinds that are served, and what the controller waits for; the zero value if it may work. If it must not
// work, whatever is served, there are no versions.
func (c *Controller) look() (served map[*Kind]string, waits problem) {
	if why := c.yields(); why != "" {
		return nil, problem{What: why}
	}
	served, asked := map[*Kind]string{}, map[schema.GroupVersion]map[string]bool{}
	var missing []string
	for _, r := range c.cfg.Reads {
		for _, version := range r.Kind.Versions {
			gv := schema.GroupVersion{Group: r.Kind.Group, Version: version}
			if asked[gv] == nil {
				var err error
				if asked[gv], err = c.resourcesOf(gv); err != nil {
					return nil, problem{"the API server to say which kinds it has", err}
				}
			}
			if served[r.Kind] == "" && asked[gv][r.Kind.Resource] {
				served[r.Kind] = gv.String()
			}
		}
		if !r.Optional && served[r.Kind] == "" {
			missing = append(missing, fmt.Sprintf("%s (%s/%s)", r.Kind, r.Kind.Group, strings.Join(r.Kind.Versions, " or ")))
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		waits.What = "these kinds, which the API server does not have: " + strings.Join(missing, ", ") + ". To install them, " + applyCRDs
	}
	return served, waits
}

// resourcesOf returns the resources of an API version.
func (c *Controller) resourcesOf(gv schema.GroupVersion) (map[string]bool, error) {
	list, err := c.kubernetes.Discovery().ServerResourcesForGroupVersion(gv.String())
	of := map[string]bool{}
	switch {
	case apierrors.IsNotFound(err):
		return of, nil
	case err != nil:
		return nil, fmt.Errorf("read the resources of %s: %w", gv, err)
	}
	for _, r := range list.APIResources {
		of[r.Name] = true
	}
	return of, nil
}

// yields returns why the controller must not work now; empty if it may.
func (c *Controller) yields() string {
	if c.cfg.Yield != nil {
		labels := map[*Kind]map[string]string{}
		for _, r := range c.cfg.Reads {
			if crd, ok, _ := c.crds.GetIndexer().GetByKey(r.Kind.crd()); ok {
				labels[r.Kind] = crd.(metav1.Object).GetLabels()
			}
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

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// watch reads CustomResourceDefinitions and the Lease of the other program, and asks for a look when they change, until ctx is done. It returns
// when they have been read; false if ctx was done before.
func (c *Controller) watch(ctx context.Context) bool {
	looks := func(crd any) {
		if object, ok := crd.(metav1.Object); ok && slices.ContainsFunc(c.cfg.Reads, func(r Reads) bool { return r.Kind.crd() == object.GetName() }) {
			c.again()
		}
	}
	const what = "CustomResourceDefinitions"
	c.crds = newInformer(what, listWatch(c.metadata.Resource(crds), "", c.noteRead(ctx, what)), &metav1.PartialObjectMetadata{}, onlyLabels)
	_, _ = c.crds.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: looks, UpdateFunc: func(_, now any) { looks(now) }, DeleteFunc: looks})
	go c.crds.RunWithContext(ctx) // A reflector may sleep for a minute before it ends.
	synced := []cache.InformerSynced{c.crds.HasSynced}
	if c.other != nil {
		synced = append(synced, c.other.watch(ctx, c))
	}
	c.health.waitFor(problem{What: "all " + what + " to be read"})
	return cache.WaitForCacheSync(ctx.Done(), synced...)
}

// onlyLabels keeps the cache small.
func onlyLabels(object any) (any, error) {
	if crd, ok := object.(*metav1.PartialObjectMetadata); ok {
		crd.Annotations, crd.ManagedFields = nil, nil
	}
	return object, nil
}
