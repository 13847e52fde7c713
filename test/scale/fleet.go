package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"

	"github.com/multicidr/controller-manager/test/controlplane"
)

const (
	// creators is how many objects are created at a time. More do not create more per second on two cores, they only wait longer.
	creators = 16
	// warmUp is how many objects are served before the measurement, so that connections, caches and the API server's heap are those of a
	// cluster at work.
	warmUp = 100
	// patience is enough for 20,000 Nodes at 20 in a second.
	patience = 20 * time.Minute
)

// objects are how this program reaches the kind of which a contestant serves objects.
type objects struct {
	version func(context.Context) (string, error) // the resource version of now
	watch   func(context.Context, metav1.ListOptions) (watch.Interface, error)
	create  func(ctx context.Context, name string, index int) error
	served  func(runtime.Object) bool
}

// fleet are the objects of one measurement, and what this program's own watch has seen of them.
type fleet struct {
	mu              sync.Mutex
	created, served map[string]time.Time // when the API server had answered the creation; when the watch showed what is wanted first
	first, last     time.Time
}

// serve creates so many objects, some at a time, and returns when the contestant has served all.
func (of objects) serve(ctx context.Context, p *controlplane.Process, prefix string, size, atATime int) (*fleet, error) {
	f := &fleet{created: map[string]time.Time{}, served: map[string]time.Time{}}
	version, err := of.version(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it took more than %s", patience))
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- follow(ctx, of.watch, version, func(_ watch.EventType, o runtime.Object, name string) (last bool) {
			return strings.HasPrefix(name, prefix+"-") && of.served(o) && f.see(name) == size
		})
	}()
	f.first = time.Now()
	errs := make([]error, size)
	workqueue.ParallelizeUntil(ctx, atATime, size, func(i int) {
		index := size - 1 - i // Who serves Nodes by name must not look like who serves them by age.
		name := fmt.Sprintf("%s-%06d", prefix, index)
		errs[i] = of.create(ctx, name, index)
		now := time.Now()
		f.mu.Lock()
		f.created[name] = now
		f.mu.Unlock()
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	select {
	case err = <-done:
	case <-p.Done():
		err = errors.New("it has ended")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%d of %d are not served: %w; the end of the log:\n%s", size-len(f.served), size, err, tail(p.LogPath()))
	}
	return f, nil
}

// see notes that an object is served, and returns how many are.
func (f *fleet) see(name string) int {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.served[name]; !known {
		f.served[name], f.last = now, now
	}
	return len(f.served)
}

// values says how many were served in a second, and how long one took from the answer to its creation until the watch showed it. One that was
// served before that answer arrived did not wait.
func (f *fleet) values(got metrics, rate string) {
	got[rate] = float64(len(f.served)) / f.last.Sub(f.first).Seconds()
	var all []time.Duration
	for name, served := range f.served {
		all = append(all, max(0, served.Sub(f.created[name])))
	}
	for unit, rank := range map[string]float64{"p50-ms": .5, "p99-ms": .99, "max-ms": 1} {
		got[unit] = milliseconds(quantile(all, rank))
	}
}

// follow calls see for every event after a resource version, until see says that this was the last. The API server ends a watch that cannot keep up, as
// happens on a busy machine; then it goes on where it was, at once, which an informer and client-go's RetryWatcher do only after a second.
func follow(ctx context.Context, start func(context.Context, metav1.ListOptions) (watch.Interface, error), version string, see func(watch.EventType, runtime.Object, string) (last bool)) error {
	for {
		w, err := start(ctx, metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			return fmt.Errorf("watch: %w", errors.Join(err, context.Cause(ctx)))
		}
		for event := range w.ResultChan() {
			o, err := meta.Accessor(event.Object)
			if err != nil || event.Type == watch.Error {
				w.Stop()
				return fmt.Errorf("watch: %w", apierrors.FromObject(event.Object))
			}
			version = o.GetResourceVersion()
			if event.Type != watch.Deleted && see(event.Type, event.Object, o.GetName()) {
				w.Stop()
				return nil
			}
		}
	}
}

// quantile is the nearest rank: the smallest value that so many are not above.
func quantile(all []time.Duration, rank float64) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[int(math.Ceil(rank*float64(len(all))))-1]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// tail is the end of a log, for an error message.
func tail(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprint(err)
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
