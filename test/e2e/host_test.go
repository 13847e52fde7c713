package e2e

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// host is what a cluster in dir could leave behind or change, by kind.
type host map[string][]string

func lookAtHost(t *testing.T, dir string) host {
	t.Helper()
	seen := host{
		"processes":  processesOf(t, dir),
		"interfaces": glob(t, "/sys/class/net/*"),
		"cgroups":    cgroups(t, dir),
		"mounts":     lines(t, "/proc/self/mounts"),
		"files": glob(t, dir, "/etc/kubernetes", "/etc/cni", "/opt/cni", "/opt/cluster", "/run/containerd", "/run/netns",
			"/var/lib/cni", "/var/lib/containerd", "/var/lib/etcd", "/var/lib/kubelet", "/var/log/pods"),
	}
	for _, file := range []string{"/etc/resolv.conf", "/etc/hosts", "/proc/net/route", "/proc/net/ipv6_route",
		"/proc/sys/vm/overcommit_memory", "/proc/sys/vm/panic_on_oom", "/proc/sys/kernel/panic", "/proc/sys/kernel/panic_on_oops",
		"/proc/sys/kernel/hostname", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
		seen[file] = lines(t, file)
	}
	return seen
}

// processesOf have the directory in their command line or among their mounts, as every process on a machine has.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	for _, proc := range glob(t, "/proc/[0-9]*") {
		// What cannot be read has ended meanwhile.
		mounts, _ := os.ReadFile(proc + "/mountinfo")
		command, _ := os.ReadFile(proc + "/cmdline")
		if strings.Contains(string(mounts), dir) || strings.Contains(string(command), dir) {
			found = append(found, strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return found
}

// cgroups are those of the cluster in dir, which are named after it. Other clusters on this host come and go.
func cgroups(t *testing.T, dir string) []string {
	t.Helper()
	name := fmt.Sprintf("/cluster-%x", sha256.Sum256([]byte(dir)))[:len("/cluster-")+8]
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.Contains(path, name) {
			found = append(found, path)
		}
		return nil // Others' cgroups may go while we look.
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func (before host) compare(t *testing.T, dir string) {
	t.Helper()
	if diff := cmp.Diff(before, lookAtHost(t, dir)); diff != "" {
		t.Errorf("the cluster is down, but the host is not as it was (-before +after):\n%s", diff)
	}
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(content)), "\n")
}

func glob(t *testing.T, patterns ...string) []string {
	t.Helper()
	var all []string
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}
