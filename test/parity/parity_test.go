package parity

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/multicidr/controller-manager/test/controlplane"
)

const (
	upstreamBinary = "upstream/kube-controller-manager"
	ourBinary      = "kube-controller-manager"
)

func TestHelpParity(t *testing.T) {
	upstream := runToEnd(t, upstreamBinary, "--help")
	our := runToEnd(t, ourBinary, "--help")
	if diff := drift(parseHelp(upstream.Stdout), parseHelp(our.Stdout), inHelp); diff != "" {
		t.Errorf("--help differs by more than the additions (-want +got):\n%s", diff)
	}
	if n := len(parseHelp(upstream.Stdout)[flags]); n < 100 {
		t.Errorf("only %d flags found in upstream's help: it is not read right", n)
	}
}

// What the two say, and how they exit, when they do not start.
func TestCommandLineParity(t *testing.T) {
	aliases := slices.Sorted(maps.Keys(app.ControllerAliases()))
	cases := map[string][]string{
		"an argument": {"argument"},
		"every alias of upstream's, and no controller": {"--controllers=" + strings.Join(append(aliases, "no-such-controller"), ",")},
		"no controller, off":                           {"--controllers=*,-no-such-controller"},
		"a cloud provider that is gone":                {"--cloud-provider=aws"},
		"a feature gate that does not exist":           {"--feature-gates=NoSuchGate=true"},
		"a feature gate for another component":         {"--feature-gates=other:NoSuchGate=true"},
		"a version to emulate that is too old":         {"--emulated-version=1.2"},
		"a lock of another kind":                       {"--leader-elect-resource-lock=endpoints"},
		"a log format that does not exist":             {"--logging-format=xml"},
		"JSON logs and a wrong value":                  {"--logging-format=json", "--concurrent-gc-syncs=0", "--cloud-provider=aws"},
		"several wrong values":                         {"--concurrent-job-syncs=-1", "--node-cidr-mask-size=-1", "--controllers=a,b"},
		"a leader migration file that is not there":    {"--enable-leader-migration", "--leader-migration-config=/nonexistent"},
		"a kubeconfig that is not there":               {"--kubeconfig=/nonexistent", "--secure-port=0"},
		"a certificate that is not there":              {"--tls-cert-file=/nonexistent", "--tls-private-key-file=/nonexistent"},
		"a metric allow list that is not there":        {"--allow-metric-labels-manifest=/nonexistent"},
		"a hidden metrics version too far back":        {"--show-hidden-metrics-for-version=1.1"},
	}
	for sentence, args := range cases {
		t.Run(sentence, func(t *testing.T) {
			upstream, our := runToEnd(t, upstreamBinary, args...), runToEnd(t, ourBinary, args...)
			if diff := cmp.Diff(upstream, our); diff != "" {
				t.Errorf("%v (-upstream +ours):\n%s", args, diff)
			}
		})
	}
	t.Run("an unknown flag, which shows all flags", func(t *testing.T) {
		upstream, our := runToEnd(t, upstreamBinary, "--no-such-flag"), runToEnd(t, ourBinary, "--no-such-flag")
		if diff := drift(parseHelp(upstream.Stderr), parseHelp(our.Stderr), inHelp); diff != "" {
			t.Errorf("usage differs by more than the additions (-want +got):\n%s", diff)
		}
		upstream.Stderr, our.Stderr = lastLine(upstream.Stderr), lastLine(our.Stderr)
		if diff := cmp.Diff(upstream, our); diff != "" {
			t.Errorf("(-upstream +ours):\n%s", diff)
		}
	})
}

// Tools read the Kubernetes version from these texts: what ours says of itself comes behind it.
func TestVersionParity(t *testing.T) {
	for arg, more := range map[string]string{
		"--version":     ` \(multicidr v[^ ]+\)\n$`,
		"--version=raw": `\nmulticidr version\.Info{.*}\n$`,
	} {
		upstream, our := runToEnd(t, upstreamBinary, arg), runToEnd(t, ourBinary, arg)
		at := regexp.MustCompile(more).FindStringIndex(our.Stdout)
		if at == nil {
			t.Errorf("%s: %q says nothing of this project that matches %q", arg, our.Stdout, more)
			continue
		}
		our.Stdout = our.Stdout[:at[0]] + "\n"
		if diff := cmp.Diff(upstream, our); diff != "" {
			t.Errorf("%s (-upstream +ours):\n%s", arg, diff)
		}
	}
}

