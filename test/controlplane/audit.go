package controlplane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// auditPolicy notes what one rule selects, once it is answered; a watch when it begins, too.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, %s}
- level: None
`

// Audit returns with what arguments an API server keeps an audit log of the requests that a rule of an audit.k8s.io Policy selects, such as
// `users: [a, b], verbs: [patch]`, and where. Policy and log are in dir, the log among the other logs if that is the control plane's.
func Audit(dir, rule string) (args []string, log string, err error) {
	file := filepath.Join(dir, "audit-policy.yaml")
	log = filepath.Join(dir, "logs", "audit.log")
	return []string{"--audit-policy-file=" + file, "--audit-log-path=" + log}, log, os.WriteFile(file, fmt.Appendf(nil, auditPolicy, rule), 0o600)
}

// AuditMark is a place in an audit log.
type AuditMark struct {
	offset int64
	time   time.Time // of requests: one that came before may be written behind the offset
}

// MarkAudit is where an audit log is now.
func MarkAudit(log string) (AuditMark, error) {
	info, err := os.Stat(log)
	if err != nil {
		return AuditMark{}, err
	}
	return AuditMark{info.Size(), time.Now()}, nil
}

// ReadAuditSince returns the requests for objects that have come since then.
func ReadAuditSince(log string, since AuditMark) ([]auditv1.Event, error) {
	all, err := ReadAudit(log, since.offset)
	return slices.DeleteFunc(all, func(e auditv1.Event) bool {
		return e.ObjectRef == nil || !e.RequestReceivedTimestamp.After(since.time)
	}), err
}

// At is when the mark was made.
func (m AuditMark) At() time.Time { return m.time }

// ReadAudit returns what an audit log has behind an offset, without a line that is just being written.
func ReadAudit(log string, offset int64) ([]auditv1.Event, error) {
	file, err := os.Open(log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	var events []auditv1.Event
	for line := range bytes.Lines(content[:bytes.LastIndexByte(content, '\n')+1]) {
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("read %s: %w", log, err)
		}
		events = append(events, event)
	}
	return events, nil
}
