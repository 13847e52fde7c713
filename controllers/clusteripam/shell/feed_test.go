package shell

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/internal/race"
)

var (
	seedsFlag = flag.Uint64("histories.seeds", race.Part(uint64(2000)), "how many histories TestHistories makes")
	firstFlag = flag.Uint64("histories.first", 0, "seed of the first history")
)

// listener is a Logic that builds its state from what it hears alone.
type listener struct {
	t     *testing.T
	store *Store[*v1beta2.IPAddress]
	state map[types.UID]string // resource versions
	heard map[string]bool      // UIDs with resource versions
}

func (l *listener) Reads() []Source { return []Source{l.store} }

func (l *listener) Fill() {
	for _, o := range l.store.List() {
		l.state[o.UID] = o.ResourceVersion
		l.heard[versionOf(o)] = true
	}
}

func versionOf(o metav1.Object) string { return string(o.GetUID()) + "@" + o.GetResourceVersion() }

func (l *listener) Heard(c Change) {
	if c.Before == nil && c.Now == nil {
		l.t.Fatal("a change of nothing")
	}
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
	l.heard[versionOf(c.Now)] = true
}

func (l *listener) Sync(context.Context, Key) error { return nil }
func (l *listener) Show() any                       { return nil }
func (l *listener) Figures() Figures                { return Figures{} }

// version is one version of an object as the API server has stored it, or its end.
type version struct {
	name   string
	uid    int
	at     int // the resource version
	broken bool
	gone   bool
}

func (v version) raw() *unstructured.Unstructured {
	prefix := any(int64(24))
	if v.broken {
		prefix = "24"
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "n", "name": v.name, "uid": strconv.Itoa(v.uid), "resourceVersion": strconv.Itoa(v.at)},
		"spec":     map[string]any{"prefix": prefix},
	}}
}

// answer is v as a write of this process gets it.
func (v version) answer() *v1beta2.IPAddress {
	return &v1beta2.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: v.name, UID: types.UID(strconv.Itoa(v.uid)), ResourceVersion: strconv.Itoa(v.at)}}
}

// history is an API server with three names, which others and this process write to, and a Store with its Logic. What the watch shows and the answers
// of this process's own writes are late, each on its own.
type history struct {
	t     *testing.T
	r     *rand.Rand
	store *Store[*v1beta2.IPAddress]
	logic *listener
	feed  Feed
	sink  *sink

	past    []version // all that was written, in order
	stored  map[string]version
	uids    int
	answers []version // of own writes, which have not arrived

	// The slow reference: what the watch has shown, up to which resource version, and the answers that have arrived.
	shown    map[string]version
	upTo     int
	arrived  []version
	pending  []version // what the watch has yet to show
	list     map[string]version
	listedAt int // of a list that is on its way; 0 if there is none
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{t: t, r: rand.New(rand.NewPCG(seed, 1)), stored: map[string]version{}, shown: map[string]version{}}
	h.store = NewStore[v1beta2.IPAddress](Reads{Kind: IPAddresses})
	h.logic = &listener{t: t, store: h.store, state: map[types.UID]string{}, heard: map[string]bool{}}
	h.feed = Feed{Lock: &Lock{}, Logic: h.logic}
	decode := func(o metav1.Object) metav1.Object {
		decoded, _ := h.store.decode(o.(*unstructured.Unstructured))
		h.meanwhile()
		return decoded
	}
	h.sink = &sink{
		shows: func(o metav1.Object) { h.feed.Shows(h.store, decode(o)) },
		gone:  func(o metav1.Object) { h.feed.Gone(h.store, decode(o)) },
		known: func() []metav1.Object {
			h.meanwhile()
			defer h.meanwhile()
			return h.store.known()
		},
		listed: func(version string) {
			h.meanwhile()
			h.store.listed(version)
		},
		goneSince: func(o metav1.Object) {
			h.feed.Gone(h.store, o)
			h.meanwhile()
		},
		synced: make(chan struct{}),
	}
	return h
}

// write stores a version, or the end of an object, and returns it.
func (h *history) write(v version) version {
	v.at = 100 + len(h.past)
	h.past, h.pending = append(h.past, v), append(h.pending, v)
	if h.stored[v.name] = v; v.gone {
		delete(h.stored, v.name)
	}
	return v
}

// changes lets somebody write.
func (h *history) changes() {
	name := string(rune('a' + h.r.IntN(3)))
	own := h.r.IntN(2) == 0
	is, exists := h.stored[name]
	broken := !own && h.r.IntN(6) == 0
	switch {
	case !exists:
		h.uids++
		is = h.write(version{name: name, uid: h.uids, broken: broken})
	case h.r.IntN(3) == 0:
		h.write(version{name: name, uid: is.uid, broken: is.broken, gone: true})
		own = own && h.r.IntN(2) == 0 // It has removed the last finalizer: the answer is what there was before. That of a DELETE has no object.
	default:
		is = h.write(version{name: name, uid: is.uid, broken: broken})
	}
	if own && !is.broken {
		h.answers = append(h.answers, is)
	}
}

// answer lets the answer to one of the writes arrive, or drops it: a write may time out.
func (h *history) answer() {
	if len(h.answers) == 0 {
		return
	}
	i := h.r.IntN(len(h.answers))
	v := h.answers[i]
	if h.answers = slices.Delete(h.answers, i, i+1); h.r.IntN(6) > 0 {
		h.feed.Wrote(h.store, v.answer())
		h.arrived = append(h.arrived, v)
	}
}

// meanwhile lets an answer arrive while the watch is being passed on.
func (h *history) meanwhile() {
	if h.r.IntN(8) == 0 {
		h.answer()
	}
}

