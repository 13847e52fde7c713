package inputs

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"

	"github.com/multicidr/controller-manager/test/chaos/checker"
	"github.com/multicidr/controller-manager/test/controlplane"
	"github.com/multicidr/controller-manager/test/seeds"
)

var (
	duration = flag.Duration("inputs.duration", time.Minute, "how long objects are thrown")
	reducing = flag.Duration("inputs.reduce", 3*time.Minute, "how long the smallest set of objects is searched for after a failure")
)

// kinds are thrown. A kind comes before those that hold it back: Nodes before ClusterCIDRs.
var kinds = []*kind{nodes, serviceCIDRs, clusterCIDRs}

const (
	// settling is how long it may take until everybody is served who can be and every status is true. A status may wait for ten
	// seconds while Nodes are queued.
	settling = 30 * time.Second
	// retrying is longer than the longest pause between two tries of a write.
	retrying = 12 * time.Second
	// severalTimes is how often a request is not answered if that is not for a moment.
	severalTimes = 3
	// mostRounds is how many rounds may be needed to have every extreme once.
	mostRounds = 30
	// mostFailures is how many rounds may fail before the test gives up.
	mostFailures = 3
)

// TestInputs throws objects, round by round, and looks at everything that has to be true then. It does so on an API server as it is by default, and
// on one that takes podCIDRs that are not in canonical form, as all did before Kubernetes v1.36 and as they may still be stored.
func TestInputs(t *testing.T) {
	for i, variant := range []struct {
		name   string
		strict bool
		args   []string
	}{
		{name: "default", strict: true},
		{name: "sloppy podCIDRs", args: []string{"--feature-gates=StrictIPCIDRValidation=false"}},
	} {
		t.Run(variant.name, func(t *testing.T) {
			p := &play{cluster: start(t, variant.args...), dice: &dice{Rand: rand.New(rand.NewPCG(seeds.First(), uint64(i)))}}
			for _, k := range kinds {
				p.decks = append(p.decks, newDeck(k, variant.strict))
			}
			p.run(t, *duration/2)
		})
	}
}

// run plays rounds for some time, and until every extreme was in an object that the API server accepted.
func (p *play) run(t *testing.T, lasting time.Duration) {
	rounds, failures := 0, 0
	begin := time.Now()
	for ; time.Since(begin) < lasting || len(p.missing()) > 0 && rounds < mostRounds; rounds++ {
		r := p.throw(t, rounds)
		if len(r.problems) == 0 {
			continue
		}
		t.Errorf("round %d, with %d objects:\n%s", rounds, len(r.objects()), strings.Join(r.problems, "\n"))
		p.reduce(t, r)
		if failures++; failures == mostFailures {
			break
		}
	}
	p.report(t, rounds)
	if missing := p.missing(); len(missing) > 0 && failures < mostFailures {
		t.Errorf("%d extremes were in no object that the API server accepted, so nothing tries them:\n%s", len(missing), strings.Join(missing, "\n"))
	}
}

// play is one run of the test.
type play struct {
	*cluster
	*dice
	decks   []*deck
	objects int
	pending int
	served  int
}

func (p *play) missing() (all []string) {
	for _, k := range p.decks {
		all = append(all, k.missing()...)
	}
	return all
}

// round is what was done, in order, and what was wrong then.
type round struct {
	actions  []action
	problems []string
	kinds    map[string]bool // of problems
}

// action is one thing that was done: an object was created, one of its steps was done, or, without an object, the manager was swapped.
type action struct {
	of   *thrown
	step *step
}

func (r *round) objects() (all []*thrown) {
	for _, a := range r.actions {
		if a.of != nil && a.step == nil {
			all = append(all, a.of)
		}
	}
	return all
}

// wrong notes a problem; kind is the same for problems of one sort.
func (r *round) wrong(kind, format string, args ...any) {
	if r.kinds == nil {
		r.kinds = map[string]bool{}
	}
	r.kinds[kind] = true
	if text := kind + ": " + fmt.Sprintf(format, args...); len(r.problems) < 20 {
		r.problems = append(r.problems, text[:min(len(text), 4000)])
	}
}

