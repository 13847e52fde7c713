package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// down runs as root: whatever --dir names, only what up has made goes.
func TestDownDeletesNothingOfOthers(t *testing.T) {
	root, err := controlplane.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	down := func(dir string) (string, error) {
		output, err := exec.Command(filepath.Join(root, "bin/cluster"), "down", "--dir="+dir).CombinedOutput()
		return string(output), err
	}
	for name, marker := range map[string]string{"unmarked": "", "of-another-program": "hack/test-env.sh\n"} {
		dir := filepath.Join(t.TempDir(), name)
		kept := filepath.Join(dir, "machines", "kept")
		if err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o755), os.WriteFile(kept, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		if marker != "" {
			if err := os.WriteFile(filepath.Join(dir, ".made-by"), []byte(marker), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range []string{dir, kept} {
			if output, err := down(path); err == nil || !strings.Contains(output, path+" was not made by `cluster up`, so it is not removed") {
				t.Errorf("%s: %v, %s", path, err, output)
			}
		}
		if _, err := os.Stat(kept); err != nil {
			t.Error(err)
		}
	}
	// A cluster whose directory somebody has removed by hand.
	if output, err := down(filepath.Join(t.TempDir(), "gone")); err != nil {
		t.Errorf("%v, %s", err, output)
	}
	// What up has marked goes.
	made := filepath.Join(t.TempDir(), "made")
	if err := errors.Join(os.Mkdir(made, 0o755), os.WriteFile(filepath.Join(made, ".made-by"), []byte("hack/cluster\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	output, err := down(made)
	if _, stat := os.Stat(made); err != nil || !os.IsNotExist(stat) {
		t.Errorf("%v, %s; afterwards: %v", err, output, stat)
	}
}

// After the other tests the host is as it was before; so it shall be when the command ends halfway, with everything running that it has
// started.
func TestDownAfterCrashOfUp(t *testing.T) {
	c := newCluster(t, "crash")
	up := exec.Command(c.bin("cluster"), "--dir="+c.dir, "up")
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "containerd has started the first static Pod", func(context.Context) (bool, string) {
		processes := processesOf(t, c.dir)
		running := 0
		for _, command := range processes {
			if strings.Contains(command, "containerd-shim") {
				running++
			}
		}
		return running > 0, strings.Join(processes, "; ")
	})
	if err := up.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = up.Wait() // It says that it was killed.
}
