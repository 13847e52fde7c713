package chart

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

const (
	manifests   = "../../manifests"
	chartDir    = manifests + "/charts/node-ipam-controller"
	crdTemplate = "templates/crds.yaml"
)

var (
	update = flag.Bool("update", false, "write the golden files anew")
	// hack/verify-release.sh sets these two.
	packaged = flag.String("charts", "", "the directory of packaged charts to test instead of those in manifests/charts")
	released = flag.String("program", "", "the node-ipam-controller to test instead of that in bin")

	// copied are the templates that render copies of whole files. They have tests of their own and would fill the golden files.
	copied = []string{crdTemplate, "templates/prometheusrule.yaml", "templates/dashboard.yaml"}
)

func loadChart(t *testing.T) *helmchart.Chart {
	t.Helper()
	return loadChartIn(t, chartDir)
}

func loadChartIn(t *testing.T, dir string) *helmchart.Chart {
	t.Helper()
	chart, err := loader.Load(chartIn(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	return chart
}

// chartIn is what to load: the directory, or its chart where packaged ones are.
func chartIn(t *testing.T, dir string) string {
	t.Helper()
	if *packaged == "" {
		return dir
	}
	found, err := filepath.Glob(filepath.Join(*packaged, filepath.Base(dir)+"-[0-9]*.tgz"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s has not one chart %s but %q (%v)", *packaged, filepath.Base(dir), found, err)
	}
	return found[0]
}

// valueSets are the files of testdata/values by name.
func valueSets(t *testing.T) map[string]map[string]any {
	t.Helper()
	return valueSetsIn(t, "testdata")
}

func valueSetsIn(t *testing.T, dir string) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "values", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no value sets: %v", err)
	}
	sets := map[string]map[string]any{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sets[strings.TrimSuffix(filepath.Base(file), ".yaml")] = object(t, string(content))
	}
	return sets
}

// object reads YAML, with the types that Helm has for values.
func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &o); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return o
}

// render returns what the templates make of values, by their paths in the chart.
func render(t *testing.T, values map[string]any) (map[string]string, error) {
	t.Helper()
	return renderIn(t, chartDir, values)
}

func renderIn(t *testing.T, dir string, values map[string]any) (map[string]string, error) {
	t.Helper()
	chart := loadChartIn(t, dir)
	release := common.ReleaseOptions{Name: "ranges", Namespace: "network", Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, values, release, nil)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for path, content := range rendered {
		if strings.TrimSpace(content) != "" {
			files[strings.TrimPrefix(path, chart.Name()+"/")] = content
		}
	}
	return files, nil
}