// flatForm is read with --config, and stands for the flags that the other process gets.
const flatForm = `
allocateNodeCIDRs: true
clusterCIDR: 10.244.0.0/16
nodeCIDRMaskSize: 25
concurrentGCSyncs: 7
leaderElectRetryPeriod: 1s
profiling: false
v: 4
`

// What the two serve and do, side by side, each on a control plane of its own.
func TestProcessParity(t *testing.T) {
	values, coordinated := flatForm, "CoordinatedLeaderElection=true"
	if knowsRelease(t) {
		values += "featureGates: {" + releasesLease + ": true}\n"
		coordinated += "," + releasesLease + "=true"
	}
	file := filepath.Join(t.TempDir(), "controller-manager.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		args         []string // of both
		upstreamArgs []string
		ourArgs      []string
		coordinated  bool
		additions    surface
	}{
		"defaults":                {},
		"without leader election": {args: []string{"--leader-elect=false"}},
		"node IPAM in-tree": {
			args: []string{"--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16,fd00:10:244::/48", "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112"},
		},
		"values of flags from a file, which --v overrides": {
			args: []string{"--v=1"},
			upstreamArgs: append(releasing(t), "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--node-cidr-mask-size=25", "--concurrent-gc-syncs=7",
				"--leader-elect-retry-period=1s", "--profiling=false"),
			ourArgs:   []string{"--config=" + file},
			additions: surface{flagz: {".flags.config": compact(file)}},
		},
		"few controllers, one credential, no profiling": {
			args: []string{"--controllers=deployment,serviceaccount,-replicaset,endpointslice-controller", "--use-service-account-credentials=false", "--profiling=false"},
		},
		"coordinated leader election, and the lease released on exit": {
			args:        []string{"--feature-gates=" + coordinated},
			coordinated: true,
		},
		"our controller on": {
			ourArgs:   []string{"--controllers=*,multi-cidr-node-ipam-controller"},
			additions: whenOn,
		},
		"leader migration": {
			ourArgs:   []string{"--enable-leader-migration"},
			additions: whenMigrating,
		},
	}
	if stockMigrates(t) {
		tc := cases["leader migration"]
		tc.upstreamArgs, tc.additions = tc.ourArgs, nil
		cases["leader migration"] = tc
	}
	for sentence, tc := range cases {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel() // Most of it is waiting.
			upstream := newRun(t, upstreamBinary, tc.coordinated, slices.Concat(tc.args, tc.upstreamArgs))
			our := newRun(t, ourBinary, tc.coordinated, slices.Concat(tc.args, tc.ourArgs))
			wantSameSurface(t, upstream, our, always.plus(tc.additions))
			wantSameEnd(t, upstream, our)
		})
	}
}

// stockMigrates reports whether upstream's own can migrate leaders. From v1.36 on it makes one set of informers per lease, and the second set's
// name is taken. Ours has one set, so that leader migration works.
func stockMigrates(t *testing.T) bool {
	t.Helper()
	return strings.HasPrefix(runToEnd(t, upstreamBinary, "--version").Stdout, "Kubernetes v1.35.")
}

