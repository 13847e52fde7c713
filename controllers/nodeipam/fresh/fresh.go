// Package fresh waits until caches show at least what a consistent read has shown. Nothing is allocated from a cache that may be behind.
package fresh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
)

// Interval is how often a cache that is behind is checked. LookInterval is for how long a cache is asked for its version, and the first
// pause between two reads of all objects; maxPause is the longest one.
const (
	Interval     = 50 * time.Millisecond
	LookInterval = time.Second
	maxPause     = 10 * time.Second
)

// Cache is a cache of one kind of object, with the resource version that it must reach before the first allocation.
//
// A cache can start behind: an API server answers a first list from its own watch cache, which may lag. Then the writes of an earlier
// leader would be missing, and its blocks would be allocated again. So a leader makes a consistent read after it has acquired the Lease,
// and waits until its caches show everything that this read could have seen. Resource versions of one kind of object are ordered
// (KEP-5504).
type Cache struct {
	Contents
	// AsOf is the resource version of that read.
	AsOf string
	// Version is the resource version of everything that the cache shows; empty if the cache cannot tell. That depends on feature gates of
	// client-go, which depend on --emulated-version.
	Version func() string
}

// VersionOf returns Cache.Version of a store. Stores of client-go before v0.36 cannot tell.
func VersionOf(store any) func() string {
	if s, ok := store.(interface{ LastStoreSyncResourceVersion() string }); ok {
		return s.LastStoreSyncResourceVersion
	}
	return func() string { return "" }
}

// Read makes a consistent read, as of a resource version: of all objects, or, if name is not empty, of the one of that name.
type Read func(ctx context.Context, name string) (versions map[string]string, asOf string, err error)

// Contents are the objects of one kind, by name, with their resource versions: those that exist and those in a cache.
type Contents struct {
	Kind string
	Read
	// Shown returns what the cache shows.
	Shown func() (map[string]string, error)
	// Gone, if not nil, learns which objects the cache may still show although they are gone.
	Gone *Gone
}

// Gone knows objects that were created and deleted before a cache was compared with what exists, object by object. The cache can be older
// than these objects, lack none that exists, and show them later. The zero value knows none. Safe for concurrent use.
type Gone struct{ read atomic.Pointer[read] }

// read is a consistent read of all objects.
type read struct {
	exist map[string]string
	asOf  string
}

// Knows reports whether an object is gone that a cache shows in this version.
func (g *Gone) Knows(name, version string) bool {
	r := g.read.Load()
	if r == nil || r.exist[name] != "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, r.asOf)
	return err == nil && order <= 0
}

// answered is how long one request is waited for. The API server ends it after a minute; without a limit, a read whose answer is lost on the way
// would never end.
const answered = 65 * time.Second

// Limited returns the context of one request.
func Limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, answered)
}

// ReadNodes makes a consistent read of Nodes and returns its resource version. It reads only one Node, however many there are.
//
// A watch that starts later is at least that recent from the start. A watch that is already running may learn only from its next bookmark,
// about once a minute, that it has missed nothing.
func ReadNodes(ctx context.Context, client kubernetes.Interface) (asOf string, err error) {
	ctx, cancel := Limited(ctx)
	defer cancel()
	// An empty resource version means the most recent one.
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("read Nodes: %w", err)
	}
	return nodes.ResourceVersion, nil
}

// Wait returns when all caches are recent enough; false if ctx was done before.
func Wait(ctx context.Context, h *health.Health, caches ...Cache) bool {
	for _, cache := range caches {
		if !cache.tellsSoon(ctx) && !WaitShown(ctx, h, cache.Contents) {
			return false
		}
	}
	return true
}

var errMute = errors.New("the cache cannot tell how new it is")

// tellsSoon reports whether the cache soon shows the required version. A cache that was filled after the read usually does at once. A cache
// that was already watching may have to wait a minute for a bookmark.
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

