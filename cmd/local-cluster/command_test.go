package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// localCluster is the command as make runs it, with a temporary directory that shows what it leaves behind.
func localCluster(t *testing.T, args ...string) (command *exec.Cmd, temp string) {
	t.Helper()
	temp = t.TempDir()
	command = exec.CommandContext(t.Context(), controlplane.Program("local-cluster"), args...)
	command.Env = append(os.Environ(), "TMPDIR="+temp)
	return command, temp
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		t.Errorf("left behind: %s", filepath.Join(dir, entry.Name()))
	}
}

func TestDemo(t *testing.T) {
	command, temp := localCluster(t, "demo", "--nodes=6")
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, output)
	}
	// As examples/README.md promises it: each group has a ClusterCIDR of its own.
	for _, want := range []string{
		`worker-0\d +10\.244\.\d\.0/24 +fallback`,
		`store-0\d +10\.245\.0\.\d+/28 +edge`,
		`gpu-0\d +10\.246\.\d\.0/24, fd00:10:246:[^ ]*/64 +zone-a-gpu`,
	} {
		if found := regexp.MustCompile(want).FindAll(output, -1); len(found) != 2 {
			t.Errorf("%d rows like %s, want 2, in:\n%s", len(found), want, output)
		}
	}
	if bytes.Contains(output, []byte("\033")) {
		t.Errorf("escape codes in the output for a file:\n%q", output)
	}
	wantEmpty(t, temp)
}

func TestDemoFails(t *testing.T) {
	command, _ := localCluster(t, "demo", "--nodes=3", "--timeout=1ns")
	output, err := command.CombinedOutput()
	if command.ProcessState.ExitCode() != 1 {
		t.Errorf("%v, want exit code 1", err)
	}
	if want := "not every Node had podCIDRs within 1ns"; !bytes.Contains(output, []byte(want)) {
		t.Errorf("output does not say %q:\n%s", want, output)
	}
}

// startRun starts `run` and returns when a Node has podCIDRs.
func startRun(t *testing.T) (command *exec.Cmd, rest *bufio.Reader, temp string) {
	t.Helper()
	command, temp = localCluster(t, "run", "--nodes=3")
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = command.Stdout
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	rest = bufio.NewReader(output)
	for {
		line, err := rest.ReadString('\n')
		if err != nil {
			t.Fatalf("the output ended without a Node that has podCIDRs: %v", err)
		}
		t.Log(strings.TrimSpace(line))
		if strings.HasPrefix(line, "Node worker-01: 10.244.0.0/24") {
			return command, rest, temp
		}
	}
}

func TestRunUntilInterrupt(t *testing.T) {
	command, rest, temp := startRun(t)
	if err := command.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	output, _ := io.ReadAll(rest)
	if err := command.Wait(); err != nil {
		t.Errorf("after an interrupt: %v, want exit code 0:\n%s", err, output)
	}
	wantEmpty(t, temp)
}
