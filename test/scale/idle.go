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
)

// heartbeat is how often each kubelet reports.
const heartbeat = 10 * time.Second

// idle has kubelets report the status of Nodes that all have their podCIDRs.
func idle(ctx context.Context, who contestant, nodes int) (metrics, error) {
	return withCluster(ctx, func(c *cluster) (metrics, error) {
		if err := c.createWholeRange(ctx); err != nil {
			return nil, err
		}
		p, err := c.start(ctx, who)
		if err != nil {
			return nil, err
		}
		if _, err := c.nodes(c.together(), nil).serve(ctx, p, "node", nodes, creators); err != nil {
			return nil, err
		}
		if err := c.rest(ctx); err != nil {
			return nil, err
		}
		end, err := c.measure(ctx, p)
		if err != nil {
			return nil, err
		}
		begin := time.Now()
		updates, err := c.beat(ctx, nodes)
		if err != nil {
			return nil, err
		}
		seconds := time.Since(begin).Seconds()
		got, asked, err := end()
		if err != nil {
			return nil, err
		}
		got["updates/s"] = float64(updates) / seconds
		got["manager-cpu-ms/s"] = got["manager-cpu-s"] * 1000 / seconds
		got["writes"] = count(asked, isWrite)
		return got, nil
	})
}

// beat reports the status of one Node after the other, as their kubelets do, for as long as idleTime. It returns how often.
func (c *cluster) beat(ctx context.Context, nodes int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, idleTime)
	defer cancel()
	limiter := flowcontrol.NewTokenBucketRateLimiter(float32(float64(nodes)/heartbeat.Seconds()), 1)
	var (
		next, done atomic.Int64
		wg         sync.WaitGroup
	)
	errs := make([]error, creators)
	for worker := range creators {
		wg.Go(func() {
			for limiter.Wait(ctx) == nil && errs[worker] == nil {
				// What was begun is finished, so that all that is counted was answered.
				errs[worker] = c.reportStatus(context.WithoutCancel(ctx), fmt.Sprintf("node-%06d", int(next.Add(1)-1)%nodes))
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