// When this test fails, upstream's newer ones do it, too: say so in stockMigrates.
func TestUpstreamCannotMigrateLeaders(t *testing.T) {
	t.Parallel()
	upstream := newRun(t, upstreamBinary, false, []string{"--enable-leader-migration"})
	if stockMigrates(t) {
		if err := upstream.manager.WaitLeading(deadline(t)); err != nil {
			t.Error(err)
		}
		return
	}
	code, err := upstream.manager.Wait(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	log, err := upstream.manager.Log()
	if err != nil {
		t.Fatal(err)
	}
	if code != 1 || !strings.Contains(log, `informer name \"kube-controller-manager\" is already registered`) {
		t.Errorf("exit code %d, want 1 and a message about the informer name in:\n%s", code, log)
	}
}

// site is a control plane that keeps an audit log.
type site struct {
	*controlplane.ControlPlane
	auditLog    string
	coordinated bool
}

func newSite(t *testing.T, coordinated bool) *site {
	t.Helper()
	args, log, err := controlplane.Audit(t.TempDir(), "users: []") // everybody
	if err != nil {
		t.Fatal(err)
	}
	if coordinated {
		args = append(args, "--feature-gates=CoordinatedLeaderElection=true", "--runtime-config=coordination.k8s.io/v1beta1=true")
	}
	s := &site{ControlPlane: controlplane.StartForTest(t, controlplane.Options{APIServerArgs: args}), auditLog: log, coordinated: coordinated}
	if err := s.Apply(t.Context(), "../../manifests/crds", "../../manifests/rbac", "testdata"); err != nil {
		t.Fatal(err)
	}
	return s
}

// run is a manager on its site.
type run struct {
	*site
	manager *controlplane.Manager
}

func newRun(t *testing.T, binary string, coordinated bool, args []string) run {
	t.Helper()
	s := newSite(t, coordinated)
	return run{site: s, manager: s.StartManagerForTest(t, controlplane.ManagerOptions{Binary: binary, Args: args})}
}

// wantSameSurface waits until both have come to rest and look the same. What they have to show takes a while to appear, and not
// in the same order in both: so it is looked at until twice in a row nothing changed and nothing differed.
func wantSameSurface(t *testing.T, upstream, our run, additions surface) {
	t.Helper()
	ctx := deadline(t)
	var last [2]surface
	var diff string
	for {
		var now [2]surface
		var errs [2]error
		now[0], errs[0] = observe(ctx, upstream.site, upstream.manager)
		now[1], errs[1] = observe(ctx, our.site, our.manager)
		err := errors.Join(errs[:]...)
		if err == nil {
			expected := maps.Clone(additions)
			maps.DeleteFunc(expected, func(aspect string, _ map[string]string) bool {
				_, missing := now[0][aspect][notThere]
				return missing
			})
			diff = drift(now[0], now[1], expected)
			if diff == "" && len(now[0][healthChecks]) > 2 && reflect.DeepEqual(last, now) {
				return
			}
			last = now
		}
		select {
		case <-ctx.Done():
			t.Fatalf("ours differs by more than the additions (-want +got), last error %v:\n%s", err, diff)
		case <-time.After(time.Second):
		}
	}
}

// wantSameEnd asks both to end.
func wantSameEnd(t *testing.T, upstream, our run) {
	t.Helper()
	var codes []int
	for _, r := range []run{upstream, our} {
		if err := r.manager.Stop(); err != nil {
			t.Fatal(err)
		}
		code, err := r.manager.Wait(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		codes = append(codes, code)
	}
	if codes[0] != codes[1] {
		t.Errorf("exit code after SIGTERM: upstream %d, ours %d", codes[0], codes[1])
	}
}

// deadline is generous: it is only reached when something is wrong, or the machine very busy.
func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// ending is how a program that does not stay ends.
type ending struct {
	Code           int
	Stdout, Stderr string
}

// logHeader is what changes from line to line in front of a log message: time and process id, in text and in JSON, and the source line.
var logHeader = regexp.MustCompile(`\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ |"ts":[\d.]+,|\d{4}/\d\d/\d\d \d\d:\d\d:\d\d `)

func runToEnd(t *testing.T, binary string, args ...string) ending {
	t.Helper()
	path := controlplane.Program(binary)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; `make build upstream` builds it", err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(deadline(t), path, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	clean := func(b bytes.Buffer) string { return logHeader.ReplaceAllString(b.String(), "") }
	return ending{Code: cmd.ProcessState.ExitCode(), Stdout: clean(stdout), Stderr: clean(stderr)}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
