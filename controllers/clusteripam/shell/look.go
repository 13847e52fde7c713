package shell

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
)

// view is what the API server serves of what a controller reads.
type view struct {
	served  map[*Kind]string // API versions
	missing []string         // the kinds without which the controller cannot work
	yields  string           // why it must not work now; empty if it may
}

func (v view) equal(other view) bool {
	return maps.Equal(v.served, other.served) && slices.Equal(v.missing, other.missing) && v.yields == other.yields
}

// lacks reports whether something that other has is gone.
func (v view) lacks(other view) bool {
	for kind, version := range other.served {
		if v.served[kind] != version {
			return true
		}
	}
	return false
}

// Pauses between two looks: after a change of a CustomResourceDefinition until discovery follows, and while something is missing.
const (
	firstLook   = 100 * time.Millisecond
	settledLook = 10 * time.Second // Discovery has followed by then.
	longestLook = time.Minute
	failedLook  = 2 * time.Second
	confirmLook = time.Second // until a kind that seems to be gone counts as gone
)

// looker finds out what is served. CustomResourceDefinitions are watched. While nothing changes and nothing is missing, it asks nothing.
type looker struct {
	reads     []Reads
	discovery interface {
		ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
	}
	yield   Yield
	other   *other // nil: no other program matters
	problem func(problem)

	changed chan struct{} // has a token when there is a reason to look
	views   chan view     // has the last view

	mu     sync.Mutex
	labels map[string]map[string]string // of CustomResourceDefinitions, by name
	listed bool                         // they were listed
}

func newLooker(reads []Reads) *looker {
	return &looker{reads: reads, changed: make(chan struct{}, 1), views: make(chan view, 1), labels: map[string]map[string]string{}}
}

// again asks for another look.
func (l *looker) again() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// seen is what the looks so far have found.
type seen struct {
	last  view      // the one that was published
	known bool      // there is a last one
	less  time.Time // when a view first had less than the last one; zero if it has not
}

// doubts reports whether v has less than the last view only for a short time. An API server that starts may not know all its kinds yet. So look
// once more.
func (s *seen) doubts(v view) bool {
	if !v.lacks(s.last) {
		return false
	}
	if s.less.IsZero() {
		s.less = time.Now()
		return true
	}
	return time.Since(s.less) < confirmLook
}

// takes makes v, which is not in doubt, the last view, and reports whether it differs from the one before.
func (s *seen) takes(v view) bool {
	s.less = time.Time{}
	if s.known && v.equal(s.last) {
		return false
	}
	s.last, s.known = v, true
	return true
}

// run publishes a view whenever it changes.
func (l *looker) run(ctx context.Context) {
	var s seen
	pause := firstLook
	for {
		v, err := l.look()
		again, settled := pause, pause > settledLook
		pause = min(2*pause, longestLook)
		switch {
		case err != nil:
			if ctx.Err() == nil {
				l.problem(problem{What: "the API server to say which kinds it has", Err: err})
			}
			again, settled = min(again, failedLook), false
		case s.doubts(v):
			again, settled = confirmLook, false
		case s.takes(v):
			l.publish(v)
		}
		var timer <-chan time.Time
		if !settled || len(s.last.missing) > 0 {
			timer = time.After(again)
		}
		select {
		case <-ctx.Done():
			return
		case <-timer:
		case <-l.changed:
			pause = firstLook
		}
	}
}

func (l *looker) publish(v view) {
	select {
	case <-l.views:
	default:
	}
	l.views <- v
}

// look asks the API server.
func (l *looker) look() (view, error) {
	v := view{served: map[*Kind]string{}}
	asked := discovered{}
	for _, r := range l.reads {
		version, err := l.versionOf(r.Kind, asked)
		switch {
		case err != nil:
			return view{}, err
		case version != "":
			v.served[r.Kind] = version
		case !r.Optional:
			v.missing = append(v.missing, fmt.Sprintf("%s (%s/%s)", r.Kind, r.Kind.Group, strings.Join(r.Kind.Versions, " or ")))
		}
	}
	slices.Sort(v.missing)
	v.missing = slices.Compact(v.missing)
	why, err := l.yields()
	if err != nil {
		return view{}, err
	}
	v.yields = why
	return v, nil
}

// discovered is the resources of the API versions that one look has asked for. Kinds share versions, and a look asks for each only once.
type discovered map[schema.GroupVersion]map[string]bool

// versionOf returns the first version of kind, in its order of preference, that is served; empty if none is.
func (l *looker) versionOf(kind *Kind, asked discovered) (string, error) {
	for _, version := range kind.Versions {
		gv := schema.GroupVersion{Group: kind.Group, Version: version}
		if asked[gv] == nil {
			of, err := l.resourcesOf(gv)
			if err != nil {
				return "", err
			}
			asked[gv] = of
		}
		if asked[gv][kind.Resource] {
			return gv.String(), nil
		}
	}
	return "", nil
}

// yields returns why the controller must not work now; empty if it may.
func (l *looker) yields() (string, error) {
	if l.yield != nil {
		labels, err := l.labelsOfKinds()
		if err != nil {
			return "", err
		}
		if why := l.yield(labels); why != "" {
			return why, nil
		}
	}
	if l.other != nil {
		return l.other.leads()
	}
	return "", nil
}

func (l *looker) resourcesOf(gv schema.GroupVersion) (map[string]bool, error) {
	list, err := l.discovery.ServerResourcesForGroupVersion(gv.String())
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read the resources of %s: %w", gv, err)
	}
	of := map[string]bool{}
	if err == nil {
		for _, r := range list.APIResources {
			of[r.Name] = true
		}
	}
	return of, nil
}

func (l *looker) labelsOfKinds() (map[*Kind]map[string]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.listed {
		return nil, errNoCRDs
	}
	labels := map[*Kind]map[string]string{}
	for _, r := range l.reads {
		if of, ok := l.labels[r.Kind.crd()]; ok {
			labels[r.Kind] = of
		}
	}
	return labels, nil
}

// concerns reports whether a CustomResourceDefinition is one of those that the controller reads.
func (l *looker) concerns(name string) bool {
	return slices.ContainsFunc(l.reads, func(r Reads) bool { return r.Kind.crd() == name })
}

// heardCRD records a CustomResourceDefinition; gone if it was deleted.
func (l *looker) heardCRD(crd metav1.Object, gone bool) {
	if !l.concerns(crd.GetName()) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if gone {
		delete(l.labels, crd.GetName())
	} else {
		l.labels[crd.GetName()] = crd.GetLabels()
	}
	l.again()
}

// heardAllCRDs records that all CustomResourceDefinitions were heard.
func (l *looker) heardAllCRDs() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.listed {
		l.listed = true
		l.again()
	}
}
