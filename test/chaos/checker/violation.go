package checker

import (
	"fmt"
	"strings"
	"time"
)

// Rule is what a violation is of.
type Rule string

const (
	// Overlap: a Node was served addresses that another live Node has.
	Overlap Rule = "overlap"
	// EarlyReuse: the same, and the other Node is being deleted and not gone.
	EarlyReuse Rule = "early reuse"
	// ServiceRange: a Node was served addresses of a service range.
	ServiceRange Rule = "service range"
	// Changed: podCIDRs that were set became others.
	Changed Rule = "changed podCIDRs"
	// OutsideRange: what a Node was served is not one block of each range that it is said to come from.
	OutsideRange Rule = "outside range"
	// NoSource: a Node was served from a ClusterCIDR that does not exist, or does not say from which.
	NoSource Rule = "no source"
	// NotAllowed: a Node was served from a ClusterCIDR that was disabled, being deleted, not for this Node or had these addresses
	// excluded, for longer than the slack.
	NotAllowed Rule = "not allowed"
	// GoneInUse: a ClusterCIDR is gone and a Node still holds a block from it.
	GoneInUse Rule = "gone in use"
	// LeftWaiting: at rest, a Node has no podCIDRs although it could have.
	LeftWaiting Rule = "left waiting"
	// ServedLate: at rest, a new Node was not served within its bound.
	ServedLate Rule = "served late"
	// Stuck: at rest, a ClusterCIDR that is being deleted and that no Node uses is still there.
	Stuck Rule = "stuck"
	// Leak: at rest, there is less to give than total minus held minus excluded.
	Leak Rule = "leak"
	// Untrue: at rest, a status says something else than what is.
	Untrue Rule = "untrue status"
)

// Violation is one broken rule, with what happened before.
type Violation struct {
	Rule Rule
	// Revision is where it became true; 0 for what is wrong when all is at rest.
	Revision int64
	At       time.Time
	Message  string
	// History is what happened to the objects involved and around them.
	History []string
}

func (v Violation) String() string {
	when := fmt.Sprintf("revision %d", v.Revision)
	if v.Revision == 0 {
		when = "rest"
	}
	return fmt.Sprintf("%s at %s: %s\n    %s", v.Rule, when, v.Message, strings.Join(v.History, "\n    "))
}
