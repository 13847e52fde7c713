package shell

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
)

// listener is a Logic that builds its state from what it hears alone.
type listener struct {
	t     *testing.T
	store *Store[*v1beta2.IPAddress]
	state map[types.UID]string // resource versions
}

func (l *listener) Reads() []Source { return []Source{l.store} }

func (l *listener) Fill() {
	for _, o := range l.store.List() {
		l.state[o.UID] = o.ResourceVersion
	}
}

func (l *listener) Heard(c Change) {
	if c.Before != nil && c.Now != nil && c.Before.GetUID() != c.Now.GetUID() {
		l.t.Errorf("one change is about two objects, %s and %s", c.Before.GetUID(), c.Now.GetUID())
	}
	if is, ok := l.state[c.Object().GetUID()]; ok && (c.Before == nil || c.Before.GetResourceVersion() != is) || !ok && c.Before != nil && c.Now != nil {
		l.t.Errorf("before %v: %v, and it heard of %q", c.Now, c.Before, is)
	}
	if c.Now == nil {
		delete(l.state, c.Before.GetUID())
		return
	}
	if is := l.state[c.Now.GetUID()]; is != "" && newer(&metav1.ObjectMeta{ResourceVersion: is}, c.Now.GetResourceVersion()) {
		l.t.Errorf("%s goes back from %s to %s", c.Now.GetUID(), is, c.Now.GetResourceVersion())
	}
	l.state[c.Now.GetUID()] = c.Now.GetResourceVersion()
}

func (l *listener) Sync(context.Context, Key) error { return nil }
func (l *listener) Show() any                       { return nil }
func (l *listener) Figures() Figures                { return Figures{} }

func address(name string, uid, version int) *v1beta2.IPAddress {
	return &v1beta2.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(strconv.Itoa(uid)), ResourceVersion: strconv.Itoa(version)}}
}

// TestHistories: whatever the order in which the watch and the answers of this process's own writes arrive, and whatever the watch misses, the
// Store never goes back behind such an answer, and in the end Store and state are what the API server has.
func TestHistories(t *testing.T) {
	type event struct {
		object *v1beta2.IPAddress
		gone   bool
	}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		store := NewStore[v1beta2.IPAddress](Reads{Kind: IPAddresses})
		logic := &listener{t: t, store: store, state: map[types.UID]string{}}
		feed := Feed{Lock: &Lock{}, Logic: logic}
		var (
			server  = map[string]*v1beta2.IPAddress{}
			watch   []event              // not delivered yet
			answers []*v1beta2.IPAddress // of own writes, not arrived yet
			version = 100
			uid     = 0
		)
		s := &sink{
			shows:     func(o metav1.Object) { feed.Shows(store, o) },
			gone:      func(o metav1.Object) { feed.Gone(store, o) },
			known:     store.known,
			listed:    store.listed,
			goneSince: func(o metav1.Object) { feed.Gone(store, o) },
			synced:    make(chan struct{}),
		}
		deliver := func() {
			e := watch[0]
			if watch = watch[1:]; e.gone {
				_ = s.Delete(e.object)
			} else {
				_ = s.Add(e.object)
			}
		}
		relist := func() {
			var all []any
			for _, o := range server {
				all = append(all, o)
			}
			watch = nil
			_ = s.Replace(all, strconv.Itoa(version))
		}
		relist()
		feed.Fill()
		for range 40 {
			name := string(rune('a' + r.IntN(3)))
			version++
			switch o := server[name]; {
			case r.IntN(3) == 0 && len(watch) > 0:
				deliver()
			case r.IntN(3) == 0 && len(answers) > 0:
				answer := answers[0]
				answers = answers[1:]
				store.wrote(answer)
				if shown, ok := store.Get("n", answer.Name); ok && shown.UID == answer.UID && newer(answer, shown.ResourceVersion) {
					t.Errorf("seed %d: the Store shows %s of %s after the answer %s", seed, shown.ResourceVersion, answer.Name, answer.ResourceVersion)
				}
			case r.IntN(12) == 0:
				relist()
			case o == nil || r.IntN(3) > 0:
				if o == nil {
					uid++
					o = address(name, uid, version)
				} else {
					o = address(name, must(strconv.Atoi(string(o.UID))), version)
				}
				server[name] = o
				if watch = append(watch, event{object: o}); r.IntN(2) == 0 {
					answers = append(answers, o)
				}
			default:
				delete(server, name)
				watch = append(watch, event{address(name, must(strconv.Atoi(string(o.UID))), version), true})
			}
		}
		for _, answer := range answers {
			store.wrote(answer)
		}
		for len(watch) > 0 {
			deliver()
		}
		want := map[types.UID]string{}
		for _, o := range server {
			want[o.UID] = o.ResourceVersion
		}
		shown := map[types.UID]string{}
		for _, o := range store.List() {
			shown[o.UID] = o.ResourceVersion
		}
		if diff := cmp.Diff(want, shown); diff != "" {
			t.Fatalf("seed %d: the Store (-want +got):\n%s", seed, diff)
		}
		if diff := cmp.Diff(want, logic.state); diff != "" {
			t.Fatalf("seed %d: the state (-want +got):\n%s", seed, diff)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestDecode: a field that cannot be read does not hide the others, which may hold an address.
func TestDecode(t *testing.T) {
	store := NewStore[v1beta2.IPAddress](Reads{Kind: IPAddresses})
	object := func(prefix any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "a", "uid": "1", "managedFields": []any{map[string]any{"manager": "m"}}},
			"spec":     map[string]any{"address": "10.0.0.5", "prefix": prefix},
		}}
	}
	for _, tc := range []struct {
		prefix any
		broken bool
	}{{int64(24), false}, {"24", true}, {int64(24), false}} {
		decoded, err := store.decode(object(tc.prefix))
		address := decoded.(*v1beta2.IPAddress)
		if (err != nil) != tc.broken || (store.Broken(address) != nil) != tc.broken {
			t.Errorf("prefix %v: error %v, broken %v", tc.prefix, err, store.Broken(address))
		}
		if address.Spec.Address != "10.0.0.5" || address.Name != "a" || address.ManagedFields != nil {
			t.Errorf("prefix %v: decoded %+v", tc.prefix, address)
		}
	}
}

// TestTornState: after a panic that left the state half changed, nothing decides from it any more.
func TestTornState(t *testing.T) {
	var l Lock
	func() {
		defer func() { _ = recover() }()
		l.With(func() { panic("in the middle") })
	}()
	defer func() {
		if r := recover(); fmt.Sprint(r) != ErrTorn.Error() {
			t.Errorf("panic %v, want %v", r, ErrTorn)
		}
	}()
	l.With(func() { t.Error("a torn state is used") })
}
