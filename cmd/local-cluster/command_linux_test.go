package main

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestRunEndsWithItsManager(t *testing.T) {
	command, rest, temp := startRun(t)
	kubeconfig := filepath.Join(temp, "*", "kubeconfig", "system:kube-controller-manager-*.yaml")
	found, err := filepath.Glob(kubeconfig)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v, want one file", kubeconfig, found, err)
	}
	if err := syscall.Kill(processWith(t, found[0]), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	output, _ := io.ReadAll(rest)
	_ = command.Wait()
	if command.ProcessState.ExitCode() != 1 {
		t.Errorf("%s, want exit code 1", command.ProcessState)
	}
	for _, want := range []string{"kube-controller-manager ended by itself", "logs are kept in " + temp} {
		if !strings.Contains(string(output), want) {
			t.Errorf("output does not say %q:\n%s", want, output)
		}
	}
}

// processWith is the process that has the text in its command line.
func processWith(t *testing.T, text string) (pid int) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		// A process that has ended in between has no command line, and that is not ours.
		if line, _ := os.ReadFile(path); strings.Contains(string(line), text) {
			if pid, err = strconv.Atoi(filepath.Base(filepath.Dir(path))); err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("no process has %q in its command line", text)
	return 0
}
