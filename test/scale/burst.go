package main

import (
	"context"

	"github.com/multicidr/controller-manager/test/controlplane"
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
	got, err := c.rush(ctx, p, c.nodes(by, nil), "node", nodes, len(by))
	if err != nil {
		return nil, err
	}
	return got, c.overlaps(ctx)
}

// rush measures how a contestant that is at work serves so many objects, of which some are created at a time. They are called what, and so are the units.
func (c *cluster) rush(ctx context.Context, p *controlplane.Process, of objects, what string, count, atATime int) (metrics, error) {
	end, err := c.measure(ctx, p)
	if err != nil {
		return nil, err
	}
	f, err := of.serve(ctx, p, what, count, atATime)
	if err != nil {
		return nil, err
	}
	got, asked, err := end()
	if err != nil {
		return nil, err
	}
	f.values(got, what+"s/s")
	got["requests/"+what] = float64(len(asked)) / float64(count)
	return got, nil
}
