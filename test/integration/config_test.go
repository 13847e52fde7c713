package integration

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/multicidr/controller-manager/test/controlplane"
)

const componentForm = "apiVersion: kubecontrollermanager.config.k8s.io/v1alpha1\nkind: KubeControllerManagerConfiguration\n"

// TestConfig gives both programs a file, and reads from --write-config-to what they made of it. Neither has an API server, so what is wrong
// is found before one is asked.
func TestConfig(t *testing.T) {
	for name, tc := range map[string]struct {
		program   string // node-ipam-controller, if it is not kube-controller-manager
		file      string
		env, args []string
		want      []string // lines of what is written; none if it is refused
		refused   string
		logged    string
	}{
		"the flat form": {
			file: "allocateNodeCIDRs: true\nclusterCIDR: \"10.244.0.0/16\"\nnodeCIDRMaskSize: 25\nnodeCIDRMaskSizeIPv4: 25\nnodeCIDRMaskSizeIPv6: 64\ncontrollers: [\"*\", multi-cidr-node-ipam-controller]\n",
			want: []string{"allocateNodeCIDRs: true", "clusterCIDR: 10.244.0.0/16", "nodeCIDRMaskSizeIPv4: 25", "    - multi-cidr-node-ipam-controller", "leaderElectLeaseDuration: 15s"},
		},
		"for node-ipam-controller": {
			program: "node-ipam-controller",
			file:    "allocateNodeCIDRs: true\nclusterCIDR: \"10.244.0.0/16\"\nnodeCIDRMaskSize: 24\nnodeCIDRMaskSizeIPv4: 24\nnodeCIDRMaskSizeIPv6: 64\n",
			want:    []string{"allocateNodeCIDRs: true", "clusterCIDR: 10.244.0.0/16", "nodeCIDRMaskSize: 24", "nodeCIDRMaskSizeIPv4: 24", "nodeCIDRMaskSizeIPv6: 64"},
		},
		"keys that contradict each other": {
			program: "node-ipam-controller",
			file:    "clusterCIDR: \"10.244.0.0/16\"\nnodeCIDRMaskSize: 24\nnodeCIDRMaskSizeIPv4: 25\n",
			refused: "file.yaml:2, --node-cidr-mask-size-ipv4 is ",
		},
		"keys that contradict each other, for the controller in kube-controller-manager": {
			file:    "clusterCIDR: \"10.244.0.0/16\"\nnodeCIDRMaskSize: 24\nnodeCIDRMaskSizeIPv4: 25\ncontrollers: [\"*\", multi-cidr-node-ipam-controller]\n",
			refused: "file.yaml:2, --node-cidr-mask-size-ipv4 is ",
		},
		"and without it": {
			file: "clusterCIDR: \"10.244.0.0/16\"\nnodeCIDRMaskSize: 24\nnodeCIDRMaskSizeIPv4: 25\n",
			want: []string{"nodeCIDRMaskSize: 24", "nodeCIDRMaskSizeIPv4: 25"},
		},
		"a service range that is none": {
			file: "serviceClusterIPRange: rubbish\ncontrollers: [multi-cidr-node-ipam-controller]\n", refused: "file.yaml:1",
		},
		"the component form": {
			file: componentForm + "Generic:\n  LeaderElection: {leaseDuration: 21s}\nKubeCloudShared: {AllocateNodeCIDRs: true, ClusterCIDR: 10.244.0.0/16}\nNodeIPAMController: {NodeCIDRMaskSize: 26}\n",
			want: []string{"leaderElectLeaseDuration: 21s", "allocateNodeCIDRs: true", "clusterCIDR: 10.244.0.0/16", "nodeCIDRMaskSize: 26", "leaderElectResourceName: kube-controller-manager"},
		},
		"flags win": {
			file: "nodeCIDRMaskSize: 25\nclusterName: a\n", args: []string{"--node-cidr-mask-size=26"},
			want: []string{"nodeCIDRMaskSize: 26", "clusterName: a"},
		},
		"a feature gate, which is set before everything else": {
			file: "featureGates: {ControllerManagerReleaseLeaderElectionLockOnExit: true}\n", want: []string{"featureGates: :ControllerManagerReleaseLeaderElectionLockOnExit=true"},
		},
		"an unknown feature gate": {file: "featureGates: {Nothing: true}\n", refused: "Nothing"},
		"an unknown key":          {file: "v: 1\nclusterCidr: 10.244.0.0/16\n", refused: "file.yaml:2: there is no key clusterCidr: write clusterCIDR"},
		"an unknown field":        {file: componentForm + "Generic:\n  Ports: 1\n", refused: "file.yaml:4: there is no field Generic.Ports"},
		"a wrong type":            {file: "allocateNodeCIDRs: 1\n", refused: "file.yaml:1: allocateNodeCIDRs: 1 is not true or false"},
		"a key twice":             {file: "v: 1\nv: 2\n", refused: "file.yaml:2: v is here twice, first in line 1"},
		"a contradiction": {
			file: "v: 1\nconcurrentNodeCIDRSyncs: 0\n", refused: "file.yaml:2)",
		},

		"order": {
			program: "node-ipam-controller", file: "leaderElectLeaseDuration: 20s\nleaderElectRenewDeadline: 8s\nleaderElectRetryPeriod: 3s\n",
			env: []string{"IPAM_RENEW_DEADLINE=9s", "IPAM_LEADER_ELECT_RETRY_PERIOD=4s"}, args: []string{"--leader-elect-retry-period=5s"},
			want: []string{"leaderElectLeaseDuration: 20s", "leaderElectRenewDeadline: 9s", "leaderElectRetryPeriod: 5s", "leaderElectResourceName: node-ipam-controller"},
		},
		"a file of kube-controller-manager": {
			program: "node-ipam-controller",
			file: componentForm + "Generic:\n  LeaderElection: {leaderElect: false, resourceNamespace: ns}\n" +
				"KubeCloudShared: {AllocateNodeCIDRs: false, ClusterCIDR: 10.244.0.0/16, ClusterName: a}\nNodeIPAMController: {ServiceCIDR: 10.96.0.0/12}\n",
			want:   []string{"enableLeaderElection: false", "allocateNodeCIDRs: false", "leaderElectNamespace: ns", "clusterCIDR: 10.244.0.0/16", "serviceClusterIPRange: 10.96.0.0/12"},
			logged: "They have no effect: cluster-name",
		},
		"a key of another program": {program: "node-ipam-controller", file: "clusterName: a\n", refused: "file.yaml:1: there is no key clusterName"},
		"a contradiction of standalone": {
			program: "node-ipam-controller", file: "v: 1\nleaderElectRenewDeadline: 20s\n", refused: "--leader-elect-renew-deadline is ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file, written := filepath.Join(dir, "file.yaml"), filepath.Join(dir, "written.yaml")
			if err := os.WriteFile(file, []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			program := "kube-controller-manager"
			if tc.program != "" {
				program = tc.program
			}
			run := func(env []string, config, to string, args ...string) (string, int) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				cmd := exec.CommandContext(ctx, controlplane.Program(program), append([]string{"--config=" + config, "--write-config-to=" + to}, args...)...)
				cmd.Env = append([]string{"POD_NAMESPACE=kube-system"}, env...)
				out, err := cmd.CombinedOutput()
				if exit := (&exec.ExitError{}); err != nil && !errors.As(err, &exit) {
					t.Fatal(err)
				}
				return string(out), cmd.ProcessState.ExitCode()
			}
			output, code := run(tc.env, file, written, tc.args...)
			data, err := os.ReadFile(written)
			if tc.refused != "" {
				if code != 1 || !strings.Contains(output, tc.refused) || !os.IsNotExist(err) {
					t.Errorf("ended with %d and wrote %q, want 1 and %s in:\n%s", code, data, tc.refused, output)
				}
				return
			}
			if code != 0 || err != nil || !strings.Contains(output, tc.logged) {
				t.Fatalf("ended with %d, %v, want %q in:\n%s", code, err, tc.logged, output)
			}
			for _, line := range tc.want {
				if !strings.Contains("\n"+string(data), "\n"+line+"\n") {
					t.Errorf("no line %s in:\n%s", line, data)
				}
			}
			again := filepath.Join(dir, "again.yaml")
			output, code = run(nil, written, again)
			if second, err := os.ReadFile(again); code != 0 || err != nil || !bytes.Equal(second, data) {
				t.Errorf("what was written is read as something else (%d, %v):\n%s\n%s", code, err, second, output)
			}
		})
	}
}
