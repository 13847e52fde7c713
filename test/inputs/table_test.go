package inputs

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// extreme is an entry of a table: one field of an object of type T with a value that is at an end of what is possible.
type extreme[T any] struct {
	// An object has at most one extreme of each field. They are set in the order of the table, so that one can build on those before it.
	field string
	name  string
	set   func(o *T, d *dice)
	// sloppy: an API server that is strict about IP addresses and CIDRs refuses it.
	sloppy bool
	// swallows: while such an object is there, hardly anything is free for anybody. It is in few rounds only.
	swallows bool
}

// entry is an extreme of whatever type.
type entry struct {
	field, name      string
	swallows, sloppy bool
	set              func(o any, d *dice)
}

// kind is a kind of object that is thrown. Another one, say of reservations, needs no more than its tables.
type kind struct {
	name     string // also the beginning of the names of its objects
	resource schema.GroupVersionResource
	gvk      schema.GroupVersionKind
	share    int // how many of a round are of this kind
	table    []entry
	// ordinary returns an object without anything extreme.
	ordinary func(name string, d *dice) runtime.Object
}

func newKind[T any](name string, gvr schema.GroupVersionResource, object string, share int, ordinary func(name string, d *dice) *T, table []extreme[T]) *kind {
	k := &kind{
		name: name, resource: gvr, gvk: gvr.GroupVersion().WithKind(object), share: share,
		ordinary: func(name string, d *dice) runtime.Object { return any(ordinary(name, d)).(runtime.Object) },
	}
	for _, e := range table {
		k.table = append(k.table, entry{e.field, e.name, e.swallows, e.sloppy, func(o any, d *dice) { e.set(o.(*T), d) }})
	}
	return k
}

// dice is where all chance comes from, and what else an object is made with.
type dice struct {
	*rand.Rand
	number int // of the object, no other one in the round has it
	after  []step
}

// then adds something that is done with the object some time after its creation.
func (d *dice) then(s step) { d.after = append(d.after, s) }

func pickOf[T any](d *dice, of ...T) T { return of[d.IntN(len(of))] }

// step is something that is done with an object that is there.
type step struct {
	verb  verb
	patch string // JSON to be merged
}

type verb string

const (
	patchObject  verb = "patch"
	patchStatus  verb = "patch --subresource=status"
	deleteObject verb = "delete --wait=false"
)

func merge(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // our own constants
	}
	return string(text)
}

// thrown is an object and what is done with it.
type thrown struct {
	*kind
	object *unstructured.Unstructured
	with   []entry
	after  []step
}

func (t *thrown) name() string { return t.object.GetName() }

// build makes an object with the given extremes, which have to be in the order of the table.
func (k *kind) build(with []entry, d *dice) *thrown {
	d.after = nil
	o := k.ordinary(fmt.Sprintf("%s-%d", k.name, d.number), d)
	for _, e := range with {
		e.set(o, d)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(k.gvk)
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	return &thrown{kind: k, object: u, with: with, after: d.after}
}

// deck deals the extremes of a table in random order, each as often as the others.
type deck struct {
	*kind
	strict  bool
	left    []entry
	dealt   map[string]int // how often each was in an object that the API server accepted
	tried   int
	stored  int
	refused map[string]string // what it said, by the extreme that it did not accept even alone
}

func newDeck(k *kind, strict bool) *deck {
	return &deck{kind: k, strict: strict, dealt: map[string]int{}, refused: map[string]string{}}
}

// refuses reports whether the API server refuses an extreme.
func (k *deck) refuses(e entry) bool { return k.strict && e.sloppy }

// deal returns up to n extremes of different fields, in the order of the table.
func (k *deck) deal(n int, swallow bool, d *dice) []entry {
	taken := map[string]bool{}
	for range n {
		i := k.next(taken, swallow)
		if i < 0 {
			k.refill(d)
			if i = k.next(taken, swallow); i < 0 {
				break
			}
		}
		taken[k.left[i].field] = true
		taken["="+k.left[i].name] = true
		k.left = append(k.left[:i:i], k.left[i+1:]...)
	}
	var with []entry
	for _, e := range k.table {
		if taken["="+e.name] {
			with = append(with, e)
		}
	}
	return with
}

// next returns the first that is left and can be in an object with the fields that are taken; -1 if none can.
func (k *deck) next(taken map[string]bool, swallow bool) int {
	for i, e := range k.left {
		if !taken[e.field] && (swallow || !e.swallows) {
			return i
		}
	}
	return -1
}

// refill adds all extremes of which none is left, those first that no object had so far.
func (k *deck) refill(d *dice) {
	left := map[string]bool{}
	for _, e := range k.left {
		left[e.name] = true
	}
	var fresh, again []entry
	for _, i := range d.Perm(len(k.table)) {
		switch e := k.table[i]; {
		case left[e.name] || k.refuses(e):
		case k.dealt[e.name] == 0:
			fresh = append(fresh, e)
		default:
			again = append(again, e)
		}
	}
	k.left = append(append(k.left, fresh...), again...)
}

// missing are the extremes that no object had that the API server accepted.
func (k *deck) missing() []string {
	var names []string
	for _, e := range k.table {
		if !k.refuses(e) && k.dealt[e.name] == 0 {
			names = append(names, k.name+": "+e.name)
		}
	}
	return names
}

// Values that more than one kind has.

// longName is as long as a name may be, and no other object of the round has it.
func longName(d *dice) string {
	name := fmt.Sprintf("x%d.", d.number)
	for len(name) < 253 {
		name += strings.Repeat("y", min(63, 253-len(name)-1)) + "."
	}
	return name[:252] + "z"
}

const foreignFinalizer = "inputs.example.com/hold"

func many(n int, of func(i int) string) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = of(i)
	}
	return all
}

func manyLabels(n int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels[fmt.Sprintf("l%d.example.com/%s", i, strings.Repeat("k", 40))] = strings.Repeat("v", 63)
	}
	return labels
}
