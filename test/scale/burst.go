package main

import (
	"context"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// atOnce is how many clients an overload has.
var atOnce = 200

// burst creates Nodes as fast as the API server takes them, while a contestant that is at work already serves them: a cluster scales up.
func burst(ctx context.Context, who contestant, nodes int) (metrics, error) {
	return withCluster(ctx, func(c *cluster) (metrics, error) { return c.burst(ctx, who, nodes, 0) })
}

// overload creates all Nodes at once, by more clients than a contestant has workers: a cluster starts.
func overload(ctx context.Context, who contestant, nodes int) (metrics, error) {
	return withCluster(ctx, func(c *cluster) (metrics, error) { return c.burst(ctx, who, nodes, atOnce) })
}

// burst has the Nodes created by so many clients; 0: by one.
func (c *cluster) burst(ctx context.Context, who contestant, nodes, clients int) (metrics, error) {
	if err := c.createWholeRange(ctx); err != nil {
		return nil, err
	}
	p, err := c.start(ctx, who)
	if err != nil {
		return nil, err
	}
	if _, err := c.nodes(c.together(), nil).serve(ctx, p, "warm", warmUp, creators); err != nil {
		return nil, err
	}
	by := c.together()
	if clients > 0 {
		if by, err = c.apart(clients); err != nil {
			return nil, err
		}
	}
	end, err := c.measure(ctx, p)
	if err != nil {
		return nil, err
	}
	f, err := c.nodes(by, nil).serve(ctx, p, "node", nodes, len(by))
	if err != nil {
		return nil, err
	}
	got, asked, err := end()
	if err != nil {
		return nil, err
	}
	f.values(got, "nodes/s")
	got["requests/node"] = count(asked, func(auditv1.Event) bool { return true }) / float64(nodes)
	return got, c.overlaps(ctx)
}
