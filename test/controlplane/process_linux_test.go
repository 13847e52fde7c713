package controlplane

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

func TestChildrenDieWithUs(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), dieEnv+"="+filepath.Join(t.TempDir(), "log"))
	output, _ := parent.Output() // It kills itself.
	pid, err := strconv.Atoi(strings.TrimSpace(string(output)))
	if err != nil {
		t.Fatalf("the parent printed %q, want the child's process id", output)
	}
	err = wait.PollUntilContextTimeout(t.Context(), pollInterval, 10*time.Second, true, func(context.Context) (bool, error) {
		return ended(pid), nil
	})
	if err != nil {
		t.Errorf("child %d outlived its killed parent: %v", pid, err)
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// ended also counts a zombie, since who becomes the orphan's parent may not collect it.
func ended(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestProcess(t *testing.T) {
	start := func(t *testing.T, script string) *Process {
		t.Helper()
		p, err := StartProcess("script", filepath.Join(t.TempDir(), "log"), "/bin/sh", "-c", script)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Kill() })
		return p
	}
	// says makes sure the script got so far before it gets a signal.
	says := func(t *testing.T, p *Process, text string) {
		t.Helper()
		err := wait.PollUntilContextTimeout(t.Context(), pollInterval, 10*time.Second, true, func(context.Context) (bool, error) {
			log, err := p.Log()
			return strings.Contains(log, text), err
		})
		if err != nil {
			t.Fatalf("script did not say %q: %v", text, err)
		}
	}
	t.Run("a paused process can be stopped", func(t *testing.T) {
		p := start(t, "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done")
		says(t, p, "ready")
		if err := p.Pause(); err != nil {
			t.Fatal(err)
		}
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		if code, err := p.Wait(t.Context()); code != 7 || err != nil {
			t.Errorf("Wait() = %d, %v, want 7", code, err)
		}
	})
	t.Run("stopping what has ended is fine", func(t *testing.T) {
		p := start(t, "exit 3")
		if code, err := p.Wait(t.Context()); code != 3 || err != nil {
			t.Errorf("Wait() = %d, %v, want 3", code, err)
		}
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Run("a killed process has exit code -1", func(t *testing.T) {
		p := start(t, "sleep 1000")
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		if code, err := p.Wait(t.Context()); code != -1 || err != nil {
			t.Errorf("Wait() = %d, %v, want -1", code, err)
		}
	})
	t.Run("a restarted process sees only its own part of the log", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "log")
		for _, text := range []string{"first\n", "second\n"} {
			p, err := StartProcess("echo", path, "/bin/echo", "-n", text)
			if err != nil {
				t.Fatal(err)
			}
			p.Wait(t.Context())
			if log, err := p.Log(); log != text || err != nil {
				t.Errorf("Log() = %q, %v, want %q", log, err, text)
			}
		}
	})
}

func TestRetryTakenPorts(t *testing.T) {
	taken := func() *Process {
		p, err := StartProcess("server", filepath.Join(t.TempDir(), "log"), "/bin/sh", "-c", "echo 'listen tcp 127.0.0.1:1: bind: address already in use'; exit 1")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	never := func(context.Context) error { return errors.New("not yet") }

	var attempts int
	err := retryTakenPorts(func() error {
		if attempts++; attempts < 3 {
			return taken().waitReady(t.Context(), never)
		}
		return nil
	})
	if err != nil || attempts != 3 {
		t.Errorf("a port taken twice: %d attempts, %v, want success at the third", attempts, err)
	}

	attempts = 0
	other := errors.New("bad flag")
	err = retryTakenPorts(func() error { attempts++; return other })
	if !errors.Is(err, other) || attempts != 1 {
		t.Errorf("another failure: %d attempts, %v, want one and its error", attempts, err)
	}
}
