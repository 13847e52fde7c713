package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
)

// profile takes profiles of the manager and the API server from now on, if --profile-dir says where to; the function that it returns waits for
// them. A profile costs a few percent, so the figures of such a run are not for comparison.
func (s *scale) profile(ctx context.Context, c *cluster, r *runner, name string) (wait func() error) {
	if s.profileDir == "" || r.manager == nil {
		return func() error { return nil }
	}
	cpu := fmt.Sprintf("/debug/pprof/profile?seconds=%d", int(s.profileTime.Seconds()))
	path := func(of string) string { return filepath.Join(s.profileDir, name+"-"+of+".pprof") }
	done := make(chan error, 2)
	go func() { done <- r.fetch(ctx, cpu, path("manager-cpu")) }()
	go func() { done <- c.fetch(ctx, cpu, path("apiserver-cpu")) }()
	return func() error {
		return errors.Join(<-done, <-done,
			r.fetch(ctx, "/debug/pprof/heap", path("manager-heap")), r.fetch(ctx, "/debug/pprof/allocs", path("manager-allocs")))
	}
}

func (r *runner) fetch(ctx context.Context, from, to string) error {
	status, body, err := r.manager.Get(ctx, from)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("GET %s: %d %s", from, status, body)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, body, 0o644)
}

func (c *cluster) fetch(ctx context.Context, from, to string) error {
	body, err := c.kube.Discovery().RESTClient().Get().RequestURI(from).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("GET %s: %w", from, err)
	}
	return os.WriteFile(to, body, 0o644)
}