func mustRender(t *testing.T, values map[string]any) map[string]string {
	t.Helper()
	files, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// objects are those in rendered YAML documents, by "Kind name".
func objects(t *testing.T, documents string) map[string]map[string]any {
	t.Helper()
	found := map[string]map[string]any{}
	for document := range strings.SplitSeq("\n"+documents, "\n---\n") {
		if o := object(t, document); o != nil {
			found[fmt.Sprintf("%v %v", o["kind"], o["metadata"].(map[string]any)["name"])] = o
		}
	}
	return found
}

// onlyObject is the one in a file.
func onlyObject(t *testing.T, path string) map[string]any {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return object(t, strings.TrimPrefix(string(content), "---\n"))
}

func TestLint(t *testing.T) { lint(t, chartDir, "testdata") }

func lint(t *testing.T, chartDir, testdata string) {
	for name, values := range valueSetsIn(t, testdata) {
		t.Run(name, func(t *testing.T) {
			lint := action.NewLint()
			lint.Strict = true
			for _, err := range lint.Run([]string{chartIn(t, chartDir)}, values).Errors {
				t.Error(err)
			}
		})
	}
}

func TestGolden(t *testing.T) { golden(t, chartDir, "testdata") }

func golden(t *testing.T, chartDir, testdata string) {
	for name, values := range valueSetsIn(t, testdata) {
		t.Run(name, func(t *testing.T) {
			files, err := renderIn(t, chartDir, values)
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range copied {
				delete(files, path)
			}
			var got bytes.Buffer
			for _, path := range slices.Sorted(maps.Keys(files)) {
				fmt.Fprintf(&got, "##### %s\n%s\n", path, strings.Trim(files[path], "\n"))
			}
			golden := filepath.Join(testdata, "golden", name+".txt")
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("rendered differently; if that is meant, run `go -C test/chart test -run TestGolden ./... -update` and look at the diff (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusedValues(t *testing.T) {
	tests := map[string]struct {
		values string
		want   string // part of the message
	}{
		"no image":                         {`{image: {repository: ""}}`, "image.repository is empty: make the image"},
		"a value that does not exist":      {`{replicas: 2}`, "additional properties 'replicas' not allowed"},
		"one that does not exist in a map": {`{image: {pullpolicy: Always}}`, "at '/image': additional properties 'pullpolicy' not allowed"},
		"a number of replicas in words":    {`{replicaCount: two}`, "at '/replicaCount': got string, want integer"},
		"fewer replicas than none":         {`{replicaCount: -1}`, "at '/replicaCount': minimum: got -1, want 0"},
		"two replicas without election":    {`{replicaCount: 2, leaderElection: {enabled: false}}`, "Set leaderElection.enabled=true or replicaCount=1"},
		"a fence without election":         {`{fencing: {enabled: true}, leaderElection: {enabled: false}}`, "fencing.enabled=true needs leaderElection.enabled=true"},
		"a duration without unit":          {`{leaderElection: {leaseDuration: 15}}`, "at '/leaderElection/leaseDuration': got number, want string"},
		"a duration that is none":          {`{leaderElection: {retryPeriod: soon}}`, "at '/leaderElection/retryPeriod': 'soon' does not match pattern"},
		"a lock of former times":           {`{leaderElection: {resourceLock: endpoints}}`, "at '/leaderElection/resourceLock': value must be 'leases'"},
		"a lease without name":             {`{leaderElection: {resourceName: ""}}`, "at '/leaderElection/resourceName'"},
		"no name at all":                   {`{leaderElection: {resourceName: null}}`, "at '/leaderElection': missing property 'resourceName'"},
		"a port that does not exist":       {`{service: {port: 65536}}`, "at '/service/port': maximum: got 65,536, want 65,535"},
		"one port for both":                {`{service: {port: 8443, securePort: 8443}}`, "service.port and service.securePort are equal"},
		"an API server without scheme":     {`{apiServer: "10.0.0.1:6443"}`, "at '/apiServer': '10.0.0.1:6443' does not match pattern"},
		"a tag that is a number":           {`{image: {tag: 1.0}}`, "at '/image/tag': got number, want string"},
		"an argument that is no flag":      {`{extraArgs: [v=2]}`, "at '/extraArgs/0': 'v=2' does not match pattern"},
		"a flag that has a value":          {`{extraArgs: [--leader-elect-resource-name=other]}`, "Use apiServer, leaderElection or service"},
		"the same, with underscores":       {`{extraArgs: [--leader_elect_resource_name=a_b]}`, "extraArgs: --leader_elect_resource_name=a_b is not allowed here"},
		"election off, with underscores":   {`{replicaCount: 2, extraArgs: [--enable_leader_election=false]}`, "Use apiServer, leaderElection or service"},
		"half of them":                     {`{extraArgs: [--enable_leader-election]}`, "Use apiServer, leaderElection or service"},
		"a public port, with underscores":  {`{extraArgs: ["--webserver_bind_address=:8081"]}`, "Use apiServer, leaderElection or service"},
		"metrics that nobody can reach":    {`{serviceMonitor: {enabled: true}}`, "set service.securePort. Or set service.bindAddress"},
		"an address that is none":          {`{service: {bindAddress: localhost}}`, "at '/service/bindAddress': 'localhost' does not match pattern"},
		"a network in words":               {`{hostNetwork: host}`, "at '/hostNetwork': got string, want boolean"},
		"no image at all":                  {`{image: null}`, "at '': missing property 'image'"},
		"neither service nor fence":        {`{service: null, fencing: null}`, "at '': missing properties"},
		"a service without port":           {`{service: {port: null}}`, "at '/service': missing property 'port'"},
		"an address that is not there":     {`{service: {bindAddress: null}}`, "at '/service': missing property 'bindAddress'"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			values := loader.MergeMaps(valueSets(t)["defaults"], object(t, tc.values))
			_, err := render(t, values)
			if err == nil {
				t.Fatal("the values were taken")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the message is %q, want %q in it", err, tc.want)
			}
		})
	}
}

// The CRD is the generated one, and nothing but `kubectl delete` takes it and with it all ClusterCIDRs away.
func TestCRD(t *testing.T) {
	want := onlyObject(t, manifests+"/crds/networking.x-k8s.io_clustercidrs.yaml")
	want["metadata"].(map[string]any)["annotations"].(map[string]any)["helm.sh/resource-policy"] = "keep"
	got := objects(t, mustRender(t, valueSets(t)["defaults"])[crdTemplate])
	if diff := cmp.Diff(map[string]map[string]any{"CustomResourceDefinition clustercidrs.networking.x-k8s.io": want}, got); diff != "" {
		t.Errorf("run `make generate` if the CRD has changed (-generated +rendered):\n%s", diff)
	}
	if file, ok := mustRender(t, valueSets(t)["everything-off"])[crdTemplate]; ok {
		t.Errorf("installCRDs=false renders\n%s", file)
	}
}

// The controller has the permissions of manifests/rbac, and beside them only what election and secure serving take.
func TestPermissions(t *testing.T) {
	read := func(file string) map[string]map[string]any {
		content, err := os.ReadFile(filepath.Join(manifests, "rbac", file))
		if err != nil {
			t.Fatal(err)
		}
		return objects(t, strings.TrimPrefix(string(content), "---\n"))
	}
	const role = "system:controller:multi-cidr-node-ipam-controller"
	generated, forFlag := read("role.yaml"), read("cluster-cidr-flag.yaml")
	for name, values := range valueSets(t) {
		t.Run(name, func(t *testing.T) {
			cluster := generated["ClusterRole "+role]["rules"].([]any)
			if name == "everything-on" {
				cluster = append(slices.Clone(cluster), forFlag["ClusterRole "+role+":cluster-cidr-flag"]["rules"].([]any)...)
			}
			want := map[string]any{"": cluster, "default": generated["Role "+role]["rules"]}
			got := map[string]any{}
			for _, o := range objects(t, mustRender(t, values)["templates/rbac.yaml"]) {
				metadata := o["metadata"].(map[string]any)
				switch namespace, _ := metadata["namespace"].(string); {
				case o["kind"] == "ClusterRole" && got[""] == nil, o["kind"] == "Role" && namespace == "default":
					got[namespace] = o["rules"]
				case o["kind"] == "ClusterRole", o["kind"] == "Role" && !strings.HasSuffix(metadata["name"].(string), "-lease"):
					t.Errorf("there is one more role: %v", o)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("run `make generate` if the role has changed (-manifests/rbac +rendered):\n%s", diff)
			}
		})
	}
}

// The fence is that of manifests/fencing, on the Lease of the release.
func TestFencing(t *testing.T) {
	files := mustRender(t, valueSets(t)["everything-on"])
	got := objects(t, files["templates/fencing.yaml"])
	want := map[string]map[string]any{}
	for _, file := range []string{"policy.yaml", "node-ipam-controller.yaml", "created-nodes.yaml"} {
		content, err := os.ReadFile(filepath.Join(manifests, "fencing", file))
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(want, objects(t, string(content)))
	}
	paramRef := want["ValidatingAdmissionPolicyBinding lease-holder.networking.x-k8s.io"]["spec"].(map[string]any)["paramRef"].(map[string]any)
	paramRef["namespace"], paramRef["name"] = "network", "123"
	content, err := os.ReadFile(filepath.Join(manifests, "fencing/keep-leases.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// Under a name of the release. Helm does not delete it.
	kept := objects(t, strings.ReplaceAll(string(content), ": keep-leases.", ": ranges.network.keep-leases."))
	for _, o := range kept {
		o["metadata"].(map[string]any)["annotations"] = map[string]any{"helm.sh/resource-policy": "keep"}
	}
	maps.Copy(want, kept)
	for _, o := range got {
		delete(o["metadata"].(map[string]any), "labels")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("run `make generate` if manifests/fencing has changed (-want +rendered):\n%s", diff)
	}

	// For those who have Nodes created with podCIDRs.
	values := loader.MergeMaps(valueSets(t)["everything-on"], object(t, `{fencing: {createdNodes: false}}`))
	files = mustRender(t, values)
	for name := range objects(t, files["templates/fencing.yaml"]) {
		if strings.Contains(name, "created-nodes") {
			t.Errorf("with fencing.createdNodes=false there is %s", name)
		}
	}
}

// The alerts and the dashboard are those of manifests/monitoring, under names of the release.
func TestMonitoring(t *testing.T) {
	files := mustRender(t, valueSets(t)["everything-on"])
	monitors(t, files, "prometheusrule.yaml", "PrometheusRule ranges-node-ipam-controller")
	want, err := os.ReadFile(filepath.Join(manifests, "monitoring/dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	dashboard := objects(t, files["templates/dashboard.yaml"])["ConfigMap ranges-node-ipam-controller-dashboard"]
	if diff := cmp.Diff(map[string]any{"node-ipam.json": string(want)}, dashboard["data"]); diff != "" {
		t.Errorf("run `make generate` if the dashboard has changed (-manifests/monitoring +rendered):\n%s", diff)
	}
	metadata := dashboard["metadata"].(map[string]any)
	if labels := metadata["labels"].(map[string]any); labels["grafana_dashboard"] != "1" {
		t.Errorf("Grafana's sidecar does not find the dashboard by %v", labels)
	}
}

func monitors(t *testing.T, files map[string]string, file, want string) {
	t.Helper()
	rule := objects(t, files["templates/prometheusrule.yaml"])[want]
	if diff := cmp.Diff(onlyObject(t, filepath.Join(manifests, "monitoring", file))["spec"], rule["spec"]); diff != "" {
		t.Errorf("run `make generate` if the alerts have changed (-manifests/monitoring +rendered):\n%s", diff)
	}
	if labels := rule["metadata"].(map[string]any)["labels"].(map[string]any); labels["release"] != "prometheus" || labels["app.kubernetes.io/instance"] != "ranges" {
		t.Errorf("labels of the PrometheusRule: %v", labels)
	}
}

// Who reads a packaged chart, or its page in a catalogue, has no checkout: links are those of this version, and lead to something.
func TestLinks(t *testing.T) {
	for _, dir := range []string{chartDir, clusterIPAMChart} {
		chart := loadChartIn(t, dir)
		texts := []string{readmeOf(t, chart), chart.Metadata.Icon}
		for _, annotation := range chart.Metadata.Annotations {
			texts = append(texts, annotation)
		}
		ours := regexp.MustCompile(`/multicidr/controller-manager/(?:blob/)?v` + regexp.QuoteMeta(chart.Metadata.Version) + `/([^#)}\s]+)`)
		all := strings.Join(texts, "\n")
		found := ours.FindAllStringSubmatch(all, -1)
		for _, link := range found {
			if _, err := os.Stat(filepath.Join("../..", link[1])); err != nil {
				t.Errorf("%s: a link leads nowhere: %v", chart.Name(), err)
			}
		}
		if n := strings.Count(all, "/multicidr/controller-manager/"); n != len(found) || n < 5 {
			t.Errorf("%s: %d links to this repository, of which %d name this version", chart.Name(), n, len(found))
		}
		if link := regexp.MustCompile(`\]\((\.|/|[a-z]+/)[^)]*\)`).FindString(all); link != "" {
			t.Errorf("%s: %s leads nowhere from a packaged chart", chart.Name(), link)
		}
	}
}

// readmeOf is the README.md in a chart.
func readmeOf(t *testing.T, chart *helmchart.Chart) string {
	t.Helper()
	for _, file := range chart.Files {
		if file.Name == "README.md" {
			return string(file.Data)
		}
	}
	t.Fatal("the chart has no README.md")
	return ""
}

// README.md, values.yaml and values.schema.json know the same values, and README.md the same defaults.
func TestValuesAreDocumented(t *testing.T) { documented(t, chartDir) }

func documented(t *testing.T, chartDir string) {
	chart := loadChartIn(t, chartDir)
	want := leaves("", chart.Values)
	got := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.*?) \\| .+ \\|$").FindAllStringSubmatch(readmeOf(t, chart), -1) {
		got[row[1]] = strings.Trim(row[2], "`")
	}
	for name, value := range want {
		if strings.HasPrefix(value, "[{") || strings.HasPrefix(value, `{"`) {
			want[name] = "see values.yaml"
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the table of README.md differs from values.yaml (-values.yaml +README.md):\n%s", diff)
	}

	schema := object(t, string(chart.Schema))
	delete(schema["properties"].(map[string]any), "global") // Helm's own
	// What values.yaml leaves to the user stands for nothing; what it has must be known.
	for _, name := range slices.Sorted(maps.Keys(chart.Values)) {
		inSchema(t, name, chart.Values[name], schema)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(chart.Values)), slices.Sorted(maps.Keys(schema["properties"].(map[string]any)))); diff != "" {
		t.Errorf("values.schema.json differs from values.yaml (-values.yaml +schema):\n%s", diff)
	}
}

// leaves are the values that have no fixed names below them, as JSON.
func leaves(prefix string, values map[string]any) map[string]string {
	found := map[string]string{}
	for name, value := range values {
		name = prefix + name
		if below, ok := value.(map[string]any); ok && len(below) > 0 && !open[name] {
			maps.Copy(found, leaves(name+".", below))
			continue
		}
		text, err := yaml.Marshal(value)
		if err != nil {
			panic(err) // it was just read from YAML
		}
		json, err := yaml.YAMLToJSON(text)
		if err != nil {
			panic(err)
		}
		found[name] = strings.Trim(string(json), `"`)
		if found[name] == "" {
			found[name] = `""`
		}
	}
	return found
}

// open are the values that Kubernetes defines.
var open = map[string]bool{"resources": true, "securityContext": true, "dashboard.labels": true}

// inSchema complains about a value that the schema does not know, and about a fixed name of the schema that values.yaml has not.
func inSchema(t *testing.T, name string, value any, schema map[string]any) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	last := name[strings.LastIndex(name, ".")+1:]
	known, ok := properties[last].(map[string]any)
	if !ok {
		t.Errorf("values.schema.json does not know %s", name)
		return
	}
	below, ok := value.(map[string]any)
	if !ok || open[name] {
		return
	}
	for key, value := range below {
		inSchema(t, name+"."+key, value, known)
	}
	if fixed, ok := known["properties"].(map[string]any); ok && len(fixed) != len(below) {
		t.Errorf("of %s the schema knows %q, values.yaml has %q", name, slices.Sorted(maps.Keys(fixed)), slices.Sorted(maps.Keys(below)))
	}
}

// The default tag of the image is made of the versions that the program in it says it has: Kubernetes' and ours.
func TestAppVersion(t *testing.T) {
	out, err := exec.Command(program(t), "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	var kubernetes, ours string
	if _, err := fmt.Sscanf(string(out), "Kubernetes %s (multicidr v%s", &kubernetes, &ours); err != nil {
		t.Fatalf("--version says %q: %v", out, err)
	}
	ours = strings.TrimSuffix(ours, ")")
	if got, want := loadChart(t).Metadata.AppVersion, kubernetes+"-mc"+ours; got != want {
		t.Errorf("--version says %q, Chart.yaml has appVersion %s, want %s", out, got, want)
	}
	if got := loadChart(t).Metadata.Version; got != ours {
		t.Errorf("Chart.yaml has version %s, want %s: charts are released with the programs", got, ours)
	}
}

// program is the built one.
func program(t *testing.T) string {
	t.Helper()
	file := *released
	if file == "" {
		file = "../../bin/node-ipam-controller"
	}
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; `make build` builds it", err)
	}
	return path
}

// The pattern for logs in hack/restore-etcd/settings.sh matches what the kubelet calls those of this chart's Pods (NAMESPACE_POD_UID/CONTAINER/N.log), whatever the
// release is called.
func TestRestoreReadsLogsOfAnyRelease(t *testing.T) {
	page, err := os.ReadFile("../../hack/restore-etcd/settings.sh")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`node-ipam-controller: /var/log/pods/(\S+)`).FindSubmatch(page)
	if m == nil {
		t.Fatal("the file does not name the logs of node-ipam-controller")
	}
	for _, values := range []map[string]any{
		{"image": map[string]any{"repository": "r"}},
		{"image": map[string]any{"repository": "r"}, "fullnameOverride": "ipam"},
	} {
		deployment := object(t, mustRender(t, values)["templates/deployment.yaml"])
		name := deployment["metadata"].(map[string]any)["name"].(string)
		pod := deployment["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
		container := pod["containers"].([]any)[0].(map[string]any)["name"].(string)
		log := "network_" + name + "-6c9f8d7b5-x2x4z_00000000-0000-0000-0000-000000000000/" + container + "/0.log"
		if ok, err := filepath.Match(string(m[1]), log); err != nil || !ok {
			t.Errorf("%s does not match %s: %v", m[1], log, err)
		}
	}
}