// throw plays a new round.
func (p *play) throw(t *testing.T, number int) *round {
	p.number = 0
	swallow := p.IntN(4) == 0
	var kindsOf []*deck
	for _, k := range p.decks {
		for range k.share {
			kindsOf = append(kindsOf, k)
		}
	}
	p.Shuffle(len(kindsOf), func(i, j int) { kindsOf[i], kindsOf[j] = kindsOf[j], kindsOf[i] })
	swapAt := -1
	if number%3 == 2 {
		swapAt = p.IntN(len(kindsOf))
	}
	r := &round{}
	ctx := t.Context()
	p.look(ctx, r, lookOptions{hold: number%10 == 5, settling: settling}, func(do func(action) error) error {
		var later []action
		some := func(n int) error {
			for ; n > 0 && len(later) > 0; n-- {
				i := p.IntN(len(later))
				// The steps of one object stay in order.
				first := slices.IndexFunc(later, func(a action) bool { return a.of == later[i].of })
				a := later[first]
				later = slices.Delete(later, first, first+1)
				if err := do(a); err != nil && !apierrors.IsNotFound(err) {
					return fmt.Errorf("%s %s %s: %w", a.step.verb, a.of.gvk.Kind, a.of.name(), err)
				}
			}
			return nil
		}
		for i, k := range kindsOf {
			if i == swapAt {
				if err := do(action{}); err != nil {
					return err
				}
			}
			o, err := p.accepted(k, swallow, do)
			if err != nil {
				return err
			}
			for i := range o.after {
				later = append(later, action{o, &o.after[i]})
			}
			if err := some(p.IntN(2)); err != nil {
				return err
			}
		}
		return some(len(later))
	})
	p.objects += len(r.objects())
	return r
}

// accepted creates an object with extremes; with fewer of them when the API server does not accept them together.
func (p *play) accepted(k *deck, swallow bool, do func(action) error) (*thrown, error) {
	p.number++
	with := k.deal(1+p.IntN(4), swallow, p.dice)
	for {
		o := k.build(with, p.dice)
		k.tried++
		err := do(action{of: o})
		switch {
		case err == nil:
			k.stored++
			for _, e := range with {
				k.dealt[e.name]++
			}
			return o, nil
		case apierrors.IsAlreadyExists(err):
			p.number++
			continue
		case len(with) == 0 || !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) && !apierrors.IsRequestEntityTooLargeError(err) && !strings.Contains(err.Error(), "too large"):
			return nil, fmt.Errorf("create %s %s with %s: %w", k.gvk.Kind, o.name(), namesOf(with), err)
		}
		if len(with) == 1 {
			k.refused[with[0].name] = err.Error()
		}
		// It comes again, at the end of the cards, in other company.
		i := p.IntN(len(with))
		k.left = append(k.left, with[i])
		with = slices.Delete(slices.Clone(with), i, i+1)
	}
}

func namesOf(with []entry) string {
	var names []string
	for _, e := range with {
		names = append(names, e.name)
	}
	return strings.Join(names, "; ")
}

type lookOptions struct {
	hold     bool // wait for longer than the longest pause between two tries
	settling time.Duration
}

const (
	witness      = "witness"
	witnessLabel = "inputs.example.com/witness"
)

// look makes a witness, lets the actions be done, and looks at everything that has to be true afterwards. The witnesses show that the
// controller is alive before and after, and that everything that it had to do before them is done.
func (p *play) look(ctx context.Context, r *round, opts lookOptions, actions func(do func(action) error) error) {
	violations := p.checker.Count()
	start, err := controlplane.MarkAudit(p.auditLog)
	if err != nil {
		r.wrong("test", "%v", err)
		return
	}
	if err := p.witness(ctx, 1); err != nil {
		r.wrong("witness", "in an empty cluster: %v", err)
	}
	err = actions(func(a action) error {
		err := p.act(ctx, a)
		if err == nil {
			r.actions = append(r.actions, a)
		}
		return err
	})
	if err != nil {
		r.wrong("test", "%v", err)
	}

	var unsettled []checker.Violation
	err = controlplane.Eventually(ctx, opts.settling, func(ctx context.Context) error {
		if err := p.follower.CatchUp(ctx); err != nil {
			return err
		}
		unsettled = append(p.checker.Unsettled(), p.checker.Statuses()...)
		if len(unsettled) > 0 {
			return fmt.Errorf("%d things", len(unsettled))
		}
		return nil
	})
	if err != nil && len(unsettled) == 0 {
		r.wrong("test", "%v", err)
	}
	for _, v := range unsettled {
		r.wrong(string(v.Rule), "%s", v.Message)
	}
	if err := controlplane.Eventually(ctx, opts.settling, p.unexplained); err != nil {
		r.wrong("event", "%v", err)
	}
	if err := controlplane.Eventually(ctx, opts.settling, p.healthy); err != nil {
		r.wrong("health", "%v", err)
	}
	pending := len(p.checker.Pending())
	p.pending += pending
	if n, err := p.metric(ctx, "node_ipam_controller_waiting_nodes"); err != nil || int(n) != pending {
		r.wrong("metric", "%v Nodes are pending by the metric, and there are %d (%v)", n, pending, err)
	}

	p.idle(ctx, r, start, opts.hold)
	if err := p.panicked(); err != nil {
		r.wrong("panic", "%v", err)
	}
	if err := p.clear(ctx, opts.settling); err != nil {
		r.wrong("deletion", "%v", err)
		if err := p.release(ctx); err != nil {
			r.wrong("test", "%v", err)
		}
	}
	if err := p.follower.CatchUp(ctx); err != nil {
		r.wrong("test", "%v", err)
	}
	for _, v := range p.checker.Violations()[violations:] {
		r.wrong(string(v.Rule), "%v", v)
	}
}

