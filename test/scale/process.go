package main

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// cpuTime is how much CPU time the processes have used together, user and system.
func cpuTime(pids ...int) (sum time.Duration, _ error) {
	for _, pid := range pids {
		proc, err := procfs.NewProc(pid)
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
func peakMemory(pid int) (float64, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("read a process's peak memory: %w", err)
	}
	status, err := proc.NewStatus()
	if err != nil {
		return 0, fmt.Errorf("read a process's peak memory: %w", err)
	}
	return float64(status.VmHWM) / (1 << 20), nil
}
