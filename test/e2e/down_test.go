package e2e

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

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
