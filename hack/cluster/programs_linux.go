package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// programsDir is where a machine has its programs.
const programsDir = "/opt/cluster"

var (
	// upgradable are the programs that have the version of Kubernetes.
	upgradable = []string{"kubeadm", "kubectl", "kubelet"}
	// machinePrograms are what every machine has of bin.
	machinePrograms = append(slices.Clone(upgradable), "node")
)

// putPrograms gives the machine programs, or directories of them, of bin. They are its own, so that machines of one cluster can have different
// versions; and they stay when the machine reboots.
func (m machine) putPrograms(names ...string) error {
	for _, name := range names {
		// What all minors share is a link in the directory of an older one.
		from, err := filepath.EvalSymlinks(filepath.Join(m.bin, name))
		if err != nil {
			return err
		}
		err = filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			relative, err := filepath.Rel(from, path)
			if err != nil {
				return err
			}
			return putFile(path, m.path("programs", name, relative))
		})
		if err != nil {
			return fmt.Errorf("give %s to %s: %w", name, m.name, err)
		}
	}
	return nil
}

// putFile replaces a program that may run. Where it can it makes a link, so that all machines have it in memory once.
func putFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	next := to + ".next"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Link(from, next); err != nil { // Another file system.
		if err := copyProgram(from, next); err != nil {
			return err
		}
	}
	return os.Rename(next, to)
}

func copyProgram(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// install replaces programs of a machine by those of bin, which may be another version.
func (c *cluster) install(ctx context.Context, name string, programs []string) error {
	m := c.machine(name)
	if _, err := m.number(); err != nil {
		return err
	}
	for _, program := range programs {
		if !slices.Contains(upgradable, program) {
			return fmt.Errorf("%q cannot be installed: name one or more of %s", program, strings.Join(upgradable, ", "))
		}
	}
	if err := m.putPrograms(programs...); err != nil {
		return err
	}
	if _, err := os.Stat(m.controlPlaneMark()); err == nil && slices.Contains(programs, "kubeadm") {
		if err := m.importControlPlane(ctx); err != nil {
			return err
		}
	}
	if !slices.Contains(programs, "kubelet") {
		return nil
	}
	// machine.sh starts the next one.
	_, err := m.run(ctx, nil, "bash", "-c", `kill "$(</run/kubelet.pid)"`)
	return err
}