// deliver passes on the next event, or the list that is on its way.
func (h *history) deliver() {
	switch {
	case h.listedAt > 0:
		h.replace()
	case len(h.pending) > 0:
		v := h.pending[0]
		h.pending = h.pending[1:]
		if h.upTo, h.shown[v.name] = v.at, v; v.gone {
			delete(h.shown, v.name)
			_ = h.sink.Delete(v.raw())
			return
		}
		_ = h.sink.Add(v.raw())
	}
}

// relist ends the watch: the API server sends a list, which says what there is now. What is written after that a new watch shows after the list.
func (h *history) relist() {
	h.list, h.listedAt, h.pending = maps.Clone(h.stored), 100+len(h.past)-1, nil
}

func (h *history) replace() {
	var all []any
	for _, v := range h.list {
		all = append(all, v.raw())
	}
	h.shown, h.upTo, h.listedAt = h.list, h.listedAt, 0
	before := h.store.List()
	_ = h.sink.Replace(all, strconv.Itoa(h.upTo))
	for _, o := range before { // The Logic may have worked with what the Store showed.
		at := must(strconv.Atoi(o.ResourceVersion))
		later := slices.ContainsFunc(h.arrived, func(v version) bool { return v.name == o.Name && v.at > at }) // Then the Store may have shown another one since.
		if at <= h.upTo && h.feed.filled && !later && !h.logic.heard[versionOf(o)] {
			h.t.Errorf("the Logic has never heard of %s, which the Store has shown", versionOf(o))
		}
	}
}

// wanted is what the Store shows: what the watch has shown, or an answer that is newer than everything that the watch has shown.
func (h *history) wanted() map[types.UID]string {
	last := maps.Clone(h.shown)
	for _, v := range h.arrived {
		if v.at > h.upTo && v.at >= last[v.name].at {
			last[v.name] = v
		}
	}
	return versions(last)
}

func versions(of map[string]version) map[types.UID]string {
	all := map[types.UID]string{}
	for _, v := range of {
		all[types.UID(strconv.Itoa(v.uid))] = strconv.Itoa(v.at)
	}
	return all
}

func (h *history) check() {
	is := map[types.UID]string{}
	for _, o := range h.store.List() {
		is[o.UID] = o.ResourceVersion
	}
	if diff := cmp.Diff(h.wanted(), is); diff != "" {
		h.t.Errorf("the Store (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(versions(h.shown), h.logic.state); h.feed.filled && diff != "" {
		h.t.Errorf("the state (-want +got):\n%s", diff)
	}
}

// end lets everything arrive.
func (h *history) end() {
	for len(h.answers) > 0 || h.listedAt > 0 || len(h.pending) > 0 {
		h.answer()
		h.deliver()
	}
	h.check()
	if len(h.store.behind) > 0 {
		h.t.Errorf("the watch has shown everything, and of these objects the Store thinks that it has not: %v", h.store.behind)
	}
	broken := map[types.UID]bool{}
	for _, v := range h.stored {
		if v.broken {
			broken[types.UID(strconv.Itoa(v.uid))] = true
		}
	}
	is := map[types.UID]bool{}
	for uid := range h.store.broken {
		is[uid] = true
	}
	if diff := cmp.Diff(broken, is); diff != "" {
		h.t.Errorf("what is broken (-want +got):\n%s", diff)
	}
}

// TestHistories: whatever the order in which the watch, lists and the answers of this process's own writes arrive, and whatever the watch misses, the
// Store never goes back behind such an answer, the state is what the watch has shown, and in the end both are what the API server has.
func TestHistories(t *testing.T) {
	for seed := *firstFlag; seed < *firstFlag+*seedsFlag; seed++ {
		h := newHistory(t, seed)
		h.play()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func (h *history) play() {
	for range h.r.IntN(5) {
		h.changes()
	}
	h.answers = nil // Those of an earlier process.
	h.relist()
	h.deliver()
	h.feed.Fill()
	for range 60 {
		switch h.r.IntN(12) {
		case 0, 1, 2, 3:
			h.changes()
		case 4, 5, 6:
			h.answer()
		case 7:
			if h.listedAt == 0 {
				h.relist()
			}
		default:
			h.deliver()
		}
		h.check()
	}
	h.end()
}

// TestAnswerDuringAList: the answer to a write, of an object that is deleted since, arrives while a list is passed on that does not have it any more. Nothing else
// would ever tell that the object is gone.
func TestAnswerDuringAList(t *testing.T) {
	h := newHistory(t, 0)
	was := version{name: "a", uid: 1, at: 5}
	shows := h.sink.shows
	h.sink.shows = func(o metav1.Object) {
		shows(o)
		h.feed.Wrote(h.store, was.answer())
	}
	_ = h.sink.Replace([]any{version{name: "b", uid: 2, at: 4}.raw()}, "7")
	if o, ok := h.store.Get("n", "a"); ok {
		t.Errorf("the Store shows what is gone, of version %s", o.ResourceVersion)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestDecode: a field that cannot be read does not hide the others, which may hold an address. The object in the Store is broken as long as it is that one.
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
	}{{int64(24), false}, {"24", true}, {"25", true}, {int64(24), false}} {
		before, shown := store.Get("", "a")
		was := shown && store.Broken(before) != nil
		decoded, err := store.decode(object(tc.prefix))
		if was && store.Broken(before) == nil {
			t.Errorf("prefix %v: what the Store shows, %v, counts as whole", tc.prefix, before.Spec)
		}
		store.show(decoded)
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
