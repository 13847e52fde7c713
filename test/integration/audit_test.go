package integration

import (
	"fmt"
	"slices"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// audited is every write of our controller, and of the process that it runs in.
const audited = `users: ["` + controllerUser + `", "system:kube-controller-manager"], verbs: [create, update, patch, delete, deletecollection]`

const controllerUser = "system:serviceaccount:kube-system:" + nodeipam.Name

// write is one line of the audit log.
type write = auditv1.Event

// writes returns what our controller and its process have written since then, save for leases, as far as the API server has answered.
func (c *cluster) writes(since controlplane.AuditMark) ([]write, error) {
	all, err := controlplane.ReadAuditSince(c.auditLog, since)
	return slices.DeleteFunc(all, func(w write) bool { return w.ObjectRef.Resource == "leases" }), err
}

// about reports whether a write went to a resource, such as "nodes" or "clustercidrs/status", and, unless name is empty, to the
// object of that name; an event belongs to the object that it is about.
func about(w write, resource, name string) bool {
	ref := w.ObjectRef
	got := ref.Resource
	if ref.Subresource != "" {
		got += "/" + ref.Subresource
	}
	return got == resource && (name == "" || ref.Name == name || resource == "events" && strings.HasPrefix(ref.Name, name+"."))
}

// describe lists writes for people.
func describe(writes []write) string {
	var b strings.Builder
	for _, w := range writes {
		code := int32(0)
		if w.ResponseStatus != nil {
			code = w.ResponseStatus.Code
		}
		fmt.Fprintf(&b, "\n\t%s %s %s/%s %s: %d, by %s", w.StageTimestamp.Format("15:04:05.000"), w.Verb, w.ObjectRef.Resource, w.ObjectRef.Subresource, w.ObjectRef.Name, code, w.User.Username)
	}
	return b.String()
}
