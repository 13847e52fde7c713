package shell

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Feed passes what a watch shows to a Logic: first to the Store of the kind, then, once it is filled, to Heard.
type Feed struct {
	Lock   *Lock
	Logic  Logic
	filled bool // guarded by Lock
}

// Fill calls Logic.Fill. Everything that exists must have been passed to Shows before.
func (f *Feed) Fill() {
	f.Lock.With(func() {
		f.filled = true
		f.Logic.Fill()
	})
}

// Wrote shows in the Store of a kind what the answer to a write says, before the watch does. The Logic hears of it when the watch shows it.
func (*Feed) Wrote(source Source, stored metav1.Object) { source.wrote(stored) }

// Shows passes on an object that is new or has changed. A watch can miss that an object was deleted and created again.
func (f *Feed) Shows(source Source, object metav1.Object) {
	f.Lock.With(func() {
		kind := source.Reads().Kind
		was, own := source.show(object)
		was = f.missed(kind, was, own)
		if was != nil && was.GetUID() != object.GetUID() {
			f.heard(Change{Kind: kind, Before: was})
			was = nil
		}
		f.heard(Change{Kind: kind, Before: was, Now: object})
	})
}

// Gone passes on that an object is gone. object is its last known state.
func (f *Feed) Gone(source Source, object metav1.Object) {
	f.Lock.With(func() {
		kind := source.Reads().Kind
		was, own := source.drop(object)
		if was = f.missed(kind, was, own); was == nil {
			was = object
		}
		f.heard(Change{Kind: kind, Before: was})
	})
}

// missed passes on what this process has written and the watch has missed: the Logic may have worked with it, because the Store showed it. It returns what the Logic has
// heard of last.
func (f *Feed) missed(kind *Kind, was, own metav1.Object) metav1.Object {
	if own == nil {
		return was
	}
	f.heard(Change{Kind: kind, Before: was, Now: own})
	return own
}

func (f *Feed) heard(c Change) {
	if f.filled {
		f.Logic.Heard(c)
	}
}
