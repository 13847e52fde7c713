package main

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
)

// start starts a contestant, with a CPU of its own if that is asked for.
func (s *scale) start(ctx context.Context, c *cluster, who contestant) (*runner, error) {
	r, err := c.start(ctx, who)
	if err != nil {
		return nil, err
	}
	return r, s.moveApart(r.PID(), true)
}

// cpus is how many there are: later, this process has fewer.
var cpus = runtime.NumCPU()

// moveApart leaves the last CPU to the contestant, and to it alone. What this process starts from then on has the CPUs that it has.
func (s *scale) moveApart(pid int, contestant bool) error {
	if !s.apart {
		return nil
	}
	if cpus < 2 {
		return fmt.Errorf("--apart needs two CPUs, there is one")
	}
	list := fmt.Sprintf("0-%d", cpus-2)
	if contestant {
		list = strconv.Itoa(cpus - 1)
	}
	if out, err := exec.Command("taskset", "--all-tasks", "--cpu-list", "--pid", list, strconv.Itoa(pid)).CombinedOutput(); err != nil {
		return fmt.Errorf("give process %d CPU %s: %w: %s", pid, list, err, out)
	}
	return nil
}
