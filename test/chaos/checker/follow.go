package checker

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/transport"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// Where a kube-apiserver keeps what we follow.
const (
	registry        = "/registry/"
	nodeKeys        = registry + "minions/"
	clusterCIDRKeys = registry + "networking.x-k8s.io/clustercidrs/"
	serviceCIDRKeys = registry + "servicecidrs/"
	leaseKeys       = registry + "leases/kube-system/"
)

// Dial connects to the etcd of a control plane, whose PKI directory has what its API server shows to etcd.
func Dial(endpoint, pkiDir string) (*clientv3.Client, error) {
	return Connect(transport.TLSConfig{
		CAFile:   filepath.Join(pkiDir, "ca.crt"),
		CertFile: filepath.Join(pkiDir, "etcd-client.crt"),
		KeyFile:  filepath.Join(pkiDir, "etcd-client.key"),
	}, endpoint)
}

// Connect connects to the members of an etcd. If one of them ends or is not heard of any more, the next one is asked.
func Connect(files transport.TLSConfig, endpoints ...string) (*clientv3.Client, error) {
	config, err := transport.TLSConfigFor(&transport.Config{TLS: files})
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{
		Endpoints: endpoints,
		TLS:       config,
		// A member without power or network ends no connection.
		DialKeepAliveTime:    5 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		// Without a logger of ours the client would print a line for every time that etcd is killed.
		Logger: zap.NewNop(),
	})
}

// Event is one object as of one revision of etcd. Exactly one of the objects is set.
type Event struct {
	Revision int64
	// At is when etcd told us.
	At time.Time
	// AsOf: whoever wrote this had seen everything that happened before. Zero: nothing is known about that, and At takes its place.
	AsOf time.Time
	// Other: podCIDRs that are new here are those of another allocator than the one that is judged.
	Other bool
	// Gone: the object was removed; it has its name only.
	Gone        bool
	Node        *corev1.Node
	ClusterCIDR *networkingv1.ClusterCIDR
	ServiceCIDR *networkingapiv1.ServiceCIDR
	Lease       *coordinationv1.Lease
}

// decode returns an event for a key that is followed.
func decode(key string, value []byte, gone bool) (e Event, ok bool, err error) {
	into := func(object runtime.Object) error {
		if gone {
			return nil
		}
		// The API server stores its own kinds as protobuf and custom resources as JSON.
		_, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, object)
		return err
	}
	e.Gone = gone
	switch {
	case strings.HasPrefix(key, nodeKeys):
		e.Node = &corev1.Node{}
		err = into(e.Node)
		e.Node.Name = strings.TrimPrefix(key, nodeKeys)
	case strings.HasPrefix(key, clusterCIDRKeys):
		e.ClusterCIDR = &networkingv1.ClusterCIDR{}
		if !gone {
			err = json.Unmarshal(value, e.ClusterCIDR)
		}
		e.ClusterCIDR.Name = strings.TrimPrefix(key, clusterCIDRKeys)
	case strings.HasPrefix(key, serviceCIDRKeys):
		e.ServiceCIDR = &networkingapiv1.ServiceCIDR{}
		err = into(e.ServiceCIDR)
		e.ServiceCIDR.Name = strings.TrimPrefix(key, serviceCIDRKeys)
	case strings.HasPrefix(key, leaseKeys):
		e.Lease = &coordinationv1.Lease{}
		err = into(e.Lease)
		e.Lease.Name = strings.TrimPrefix(key, leaseKeys)
	default:
		return Event{}, false, nil
	}
	if err != nil {
		return Event{}, false, fmt.Errorf("decode %s: %w", key, err)
	}
	return e, true, nil
}

// Follower reads etcd's history. Make it with NewFollower and call Run once.
type Follower struct {
	client  *clientv3.Client
	observe func(Event)
	seen    atomic.Int64 // all up to this revision has been observed
	asking  chan chan<- error
}

// NewFollower returns a follower that hands every event to observe, one after the other in the order of revisions.
func NewFollower(client *clientv3.Client, observe func(Event)) *Follower {
	return &Follower{client: client, observe: observe, asking: make(chan chan<- error)}
}

// Run follows from what is there now until ctx is done, also across restarts of etcd. An error means that a part of the history is missing.
func (f *Follower) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start, err := f.client.Get(ctx, registry, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))
	if err != nil {
		return fmt.Errorf("read what is there: %w", err)
	}
	for _, kv := range start.Kvs {
		if err := f.tell(string(kv.Key), kv.Value, false, kv.ModRevision); err != nil {
			return err
		}
	}
	f.seen.Store(start.Header.Revision)
	// One watch for all keys: within one watch, events come in the order of their revisions.
	watch := f.client.Watch(ctx, registry, clientv3.WithPrefix(), clientv3.WithRev(start.Header.Revision+1))
	for {
		select {
		case <-ctx.Done():
			return nil
		case asked := <-f.asking:
			asked <- f.client.RequestProgress(ctx)
		case response, ok := <-watch:
			if !ok {
				if ctx.Err() != nil {
					return nil
				}
				return fmt.Errorf("etcd's watch ended after revision %d", f.seen.Load())
			}
			if err := response.Err(); err != nil {
				return fmt.Errorf("etcd's watch ended after revision %d: %w", f.seen.Load(), err)
			}
			for _, event := range response.Events {
				if err := f.tell(string(event.Kv.Key), event.Kv.Value, event.Type == clientv3.EventTypeDelete, event.Kv.ModRevision); err != nil {
					return err
				}
			}
			// Only a response without events says how far the watch is: while it catches up, what comes with events is the
			// revision of the store.
			if n := len(response.Events); n > 0 {
				f.seen.Store(response.Events[n-1].Kv.ModRevision)
			} else if response.IsProgressNotify() {
				f.seen.Store(max(f.seen.Load(), response.Header.Revision))
			}
		}
	}
}

func (f *Follower) tell(key string, value []byte, gone bool, revision int64) error {
	e, ok, err := decode(key, value, gone)
	if ok {
		e.Revision, e.At = revision, time.Now()
		f.observe(e)
	}
	return err
}

// CatchUp returns when everything that was committed before the call has been observed.
func (f *Follower) CatchUp(ctx context.Context) error {
	now, err := f.client.Get(ctx, registry, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	// An answer to a request for progress can be lost with etcd, so it is asked for more than once.
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		asked := make(chan error, 1)
		select {
		case f.asking <- asked:
			if err := <-asked; err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return ctx.Err()
		}
		if f.seen.Load() >= now.Header.Revision {
			tick.Stop()
			return nil
		}
	}
}
