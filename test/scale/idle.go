package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/multicidr/controller-manager/test/results"
)

// idleTime is how long nothing is to be served.
var idleTime = time.Minute

// heartbeat is how often each kubelet reports meanwhile.
const heartbeat = 10 * time.Second

// idle has kubelets report the status of Nodes that all have their podCIDRs.
func (s *scale) idle(ctx context.Context, who contestant, nodes int) (got sample, err error) {
	err = withCluster(ctx, true, func(c *cluster) error {
		if err := c.createClusterCIDR(ctx, rangeName, wholeRange()); err != nil {
			return err
		}
		runner, err := s.start(ctx, c, who)
		if err != nil {
			return err
		}
		f, err := c.register(ctx, "node", nodes, nil)
		if err != nil {
			return err
		}
		defer f.stop()
		if err := f.wait(ctx, runner, patience); err != nil {
			return err
		}
		f.stop() // This program's own watch would cost what kubelets do not.
		m, err := c.measure(ctx, runner)
		if err != nil {
			return err
		}
		profiled := s.profile(ctx, c, runner, fmt.Sprintf("idle-%s-%d", who.name, nodes))
		begin := time.Now()
		updates, err := c.beat(ctx, f)
		if err != nil {
			return err
		}
		seconds := time.Since(begin).Seconds()
		if err := profiled(); err != nil {
			return err
		}
		values, err := m.values(ctx, requests{"PATCH nodes/status": updates})
		if err != nil {
			return err
		}
		asked, err := c.asked(begin)
		if err != nil {
			return err
		}
		writes := 0
		for _, event := range asked {
			if isWrite(event) {
				writes++
			}
		}
		values["updates-per-s"] = round(float64(updates) / seconds)
		values["manager-cpu-ms-per-s"] = round(values["manager-cpu-s"] * 1000 / seconds)
		values["manager-cpu-ms-per-update"] = round3(values["manager-cpu-s"] * 1000 / float64(updates))
		values["writes"] = float64(writes)
		got.values = values
		return nil
	})
	return got, err
}

// beat reports the status of one Node after the other, as their kubelets do, for as long as idleTime. It returns how often.
func (c *cluster) beat(ctx context.Context, f *fleet) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, idleTime)
	defer cancel()
	limiter := flowcontrol.NewTokenBucketRateLimiter(float32(float64(f.size)/heartbeat.Seconds()), 1)
	var (
		next, done atomic.Int64
		wg         sync.WaitGroup
	)
	errs := make([]error, creators)
	for worker := range creators {
		wg.Go(func() {
			for limiter.Wait(ctx) == nil && errs[worker] == nil {
				// What was begun is finished, so that all that is counted was answered.
				errs[worker] = c.reportStatus(context.WithoutCancel(ctx), f.name(int(next.Add(1)-1)%f.size))
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return int(done.Load()), errors.Join(errs...)
}

// reportStatus is what a kubelet sends when nothing but the time has changed.
func (c *cluster) reportStatus(ctx context.Context, name string) error {
	var order, changed []map[string]any
	for _, condition := range conditions(time.Now()) {
		order = append(order, map[string]any{"type": condition.Type})
		changed = append(changed, map[string]any{"type": condition.Type, "lastHeartbeatTime": condition.LastHeartbeatTime})
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"$setElementOrder/conditions": order, "conditions": changed}})
	if err != nil {
		return err
	}
	_, err = c.kube.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

var idleColumns = []column{
	{"updates/s", "updates-per-s"}, {"manager CPU ms/s", "manager-cpu-ms-per-s"}, {"CPU ms per update", "manager-cpu-ms-per-update"}, {"writes", "writes"}, {"peak MiB", "manager-peak-MiB"}, {"API server CPU s", "apiserver-cpu-s"},
}

// idleMarks holds what we measured against the limits that were set.
func idleMarks(nodes int, round map[string]sample) []results.Mark {
	we := round[ours].values
	if we == nil {
		return nil
	}
	return []results.Mark{results.AtMost(fmt.Sprintf("%d idle Nodes: ours, writes in %s", nodes, idleTime), "requests", 0, we["writes"])}
}
