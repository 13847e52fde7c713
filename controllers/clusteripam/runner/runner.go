// Package runner runs one controller of Cluster IPAM: a Logic that decides, and around it everything that talks to the API server.
//
// It has the shape of a controller of controller-runtime, on client-go's informers and work queue, because it also runs inside
// kube-controller-manager, whose metrics and election must stay its own:
//
//  1. The controller waits until the CustomResourceDefinition of every kind that the Logic reads says that it is served, and while another program
//     does its work.
//  2. Then a term begins: Config.New builds a Logic, which says by Read what it reads. The first list of each kind is a consistent read, made
//     after this process became the leader and after every unanswered write of the process is over.
//  3. When every object that exists was passed to the Logic's handlers, workers call Reconcile for the keys that the handlers have queued. The
//     returned error says when to try again (packages writes and queues).
//  4. A write passes the fence and is sent exactly once. writes.Answered(err) says whether its outcome is known.
//  5. If other kinds or versions are served, or the other program starts, the term ends when its writes have ended, and the controller begins again.
//
// A panic ends the process.
package runner

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/multicidr/controller-manager/controllers/writes"
)

// Config is the input of New. Name, Client, Reads, Workers and New are required.
type Config struct {
	// Name is the controller's name: in --controllers, and as its ServiceAccount, field manager and event source.
	Name string
	// Client is the configuration of the clients. It has been wrapped in lease.Transport.
	Client *rest.Config
	// Fence is the fence of the leader Lease; nil means one that is always open.
	Fence writes.Fence
	// Reads are the kinds that the Logic reads.
	Reads []Reads
	// Workers are how many workers each kind of key has.
	Workers map[*Kind]int
	// New builds the Logic of a term. It makes no requests. In it, Read says what is done with each kind.
	New func(*Term) Logic
	// Yield says why the controller must not run now; nil means that nothing stops it.
	Yield Yield
	// Other is another program that does the same work. While it leads, the controller does not run. nil: there is none.
	Other *Other
}

// Reads says which objects of a kind are read.
type Reads struct {
	Kind *Kind
	// Optional: the controller works without the kind.
	Optional bool
	// Namespace restricts the objects to one namespace; empty means all.
	Namespace string
}

// Yield says why a controller must leave its objects to another program; empty means that it need not. labels are those of the
// CustomResourceDefinitions of the kinds that it reads.
type Yield func(labels map[*Kind]map[string]string) (why string)

// Logic decides what a controller does, for one term.
type Logic interface {
	// Reconcile works on one object. It is level driven: it would do the same after a restart. It is called concurrently for different keys, never
	// for one. An error says that it must be called again: writes.Later, writes.RefusedLater, a closed fence, or others after an ever longer pause.
	Reconcile(ctx context.Context, key Key) error
	// Show returns what the debug page shows as JSON. It contains no secret and no name of one.
	Show() any
	// Figures returns what the metrics show.
	Figures() Figures
}

// Term is what a Logic gets. A test fills it by itself and calls the Feeds; then nothing talks to an API server.
type Term struct {
	// API sends requests. Its writes pass the fence, end after writes.Timeout, and are sent once.
	API API
	// Queue takes the keys to work on. Safe for concurrent use.
	Queue Queue
	// Served returns the API version, with its group, in which a kind is read and written; false for an absent Optional kind. A kind that is not in
	// Config.Reads is taken for served in the first of its Versions.
	Served func(*Kind) (apiVersion string, ok bool)
	// Event tells the users of an object something: a Warning unless normal. It never blocks, and says nothing twice within ten minutes.
	Event func(about metav1.Object, kind *Kind, normal bool, reason, message string)
	// Unanswered is for how long the API server may still carry out a write of this process that was not answered.
	Unanswered func() time.Duration
	// Took records how long an object waited for what it asked for.
	Took func(time.Duration)

	// Feeds are the kinds that the Logic reads.
	Feeds map[*Kind]*Feed

	waiting sync.Map // since when objects wait, by UID
	// informer returns one of a kind that is served. It is nil in a test.
	informer func(*Kind, cache.TransformFunc) cache.SharedIndexInformer
}

// Waits notes whether an object waits for what it asks for. How long it did goes to Took when it has that, and is forgotten when it is deleted.
func (t *Term) Waits(object metav1.Object, waits bool) {
	if waits {
		t.waiting.LoadOrStore(object.GetUID(), time.Now())
	} else if since, waited := t.waiting.LoadAndDelete(object.GetUID()); waited {
		t.Took(time.Since(since.(time.Time)))
	}
}

// Queue is a queue of keys.
type Queue interface {
	Add(Key)
	AddAfter(Key, time.Duration)
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
	// IPAMs are the ClusterIPAMs of claims, for the metrics that k0rdent's manager has, too.
	IPAMs []IPAMFigures
}

// IPAMFigures are the figures of one ClusterIPAM.
type IPAMFigures struct {
	Namespace, Name string
	Bound           bool
}

// PoolFigures are the figures of one pool, in addresses.
type PoolFigures struct {
	Kind                          *Kind
	Namespace, Name               string
	Total, Used, Free, OutOfRange float64
}

// Key identifies an object to work on.
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

// API is every request that a Logic sends. What an error of a write says: writes.Answered, writes.NotSent, writes.NotThere.
type API interface {
	// Get reads an object from etcd, past every cache, into object: a pointer to a new struct of the kind.
	Get(ctx context.Context, kind *Kind, of types.NamespacedName, object metav1.Object) error
	// Create creates object, whose apiVersion and kind it sets. stored gets the object as it is stored: a pointer to a new struct, or nil.
	Create(ctx context.Context, kind *Kind, object, stored metav1.Object) error
	// Patch sends a JSON merge patch of the object, or of its status.
	Patch(ctx context.Context, kind *Kind, of types.NamespacedName, patch Patch, stored metav1.Object) error
	// Delete deletes the object with this UID.
	Delete(ctx context.Context, kind *Kind, of types.NamespacedName, uid types.UID) error
}

// Patch is a JSON merge patch of one object: of its status, otherwise of everything else.
type Patch struct {
	Status bool
	Body   []byte
}
