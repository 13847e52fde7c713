package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestEnvDeletesNothingOfOthers names a directory that is somebody else's: neither way of the script touches it, and neither does the program.
func TestEnvDeletesNothingOfOthers(t *testing.T) {
	root, err := controlplane.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(t.TempDir(), "home")
	kept := filepath.Join(home, "etcd", "kept")
	if err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o755), os.WriteFile(kept, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(home, link); err != nil {
		t.Fatal(err)
	}
	script, program := filepath.Join(root, "hack/test-env.sh"), filepath.Join(root, binDir(), "local-cluster")
	for name, tc := range map[string]struct {
		command []string
		want    string
	}{
		"down":            {[]string{"TEST_ENV_DIR=" + home, script, "down"}, home + " was not made by hack/test-env.sh"},
		"up":              {[]string{"TEST_ENV_DIR=" + home, script, "up"}, home + " was not made by hack/test-env.sh"},
		"down for a link": {[]string{"TEST_ENV_DIR=" + link, script, "down"}, link + " was not made by hack/test-env.sh"},
		"local-cluster":   {[]string{program, "env", "--dir=" + home}, "must be a directory that does not exist or is empty"},
	} {
		output, err := exec.Command("env", tc.command...).CombinedOutput()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(output), tc.want) {
			t.Errorf("%s: %v\n%s\nwant exit code 1 and %q", name, err, output, tc.want)
		}
		if _, err := os.Stat(kept); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// TestEnv does what `make setup-test-env` and `make teardown-test-env` do: in between there is a cluster in which only the kind
// ClusterCIDR is new, and afterwards nothing.
func TestEnv(t *testing.T) {
	root, err := controlplane.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "env")
	script := func(what string) string {
		t.Helper()
		command := exec.Command(filepath.Join(root, "hack/test-env.sh"), what)
		command.Env = append(os.Environ(), "TEST_ENV_DIR="+dir)
		output, err := command.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", what, err, output)
		}
		return string(output)
	}
	t.Cleanup(func() { script("down") })

	said := script("up")
	kubeconfig := regexp.MustCompile(`export KUBECONFIG=(.*)`).FindStringSubmatch(said)
	if kubeconfig == nil || !strings.Contains(said, binDir()+"/node-ipam-controller --kubeconfig=") {
		t.Fatalf("up does not say how to use it:\n%s", said)
	}
	if again := script("up"); again != said {
		t.Errorf("up for the second time says\n%s\nwant the same again:\n%s", again, said)
	}
	output, err := exec.Command(controlplane.Program("kubectl"), "--kubeconfig="+kubeconfig[1], "get", "clustercidrs,nodes").CombinedOutput()
	if err != nil || !strings.Contains(string(output), "No resources found") {
		t.Errorf("kubectl get clustercidrs,nodes: %v\n%s", err, output)
	}
	script("down")
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("down leaves %s behind: %v", dir, err)
	}
}
