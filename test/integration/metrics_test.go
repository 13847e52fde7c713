package integration

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/controlplane"
)

const ourMetrics = "node_ipam_controller_"

// TestMetrics brings a cluster into a state in which every metric has something to show, and compares it with the cluster
// and with docs/reference/metrics.md, on which alerts and dashboard are built.
func TestMetrics(t *testing.T) {
	ctx := t.Context()
	c := sharedCluster(t)
	before, err := scrape(ctx, c.manager)
	if err != nil {
		t.Fatal(err)
	}
	do := func(run func(*cluster, []string) error, line string) {
		t.Helper()
		if err := run(c, strings.Fields(line)); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	wantSamples := func(want map[string]float64) {
		t.Helper()
		expect(t, eventually(patience, func(ctx context.Context) error {
			families, err := scrape(ctx, c.manager)
			if err != nil {
				return err
			}
			now, earlier, got := samplesOf(families), samplesOf(before), map[string]float64{}
			for name := range want {
				if value, ok := now[name]; ok {
					got[name] = value
				} else if counter, ok := strings.CutSuffix(name, " more"); ok {
					got[name] = now[counter] - earlier[counter]
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				return fmt.Errorf("(-want +got):\n%s", diff)
			}
			return nil
		}))
	}

	do(createClusterCIDR, "a sel(p=a) 10.0.0.0/23 fd00:a::/48 hb8 v6hb64")
	do(createClusterCIDR, "going sel(p=g) 10.1.0.0/16 hb8")
	for _, line := range []string{"a1 p=a", "a2 p=a", "g1 p=g"} {
		do(createNode, line)
		must(t, c.isServed(strings.Fields(line)[0]))
	}
	do(deleteObjects, "cc going")
	do(createNode, "a3 p=a")
	do(createNode, "nobody p=z")
	do(createNode, "clash 10.0.0.0/25")
	do(createNode, "far 172.16.0.0/24")
	do(createClusterCIDR, "covered sel(p=c) 10.4.0.0/16 hb8")
	do(createNode, "wide 10.4.0.0/14")

	t.Run("figures", func(t *testing.T) {
		wantSamples(map[string]float64{
			`ready{}`: 1,
			`clustercidr_state{clusterCIDRName="a",state="Enabled"}`:                                   1,
			`clustercidr_state{clusterCIDRName="going",state="Terminating"}`:                           1,
			`blocks{clusterCIDRName="a",family="IPv4",state="allocated"}`:                              2,
			`blocks{clusterCIDRName="a",family="IPv4",state="free"}`:                                   0,
			`blocks{clusterCIDRName="a",family="IPv4",state="unavailable"}`:                            0,
			`blocks{clusterCIDRName="a",family="IPv6",state="allocated"}`:                              2,
			`blocks{clusterCIDRName="a",family="IPv6",state="free"}`:                                   65534,
			`waiting_nodes{reason="Full"}`:                                                             1,
			`waiting_nodes{reason="NotSelected"}`:                                                      1,
			`waiting_nodes{reason="NoClusterCIDR"}`:                                                    0,
			`conflicting_nodes{}`:                                                                      2,
			`range_covered{clusterCIDRName="covered",family="IPv4",node="wide"}`:                       1,
			`nodes_outside_ranges{}`:                                                                   2,
			`nodes_holding_blocks{}`:                                                                   6,
			`nodes_with_podcidrs{}`:                                                                    6,
			`terminating_clustercidr_nodes{clusterCIDRName="going"}`:                                   1,
			`multicidrset_max_cidrs{clusterCIDR="10.0.0.0/23",clusterCIDRName="a"}`:                    2,
			`multicidrset_usage_cidrs{clusterCIDR="10.0.0.0/23",clusterCIDRName="a"}`:                  1,
			`multicidrset_cidrs_allocations_total{clusterCIDR="10.0.0.0/23",clusterCIDRName="a"}`:      2,
			`multicidrset_cidrs_releases_total{clusterCIDR="10.0.0.0/23",clusterCIDRName="a"}`:         0,
			`multicidrset_allocation_tries_per_request{clusterCIDR="10.0.0.0/23",clusterCIDRName="a"}`: 2,
			`multicidrset_allocation_tries_per_request{clusterCIDR="fd00:a::/48",clusterCIDRName="a"}`: 2,
			`assignment_duration_seconds{} more`:                                                       3,
			`node_patches_total{result="success"} more`:                                                3,
			`node_patches_total{result="forbidden"} more`:                                              0,
		})
	})

	t.Run("the same figures as the status", func(t *testing.T) {
		var cc *networkingv1.ClusterCIDR
		must(t, eventually(patience, func(ctx context.Context) (err error) {
			if cc, err = c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Get(ctx, "a", metav1.GetOptions{}); err != nil {
				return err
			}
			if cc.Status.IPv4 == nil || cc.Status.IPv4.Allocated != 2 {
				return fmt.Errorf("status of ClusterCIDR a: %+v", cc.Status.IPv4)
			}
			return nil
		}))
		want := map[string]float64{}
		for family, s := range map[string]*networkingv1.RangeStatus{"IPv4": cc.Status.IPv4, "IPv6": cc.Status.IPv6} {
			for state, n := range map[string]int64{"allocated": s.Allocated, "free": s.Free, "unavailable": s.Unavailable} {
				want[fmt.Sprintf(`blocks{clusterCIDRName="a",family=%q,state=%q}`, family, state)] = float64(n)
			}
		}
		wantSamples(want)
	})

	t.Run("docs/reference/metrics.md", func(t *testing.T) {
		families, err := scrape(ctx, c.manager)
		if err != nil {
			t.Fatal(err)
		}
		want, got := documentedMetrics(t), map[string]string{}
		for name, family := range families {
			_, documented := want[name]
			if documented || strings.HasPrefix(name, ourMetrics) {
				got[name] = typeAndLabels(family)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-documented +shown):\n%s", diff)
		}
	})

	t.Run("a standby shows nothing", func(t *testing.T) {
		standby := c.start(t, controlplane.ManagerOptions{Name: "standby", Args: ours})
		families, err := scrape(ctx, standby)
		if err != nil {
			t.Fatal(err)
		}
		for name := range families {
			if strings.HasPrefix(name, ourMetrics) {
				t.Errorf("it shows %s", name)
			}
		}
	})

	t.Run("series go with their objects", func(t *testing.T) {
		do(deleteObjects, "node a1 a2 a3 g1 clash far nobody wide")
		do(gone, "cc going")
		do(deleteObjects, "cc a covered")
		do(gone, "cc a")
		do(gone, "cc covered")
		expect(t, eventually(patience, func(ctx context.Context) error {
			families, err := scrape(ctx, c.manager)
			if err != nil {
				return err
			}
			var left []string
			for name, value := range samplesOf(families) {
				if strings.Contains(name, "clusterCIDRName") || value != 0 && (strings.HasPrefix(name, "waiting") || strings.Contains(name, "nodes{}")) {
					left = append(left, fmt.Sprint(name, " ", value))
				}
			}
			if len(left) > 0 {
				return fmt.Errorf("without Nodes and ClusterCIDRs there are still\n%s", strings.Join(left, "\n"))
			}
			return nil
		}))
	})
}

func scrape(ctx context.Context, m *controlplane.Manager) (map[string]*dto.MetricFamily, error) {
	return m.Metrics(ctx, "/metrics")
}

// samplesOf are our metrics as Prometheus writes them, without what all names begin with; of histograms, the counts.
func samplesOf(families map[string]*dto.MetricFamily) map[string]float64 {
	all := map[string]float64{}
	for name, family := range families {
		short, ok := strings.CutPrefix(name, ourMetrics)
		if !ok {
			continue
		}
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			slices.Sort(labels)
			all[short+"{"+strings.Join(labels, ",")+"}"] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// documentedMetrics reads docs/reference/metrics.md: type and labels by name. Those of Cluster IPAM, whose controllers do not run here, are left out.
func documentedMetrics(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^### ([a-z_:]+)\n\n- Type: (\w+), .*\n(?:- Labels: (.*)\n)?`)
	all := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		if strings.HasPrefix(m[1], "cluster_ipam_") || strings.HasPrefix(m[1], "kcm_ipam_") {
			continue
		}
		labels := regexp.MustCompile(`\w+`).FindAllString(m[3], -1)
		slices.Sort(labels)
		all[m[1]] = m[2] + " " + strings.Join(labels, ",")
	}
	return all
}

// typeAndLabels writes type and labels of a metric as documentedMetrics does.
func typeAndLabels(family *dto.MetricFamily) string {
	labels := map[string]bool{}
	for _, m := range family.Metric {
		for _, l := range m.Label {
			labels[l.GetName()] = true
		}
	}
	return strings.ToLower(family.GetType().String()) + " " + strings.Join(slices.Sorted(maps.Keys(labels)), ",")
}
