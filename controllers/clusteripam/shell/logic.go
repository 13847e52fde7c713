package shell

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Logic decides what a controller does. A Logic lives for one term; then another one is built from new Parts.
//
// Fill, Heard, Show and Figures are called with Parts.Lock held and make no calls to the API server. Sync is called without it,
// concurrently for different keys, never concurrently for one key.
type Logic interface {
	// Reads returns the Stores that the shell keeps up to date.
	Reads() []Source
	// Fill builds the state from the Stores, which show everything that exists, and queues what is to be done. It is called once, before
	// all other methods except Reads.
	Fill()
	// Heard records a change, and queues what it may affect. The Store of the kind already shows it, or what came after it.
	Heard(Change)
	// Sync works on one object. It is level driven: it would do the same after a restart. An error says that it must be called again.
	Sync(ctx context.Context, key Key) error
	// Show returns what the debug page shows as JSON. It contains no secret and no name of one.
	Show() any
	// Figures returns what the metrics show.
	Figures() Figures
}

// Problematic is implemented by a Logic that can be unable to do all of its work for reasons of its own.
type Problematic interface {
	// Problems returns what is wrong, and then what to do. The health check shows it. It is called with Parts.Lock held.
	Problems() []string
}

// Parts are what a Logic gets from the shell; a simulation replaces them.
type Parts struct {
	// API sends requests. Its writes pass the fence, end after writes.Timeout and are sent once.
	API API
	// Lock guards the state of the Logic.
	Lock *Lock
	Now  func() time.Time
	// Queue takes the keys to work on. Safe for concurrent use, with and without the Lock.
	Queue Queue
	// Served returns the API version, with its group, in which a kind is read and written; false for an absent Optional kind. It is constant
	// for a term.
	Served func(*Kind) (apiVersion string, ok bool)
	// Tell queues an event about an object. It never blocks. An event that exists already is renewed.
	Tell func(Event)
	// Took records how long an object waited for what it asked for.
	Took func(time.Duration)
}

// Queue is a queue of keys.
type Queue interface {
	Add(Key)
	AddAfter(Key, time.Duration)
}

// Change is a change of one object, identified by its UID. Before is the Now of the last change, whatever the Store has shown meanwhile: a Logic can undo exactly what it has
// noted then. It is nil for a new object, Now for one that is gone. Neither may be modified.
type Change struct {
	Kind        *Kind
	Before, Now metav1.Object
}

// Object returns the object as it was last seen.
func (c Change) Object() metav1.Object {
	if c.Now != nil {
		return c.Now
	}
	return c.Before
}

// Event tells the users of an object something.
type Event struct {
	About   metav1.Object
	Kind    *Kind
	Normal  bool // otherwise it is a warning
	Reason  string
	Message string // what is wrong, then what to do
}

// Figures are the numbers that metrics show.
type Figures struct {
	// Waiting is how many objects wait, by reason.
	Waiting map[string]int
	// Bound is how many objects have what they asked for.
	Bound int
	// Conflicts is how many addresses several objects hold.
	Conflicts int
	Pools     []PoolFigures
}

// PoolFigures are the figures of one pool, in addresses.
type PoolFigures struct {
	Kind                          *Kind
	Namespace, Name               string
	Total, Used, Free, OutOfRange float64
}

// ErrTorn is the panic of code that uses a state that an earlier panic left half changed.
var ErrTorn = errors.New("another panic has left the state of the controller half changed")

// Lock guards a state. The zero value is unlocked.
type Lock struct {
	mu   sync.Mutex
	torn bool
}

// With runs f exclusively. It is not reentrant. If f panics, the state may be half changed, and every later call panics with ErrTorn.
func (l *Lock) With(f func()) {
	if !l.withWhole(f) {
		panic(ErrTorn)
	}
}

// withWhole is With for callers that only show the state: it reports false, and does not call f, if the state may be half changed.
func (l *Lock) withWhole(f func()) (whole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.torn {
		return false
	}
	l.torn = true // It stays so after a panic.
	f()
	l.torn = false
	return true
}

// Key identifies an object to work on. A Kind without a Resource makes a queue of its own for other work on an object, such as its status.
type Key struct {
	Kind            *Kind
	Namespace, Name string
}

// KeyOf returns the key of an object.
func KeyOf(kind *Kind, object metav1.Object) Key {
	return Key{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()}
}

func (k Key) String() string {
	if k.Namespace == "" {
		return fmt.Sprintf("%s %s", k.Kind, k.Name)
	}
	return fmt.Sprintf("%s %s/%s", k.Kind, k.Namespace, k.Name)
}
