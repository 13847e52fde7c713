package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// hierarchies are the mount points below /sys/fs/cgroup: with cgroup v2 it is the only one, with v1 there is one for each
// set of controllers.
func hierarchies() ([]hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var found []hierarchy
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) > 2 && (fields[2] == "cgroup" || fields[2] == "cgroup2") {
			found = append(found, hierarchy{dir: fields[1], v2: fields[2] == "cgroup2"})
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no cgroup file system is mounted: mount one at /sys/fs/cgroup")
	}
	return found, nil
}

type hierarchy struct {
	dir string
	v2  bool
}

// makeCgroup makes the cgroup in every hierarchy, ready to take processes.
func makeCgroup(name string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		dir := h.dir
		for part := range strings.SplitSeq(name, "/") {
			parent := dir
			dir = filepath.Join(dir, part)
			if h.v2 {
				if err := delegate(parent); err != nil {
					return err
				}
			}
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			if !h.v2 {
				if err := inheritCPUSet(parent, dir); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// delegate lets the children of a v2 cgroup have every controller that it has itself.
func delegate(dir string) error {
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "cgroup.subtree_control")
	enabled, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for controller := range strings.FieldsSeq(string(available)) {
		if slices.Contains(strings.Fields(string(enabled)), controller) {
			continue
		}
		if err := os.WriteFile(file, []byte("+"+controller), 0); err != nil {
			return err
		}
	}
	return nil
}

// inheritCPUSet fills what a new cpuset of cgroup v1 lacks: with no CPU and no memory it would take no process.
func inheritCPUSet(parent, dir string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), value, 0); err != nil {
			return err
		}
	}
	return nil
}

// startInCgroup starts a process that waits for a line on its standard input before it does anything, and ends if there is
// none: so down finds it in the cgroup, or it has done nothing.
func startInCgroup(name string, cmd *exec.Cmd) error {
	if err := makeCgroup(name); err != nil {
		return err
	}
	goAhead, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer goAhead.Close()
	if err := cmd.Start(); err != nil {
		return err
	}
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if err := os.WriteFile(filepath.Join(h.dir, name, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			return err
		}
	}
	_, err = io.WriteString(goAhead, "\n")
	return err
}

// walkCgroup calls visit for the cgroup and those below it in every hierarchy, children first.
func walkCgroup(name string, visit func(dir string) error) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		var dirs []string
		err := filepath.WalkDir(filepath.Join(h.dir, name), func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // It is not in this hierarchy, or has gone meanwhile.
			}
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, dir := range slices.Backward(dirs) {
			if err := visit(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// cgroupProcesses are the processes in the cgroup and below it.
func cgroupProcesses(name string) (map[int]bool, error) {
	pids := map[int]bool{}
	err := walkCgroup(name, func(dir string) error {
		file, err := os.Open(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return err
		}
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			pid, err := strconv.Atoi(lines.Text())
			if err != nil {
				return fmt.Errorf("read %s: %w", file.Name(), err)
			}
			pids[pid] = true
		}
		return nil
	})
	return pids, err
}

// removeCgroup kills every process in the cgroup and removes it.
func removeCgroup(ctx context.Context, name string) error {
	var pids map[int]bool
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		var err error
		// Again and again: a process may have started another one while we went through the list.
		if pids, err = cgroupProcesses(name); err != nil {
			return false, err
		}
		for pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return false, err
			}
		}
		return len(pids) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("kill the processes in cgroup %s: %d are left: %w", name, len(pids), err)
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		// Busy for a moment after the last process has gone.
		last = walkCgroup(name, os.Remove)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("remove cgroup %s: %w", name, errors.Join(err, last))
	}
	return nil
}
