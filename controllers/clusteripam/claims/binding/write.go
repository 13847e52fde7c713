package binding

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Verb is what a Write does.
type Verb int

const (
	Create Verb = iota
	// Patch is a merge patch. It fails if another object has taken the name.
	Patch
	// PatchVersion is a Patch that fails, too, if the object has changed since it was cached.
	PatchVersion
	// PatchStatus is a merge patch of the status. It fails if the object has changed since it was cached.
	PatchStatus
	// Delete deletes the object in the version that was cached.
	Delete
)

// Write is one request to the API server.
type Write struct {
	Verb Verb
	Kind string
	// Object is the one to create, or the cached one.
	Object metav1.Object
	// Changes are the fields of a patch; nil removes a field.
	Changes map[string]any
	// Events are told once the write is sent.
	Events []Event
}

// Event tells the users of the written object something.
type Event struct {
	Normal          bool // otherwise it is a warning
	Reason, Message string
}

// Finding is something that a condition with status True tells the users of an object, and an event when it begins.
type Finding struct {
	Type, Reason, Message string
	// Quiet: as a rule it ends within milliseconds, so there is no event.
	Quiet bool
}

// with returns the conditions of an object, in which those of the given types are replaced by the findings, and the events of new findings.
// changed is whether there is a difference. Conditions of other types stay.
func with(conditions []metav1.Condition, types []string, findings []Finding, now metav1.Time) (all []metav1.Condition, events []Event, changed bool) {
	all = slices.DeleteFunc(slices.Clone(conditions), func(c metav1.Condition) bool {
		return slices.Contains(types, c.Type) && !slices.ContainsFunc(findings, func(f Finding) bool { return f.Type == c.Type })
	})
	for _, f := range findings {
		c := metav1.Condition{Type: f.Type, Status: metav1.ConditionTrue, Reason: f.Reason, Message: f.Message, LastTransitionTime: now}
		if meta.SetStatusCondition(&all, c) && !f.Quiet {
			events = append(events, Event{Reason: f.Reason, Message: f.Message})
		}
	}
	return all, events, !equality.Semantic.DeepEqual(all, conditions)
}
