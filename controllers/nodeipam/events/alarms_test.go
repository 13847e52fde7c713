package events

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// ready is a status whose condition Ready has this reason, and the message after it if there is a slash.
func ready(reason string) (status networkingv1.ClusterCIDRStatus) {
	if reason, message, _ := strings.Cut(reason, "/"); reason != "" {
		status.Conditions = []metav1.Condition{{Type: networkingv1.ConditionReady, Reason: reason, Message: message}}
	}
	return status
}

// TestAlarms: one event is due for each state that somebody should look at, from when a ClusterCIDR enters it until it is stored or over.
func TestAlarms(t *testing.T) {
	type step struct {
		uid, shows, is string // the ClusterCIDR, the reason in its status, and what it should be
		unused         bool
		event          string // that is to be queued
		due            string // the message of the event about is; empty if it is not due
		stored         bool   // afterwards
	}
	for name, steps := range map[string][]step{
		"all is well":                         {{is: "Ready"}},
		"there is no status yet":              {{is: ""}},
		"it is full":                          {{is: "Exhausted/1 of 1", event: ReasonExhausted, due: "1 of 1"}},
		"an earlier process has said so":      {{shows: "Exhausted/1 of 1", is: "Exhausted/1 of 1"}},
		"the status was written first":        {{is: "Exhausted/1 of 1", event: ReasonExhausted, due: "1 of 1"}, {shows: "Exhausted", is: "Exhausted/2 of 2", due: "2 of 2"}},
		"it is stored":                        {{is: "Exhausted/1 of 1", event: ReasonExhausted, due: "1 of 1", stored: true}, {is: "Exhausted/1 of 1"}},
		"it is over before that":              {{is: "Exhausted/1 of 1", event: ReasonExhausted, due: "1 of 1"}, {is: "Ready"}},
		"full twice":                          {{is: "Exhausted/a", event: ReasonExhausted, due: "a", stored: true}, {is: "Ready"}, {is: "Exhausted/b", event: ReasonExhausted, due: "b"}},
		"another one of this name":            {{is: "Invalid/a", event: ReasonInvalid, due: "a", stored: true}, {uid: "2", is: "Invalid/b", event: ReasonInvalid, due: "b"}},
		"it is in another state by now":       {{is: "Pending/a", event: ReasonFinalizerMissing, due: "a"}, {is: "Invalid/b", event: ReasonInvalid, due: "b"}},
		"it is deleted, and Nodes use it":     {{is: "Terminating/3 Nodes", event: ReasonDeletionBlocked, due: "3 Nodes"}},
		"it is deleted, and no Node uses it":  {{is: "Terminating/0 Nodes", unused: true}},
		"the last Node has stopped to use it": {{is: "Terminating/a", event: ReasonDeletionBlocked, due: "a"}, {is: "Terminating/b", unused: true}},
	} {
		t.Run(name, func(t *testing.T) {
			alarms := Alarms{}
			for i, s := range steps {
				cc := &networkingv1.ClusterCIDR{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: types.UID(s.uid)}, Status: ready(s.shows)}
				if event := alarms.Enter(cc, ready(s.is), func(string) bool { return !s.unused }); event != s.event {
					t.Errorf("step %d: event %q, want %q", i, event, s.event)
				}
				of, _, _ := strings.Cut(s.is, "/")
				about, message, due := alarms.Due("a", alarmReasons[of])
				if due != (s.due != "") || due && (message != s.due || string(about.UID) != s.uid) {
					t.Errorf("step %d: due %t, %q about %v; want %q", i, due, message, about, s.due)
				}
				if s.stored {
					alarms.Stored(OfClusterCIDR("a", "gone"), s.event)
					if _, _, due := alarms.Due("a", s.event); !due {
						t.Errorf("step %d: an event about the one before counts", i)
					}
					alarms.Stored(about, s.event)
				}
			}
		})
	}
}