// witness creates a Node that has a ClusterCIDR for itself, and waits until it has a block of it or is told that there is none.
func (p *play) witness(ctx context.Context, number int) error {
	if number == 1 {
		cc := &clusterCIDR{ObjectMeta: metav1.ObjectMeta{Name: witness}}
		cc.Spec.IPv4, cc.Spec.PerNodeHostBits, cc.Spec.NodeSelector = "192.0.2.0/27", 4, selector(in(witnessLabel, "yes"))
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cc)
		if err != nil {
			return err
		}
		o := &unstructured.Unstructured{Object: content}
		o.SetGroupVersionKind(clusterCIDRs.gvk)
		if _, err := p.dynamic.Resource(clusterCIDRs.resource).Create(ctx, o, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	name := fmt.Sprintf("%s-%d", witness, number)
	n, err := p.kube.CoreV1().Nodes().Create(ctx, newNode(name, map[string]string{witnessLabel: "yes"}), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if number == 1 {
		return p.cluster.served(ctx, name, settling)
	}
	return controlplane.Eventually(ctx, settling, func(ctx context.Context) error {
		if err := p.follower.CatchUp(ctx); err != nil {
			return err
		}
		if unsettled := append(p.checker.Unsettled(), p.checker.Statuses()...); len(unsettled) > 0 {
			return fmt.Errorf("%s", unsettled[0].Message)
		}
		if slices.Contains(p.checker.Pending(), n.Name) {
			return p.unexplained(ctx)
		}
		p.served++
		return nil
	})
}

// idle sees to it that the controller is done: nothing that the API server refused is left, and from now on there are no requests but those
// that a last witness makes necessary.
func (p *play) idle(ctx context.Context, r *round, start controlplane.AuditMark, hold bool) {
	settled, err := controlplane.MarkAudit(p.auditLog)
	if err != nil {
		r.wrong("test", "%v", err)
		return
	}
	if hold {
		select {
		case <-time.After(retrying):
		case <-ctx.Done():
		}
	}
	if err := p.witness(ctx, 2); err != nil {
		r.wrong("witness", "%v", err)
	}
	all, err := controlplane.ReadAuditSince(p.auditLog, start)
	if err != nil {
		r.wrong("test", "%v", err)
		return
	}
	failed, times := map[string]auditv1.Event{}, map[string]int{} // since the last success
	for _, e := range all {
		code, key := int32(0), e.Verb+" "+target(e)
		if e.ResponseStatus != nil {
			code = e.ResponseStatus.Code
		}
		switch {
		case code < 400, code == http.StatusNotFound, code == http.StatusConflict:
			delete(failed, key)
			delete(times, key)
		default:
			failed[key] = e
			times[key]++
		}
		if code >= 500 && times[key] < severalTimes { // a slow machine; what was written all the same is not written again
			delete(failed, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(failed)) {
		if e := failed[key]; p.wanted(ctx, e) {
			r.wrong("refused", "a request of the controller is refused for ever: %s", describe(e))
		}
	}
	clear(times)
	for _, e := range all {
		if e.RequestReceivedTimestamp.After(settled.At()) {
			times[e.Verb+" "+target(e)]++
		}
	}
	for _, key := range slices.Sorted(maps.Keys(times)) {
		// The last witness is one more block that is held, and so one more write of each status that counts it.
		most := 1
		if strings.Contains(key, "nodes ") && !strings.HasSuffix(key, "nodes "+witness+"-2") {
			most = 0
		}
		switch {
		case strings.HasPrefix(key, "patch events "):
			// Events are written one after the other, so on a slow machine those about the last actions come late, each a few times if their message has changed.
			most = 10
		case strings.HasPrefix(key, "patch clustercidrs/status "):
			// What the last action changed in a message, which nobody compares, may be written a second after the numbers were. A status
			// that is never right is written once a second.
			most = 2
		}
		if times[key] > most {
			r.wrong("busy", "at rest, the controller sends %d times: %s", times[key], key)
		}
	}
}

// wanted reports whether the object of a request is still there: nobody has to write one that is gone or on its way.
func (p *play) wanted(ctx context.Context, e auditv1.Event) bool {
	for _, k := range kinds {
		if k.resource.Resource == e.ObjectRef.Resource {
			o, err := p.dynamic.Resource(k.resource).Get(ctx, e.ObjectRef.Name, metav1.GetOptions{})
			return !apierrors.IsNotFound(err) && (err != nil || k != nodes || o.GetDeletionTimestamp() == nil)
		}
	}
	return true
}

func (p *play) act(ctx context.Context, a action) error {
	switch {
	case a.of == nil:
		if err := p.panicked(); err != nil {
			return err
		}
		return p.swap(ctx)
	case a.step == nil:
		return p.create(ctx, a.of)
	default:
		return p.do(ctx, a.of, *a.step)
	}
}

// reduce plays a round that failed again and again, with fewer and fewer objects, and prints the fewest with which the same is wrong.
func (p *play) reduce(t *testing.T, failed *round) {
	ctx := t.Context()
	deadline := time.Now().Add(*reducing)
	again := func(objects []*thrown) bool {
		r := &round{}
		p.look(ctx, r, lookOptions{settling: 8 * time.Second}, func(do func(action) error) error {
			for _, a := range failed.actions {
				if a.of != nil && !slices.Contains(objects, a.of) {
					continue
				}
				if err := do(a); err != nil && !apierrors.IsNotFound(err) {
					return err
				}
			}
			return nil
		})
		for kind := range r.kinds {
			if failed.kinds[kind] {
				return true
			}
		}
		return false
	}
	objects := failed.objects()
	if *reducing == 0 {
		seeds.Report(t, seeds.First(), []string{"All objects:", asYAML(failed, objects)})
		return
	}
	if !again(objects) {
		seeds.Report(t, seeds.First(), []string{"All objects; it does not happen again with them in the same order:", asYAML(failed, objects)})
		return
	}
	for size := (len(objects) + 1) / 2; size > 0 && time.Now().Before(deadline); {
		smaller := false
		for from := 0; from < len(objects) && time.Now().Before(deadline); {
			rest := slices.Concat(objects[:from], objects[min(from+size, len(objects)):])
			if again(rest) {
				objects, smaller = rest, true
			} else {
				from += size
			}
		}
		if size == 1 && !smaller {
			break
		}
		size = max(1, size/2)
	}
	seeds.Report(t, seeds.First(), []string{fmt.Sprintf("The same happens with these %d objects:", len(objects)), asYAML(failed, objects)})
}

// mostYAML is how much of one object is printed.
const mostYAML = 8000

// asYAML writes objects so that kubectl takes them, and what else was done as comments.
func asYAML(r *round, objects []*thrown) string {
	var b strings.Builder
	for _, a := range r.actions {
		switch {
		case a.of == nil:
			b.WriteString("# the other program takes over\n")
		case !slices.Contains(objects, a.of):
		case a.step != nil:
			fmt.Fprintf(&b, "# kubectl %s %s %s", a.step.verb, a.of.resource.Resource, a.of.name())
			if a.step.patch != "" {
				fmt.Fprintf(&b, " --type=merge --patch '%.500s'", a.step.patch)
			}
			b.WriteByte('\n')
		default:
			text, err := yaml.Marshal(a.of.object.Object)
			if err != nil {
				text = []byte(err.Error())
			}
			if len(text) > mostYAML {
				text = append(text[:mostYAML:mostYAML], "\n# and so on\n"...)
			}
			fmt.Fprintf(&b, "--- # %s\n%s", namesOf(a.of.with), text)
		}
	}
	return b.String()
}

func (p *play) report(t *testing.T, rounds int) {
	s := p.checker.Summary()
	t.Logf("%d rounds, %d objects; %d Nodes were served, %d were pending at rest; the last witness was served in %d rounds", rounds, p.objects, s.Served, p.pending, p.served)
	for _, k := range p.decks {
		t.Logf("%s: the API server accepted %d of %d, with %d extremes", k.gvk.Kind, k.stored, k.tried, len(k.dealt))
		for _, with := range slices.Sorted(maps.Keys(k.refused)) {
			t.Logf("  refused with %s: %.300s", with, k.refused[with])
		}
	}
}
