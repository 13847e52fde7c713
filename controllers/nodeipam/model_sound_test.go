package nodeipam

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
)

// What the state of the model has of the structs that carry what happens next, and why it lacks the rest. A field that is new is in none of
// the lists: TestModelKnowsAllFields fails until somebody has decided.
var modelFields = map[string]struct {
	of  any
	in  string // written by model_state_test.go
	out string
}{
	"fence": {lease.Fence{}, "renewed duration stamps deposed ended open",
		// clocks, name, holder never change; mu is free; idle follows from ended and open; refusing is for the log; acquired and renewals are
		// for a restored etcd, and term for what another allocator has sent, of which the model has none; there is no lease around this one; and no
		// clock is set back, so the times of renewals are those that the elector wants.
		"clocks mu name holder idle refusing acquired renewals term aroundExpires aroundRead aroundLeft sending shown"},
	"election": {election{}, "lock fence tried renewed renewalSent observed observedAt released", ""},
	"process": {process{}, "asleep election controller caches queues tasks asOf serving stopping seen lastSaid",
		// turns is empty between two moves but for Nodes that need blocks, which follow from seen; w, flags, shifted, paused never change in the model, and asleep is in the ages by both clocks; a name is a rank; nothing
		// panics, so nothing is broken or rebuilt; no cache is mute; chosen is for events, which are not worked on; no list is heard late, and no watch breaks off.
		"w name turns listedFirst missed caughtUp unsent chosen flags shifted paused broken rebuilt mute"},
	"simServer": {simServer{}, "changes objects events lease",
		// policy is the setting's; uids makes names; applied is in the status, which nobody else writes here; the rest never changes.
		"crdGone now uids policy applied onPodCIDRs onFinalizers onFinalizerRemoved onAllocation dropsFinalizers keepsFinalizers dropsPodCIDRs altered"},
	"simQueue": {simQueue{}, "waiting processing delayed failures",
		// next is read at once; processing is the tasks; yields never changes.
		"TypedRateLimitingInterface p next yields"},
	"call": {call{}, "task what over arrived answer",
		"handle"}, // is in the content that the model hears
	"book": {allocator.State{}, "ledger pools nodes pending gaveWay",
		// No Node has addresses; the ClusterCIDR never changes, so candidates, terminating and awaitingFinalizer do not either; names, stats and revocable follow from
		// nodes and ledger, and line from pending; notFull saves work and changes no choice; touched, vacated, poolsChanged, putOff and recheck are empty whenever nobody holds the state; no etcd is restored, so
		// there are no doubts.
		"addresses near candidates notFull terminating awaitingFinalizer names stats line touched vacated poolsChanged putOff recheck revocable doubts"},
	"nodeEntry": {elementOf(allocator.State{}, "nodes"), "uid pool state writes reported",
		// No Node has addresses. tried, answered, atStart and other are for a finding that the model does not ask for.
		"addresses tried answered atStart other"},
	"writes": {pointedTo(elementOf(allocator.State{}, "nodes"), "writes"), "unansweredUntil failingSince stored storedAt read readAfter",
		// gaveWay is for an order of more than two Nodes, no etcd is restored, and there is one ClusterCIDR, which all reservations are from.
		"gaveWay wentBack from"},
	"waitingNode": {elementOf(allocator.State{}, "pending"), "uid said",
		// The one ClusterCIDR refuses for one reason.
		"refusals last why"},
	"Controller": {Controller{}, "nodeQueue state filled",
		// Statuses, ClusterCIDRs and events are not worked on in the model, and nothing depends on them; health, firstSeen and broken are for
		// people; nothing panics; the ClusterCIDR is never deleted, so none is gone; events are handled as soon as the cache has them, so heardVersion is its and listed is empty; no watch breaks off, so seen misses nothing, and mayBeInUse is empty; the rest never changes.
		"api client clusterCIDRClient dynamic now flags primary workers identity fence nodes clusterCIDRs serviceCIDRs informers synced nodesAsOf nodesVersion clusterCIDRsVersion " +
			"clusterCIDRQueue statusQueue mu statusWritten statusQueued health firstSeen broken breaking " +
			"heardVersion witness stopHearing term leaseOfItsOwn takeoverDelay eventQueue entering selectors torn finalizerTries storedOtherwise stays goesSince awaited announcer earlier gone listed mayBeInUse reads readNodes seen"},
}

// pointedTo returns the type of the struct to which a field of a struct points.
func pointedTo(of reflect.Type, field string) reflect.Type {
	f, ok := of.FieldByName(field)
	if !ok {
		panic("no field " + field)
	}
	return f.Type.Elem()
}

// elementOf returns the type of the structs in a map that is a field.
func elementOf(of any, field string) reflect.Type {
	f, ok := reflect.TypeOf(of).FieldByName(field)
	if !ok {
		panic("no field " + field)
	}
	if e := f.Type.Elem(); e.Kind() == reflect.Pointer {
		return e.Elem()
	}
	return f.Type.Elem()
}

func TestModelKnowsAllFields(t *testing.T) {
	for name, known := range modelFields {
		judged := append(strings.Fields(known.in), strings.Fields(known.out)...)
		var all []string
		of, ok := known.of.(reflect.Type)
		if !ok {
			of = reflect.TypeOf(known.of)
		}
		for field := range of.Fields() {
			all = append(all, field.Name)
		}
		for _, f := range all {
			if !slices.Contains(judged, f) {
				t.Errorf("%s.%s is new: if what happens next depends on it, write it in model_state_test.go; say in modelFields what you did", name, f)
			}
		}
		for _, f := range judged {
			if !slices.Contains(all, f) {
				t.Errorf("%s.%s is gone: take it out of modelFields", name, f)
			}
		}
	}
}

// soundSetting is small, and has faults of several kinds.
var soundSetting = setting{name: "sound", world: "deadlines", clusterCIDR: oneBlock, tick: "5000", prefix: []string{"work p1 n1", "slow p1 n1"}, faults: 1, depth: 4}

// unsound looks at histories that lead to the same state, and says in what their futures differ; empty if they do not.
func unsound(s setting, omit string, every int) string {
	x := &exploration{setting: s, omit: omit, every: every, calm: -1}
	x.run(*modelMost)
	for _, p := range x.again {
		if d := x.different(p); d != "" {
			return d
		}
	}
	return ""
}

// TestModelStatesAreSound takes pairs of histories that lead to the same state and compares what each move after them leads to. If two
// worlds with different futures were one state, the model would not explore one of them.
func TestModelStatesAreSound(t *testing.T) {
	if d := unsound(soundSetting, "", 7); d != "" {
		t.Error(d)
	}
}

// TestModelStatesNeedTheirFields leaves one field after another out of the state, and wants that to be noticed.
func TestModelStatesNeedTheirFields(t *testing.T) {
	for _, omitted := range []string{"process", "network", "task", "troubled"} {
		t.Run(omitted, func(t *testing.T) {
			t.Parallel()
			if unsound(soundSetting, omitted, 1) == "" {
				t.Errorf("nobody notices that the state lacks %s", omitted)
			}
		})
	}
}
