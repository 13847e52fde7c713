package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// nodeIPAMController runs the program with this environment and no other until it ends by itself, and returns what it printed.
func nodeIPAMController(t *testing.T, env []string, args ...string) (output string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, controlplane.Program("node-ipam-controller"), args...)
	cmd.Env = append([]string{}, env...) // nil would be the environment of this process
	out, err := cmd.CombinedOutput()
	if exit := (&exec.ExitError{}); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// TestStandaloneFlagsAndVariables gives every flag by itself, by its environment variable, and by both. The program shows what
// it has understood, and then ends, because its kubeconfig is not there.
func TestStandaloneFlagsAndVariables(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for flag, tc := range map[string]struct {
		variable     string
		value, other string
	}{
		"apiserver":                   {variable: "IPAM_API_SERVER_URL", value: "https://192.0.2.1:6443", other: "https://192.0.2.2:6443"},
		"kubeconfig":                  {variable: "IPAM_KUBECONFIG", value: nowhere, other: nowhere + "-either"},
		"webserver-bind-address":      {variable: "IPAM_WEBSERVER_BIND_ADDR", value: "127.0.0.1:1", other: ":2"},
		"enable-leader-election":      {variable: "IPAM_ENABLE_LEADER_ELECTION", value: "false", other: "true"},
		"leader-elect-lease-duration": {variable: "IPAM_LEASE_DURATION", value: "30s", other: "20s"},
		"leader-elect-renew-deadline": {variable: "IPAM_RENEW_DEADLINE", value: "9s", other: "8s"},
		"leader-elect-retry-period":   {variable: "IPAM_LEADER_ELECT_RETRY_PERIOD", value: "3s", other: "4s"},
		"leader-elect-resource-lock":  {variable: "IPAM_RESOURCE_LOCK_NAME", value: "leases", other: "endpoints"},
		"leader-elect-resource-name":  {variable: "IPAM_RESOURCE_NAME", value: "a", other: "b"},
		"leader-elect-namespace":      {variable: "IPAM_LEADER_ELECT_NAMESPACE", value: "a", other: "b"},
		"leader-elect-id":             {variable: "IPAM_LEADER_ELECT_ID", value: "a", other: "b"},
		"cluster-cidr":                {value: "10.0.0.0/16,fd00::/48"},
		"node-cidr-mask-size":         {value: "25"},
		"node-cidr-mask-size-ipv4":    {value: "25"},
		"node-cidr-mask-size-ipv6":    {value: "65"},
		"service-cluster-ip-range":    {value: "10.96.0.0/12"},
		"concurrent-node-cidr-syncs":  {value: "3"},
		"node-ipam-kube-api-qps":      {value: "1.5"},
		"node-ipam-kube-api-burst":    {value: "7"},
		"node-ipam-takeover-delay":    {value: "2m0s"},
		"secure-port":                 {value: "10258"},
		"logging-format":              {value: "text"},
		"v":                           {value: "1"},
	} {
		given := fmt.Sprintf("--%s=%s", flag, tc.value)
		ways := map[string]struct{ env, args []string }{"the flag": {args: []string{given}}}
		if tc.variable != "" {
			ways["the variable"] = struct{ env, args []string }{env: []string{tc.variable + "=" + tc.value}}
			ways["the flag wins"] = struct{ env, args []string }{env: []string{tc.variable + "=" + tc.other}, args: []string{given}}
		}
		for name, way := range ways {
			t.Run(flag+"/"+name, func(t *testing.T) {
				env := append([]string{"POD_NAMESPACE=kube-system"}, way.env...)
				args := append([]string{"-v=1"}, way.args...)
				if flag != "kubeconfig" {
					args = append(args, "--kubeconfig="+nowhere)
				}
				output, code := nodeIPAMController(t, env, args...)
				if want := fmt.Sprintf("FLAG: --%s=%q", flag, tc.value); !strings.Contains(output, want) {
					t.Errorf("no %s in:\n%s", want, output)
				}
				if want := "stat " + nowhere + ": no such file"; code != 1 || !strings.Contains(output, want) {
					t.Errorf("ended with %d, want 1 and %q in:\n%s", code, want, output)
				}
			})
		}
	}
}

