package events

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// Alarms has the alarm about each ClusterCIDR, by name, for as long as the ClusterCIDR stays in that state. They are remembered here, so the
// write of a status need not wait for the event. If the process ends in between, the event is lost, but the status condition says the same.
// Not safe for concurrent use.
type Alarms map[string]alarm

// alarm says that a ClusterCIDR entered a state that somebody should look at.
type alarm struct {
	uid             types.UID
	reason, message string
	stored          bool // as an event
}

// Enter notes the state of a ClusterCIDR: now is the status that it should have. It returns the reason of the event to write, once, when the
// ClusterCIDR enters that state; empty for none. There is none for a deletion while no Node uses the ClusterCIDR.
func (a Alarms) Enter(cc *networkingv1.ClusterCIDR, now networkingv1.ClusterCIDRStatus, inUse func(name string) bool) (event string) {
	before, _ := alarmOf(cc.Status)
	reason, message := alarmOf(now)
	if reason == ReasonDeletionBlocked && !inUse(cc.Name) {
		reason = ""
	}
	known, ok := a[cc.Name]
	ok = ok && known.uid == cc.UID && known.reason == reason
	switch {
	case reason == "":
		delete(a, cc.Name)
	case ok:
		known.message = message
		a[cc.Name] = known
	case before == reason:
		delete(a, cc.Name) // An earlier process has reported it.
	default:
		a[cc.Name] = alarm{uid: cc.UID, reason: reason, message: message}
		return reason
	}
	return ""
}

// Due returns what an event about a ClusterCIDR says. It is not due if it is stored, or if the ClusterCIDR is in another state by now.
func (a Alarms) Due(name, reason string) (about v1.ObjectReference, message string, due bool) {
	now, ok := a[name]
	return OfClusterCIDR(name, now.uid), now.message, ok && now.reason == reason && !now.stored
}

// Stored notes that an event about a ClusterCIDR is stored.
func (a Alarms) Stored(about v1.ObjectReference, reason string) {
	if now, ok := a[about.Name]; ok && now.uid == about.UID && now.reason == reason {
		now.stored = true
		a[about.Name] = now
	}
}

func alarmOf(status networkingv1.ClusterCIDRStatus) (reason, message string) {
	ready := meta.FindStatusCondition(status.Conditions, networkingv1.ConditionReady)
	if ready == nil {
		return "", ""
	}
	return alarmReasons[ready.Reason], ready.Message
}

// alarmReasons are event reasons, by those reasons of the condition Ready that need somebody's attention.
var alarmReasons = map[string]string{
	networkingv1.ReasonExhausted:   ReasonExhausted,
	networkingv1.ReasonInvalid:     ReasonInvalid,
	networkingv1.ReasonTerminating: ReasonDeletionBlocked,
	networkingv1.ReasonPending:     ReasonFinalizerMissing,
}
