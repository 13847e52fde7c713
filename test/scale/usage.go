package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/prometheus/procfs"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// audited is what contestants ask: our controllers, the originals, and the process that they are part of.
const audited = `users: ["` + controlplane.AloneUser + `", "system:serviceaccount:kube-system:node-controller", "system:kube-controller-manager", "` + addressUser + `"]`

// asked returns the requests of contestants since then that the API server has answered, without watches and those for leases: to renew a lease costs
// the same whoever leads.
func (c *cluster) asked(since time.Time) ([]auditv1.Event, error) {
	events, err := controlplane.ReadAudit(c.auditLog, 0)
	return slices.DeleteFunc(events, func(event auditv1.Event) bool {
		return event.ObjectRef == nil || event.ObjectRef.Resource == "leases" || event.Verb == "watch" && !readsAllNodes(event) ||
			!event.RequestReceivedTimestamp.After(since)
	}), err
}

func isWrite(event auditv1.Event) bool {
	return !slices.Contains([]string{"get", "list", "watch"}, event.Verb)
}

// readsAllNodes reports whether a request is answered with all Nodes: by a list, or by a watch that begins with one.
func readsAllNodes(event auditv1.Event) bool {
	uri, err := url.Parse(event.RequestURI)
	if err != nil || event.ObjectRef == nil || event.ObjectRef.Resource != "nodes" {
		return false
	}
	query := uri.Query()
	switch event.Verb {
	case "list":
		return query.Get("limit") != "1" && query.Get("continue") == ""
	case "watch": // noted when it begins and when it ends
		return query.Get("sendInitialEvents") == "true" && event.Stage != auditv1.StageResponseComplete
	default:
		return false
	}
}

func count(events []auditv1.Event, of func(auditv1.Event) bool) (n float64) {
	for _, event := range events {
		if of(event) {
			n++
		}
	}
	return n
}

// measure begins a measurement, when nothing goes on any more. end waits for that again, since what the contestant does afterwards is part of it,
// and returns what was used and asked in between.
func (c *cluster) measure(ctx context.Context, p *controlplane.Process) (end func() (metrics, []auditv1.Event, error), err error) {
	if err := c.settle(ctx); err != nil {
		return nil, err
	}
	processes := map[string]*controlplane.Process{"manager-cpu-s": p, "apiserver-cpu-s": c.APIServer(), "etcd-cpu-s": c.Etcd()}
	used := map[string]time.Duration{}
	for unit, process := range processes {
		if used[unit], err = cpuTime(process); err != nil {
			return nil, err
		}
	}
	begin := time.Now()
	return func() (metrics, []auditv1.Event, error) {
		if err := c.settle(ctx); err != nil {
			return nil, nil, err
		}
		got := metrics{}
		for unit, process := range processes {
			now, err := cpuTime(process)
			if err != nil {
				return nil, nil, err
			}
			got[unit] = (now - used[unit]).Seconds()
		}
		if got["manager-peak-MiB"], err = peakMemory(p); err != nil {
			return nil, nil, err
		}
		events, err := c.asked(begin)
		return got, events, err
	}, nil
}

// cpuTime is how much CPU time the processes have used together, user and system.
func cpuTime(processes ...*controlplane.Process) (sum time.Duration, _ error) {
	for _, p := range processes {
		proc, err := procfs.NewProc(p.PID())
		if err != nil {
			return 0, fmt.Errorf("read a process's CPU time: %w", err)
		}
		stat, err := proc.Stat()
		if err != nil {
			return 0, fmt.Errorf("read a process's CPU time: %w", err)
		}
		sum += time.Duration(stat.CPUTime() * float64(time.Second))
	}
	return sum, nil
}

// peakMemory is the largest resident set that a process has had, in MiB.
func peakMemory(p *controlplane.Process) (float64, error) {
	proc, err := procfs.NewProc(p.PID())
	if err != nil {
		return 0, fmt.Errorf("read a process's peak memory: %w", err)
	}
	status, err := proc.NewStatus()
	if err != nil {
		return 0, fmt.Errorf("read a process's peak memory: %w", err)
	}
	return float64(status.VmHWM) / (1 << 20), nil
}

// idleTime is how long nothing is to be done.
var idleTime = time.Minute

// rest returns when the last events are there, and the last status of each ClusterCIDR or pool, which ours writes at most once a second.
func (c *cluster) rest(ctx context.Context) error {
	if err := c.settle(ctx); err != nil {
		return err
	}
	return pause(ctx, 2*time.Second)
}

// idleRequests counts what a contestant asks in idleTime.
func (c *cluster) idleRequests(ctx context.Context) (float64, error) {
	if err := c.rest(ctx); err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := pause(ctx, idleTime); err != nil {
		return 0, err
	}
	events, err := c.asked(begin)
	return float64(len(events)), err
}
