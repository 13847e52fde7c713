package integration

import (
	"compress/gzip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRestoreEtcdReadsAllLogs runs step 1 of the runbook on two control-plane nodes, puts their files together, and runs step 5, where no machine and
// no API server answers. The second node led yesterday, and the kubelet of the first has rotated its log twice.
func TestRestoreEtcdReadsAllLogs(t *testing.T) {
	line := func(at, what, node, podCIDR string) string {
		return at + ` stderr F I1122 12:00:00.000000       1 node.go:272] "` + what + ` podCIDRs" node="` + node + `" podCIDRs=["` + podCIDR + `"] clusterCIDR="a"` + "\n"
	}
	dir := t.TempDir()
	write := func(name string, lines ...string) {
		t.Helper()
		content := strings.Join(lines, "")
		if strings.HasSuffix(name, ".gz") {
			var zipped strings.Builder
			z := gzip.NewWriter(&zipped)
			if _, err := z.Write([]byte(content)); err != nil {
				t.Fatal(err)
			}
			must(t, z.Close())
			content = zipped.String()
		}
		writeFile(t, filepath.Join(dir, name), content, 0o600)
	}
	write("today/pod/container/0.log", line("2026-11-22T12:00:00Z", "Assigned", "again", "10.0.5.0/24"), line("2026-11-22T12:00:01Z", "Assigning", "unanswered", "10.0.6.0/24"),
		strings.Repeat("\x00", 512)) // as after a crash of the machine
	write("today/pod/container/0.log.20261122-110000", line("2026-11-22T10:00:00Z", "Assigned", "rotated", "10.0.2.0/24"))
	write("today/pod/container/0.log.20261122-090000.gz", line("2026-11-22T08:00:00Z", "Assigned", "zipped", "10.0.3.0/24"))
	write("yesterday/pod/container/0.log", line("2026-11-21T12:00:00Z", "Assigned", "again", "10.0.1.0/24"))

	page := readRunbook(t)
	settings, err := os.ReadFile(filepath.Join(restoreScripts, "settings.sh"))
	if err != nil {
		t.Fatal(err)
	}
	_, pattern, _ := strings.Cut(string(settings), `"${LOGS:=`)
	pattern, _, _ = strings.Cut(pattern, "}")
	step := func(number, work, logs string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-c", page.only(number))
		// What stands before the path of the Pods' logs on a machine.
		logs = strings.Replace(pattern, "/var/log/pods/kube-system_kube-controller-manager-*", logs, 1)
		cmd.Env = append(os.Environ(), "WORK="+filepath.Join(dir, work), "LOGS="+logs)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	step("1", "here", filepath.Join(dir, "today", "*"))
	step("1", "there", filepath.Join(dir, "yesterday", "*"))
	var all []string
	for _, work := range []string{"here", "there"} {
		lines, err := os.ReadFile(filepath.Join(dir, work, "manager.log"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(lines))
	}
	write("here/manager.log", all...)
	write("here/from-api")
	step("5", "here", "")
	got, err := os.ReadFile(filepath.Join(dir, "here", "in-use"))
	if err != nil {
		t.Fatal(err)
	}
	want := `unanswered ["10.0.6.0/24"]
again ["10.0.5.0/24"]
rotated ["10.0.2.0/24"]
zipped ["10.0.3.0/24"]
`
	if string(got) != want {
		t.Errorf("in use:\n%swant:\n%s", got, want)
	}
}

// Step 5 with what flannel writes. A file of names that somebody wrote may lack the last newline.
func TestRestoreEtcdWithFlannel(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) { writeFile(t, filepath.Join(dir, name), content, 0o700) }
	write("bin/ssh", "#!/bin/bash\n[ \"$1\" = -n ] && shift\n[ \"$2\" = 'cat /run/flannel/subnet.env' ] && cat \"$MACHINES.$1\"\n")
	write("machines.m1", "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n")
	write("machines.m2", "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.2.17/28\nFLANNEL_IPV6_NETWORK=fd00::/48\nFLANNEL_IPV6_SUBNET=fd00:0:0:2::1/64\n")
	write("machines.m3", "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.129/25\n")
	write("machines", "m1\n\nm2 \nm3")
	write("work/manager.log", "")
	write("work/from-api", "")
	cmd := exec.CommandContext(t.Context(), "bash", "-c", readRunbook(t).only("5"))
	cmd.Env = append(os.Environ(), "PLUGIN=flannel", "WORK="+filepath.Join(dir, "work"), "MACHINES="+filepath.Join(dir, "machines"), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	got, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	want := `m1 ["10.244.1.0/24"]
m2 ["10.244.2.16/28","fd00:0:0:2::/64"]
m3 ["10.244.3.128/25"]
`
	if string(got) != want {
		t.Errorf("in use:\n%swant:\n%s", got, want)
	}
}
