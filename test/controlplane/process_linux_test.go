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
