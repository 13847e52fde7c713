package manager

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestConfigFile: a small set of flags, in every way that a file can set them.
func TestConfigFile(t *testing.T) {
	for name, tc := range map[string]struct {
		file string
		args []string
		want string // flags that are not as by default, or the error
	}{
		"values":               {file: "size: 24\nclusterCIDR: 10.0.0.0/8\non: true\nwait: 15s\nrate: 1", want: "cluster-cidr=10.0.0.0/8 on=true rate=1 size=24 wait=15s"},
		"JSON":                 {file: `{"size": 24, "names": ["a", "b"]}`, want: "names=[a,b] size=24"},
		"case does not matter": {file: "clusterCidr: 10.0.0.0/8", want: "cluster-cidr=10.0.0.0/8"},
		"flags win":            {file: "size: 24\non: true", args: []string{"--size=25"}, want: "on=true size=25"},
		"a default wins, too":  {file: "size: 24", args: []string{"--size=0"}, want: ""},
		"a list replaces":      {file: "names: [a, b]", want: "names=[a,b]"},
		"one value is a list":  {file: "names: a", want: "names=[a]"},
		"pairs":                {file: "pairs: {a: 1, b: c=d}", want: "pairs=[a=1,b=c=d]"},
		"pairs as of a flag":   {file: "pairs: a=1,b=2", want: "pairs=[a=1,b=2]"},
		"wrong beside a flag":  {file: "size: [[]]", args: []string{"--size=25"}, want: "line 1: size: want plain values"},

		"an empty file":      {file: "", want: "want keys and values"},
		"a list of all":      {file: "- a\n", want: "want keys and values"},
		"no YAML":            {file: "a: b: c\n", want: "mapping values are not allowed"},
		"two documents":      {file: "size: 1\n---\nsize: 2\n", want: "more than one document"},
		"an unknown key":     {file: "size: 1\nsizes: 2\n", want: "line 2: sizes: no flag has this key"},
		"the flag's name":    {file: "cluster-cidr: 10.0.0.0/8\n", want: "line 1: cluster-cidr: no flag has this key"},
		"an object":          {file: "apiVersion: kubecontrollermanager.config.k8s.io/v1alpha1\n", want: "line 1: apiVersion: no flag has this key"},
		"a file in a file":   {file: "config: a\n", want: "line 1: config: no flag has this key"},
		"repeated":           {file: "size: 1\non: true\nSize: 1\n", want: "line 3: Size: no flag has this key, or a line above sets it"},
		"a number too large": {file: "size: 99999999999\n", want: "value out of range"},
		"no bool":            {file: "on: yes\n", want: `line 1: on: invalid argument "yes"`},
		"no value":           {file: "size:\n", want: "line 1: size: the value is missing"},
		"an alias":           {file: "size: &a 1\nwait: *a\n", want: "line 2: wait: the value is missing"},
		"every mistake":      {file: "a: 1\nsize: x\n", want: "line 2: size: invalid argument"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file.yaml")
			if err := os.WriteFile(path, []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			fs.Int32("size", 0, "")
			fs.Bool("on", false, "")
			fs.Duration("wait", 0, "")
			fs.Float32("rate", 0, "")
			fs.String("cluster-cidr", "", "")
			fs.StringSlice("names", []string{"*"}, "")
			fs.StringToString("pairs", nil, "")
			file := &configFile{}
			file.AddFlags(fs)
			if err := fs.Parse(append(tc.args, "--config="+path)); err != nil {
				t.Fatal(err)
			}
			if err := file.set(fs); err != nil {
				if tc.want == "" || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want %s", err, tc.want)
				}
				return
			}
			var got []string
			fs.VisitAll(func(f *pflag.Flag) {
				if f.Name != "config" && f.Value.String() != f.DefValue {
					got = append(got, f.Name+"="+f.Value.String())
				}
			})
			if text := strings.Join(got, " "); text != tc.want {
				t.Errorf("got %s, want %s", text, tc.want)
			}
		})
	}
}

// TestConfigKeys: every flag has a key of its own.
func TestConfigKeys(t *testing.T) {
	flagOf := map[string]string{}
	NewCommand(append(ClusterIPAM(), NodeIPAM())...).Flags().VisitAll(func(f *pflag.Flag) {
		if other, ok := flagOf[fold(f.Name)]; ok {
			t.Errorf("--%s and --%s have the same key", f.Name, other)
		}
		flagOf[fold(f.Name)] = f.Name
	})
	for _, key := range []string{"allocateNodeCIDRs", "clusterCIDR", "nodeCIDRMaskSizeIPv4", "serviceClusterIPRange", "featureGates", "v"} {
		if flagOf[strings.ToLower(key)] == "" {
			t.Errorf("no flag has the key %s", key)
		}
	}
}