// TestStandaloneOlderNames gives what older releases of the peer called otherwise.
func TestStandaloneOlderNames(t *testing.T) {
	const (
		bindAddress = `FLAG: --webserver-bind-address=":9"`
		standard    = `FLAG: --leader-elect-retry-period="2s"`
	)
	for name, tc := range map[string]struct {
		env, args []string
		want      []string
	}{
		"the flag of the probes": {
			args: []string{"--health-probe-address=:9"},
			want: []string{bindAddress, "Flag --health-probe-address has been deprecated, use --webserver-bind-address"},
		},
		"the variable of the probes": {env: []string{"IPAM_HEALTH_PROBE_ADDR=:9"}, want: []string{bindAddress}},
		"the older flag wins over the newer variable": {
			env: []string{"IPAM_WEBSERVER_BIND_ADDR=:8"}, args: []string{"--health-probe-address=:9"}, want: []string{bindAddress},
		},
		"the newer variable wins over the older variable": {
			env: []string{"IPAM_HEALTH_PROBE_ADDR=:8", "IPAM_WEBSERVER_BIND_ADDR=:9"}, want: []string{bindAddress},
		},
		"an empty variable is none": {
			env: []string{"IPAM_LEADER_ELECT_RETRY_PERIOD=", "IPAM_ENABLE_LEADER_ELECTION="}, want: []string{standard, `FLAG: --enable-leader-election="true"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			output, code := nodeIPAMController(t, append([]string{"POD_NAMESPACE=kube-system"}, tc.env...), append([]string{"-v=1", "--kubeconfig=/nowhere"}, tc.args...)...)
			if code != 1 {
				t.Errorf("ended with %d, want 1, for there is no kubeconfig", code)
			}
			for _, want := range tc.want {
				if !strings.Contains(strings.ReplaceAll(output, `\"`, `"`), want) {
					t.Errorf("no %q in:\n%s", want, output)
				}
			}
		})
	}
}

// TestStandaloneRefusals gives what cannot work. The program ends at once with 1, and says what is wrong and what to do.
func TestStandaloneRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		env, args []string
		noPod     bool // POD_NAMESPACE is not set
		want      string
	}{
		"an unknown flag":              {args: []string{"--replicas=2"}, want: "unknown flag: --replicas"},
		"an argument":                  {args: []string{"run"}, want: `unknown command "run" for "node-ipam-controller"`},
		"a variable that is no time":   {env: []string{"IPAM_LEASE_DURATION=15"}, want: `the environment variable IPAM_LEASE_DURATION is wrong: invalid argument "15" for "--leader-elect-lease-duration" flag: time: missing unit in duration "15"`},
		"a variable that is no bool":   {env: []string{"IPAM_ENABLE_LEADER_ELECTION=yes"}, want: `the environment variable IPAM_ENABLE_LEADER_ELECTION is wrong: invalid argument "yes" for "--enable-leader-election" flag`},
		"a URL of no API server":       {args: []string{"--apiserver=ftp://192.0.2.1"}, want: "--apiserver=ftp://192.0.2.1 is not the URL of an API server"},
		"an address without a port":    {args: []string{"--webserver-bind-address=localhost", "--apiserver=https://127.0.0.1:1"}, want: "listen at --webserver-bind-address: listen tcp: address localhost: missing port"},
		"a lock on Endpoints":          {args: []string{"--leader-elect-resource-lock=endpoints"}, want: "--leader-elect-resource-lock=endpoints does not exist any more"},
		"a lock on ConfigMaps":         {env: []string{"IPAM_RESOURCE_LOCK_NAME=configmaps"}, want: "Remove the flag, or set it to leases"},
		"no namespace of the Lease":    {noPod: true, want: "the Lease has no namespace: set --leader-elect-namespace, or POD_NAMESPACE"},
		"no name of the Lease":         {args: []string{"--leader-elect-resource-name="}, want: "is not the name of a Lease (--leader-elect-resource-name"},
		"a lease that is too short":    {args: []string{"--leader-elect-lease-duration=900ms", "--leader-elect-renew-deadline=800ms", "--leader-elect-retry-period=100ms"}, want: "must be 1s or more"},
		"a deadline after the lease":   {args: []string{"--leader-elect-renew-deadline=15s"}, want: "--leader-elect-lease-duration=15s must be longer than --leader-elect-renew-deadline=15s"},
		"a deadline without a retry":   {args: []string{"--leader-elect-retry-period=9s"}, want: "--leader-elect-renew-deadline=10s must be longer than 1.2 times --leader-elect-retry-period=9s"},
		"no retry period":              {args: []string{"--leader-elect-retry-period=0"}, want: "--leader-elect-retry-period=0s must be longer than 0"},
		"a cluster range that is none": {args: []string{"--cluster-cidr=10.0.0.0"}, want: "--cluster-cidr: invalid CIDR address: 10.0.0.0"},
		"a service range that is none": {args: []string{"--service-cluster-ip-range=x"}, want: "--service-cluster-ip-range: invalid CIDR address: x"},
		"blocks larger than the range": {args: []string{"--cluster-cidr=10.0.0.0/24", "--node-cidr-mask-size=16"}, want: "Nodes cannot get /16 blocks of --cluster-cidr 10.0.0.0/24"},
		"no worker":                    {args: []string{"--concurrent-node-cidr-syncs=0"}, want: "--concurrent-node-cidr-syncs must be greater than 0, got 0"},
		"a negative rate":              {args: []string{"--node-ipam-kube-api-qps=-1"}, want: "--node-ipam-kube-api-qps must be 0 (no limit) or greater, got -1"},
		"a rate that is no number":     {args: []string{"--node-ipam-kube-api-qps=NaN"}, want: "--node-ipam-kube-api-qps must be 0 (no limit) or greater, got NaN"},
		"no port of that number":       {args: []string{"--secure-port=70000"}, want: "--secure-port 70000 must be between"},
		"an unknown format of the log": {args: []string{"--logging-format=yaml"}, want: "Unsupported log format"},
		"an address of another machine": {
			args: []string{"--webserver-bind-address=192.0.2.1:1", "--apiserver=https://127.0.0.1:1"}, want: "listen at --webserver-bind-address: listen tcp 192.0.2.1:1"},
		"no cluster around": {want: "this process does not run in a Pod with a service account"},
	} {
		t.Run(name, func(t *testing.T) {
			env := tc.env
			if !tc.noPod {
				env = append([]string{"POD_NAMESPACE=kube-system"}, env...)
			}
			output, code := nodeIPAMController(t, env, tc.args...)
			if code != 1 || !strings.Contains(strings.ReplaceAll(output, `\"`, `"`), tc.want) {
				t.Errorf("ended with %d, want 1 and %q in:\n%s", code, tc.want, output)
			}
		})
	}
}

// plainProgram is a node-ipam-controller as the chart runs it: without HTTPS.
type plainProgram struct {
	*controlplane.Process
	url string
}

// startPlain returns when the program answers at its plain address, which it may choose; it ends with the test.
func startPlain(t *testing.T, c *cluster, name string, args ...string) *plainProgram {
	t.Helper()
	process, err := controlplane.StartProcess(name, filepath.Join(c.cp.LogDir(), name+".log"), controlplane.Program("node-ipam-controller"), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		expect(t, process.Stop())
	})
	p := &plainProgram{Process: process}
	must(t, eventually(patience, func(context.Context) error {
		log, err := process.Log()
		if err != nil {
			return err
		}
		match := regexp.MustCompile(`"Answering probes" address="([^"]+)"`).FindStringSubmatch(log)
		if match == nil {
			return fmt.Errorf("%s does not answer probes:\n%s", name, log)
		}
		p.url = "http://" + match[1]
		return nil
	}))
	return p
}

// answers waits until a GET of path has this status, and this text in its answer.
func (p *plainProgram) answers(path string, status int, text string) error {
	return eventually(patience, func(ctx context.Context) error {
		got, body, err := httpGet(ctx, p.url+path)
		if err == nil && (got != status || !bytes.Contains(body, []byte(text))) {
			err = fmt.Errorf("GET %s: %d %s, want %d and %q", path, got, body, status, text)
		}
		return err
	})
}

func (p *plainProgram) ready() error { return p.answers("/readyz", 200, "ok") }

// leads waits until the program leads.
func (p *plainProgram) leads() error {
	return p.answers("/metrics", 200, `leader_election_master_status{name="node-ipam-controller"} 1`)
}

// ended waits until the program has ended by itself, and returns its exit code.
func (p *plainProgram) ended(within time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return p.Wait(ctx)
}
