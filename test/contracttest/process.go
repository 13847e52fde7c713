package contracttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/queues"
)

// Fault is what becomes of one request.
type Fault struct {
	// Before and After are how long it takes until it is carried out, and until the answer arrives.
	Before, After time.Duration
	// Lost: it is never carried out. Unanswered: the sender gets no answer after the delay After; it is carried out after Before all the same, unless Lost.
	Lost, Unanswered bool
	// Refused is the answer in place of carrying it out.
	Refused error
}

// ErrUnanswered is the error of a request without an answer.
var ErrUnanswered = errors.New("the connection broke")

// Options say how a Process runs.
type Options struct {
	// Fault says what becomes of a request; nil: nothing special.
	Fault func(verb string, kind *runner.Kind, name string) Fault
	// Lag is how long the watch takes to show the next change; nil: nothing.
	Lag func() time.Duration
	// Unanswered is for how long an unanswered write may still be carried out: longer than every Fault.Before.
	Unanswered time.Duration
	Workers    int
	// Event gets what the Term is told; nil: nothing does.
	Event func(about metav1.Object, kind *runner.Kind, reason, message string)
}

// Types returns a new struct of a kind.
type Types func(kind *runner.Kind) metav1.Object

// Process is a running Logic.
type Process struct {
	Logic  runner.Logic
	Term   *runner.Term
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
	server *Server
	opts   Options
	queue  queues.Queue[runner.Key]
	watch  *watcher
}

// Start runs a Logic against a server until Crash or the end of ctx. It returns when the Logic knows everything that exists. kinds are those that it reads.
// Nothing of an earlier process may be on its way: wait for Options.Unanswered.
func Start(ctx context.Context, s *Server, kinds []*runner.Kind, types Types, build func(*runner.Term) runner.Logic, opts Options) *Process {
	p := &Process{server: s, opts: opts, queue: queues.New[runner.Key]("", 10*time.Second)}
	p.ctx, p.cancel = context.WithCancel(ctx)
	p.Term = &runner.Term{
		API: p, Queue: p.queue,
		Served: func(k *runner.Kind) (string, bool) { return k.Group + "/" + k.Versions[0], true },
		Event: func(about metav1.Object, kind *runner.Kind, _ bool, reason, message string) {
			if opts.Event != nil {
				opts.Event(about, kind, reason, message)
			}
		},
		Unanswered: func() time.Duration { return opts.Unanswered },
		Took:       func(time.Duration) {},
	}
	p.Logic = build(p.Term)
	p.watch = s.connect(kinds, func(kind *runner.Kind, c change) {
		object := types(kind)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(c.object.Object, object); err != nil {
			panic(err)
		}
		if c.gone {
			Gone(p.Term, kind, object)
		} else {
			Show(p.Term, kind, object)
		}
	})
	for kind, feed := range p.watch.feeds {
		p.done.Go(func() { p.follow(kind, feed) })
	}
	for range max(opts.Workers, 1) {
		p.done.Go(func() {
			queues.Work(p.ctx, p.queue, func(ctx context.Context, key runner.Key) error { return p.Logic.Reconcile(ctx, key) })
		})
	}
	return p
}

// Crash ends a process: nothing that it has not sent yet is sent. What it has sent may still be carried out. It returns when its goroutines have ended.
func (p *Process) Crash() {
	p.cancel()
	p.server.disconnect(p.watch)
	p.queue.ShutDown()
	p.done.Wait()
}

// follow shows the changes of a kind, late.
func (p *Process) follow(kind *runner.Kind, feed *feed) {
	for {
		c, ok := feed.next(p.ctx)
		if !ok {
			return
		}
		if p.opts.Lag != nil {
			time.Sleep(p.opts.Lag())
		}
		if p.ctx.Err() != nil {
			return
		}
		p.watch.show(kind, c)
	}
}

// do sends a request.
func (p *Process) do(ctx context.Context, verb string, kind *runner.Kind, name string, request func() error) error {
	if p.ctx.Err() != nil {
		return lease.ErrClosed
	}
	var f Fault
	if p.opts.Fault != nil {
		f = p.opts.Fault(verb, kind, name)
	}
	if f.Unanswered {
		if !f.Lost {
			go func() {
				time.Sleep(f.Before)
				_ = request()
			}()
		}
		pause(ctx, f.After)
		return ErrUnanswered
	}
	if pause(ctx, f.Before); ctx.Err() != nil { // It is on its way, and may be carried out.
		go func() { _ = request() }()
		return fmt.Errorf("%w: %w", ErrUnanswered, ctx.Err())
	}
	if f.Refused != nil {
		return f.Refused
	}
	err := request()
	if pause(ctx, f.After); ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrUnanswered, ctx.Err())
	}
	return err
}

func pause(ctx context.Context, d time.Duration) {
	if d > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
}

// Get implements runner.API.
func (p *Process) Get(ctx context.Context, kind *runner.Kind, of types.NamespacedName, object metav1.Object) error {
	return p.do(ctx, "get", kind, of.Name, func() error {
		o := p.server.Get(kind, of.Namespace, of.Name)
		if o == nil {
			return notFound(kind, of.Name)
		}
		return into(o, object)
	})
}

// Create implements runner.API.
func (p *Process) Create(ctx context.Context, kind *runner.Kind, object, stored metav1.Object) error {
	sent := fields(object)
	return p.write(ctx, "create", kind, object.GetName(), stored, func() (*unstructured.Unstructured, error) { return p.server.Create(kind, sent) })
}

// Patch implements runner.API.
func (p *Process) Patch(ctx context.Context, kind *runner.Kind, of types.NamespacedName, patch runner.Patch, stored metav1.Object) error {
	verb := "patch"
	if patch.Status {
		verb = "patch status"
	}
	return p.write(ctx, verb, kind, of.Name, stored, func() (*unstructured.Unstructured, error) { return p.server.Patch(kind, of, patch) })
}

// write sends a request whose answer is an object. Without an answer, it may still be carried out.
func (p *Process) write(ctx context.Context, verb string, kind *runner.Kind, name string, stored metav1.Object, request func() (*unstructured.Unstructured, error)) error {
	var answer *unstructured.Unstructured
	err := p.do(ctx, verb, kind, name, func() (err error) {
		answer, err = request()
		return err
	})
	if err != nil || stored == nil {
		return err
	}
	return into(answer, stored)
}

// Delete implements runner.API.
func (p *Process) Delete(ctx context.Context, kind *runner.Kind, of types.NamespacedName, uid types.UID) error {
	return p.do(ctx, "delete", kind, of.Name, func() error { return p.server.Delete(kind, of, uid) })
}

func into(o *unstructured.Unstructured, object metav1.Object) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, object)
}
