package files

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const header = "apiVersion: networking.x-k8s.io/v1\nkind: ClusterCIDR\n"

func TestReadFiles(t *testing.T) {
	const (
		second = header + "metadata: {name: second}\nspec: {ipv4: 10.246.0.0/16, perNodeHostBits: 8}\n"
		third  = header + "metadata: {name: third}\nspec: {ipv4: 10.247.0.0/16, perNodeHostBits: 8}\n"
		inJSON = `{"apiVersion": "networking.x-k8s.io/v1", "kind": "ClusterCIDR", "metadata": {"name": "second"}, "spec": {"ipv4": "10.246.0.0/16", "perNodeHostBits": 8}}`
		config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: of-somebody-else}\ndata: {items: x}\n"
	)
	item := func(object string) string {
		return "- " + strings.ReplaceAll(strings.TrimSpace(object), "\n", "\n  ") + "\n"
	}
	list := func(objects string) string {
		return "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: \"\"}\nitems:\n" + objects
	}
	for description, tc := range map[string]struct {
		files     map[string]string
		want      []string // names
		fruitless string
		err       []string // parts of it
	}{
		"one":                 {files: map[string]string{"f.yaml": second}, want: []string{"second"}},
		"two":                 {files: map[string]string{"f.yaml": "# Ours.\n---\n" + second + "---\n" + third + "---\n"}, want: []string{"second", "third"}},
		"two files":           {files: map[string]string{"a.yaml": second, "b.yml": third, "README": "nothing"}, want: []string{"second", "third"}},
		"among other objects": {files: map[string]string{"f.yaml": config + "---\n" + second}, want: []string{"second"}},
		"a file of other objects beside one that has some": {files: map[string]string{"a.yaml": config, "b.yaml": second}, want: []string{"second"}},
		"another object with a field twice":                {files: map[string]string{"f.yaml": config + "data: {}\n---\n" + second}, want: []string{"second"}},
		"JSON":                                             {files: map[string]string{"f.json": inJSON}, want: []string{"second"}},
		"JSON, one after another":                          {files: map[string]string{"f.json": inJSON + "\n" + strings.Replace(inJSON, "second", "third", 1)}, want: []string{"second", "third"}},
		"JSON, and YAML after it":                          {files: map[string]string{"f.yaml": inJSON + "\n---\n" + third}, want: []string{"second", "third"}},
		"YAML with braces":                                 {files: map[string]string{"f.yaml": "{apiVersion: networking.x-k8s.io/v1, kind: ClusterCIDR, metadata: {name: second}}"}, want: []string{"second"}},
		"a list":                                           {files: map[string]string{"f.yaml": list(item(second) + item(config) + item(third))}, want: []string{"second", "third"}},
		"a list in a list":                                 {files: map[string]string{"f.yaml": list(item(list(item(second))))}, want: []string{"second"}},
		"a list in JSON":                                   {files: map[string]string{"f.json": `{"apiVersion": "v1", "kind": "List", "items": [` + inJSON + `]}`}, want: []string{"second"}},
		"a ClusterCIDRList":                                {files: map[string]string{"f.yaml": strings.Replace(header, "CIDR\n", "CIDRList\n", 1) + "items:\n" + item(second)}, want: []string{"second"}},
		"a ClusterCIDRList of the API":                     {files: map[string]string{"f.yaml": strings.Replace(header, "CIDR\n", "CIDRList\n", 1) + "items:\n" + item(strings.TrimPrefix(second, header))}, want: []string{"second"}},
		"what kubectl get prints": {files: map[string]string{"f.yaml": list(item(header + `metadata:
  creationTimestamp: "2026-11-22T10:00:00Z"
  finalizers: [networking.x-k8s.io/cluster-cidr-finalizer]
  generation: 2
  managedFields:
  - {apiVersion: networking.x-k8s.io/v1, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:ipv4": {}}}, manager: kubectl, operation: Update}
  name: second
  resourceVersion: "7"
  uid: 0b7a8e6c-2b0e-4a43-9a3e-7d6f4f5a3f11
spec: {allocation: Enabled, ipv4: 10.246.0.0/16, perNodeHostBits: 8}
status: {conditions: [], ipv4: {allocated: 1, blockPrefixLength: 24, cidr: 10.246.0.0/16, free: 255, total: 256, unavailable: 0}}
`))}, want: []string{"second"}},

		"a directory without files":       {fruitless: "has no file whose name ends with .yaml, .yml or .json"},
		"a directory with other files":    {files: map[string]string{"README": "nothing", "second.yaml.bak": second}, fruitless: "has no file whose name ends with"},
		"an empty file":                   {files: map[string]string{"f.yaml": ""}, fruitless: "has no objects"},
		"a file of comments":              {files: map[string]string{"f.yaml": "# " + strings.ReplaceAll(second, "\n", "\n# ")}, fruitless: "has no objects"},
		"an empty list":                   {files: map[string]string{"f.yaml": "apiVersion: v1\nkind: List\nitems: []\n"}, fruitless: "has no objects"},
		"other objects only":              {files: map[string]string{"f.yaml": config + "---\n" + config}, fruitless: "has no ClusterCIDR, only objects of other kinds (ConfigMap)"},
		"other objects only, in a list":   {files: map[string]string{"f.yaml": list(item(config))}, fruitless: "has no ClusterCIDR, only objects of other kinds (ConfigMap)"},
		"a custom object that is no list": {files: map[string]string{"f.yaml": "apiVersion: example.com/v1\nkind: AllowList\nspec: {}\n"}, fruitless: "(AllowList)"},

		"a misspelt field": {files: map[string]string{"f.yaml": strings.Replace(second, "spec: {", "spec: {excludedCIDR: [10.246.0.0/24], ", 1)},
			err: []string{"f.yaml", `"second"`, `unknown field "spec.excludedCIDR"`, "correct it"}},
		"two of them, in a list": {files: map[string]string{"f.yaml": list(item(strings.NewReplacer("perNodeHostBits", "PerNodeHostBits", "metadata: {", "metadata: {label: {}, ").Replace(second)))},
			err: []string{"f.yaml", `"second"`, `unknown field "spec.PerNodeHostBits"`, `unknown field "metadata.label"`}},
		"a misspelt field of the nodeSelector": {files: map[string]string{"f.yaml": strings.Replace(second, "spec: {", "spec: {nodeSelector: {nodeSelectorTerms: [{matchExpression: []}]}, ", 1)},
			err: []string{"f.yaml", `unknown field "spec.nodeSelector.nodeSelectorTerms[0].matchExpression"`}},
		"a field twice": {files: map[string]string{"f.yaml": strings.Replace(second, "spec: {", "spec: {ipv4: 10.0.0.0/16, ", 1)},
			err: []string{"f.yaml", `"ipv4" already set`}},
		"a field twice in JSON": {files: map[string]string{"f.json": strings.Replace(inJSON, `"spec": {`, `"spec": {"ipv4": "10.0.0.0/16", `, 1)},
			err: []string{"f.json", `duplicate field "spec.ipv4"`}},
		"a value of another type": {files: map[string]string{"f.yaml": strings.Replace(second, "perNodeHostBits: 8", "perNodeHostBits: eight", 1)},
			err: []string{"f.yaml", `"second"`, "spec.perNodeHostBits"}},
		"another version":           {files: map[string]string{"f.yaml": strings.Replace(second, "/v1", "/v1alpha1", 1)}, err: []string{"f.yaml", "networking.x-k8s.io/v1alpha1", "write apiVersion: networking.x-k8s.io/v1 "}},
		"the group of old versions": {files: map[string]string{"f.yaml": strings.Replace(second, ".x-k8s.io/v1", ".k8s.io/v1alpha1", 1)}, err: []string{"f.yaml", "networking.k8s.io/v1alpha1"}},
		"a misspelt kind":           {files: map[string]string{"f.yaml": second + "---\n" + strings.Replace(third, "CIDR", "Cidrs", 1)}, err: []string{"f.yaml", "kind ClusterCidrs", "kind: ClusterCIDR"}},
		"a kind in small letters":   {files: map[string]string{"f.yaml": strings.Replace(second, "kind: ClusterCIDR", "kind: clustercidr", 1)}, err: []string{"f.yaml", "kind clustercidr"}},
		"no kind":                   {files: map[string]string{"f.yaml": strings.Replace(second, "kind: ClusterCIDR\n", "", 1)}, err: []string{"f.yaml", `kind ""`}},
		"no apiVersion":             {files: map[string]string{"f.yaml": list(item(strings.Replace(second, "apiVersion: networking.x-k8s.io/v1\n", "", 1)))}, err: []string{"f.yaml", `apiVersion ""`}},
		"no name":                   {files: map[string]string{"f.yaml": strings.Replace(second, "name:", "generateName:", 1)}, err: []string{"f.yaml", "metadata.name"}},
		"a name that cannot be":     {files: map[string]string{"f.yaml": strings.Replace(second, "name: second", "name: Second_1", 1)}, err: []string{"f.yaml", "Second_1", "metadata.name"}},
		"a list without items":      {files: map[string]string{"f.yaml": strings.Replace(list(item(second)), "items", "item", 1)}, err: []string{"f.yaml", "has no items"}},
		"no YAML":                   {files: map[string]string{"f.yaml": "spec: [\n"}, err: []string{"f.yaml", "yaml: "}},
		"no object":                 {files: map[string]string{"f.yaml": "second"}, err: []string{"f.yaml", "no object"}},
	} {
		t.Run(description, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range tc.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			paths := []string{dir}
			if len(tc.files) == 1 && tc.files["README"] == "" { // What a directory with one file has, the file has.
				for name := range maps.Keys(tc.files) {
					paths = append(paths, filepath.Join(dir, name))
				}
			}
			for _, path := range paths {
				found, fruitless, err := Read([]string{path})
				var got []string
				for _, cc := range found {
					got = append(got, cc.Name)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("ClusterCIDRs of %s (-want +got):\n%s", path, diff)
				}
				if tc.fruitless == "" && fruitless != nil ||
					tc.fruitless != "" && (len(fruitless) != 1 || !strings.HasPrefix(fruitless[0], path+" ") || !strings.Contains(fruitless[0], tc.fruitless)) {
					t.Errorf("%s is fruitless: %q, want %q", path, fruitless, tc.fruitless)
				}
				if (err != nil) != (tc.err != nil) || err != nil && slices.ContainsFunc(tc.err, func(part string) bool { return !strings.Contains(err.Error(), part) }) {
					t.Errorf("error %v, want %q", err, tc.err)
				}
			}
		})
	}
}

// What is offered to users has no mistakes. The settings of distributions are not all objects; test/distributions looks at them.
func TestReadExamples(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if all, fruitless, err := Read(files); err != nil || len(all) == 0 || fruitless != nil {
		t.Errorf("%d ClusterCIDRs, fruitless %q, error %v", len(all), fruitless, err)
	}
}
