package monitoring

import (
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"go.yaml.in/yaml/v3"
)

// alerts reads the rules as the Prometheus Operator hands them to Prometheus.
func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	all := map[string]rulefmt.Rule{}
	for _, file := range []string{"prometheusrule.yaml", "cluster-ipam-prometheusrule.yaml"} {
		for _, rule := range readRules(t, "../../manifests/monitoring/"+file) {
			if _, twice := all[rule.Alert]; twice || rule.Alert == "" {
				t.Errorf("alert %q is there twice, or is no alert", rule.Alert)
			}
			all[rule.Alert] = rule
		}
	}
	return all
}

func readRules(t *testing.T, file string) (all []rulefmt.Rule) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct{ Name, Namespace string }
		Spec       map[string]any
	}
	if err := yaml.Unmarshal(content, &object); err != nil {
		t.Fatal(err)
	}
	if object.APIVersion != "monitoring.coreos.com/v1" || object.Kind != "PrometheusRule" || object.Metadata.Name == "" || object.Metadata.Namespace == "" {
		t.Errorf("this is %+v, want a PrometheusRule with a name and a namespace", object)
	}
	spec, err := yaml.Marshal(object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(spec, false, model.LegacyValidation, promQL, slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if len(errs) > 0 {
		t.FailNow()
	}
	for _, group := range groups.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

var usedLabel = regexp.MustCompile(`\$labels\.(\w+)`)

func TestAlertsAreWellFormed(t *testing.T) {
	known := documented(t)
	for name, rule := range alerts(t) {
		t.Run(name, func(t *testing.T) {
			expr, err := promQL.ParseExpr(rule.Expr)
			if err != nil {
				t.Fatal(err)
			}
			checkNames(t, expr, known)
			if rule.For == 0 {
				t.Error("it fires at the first look; a scrape can be late, or a leader change")
			}
			if severity := rule.Labels["severity"]; !slices.Contains([]string{"info", "warning", "critical"}, severity) {
				t.Errorf("severity is %q", severity)
			}
			for _, annotation := range []string{"summary", "description"} {
				if len(strings.Fields(rule.Annotations[annotation])) < 5 {
					t.Errorf("%s is %q, which helps nobody", annotation, rule.Annotations[annotation])
				}
			}
		})
	}
}

// Samples come once a minute, and the rules are looked at as often. `stale` is what Prometheus writes when a series ends.
func TestAlerts(t *testing.T) {
	const enabled = `node_ipam_controller_clustercidr_state{clusterCIDRName="a",state="Enabled"} 1x60` + "\n"
	const otherEnabled = `node_ipam_controller_clustercidr_state{clusterCIDRName="b",state="Enabled"} 1x60` + "\n"
	blocks := func(allocated, free, unavailable string) string {
		return `node_ipam_controller_blocks{clusterCIDRName="a",family="IPv4",state="allocated"} ` + allocated + "\n" +
			`node_ipam_controller_blocks{clusterCIDRName="a",family="IPv4",state="free"} ` + free + "\n" +
			`node_ipam_controller_blocks{clusterCIDRName="a",family="IPv4",state="unavailable"} ` + unavailable + "\n"
	}
	type firing = map[string]string // labels, and the value under "value"
	cases := map[string]struct {
		alert  string
		series string
		after  time.Duration
		want   []firing // then; none: and never before
	}{
		"81 % used for a quarter of an hour": {
			alert: "NodeIPAMRangeAlmostFull", series: enabled + blocks("71x60", "19x60", "10x60"), after: 16 * time.Minute,
			want: []firing{{"clusterCIDRName": "a", "family": "IPv4", "severity": "warning", "value": "81%"}},
		},
		"81 % used for a moment": {
			alert: "NodeIPAMRangeAlmostFull", series: enabled + blocks("71x14 60x45", "19x14 30x45", "10x60"), after: 40 * time.Minute,
		},
		"80 % used": {
			alert: "NodeIPAMRangeAlmostFull", series: enabled + blocks("70x60", "20x60", "10x60"), after: 30 * time.Minute,
		},
		"almost full and disabled, beside one that is enabled": {
			alert: "NodeIPAMRangeAlmostFull", after: 30 * time.Minute,
			series: otherEnabled + `node_ipam_controller_clustercidr_state{clusterCIDRName="a",state="Disabled"} 1x60` + "\n" + blocks("90x60", "10x60", "0x60"),
		},
		"full, for which there is another alert": {
			alert: "NodeIPAMRangeAlmostFull", series: enabled + blocks("90x60", "0x60", "10x60"), after: 30 * time.Minute,
		},
		"full": {
			alert: "NodeIPAMRangeExhausted", series: enabled + blocks("90x60", "0x60", "10x60"), after: 6 * time.Minute,
			want: []firing{{"clusterCIDRName": "a", "family": "IPv4", "severity": "warning", "value": "0"}},
		},
		"one block left": {
			alert: "NodeIPAMRangeExhausted", series: enabled + blocks("89x60", "1x60", "10x60"), after: 30 * time.Minute,
		},
		"full and being drained, beside one that is enabled": {
			alert: "NodeIPAMRangeExhausted", after: 30 * time.Minute,
			series: otherEnabled + `node_ipam_controller_clustercidr_state{clusterCIDRName="a",state="Terminating"} 1x60` + "\n" + blocks("90x60", "0x60", "10x60"),
		},
		"a Node has a podCIDR that contains two ranges": {
			alert: "NodeIPAMRangeCovered", after: 2 * time.Minute,
			series: "node_ipam_controller_range_covered{clusterCIDRName=\"a\",family=\"IPv4\",node=\"n\"} 1x10\nnode_ipam_controller_range_covered{clusterCIDRName=\"b\",family=\"IPv4\",node=\"n\"} 1x10",
			want:   []firing{{"node": "n", "severity": "critical", "value": "2"}},
		},
		"the same range, of two leaders one after the other": {
			alert: "NodeIPAMRangeCovered", after: 4 * time.Minute,
			series: "node_ipam_controller_range_covered{instance=\"x\",clusterCIDRName=\"a\",family=\"IPv4\",node=\"n\"} 1x10\nnode_ipam_controller_range_covered{instance=\"y\",clusterCIDRName=\"a\",family=\"IPv4\",node=\"n\"} _x2 1x10",
			want:   []firing{{"node": "n", "severity": "critical", "value": "1"}},
		},
		"a Node that contained a range is deleted at once": {
			alert: "NodeIPAMRangeCovered", series: `node_ipam_controller_range_covered{clusterCIDRName="a",family="IPv4",node="n"} 1 stale`, after: 10 * time.Minute,
		},
		"Nodes wait, for two reasons": {
			alert: "NodeIPAMNodesWaiting", after: 6 * time.Minute,
			series: "node_ipam_controller_waiting_nodes{reason=\"Full\"} 3x10\nnode_ipam_controller_waiting_nodes{reason=\"NotSelected\"} 1x10\nnode_ipam_controller_waiting_nodes{reason=\"Disabled\"} 0x10",
			want: []firing{
				{"reason": "Full", "severity": "critical", "value": "3"},
				{"reason": "NotSelected", "severity": "critical", "value": "1"},
			},
		},
		"Nodes wait, while another process takes the lead": {
			alert: "NodeIPAMNodesWaiting", after: 6 * time.Minute,
			series: "node_ipam_controller_waiting_nodes{instance=\"x\",reason=\"Full\"} 3x2 stale\nnode_ipam_controller_waiting_nodes{instance=\"y\",reason=\"Full\"} _x2 3x10",
			want:   []firing{{"reason": "Full", "severity": "critical", "value": "3"}},
		},
		"Nodes wait for four minutes": {
			alert: "NodeIPAMNodesWaiting", series: `node_ipam_controller_waiting_nodes{reason="Full"} 0x1 3x4 0x20`, after: 20 * time.Minute,
		},
		"two Nodes share addresses": {
			alert: "NodeIPAMConflict", series: `node_ipam_controller_conflicting_nodes 2x10`, after: 2 * time.Minute,
			want: []firing{{"severity": "critical", "value": "2"}},
		},
		"no Nodes share addresses": {
			alert: "NodeIPAMConflict", series: `node_ipam_controller_conflicting_nodes 0x10`, after: 10 * time.Minute,
		},
		"a Node holds blocks that it does not show": {
			alert: "NodeIPAMAllocatedDiffersFromNodes", after: 11 * time.Minute,
			series: "node_ipam_controller_nodes_holding_blocks{instance=\"x\"} 100x20\nnode_ipam_controller_nodes_with_podcidrs{instance=\"x\"} 99x20",
			want:   []firing{{"severity": "warning", "value": "1"}},
		},
		"two Nodes show what the ledger does not know": {
			alert: "NodeIPAMAllocatedDiffersFromNodes", after: 11 * time.Minute,
			series: "node_ipam_controller_nodes_holding_blocks 100x20\nnode_ipam_controller_nodes_with_podcidrs 102x20",
			want:   []firing{{"severity": "warning", "value": "2"}},
		},
		"many Nodes are being served": {
			alert: "NodeIPAMAllocatedDiffersFromNodes", after: 20 * time.Minute,
			series: "node_ipam_controller_nodes_holding_blocks 100x5 5000x20\nnode_ipam_controller_nodes_with_podcidrs 100x5 2000 4000 5000x20",
		},
		"a process without Nodes stands by": {
			alert: "NodeIPAMAllocatedDiffersFromNodes", after: 20 * time.Minute,
			series: "node_ipam_controller_nodes_holding_blocks{instance=\"x\"} 100x30\nnode_ipam_controller_nodes_with_podcidrs{instance=\"x\"} 100x30\nup{instance=\"y\"} 1x30",
		},
		"a deletion waits for Nodes for a day": {
			alert: "NodeIPAMDeletionBlocked", series: `node_ipam_controller_terminating_clustercidr_nodes{clusterCIDRName="a"} 7x1500`, after: 24*time.Hour + time.Minute,
			want: []firing{{"clusterCIDRName": "a", "severity": "warning", "value": "7"}},
		},
		"a deletion waits for Nodes for some hours": {
			alert: "NodeIPAMDeletionBlocked", series: `node_ipam_controller_terminating_clustercidr_nodes{clusterCIDRName="a"} 7x700 0 stale`, after: 25 * time.Hour,
		},
		"nothing keeps a ClusterCIDR, and it does not go": {
			alert: "NodeIPAMDeletionStuck", series: `node_ipam_controller_terminating_clustercidr_nodes{clusterCIDRName="a"} 7x5 0x20`, after: 17 * time.Minute,
			want: []firing{{"clusterCIDRName": "a", "severity": "warning", "value": "0"}},
		},
		"the last Node goes and with it the ClusterCIDR": {
			alert: "NodeIPAMDeletionStuck", series: `node_ipam_controller_terminating_clustercidr_nodes{clusterCIDRName="a"} 7x5 0 stale`, after: 30 * time.Minute,
		},
		"an invalid ClusterCIDR": {
			alert: "NodeIPAMClusterCIDRInvalid", series: enabled + `node_ipam_controller_clustercidr_state{clusterCIDRName="b",state="Invalid"} 1x20`, after: 6 * time.Minute,
			want: []firing{{"clusterCIDRName": "b", "severity": "warning", "value": "1"}},
		},
		"valid ClusterCIDRs": {
			alert: "NodeIPAMClusterCIDRInvalid", series: enabled, after: 20 * time.Minute,
		},
		"Nodes in no range": {
			alert: "NodeIPAMNodesOutsideRanges", series: `node_ipam_controller_nodes_outside_ranges 4x20`, after: 11 * time.Minute,
			want: []firing{{"severity": "info", "value": "4"}},
		},
		"Nodes in no range, until there is one": {
			alert: "NodeIPAMNodesOutsideRanges", series: `node_ipam_controller_nodes_outside_ranges 4x8 0x50`, after: 40 * time.Minute,
		},
		"PATCHes are forbidden": {
			alert: "NodeIPAMPatchErrors", after: 15 * time.Minute,
			series: "node_ipam_controller_node_patches_total{result=\"forbidden\"} 0+6x30\nnode_ipam_controller_node_patches_total{result=\"success\"} 0+60x30\nnode_ipam_controller_node_patches_total{result=\"gone\"} 0+60x30",
			want:   []firing{{"result": "forbidden", "severity": "warning", "value": "0.1"}},
		},
		"PATCHes failed once": {
			alert: "NodeIPAMPatchErrors", after: 25 * time.Minute,
			series: "node_ipam_controller_node_patches_total{result=\"timeout\"} 0x2 9x30\nnode_ipam_controller_node_patches_total{result=\"success\"} 0+60x30",
		},
		"a webhook is broken": {
			alert: "NodeIPAMWritesFail", after: 5 * time.Minute,
			series: "node_ipam_controller_failing_writes{kind=\"Node\"} 3x10\nnode_ipam_controller_failing_writes{kind=\"ClusterCIDR\"} 0x10",
			want:   []firing{{"kind": "Node", "severity": "critical", "value": "3"}},
		},
		"the API server restarted": {
			alert: "NodeIPAMWritesFail", series: "node_ipam_controller_failing_writes{kind=\"Node\"} 0x2 3 0x10", after: 10 * time.Minute,
		},
		"the controller waits for the CRD": {
			alert: "NodeIPAMControllerNotReady", series: `node_ipam_controller_ready 0x10`, after: 6 * time.Minute,
			want: []firing{{"severity": "critical", "value": "0"}},
		},
		"the controller was not ready for a moment": {
			alert: "NodeIPAMControllerNotReady", series: `node_ipam_controller_ready 1x2 0x4 1x20`, after: 20 * time.Minute,
		},
		"two IPAddresses have one address": {
			alert: "ClusterIPAMConflict", series: "cluster_ipam_conflicting_addresses{controller=\"c\"} 1x10", after: 2 * time.Minute,
			want: []firing{{"controller": "c", "severity": "critical", "value": "1"}},
		},
		"no address is in conflict": {
			alert: "ClusterIPAMConflict", series: "cluster_ipam_conflicting_addresses{controller=\"c\"} 0x10", after: 10 * time.Minute,
		},
		"one pool of two of a name has few addresses, and the target has a namespace": {
			alert: "ClusterIPAMPoolAlmostFull", after: 16 * time.Minute,
			series: "cluster_ipam_addresses{kind=\"k\",namespace=\"t\",exported_namespace=\"n\",pool=\"p\",state=\"free\"} 9x30\ncluster_ipam_addresses{kind=\"k\",namespace=\"t\",exported_namespace=\"n\",pool=\"p\",state=\"used\"} 91x30\n" +
				"cluster_ipam_addresses{kind=\"k\",namespace=\"t\",exported_namespace=\"m\",pool=\"p\",state=\"free\"} 99x30\ncluster_ipam_addresses{kind=\"k\",namespace=\"t\",exported_namespace=\"m\",pool=\"p\",state=\"used\"} 1x30",
			want: []firing{{"kind": "k", "namespace": "t", "exported_namespace": "n", "pool": "p", "severity": "warning", "value": "9%"}},
		},
		"a pool has a tenth left, and one no addresses at all": {
			alert: "ClusterIPAMPoolAlmostFull", after: 60 * time.Minute,
			series: "cluster_ipam_addresses{kind=\"k\",pool=\"p\",state=\"free\"} 10x60\ncluster_ipam_addresses{kind=\"k\",pool=\"p\",state=\"used\"} 90x60\ncluster_ipam_addresses{kind=\"k\",pool=\"p\",state=\"out_of_range\"} 90x60\n" +
				"cluster_ipam_addresses{kind=\"k\",pool=\"q\",state=\"free\"} 0x60\ncluster_ipam_addresses{kind=\"k\",pool=\"q\",state=\"used\"} 0x60",
		},
		"claims wait for a pool that is full": {
			alert: "ClusterIPAMObjectsWait", series: "cluster_ipam_waiting_objects{controller=\"c\",reason=\"PoolExhausted\"} 3x30", after: 16 * time.Minute,
			want: []firing{{"controller": "c", "reason": "PoolExhausted", "severity": "warning", "value": "3"}},
		},
		"claims are paused": {
			alert: "ClusterIPAMObjectsWait", series: "cluster_ipam_waiting_objects{controller=\"c\",reason=\"Paused\"} 3x30", after: 30 * time.Minute,
		},
		"a webhook refuses IPAddresses": {
			alert: "ClusterIPAMWritesFail", series: "cluster_ipam_failing_objects{controller=\"c\",kind=\"IPAddressClaim\"} 3x10", after: 6 * time.Minute,
			want: []firing{{"controller": "c", "kind": "IPAddressClaim", "severity": "critical", "value": "3"}},
		},
		"a webhook restarted": {
			alert: "ClusterIPAMWritesFail", series: "cluster_ipam_failing_objects{controller=\"c\",kind=\"IPAddressClaim\"} 0 3x4 0x10", after: 10 * time.Minute,
		},
		"one controller of two waits for its kinds": {
			alert: "ClusterIPAMControllerNotReady", series: "cluster_ipam_ready{controller=\"c\"} 0x30\ncluster_ipam_ready{controller=\"d\"} 1x30", after: 16 * time.Minute,
			want: []firing{{"controller": "c", "severity": "warning", "value": "0"}},
		},
		"a controller was not ready for ten minutes": {
			alert: "ClusterIPAMControllerNotReady", series: "cluster_ipam_ready{controller=\"c\"} 1 0x10 1x30", after: 30 * time.Minute,
		},
		"nobody leads Cluster IPAM": {
			alert: "ClusterIPAMControllerAbsent", series: "cluster_ipam_ready{controller=\"c\"} 1x5 stale\nup{instance=\"x\"} 1x60", after: 22 * time.Minute,
			want: []firing{{"severity": "critical", "value": "1"}},
		},
		"the lead of Cluster IPAM changes": {
			alert: "ClusterIPAMControllerAbsent", series: "cluster_ipam_ready{controller=\"c\",instance=\"x\"} 1x5 stale\ncluster_ipam_ready{controller=\"c\",instance=\"y\"} _x7 0x60", after: 60 * time.Minute,
		},
		"nobody leads": {
			alert: "NodeIPAMControllerAbsent", series: "node_ipam_controller_ready 1x5 stale\nup{instance=\"x\"} 1x60", after: 22 * time.Minute,
			want: []firing{{"severity": "critical", "value": "1"}},
		},
		"the lead changes, and the new one is not ready": {
			alert: "NodeIPAMControllerAbsent", series: "node_ipam_controller_ready{instance=\"x\"} 1x5 stale\nnode_ipam_controller_ready{instance=\"y\"} _x7 0x60", after: 60 * time.Minute,
		},
	}

	all := alerts(t)
	fires, silent := map[string]bool{}, map[string]bool{}
	for sentence, tc := range cases {
		if len(tc.want) > 0 {
			fires[tc.alert] = true
		} else {
			silent[tc.alert] = true
		}
		t.Run(sentence, func(t *testing.T) {
			rule, ok := all[tc.alert]
			if !ok {
				t.Fatalf("there is no alert %s", tc.alert)
			}
			var got []firing
			for _, alert := range firingAfter(t, rule, tc.series, tc.after, len(tc.want) == 0) {
				for _, m := range usedLabel.FindAllStringSubmatch(rule.Annotations["summary"]+rule.Annotations["description"], -1) {
					if alert.Labels.Get(m[1]) == "" {
						t.Errorf("a text uses label %s, which the alert does not have: %v", m[1], alert.Labels)
					}
				}
				value := alert.Annotations.Get("value")
				if text := alert.Annotations.Get("summary") + alert.Annotations.Get("description"); strings.Contains(text, "error expanding") {
					t.Error(text)
				}
				f := alert.Labels.Map()
				delete(f, labels.AlertName)
				f["value"] = value
				got = append(got, f)
			}
			slices.SortFunc(got, func(a, b firing) int { return strings.Compare(a["reason"], b["reason"]) })
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("firing after %v (-want +got):\n%s", tc.after, diff)
			}
		})
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !fires[name] || !silent[name] {
			t.Errorf("there has to be a case in which %s fires (%v), and one in which it does not (%v)", name, fires[name], silent[name])
		}
	}
}

// firingAfter looks at a rule once a minute for so long, and returns the alerts that fire then, or at any time before.
func firingAfter(t *testing.T, rule rulefmt.Rule, series string, after time.Duration, orBefore bool) (firing []*rules.Alert) {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n  "+strings.ReplaceAll(strings.TrimSpace(series), "\n", "\n  ")+"\n")
	query := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 0, 100_000), storage)
	expr, err := promQL.ParseExpr(rule.Expr)
	if err != nil {
		t.Fatal(err)
	}
	texts := maps.Clone(rule.Annotations)
	texts["value"] = "{{ $value }}"
	if strings.Contains(rule.Annotations["summary"], "humanizePercentage") {
		texts["value"] = "{{ $value | humanizePercentage }}"
	}
	alerting := rules.NewAlertingRule(rule.Alert, expr, time.Duration(rule.For), time.Duration(rule.KeepFiringFor),
		labels.FromMap(rule.Labels), labels.FromMap(texts), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	for at := time.Duration(0); at <= after; at += time.Minute {
		if _, err := alerting.Eval(t.Context(), 0, time.Unix(0, 0).UTC().Add(at), query, nil, 0); err != nil {
			t.Fatal(err)
		}
		for _, alert := range alerting.ActiveAlerts() {
			if alert.State == rules.StateFiring && (orBefore || at == after) {
				firing = append(firing, alert)
			}
		}
	}
	return firing
}

// Prometheus scrapes two clusters, of which one has lost its allocator.
func TestAbsentInOneOfSeveralClusters(t *testing.T) {
	rule := alerts(t)["NodeIPAMControllerAbsent"]
	series := "node_ipam_controller_ready{cluster=\"east\"} 1x5 stale\nnode_ipam_controller_ready{cluster=\"west\"} 1x60\n" +
		"up{cluster=\"east\"} 1x60\nup{cluster=\"west\"} 1x60"
	if got := firingAfter(t, rule, series, 40*time.Minute, false); len(got) == 0 {
		t.Error("cluster east has no controller for 35 minutes, and no alert fires")
	}
}
