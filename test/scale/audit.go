package main

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// audited is what contestants ask: our controller, upstream's, and the process that they are part of.
const audited = `users: ["` + controlplane.AloneUser + `", "system:serviceaccount:kube-system:node-controller", "system:kube-controller-manager"]`

// asked returns what contestants have asked since then, as far as the API server has answered, save for leases: to renew one is not
// work for Nodes, and costs the same whoever leads.
func (c *cluster) asked(since time.Time) ([]auditv1.Event, error) {
	events, err := controlplane.ReadAudit(c.auditLog, 0)
	return slices.DeleteFunc(events, func(event auditv1.Event) bool {
		// A watch is noted when it begins and when it ends.
		atEnd := event.Verb == "watch" && event.Stage == auditv1.StageResponseComplete
		return event.ObjectRef == nil || event.ObjectRef.Resource == "leases" || atEnd || !event.RequestReceivedTimestamp.After(since)
	}), err
}

func isWrite(event auditv1.Event) bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, event.Verb)
}

// readsAllNodes reports whether a request is answered with all Nodes: by a list, or by a watch that begins with one.
func readsAllNodes(event auditv1.Event) bool {
	uri, err := url.Parse(event.RequestURI)
	if err != nil || event.ObjectRef.Resource != "nodes" {
		return false
	}
	query := uri.Query()
	switch event.Verb {
	case "list":
		return query.Get("limit") != "1" && query.Get("continue") == ""
	case "watch":
		return query.Get("sendInitialEvents") == "true"
	default:
		return false
	}
}

func describe(events []auditv1.Event) string {
	const most = 10
	var b bytes.Buffer
	for _, event := range events[:min(most, len(events))] {
		fmt.Fprintf(&b, "\n  %s %s %s", event.RequestReceivedTimestamp.Format(time.RFC3339Nano), event.Verb, event.RequestURI)
	}
	return b.String()
}