// WaitShown returns when a cache shows everything that a consistent read shows, and nothing that is gone; false if ctx was done before. It
// only needs the objects in the cache, not its version.
func WaitShown(ctx context.Context, h *health.Health, all Contents) bool {
	var (
		exist map[string]string // according to the last read
		asOf  string            // empty before the first read, or if the last one failed
		next  time.Time         // time of the next read of all objects
		ask   time.Time         // from when on objects that the cache lacks are read one by one, once each
		asked map[string]bool
		pause = LookInterval
		told  bool
	)
	if all.Gone != nil {
		all.Gone.read.Store(nil) // If etcd was restored since, its versions mean something else now, and would hide objects that exist.
	}
	err := wait.PollUntilContextCancel(ctx, Interval, true, func(ctx context.Context) (bool, error) {
		if !time.Now().Before(next) {
			var err error
			exist, asOf, err = all.Read(ctx, "") // It may list very many objects, and take long.
			now := time.Now()
			next, pause = now.Add(pause), min(2*pause, maxPause)
			ask, asked = now.Add(LookInterval/2), map[string]bool{}
			if err != nil {
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
		if !time.Now().Before(ask) {
			// In a large cluster a read takes seconds, and during each one some object is deleted. The next one would not end the wait.
			all.forgetGone(ctx, shown, exist, asked)
		}
		name, needed, behind := firstBehind(shown, exist, asOf)
		if !behind {
			if all.Gone != nil {
				all.Gone.read.Store(&read{exist, asOf})
			}
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

// asksAtOnce limits how many objects are read one by one before the cache is looked at again.
const asksAtOnce = 100

// forgetGone deletes from exist objects that the cache does not show and that are gone by now. It asks for no object that is in asked.
func (all Contents) forgetGone(ctx context.Context, shown, exist map[string]string, asked map[string]bool) {
	asks := 0
	for name := range exist {
		if _, ok := shown[name]; ok || asked[name] {
			continue
		}
		if asks++; asks > asksAtOnce {
			return
		}
		asked[name] = true
		if now, _, err := all.Read(ctx, name); err == nil && len(now) == 0 {
			delete(exist, name)
		}
	}
}

// firstBehind returns the first object, by name, that the cache shows in an older state than exists, or that it shows although the object
// was gone at the read. needed is the resource version that the cache has to reach.
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

// ReadPages returns a Read that reads page by page.
func ReadPages[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) Read {
	return func(ctx context.Context, name string) (map[string]string, string, error) {
		versions, asOf := map[string]string{}, ""
		options := metav1.ListOptions{Limit: 500} // An empty resource version means the most recent one.
		if name != "" {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}
		for {
			limited, cancel := Limited(ctx)
			page, err := list(limited, options)
			if cancel(); err != nil {
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
			asOf = cmp.Or(asOf, of.GetResourceVersion()) // All pages are from the same moment.
			if options.Continue = of.GetContinue(); options.Continue == "" {
				return versions, asOf, nil
			}
		}
	}
}

// VersionsOf returns a function that returns the resource versions of all objects of a lister.
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

// Absent returns true when the API server has answered for health.NotServedFor that it does not have a kind of object; false if ctx was done
// before.
func Absent[L runtime.Object](ctx context.Context, list func(context.Context, metav1.ListOptions) (L, error)) bool {
	var absent absence
	err := wait.PollUntilContextCancel(ctx, LookInterval, true, func(ctx context.Context) (bool, error) {
		limited, cancel := Limited(ctx)
		defer cancel()
		_, err := list(limited, metav1.ListOptions{Limit: 1})
		return absent.lasts(err), nil
	})
	return err == nil
}

// UnlessAbsent returns the same Read, which calls absent when the API server has answered it for so long that it does not have such objects.
func (r Read) UnlessAbsent(absent func()) Read {
	var is absence
	return func(ctx context.Context, name string) (map[string]string, string, error) {
		versions, asOf, err := r(ctx, name)
		if is.lasts(err) {
			absent()
		}
		return versions, asOf, err
	}
}

// absence knows since when all answers have been the same: there are no such objects.
type absence struct{ since time.Time }

// lasts notes an answer, and reports whether they have been the same for health.NotServedFor.
func (a *absence) lasts(err error) bool {
	switch {
	case !apierrors.IsNotFound(err):
		a.since = time.Time{}
		return false
	case a.since.IsZero():
		a.since = time.Now()
	}
	return time.Since(a.since) >= health.NotServedFor
}
