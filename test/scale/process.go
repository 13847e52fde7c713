package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc: USER_HZ, which is 100 on every Linux.
const tick = 10 * time.Millisecond

// cpuTime is how much CPU time the processes have used together, user and system.
func cpuTime(pids ...int) (sum time.Duration, _ error) {
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, fmt.Errorf("read a process's CPU time: %w", err)
		}
		// The name, in parentheses, may have spaces in it. utime and stime are the 14th and 15th field, the state after the name the third.
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		for _, field := range fields[11:13] {
			ticks, err := strconv.Atoi(field)
			if err != nil {
				return 0, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
			}
			sum += time.Duration(ticks) * tick
		}
	}
	return sum, nil
}

// peakMemory is the largest resident set that a process has had, in MiB.
func peakMemory(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read a process's peak memory: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")))
			return float64(kib) / 1024, err
		}
	}
	return 0, fmt.Errorf("no VmHWM in /proc/%d/status", pid)
}
