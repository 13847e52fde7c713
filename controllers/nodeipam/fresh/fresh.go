// Package fresh waits until caches show at least what a consistent read has shown. Nothing is allocated from a cache that may be behind.
package fresh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
)

// freshInterval is how often a cache is looked at that is not as new as it has to be. lookInterval is for how long a cache is asked how new it is, and the first pause
// between two reads of all objects; the longest is maxPause.
const (
	Interval     = 50 * time.Millisecond
	LookInterval = time.Second
	maxPause     = 10 * time.Second
)

// cached is a cache of one kind of object and the resource version that it has to have reached before the first choice.
//
// A cache can start behind: an API server answers a first list from a cache of its own, which may lag. What a leader of
// earlier wrote would be missing, and its blocks given again. So a leader makes a consistent read of its own after it has
// won the lease, and waits until its caches have seen all that this read could have seen. Resource versions of one kind of
// object are ordered (KEP-5504).
type Cache struct {
	Contents
	// AsOf is the resource version of that read.
	AsOf string
	// Version is the resource version that the cache shows, all of it; empty if the cache cannot tell, which depends on feature gates of
	// client-go, and these on --emulated-version.
	Version func() string
}

// Contents are the objects of one kind, by name, with their resource versions: those that exist and those in a cache.
type Contents struct {
	Kind string
	// Read makes a consistent read of all, which is as of a resource version.
	Read func(ctx context.Context) (versions map[string]string, asOf string, err error)
	// Shown is what the cache shows.
	Shown func() (map[string]string, error)
}

// ReadNodes makes a consistent read of Nodes and returns its resource version. It reads one Node, whatever their number.
//
// A watch that starts after it is at least as new at once; one that runs already may learn only by its next bookmark,
// which the API server sends about once a minute, that nothing it should know of has happened.
func ReadNodes(ctx context.Context, client kubernetes.Interface) (asOf string, err error) {
	// No resource version means the most recent one.
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("read Nodes: %w", err)
	}
	return nodes.ResourceVersion, nil
}

// waitFresh returns when all caches are as new as they have to be; false if ctx was done before.
func Wait(ctx context.Context, h *health.Health, caches ...Cache) bool {
	for _, cache := range caches {
		if !cache.tellsSoon(ctx) && !WaitShown(ctx, h, cache.Contents) {
			return false
		}
	}
	return true
}

var errMute = errors.New("the cache cannot tell how new it is")

// tellsSoon reports whether the cache tells that it is as new as it has to be. One that was filled after the read does at once, as a rule. One that was
// watching before would learn by a bookmark, which may take a minute, that there is nothing else to know.
func (cache Cache) tellsSoon(ctx context.Context) bool {
	err := wait.PollUntilContextTimeout(ctx, Interval, LookInterval, true, func(context.Context) (bool, error) {
		version := cache.Version()
		if version == "" {
			return false, errMute
		}
		order, err := resourceversion.CompareResourceVersion(version, cache.AsOf)
		return err == nil && order >= 0, nil
	})
	return err == nil
}

// WaitShown returns when a cache shows all that a consistent read does, and nothing that is gone; false if ctx was done before. It needs nothing from the
// cache but its objects.
func WaitShown(ctx context.Context, h *health.Health, all Contents) bool {
	var (
		exist map[string]string // as of the last read
		asOf  string            // empty if that failed
		next  time.Time         // read again: what the cache lacks may be gone by now
		pause = LookInterval
		told  bool
	)
	err := wait.PollUntilContextCancel(ctx, Interval, true, func(ctx context.Context) (bool, error) {
		if now := time.Now(); !now.Before(next) {
			next, pause = now.Add(pause), min(2*pause, maxPause) // It may be a list of very many objects.
			var err error
			if exist, asOf, err = all.Read(ctx); err != nil {
				if ctx.Err() == nil && h.WaitFor(health.Problem{What: all.Kind + " to be readable: if that is forbidden, " + health.ApplyRBAC, Err: err}) {
					klog.FromContext(ctx).Error(err, "No Node gets podCIDRs: "+all.Kind+" cannot be read")
				}
				return false, nil
			}
		}
		if asOf == "" {
			return false, nil
		}
		shown, err := all.Shown()
		if err != nil {
			return false, err // Listing a cache fails only for a selector that cannot be parsed.
		}
		name, needed, behind := firstBehind(shown, exist, asOf)
		if !behind {
			return true, nil
		}
		h.WaitFor(health.Problem{What: fmt.Sprintf("the cache of %s to show %s as of resource version %s", all.Kind, name, needed)})
		if !told {
			klog.FromContext(ctx).Info("Waiting for a cache that lags", "kind", all.Kind, "object", name, "needed", needed)
			told = true
		}
		return false, nil
	})
	return err == nil
}

// firstBehind returns the first object of which a cache shows an older state than exists, or that it shows although it was gone when that was read, and the
// resource version that it needs.
func firstBehind(shown, exist map[string]string, asOf string) (name, needed string, behind bool) {
	var names []string
	for name, needed := range exist {
		if order, err := resourceversion.CompareResourceVersion(shown[name], needed); err != nil || order < 0 {
			names = append(names, name)
		}
	}
	for name, version := range shown {
		if _, ok := exist[name]; ok {
			continue
		}
		if order, err := resourceversion.CompareResourceVersion(version, asOf); err != nil || order <= 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", "", false
	}
	name = slices.Min(names)
	return name, cmp.Or(exist[name], asOf), true
}

// ReadPages makes a consistent read, page by page.
func ReadPages[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) func(context.Context) (map[string]string, string, error) {
	return func(ctx context.Context) (map[string]string, string, error) {
		versions, asOf := map[string]string{}, ""
		options := metav1.ListOptions{Limit: 500} // No resource version means the most recent one.
		for {
			page, err := list(ctx, options)
			if err != nil {
				return nil, "", err
			}
			err = meta.EachListItem(page, func(o runtime.Object) error {
				object, err := meta.Accessor(o)
				if err == nil {
					versions[object.GetName()] = object.GetResourceVersion()
				}
				return err
			})
			if err != nil {
				return nil, "", err
			}
			of, err := meta.ListAccessor(page)
			if err != nil {
				return nil, "", err
			}
			asOf = cmp.Or(asOf, of.GetResourceVersion()) // Further pages are of the same moment.
			if options.Continue = of.GetContinue(); options.Continue == "" {
				return versions, asOf, nil
			}
		}
	}
}

// VersionsOf are the resource versions of what a lister shows.
func VersionsOf[O metav1.Object](list func(labels.Selector) ([]O, error)) func() (map[string]string, error) {
	return func() (map[string]string, error) {
		all, err := list(labels.Everything())
		versions := make(map[string]string, len(all))
		for _, o := range all {
			versions[o.GetName()] = o.GetResourceVersion()
		}
		return versions, err
	}
}
