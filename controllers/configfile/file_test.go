package configfile_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	cliflag "k8s.io/component-base/cli/flag"

	"github.com/multicidr/controller-manager/controllers/configfile"
	"github.com/multicidr/controller-manager/controllers/manager"
	"github.com/multicidr/controller-manager/controllers/standalone"
)

// programs are all that read a file.
var programs = map[string]func() *cobra.Command{
	"kube-controller-manager": func() *cobra.Command { return manager.NewCommand(append(manager.ClusterIPAM(), manager.NodeIPAM())...) },
	"node-ipam-controller":    standalone.NewCommand,
	"cluster-ipam-controller": standalone.NewClusterIPAMCommand,
}

// flagsOf are the flags of a new process: three of kube-controller-manager's are bound to what a process has only once.
func flagsOf(command func() *cobra.Command) *pflag.FlagSet {
	fs := command().Flags()
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.StringSlice("emulated-version", nil, "")
	own.StringSlice("min-compatibility-version", nil, "")
	own.Var(cliflag.NewColonSeparatedMultimapStringStringAllowDefaultEmptyKey(&map[string][]string{}), "feature-gates", "")
	own.VisitAll(func(f *pflag.Flag) {
		if shared := fs.Lookup(f.Name); shared != nil {
			shared.Value = f.Value
		}
	})
	return fs
}

// noPart are flags that belong to one start of a program and not to its configuration.
var noPart = []string{"config", "help", "version", "write-config-to"}

// samples are values of the types of flags, the first of them for most defaults. Two of a type that collects values.
var samples = map[string][][]string{
	"bool":                               {{"true"}, {"false"}},
	"int":                                {{"4321"}},
	"int32":                              {{"4321"}},
	"int32Slice":                         {{"23,24"}},
	"float32":                            {{"0.1"}, {"1e+20"}},
	"float64":                            {{"0.30000000000000004"}, {"1e+30"}},
	"duration":                           {{"1h2m3s"}},
	"string":                             {{"another, value: # \"it's\" "}, {"12"}, {"true"}, {"null"}, {""}},
	"stringSlice":                        {{`a,"b,c"`, "12"}, {"null"}},
	"ip":                                 {{"192.0.2.1"}, {"::1"}},
	"Level":                              {{"7"}},
	"pattern=N,...":                      {{"a=1,b=2"}},
	"quantity":                           {{"64Ki"}},
	"namedCertKey":                       {{"a.crt,a.key"}, {"a.crt,a.key:*.example.com,b", "b.crt,b.key"}},
	"stringToString":                     {{"a,b=c,d"}, {"a,b=c,d", `"e,f=g=h"`}},
	"colonSeparatedMultimapStringString": {{"AllAlpha=true"}, {"AllAlpha=true,kube:AllBeta=false", "AllBeta=true"}},
}

// TestWhatIsWrittenCanBeRead sets every flag of every program, each by itself, and writes all flags. From that file another process of the
// program has the same values, and writes the same file.
func TestWhatIsWrittenCanBeRead(t *testing.T) {
	for program, command := range programs {
		t.Run(program, func(t *testing.T) {
			there := func(t *testing.T, args ...string) {
				t.Helper()
				first := flagsOf(command)
				if err := first.Parse(args); err != nil {
					t.Fatal(err)
				}
				want, wrote := texts(first), marshal(t, first)
				second := flagsOf(command)
				if len(args) > 0 && maps.Equal(want, texts(second)) {
					t.Fatalf("%q changes nothing", args)
				}
				file := write(t, wrote)
				if err := set(file, second); err != nil {
					t.Fatalf("%v\n%s", err, wrote)
				}
				for name, got := range texts(second) {
					if got != want[name] {
						t.Errorf("%q: --%s is %s and was written as %s", args, name, got, want[name])
					}
				}
				if again := marshal(t, second); again != wrote {
					t.Errorf("%q: what was written is written in another way from the file", args)
				}
			}
			there(t)
			flagsOf(command).VisitAll(func(f *pflag.Flag) {
				if slices.Contains(noPart, f.Name) {
					return
				}
				if len(samples[f.Value.Type()]) == 0 {
					t.Errorf("--%s: no sample of type %s", f.Name, f.Value.Type())
				}
				for _, values := range samples[f.Value.Type()] {
					if len(values) == 1 && values[0] == f.DefValue {
						continue
					}
					var args []string
					for _, value := range values {
						args = append(args, "--"+f.Name+"="+value)
					}
					t.Run(f.Name, func(t *testing.T) { there(t, args...) })
				}
			})
		})
	}
}

// TestKeys: every flag has a key of its own, and the keys of the documents' example are those.
func TestKeys(t *testing.T) {
	for program, command := range programs {
		flagOf := map[string]string{}
		command().Flags().VisitAll(func(f *pflag.Flag) {
			key := configfile.Key(f.Name)
			if other, ok := flagOf[key]; ok {
				t.Errorf("%s: %s is the key of --%s and --%s", program, key, other, f.Name)
			}
			flagOf[key] = f.Name
		})
	}
	for flag, want := range map[string]string{
		"allocate-node-cidrs":              "allocateNodeCIDRs",
		"cluster-cidr":                     "clusterCIDR",
		"node-cidr-mask-size":              "nodeCIDRMaskSize",
		"node-cidr-mask-size-ipv4":         "nodeCIDRMaskSizeIPv4",
		"node-cidr-mask-size-ipv6":         "nodeCIDRMaskSizeIPv6",
		"service-cluster-ip-range":         "serviceClusterIPRange",
		"kube-api-qps":                     "kubeAPIQPS",
		"tls-sni-cert-key":                 "tlsSNICertKey",
		"v":                                "v",
		"leader-elect":                     "leaderElect",
		"http2-max-streams-per-connection": "http2MaxStreamsPerConnection",
	} {
		if got := configfile.Key(flag); got != want {
			t.Errorf("the key of --%s is %s, want %s", flag, got, want)
		}
	}
}

// TestFlags: a small set of flags, in every way that a file can set them.
func TestFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		file string
		args []string
		want string // flags that are not as by default, or the error
	}{
		"nothing of it":           {file: "{}", want: ""},
		"values":                  {file: "size: 24\nclusterCIDR: 10.0.0.0/8\non: true\nwait: 15s\nrate: 1", want: "cluster-cidr=10.0.0.0/8 on=true rate=1 size=24 wait=15s"},
		"JSON":                    {file: `{"size": 24, "names": ["a", "b"]}`, want: "names=[a,b] size=24"},
		"flags win":               {file: "size: 24\non: true", args: []string{"--size=25"}, want: "on=true size=25"},
		"flags win with defaults": {file: "size: 24", args: []string{"--size=0"}, want: ""},
		"a list replaces":         {file: "names: [a, b]", want: "names=[a,b]"},
		"a list of lines":         {file: "names:\n- a\n- b,c", want: `names=[a,"b,c"]`},
		"one value is a list":     {file: "names: a", want: "names=[a]"},
		"one value with a comma":  {file: "names:\n- a,b", want: `names=["a,b"]`},
		"an empty list":           {file: "names: []", want: "names=[]"},
		"pairs":                   {file: "pairs: {a: 1, b: c=d}", want: "pairs=[a=1,b=c=d]"},
		"no pairs":                {file: "pairs: {}", want: ""},
		"pairs as of a flag":      {file: "pairs: a=1,b=2", want: "pairs=[a=1,b=2]"},

		"an empty file":            {file: "", want: "the file is empty"},
		"comments only":            {file: "# nothing\n", want: "the file is empty"},
		"null":                     {file: "null\n", want: ":1: want keys and values"},
		"a list of all":            {file: "- a\n", want: ":1: want keys and values"},
		"no YAML":                  {file: "a: b: c\n", want: ":1: mapping values are not allowed"},
		"two documents":            {file: "size: 1\n---\nsize: 2\n", want: "more than one document"},
		"an unknown key":           {file: "size: 1\nsizes: 2\n", want: ":2: there is no key sizes"},
		"the flag's name":          {file: "size: 1\ncluster-cidr: 10.0.0.0/8\n", want: ":2: there is no key cluster-cidr: write clusterCIDR"},
		"another case":             {file: "clusterCidr: 10.0.0.0/8\n", want: ":1: there is no key clusterCidr: write clusterCIDR"},
		"repeated":                 {file: "size: 1\non: true\nsize: 1\n", want: ":3: size is here twice, first in line 1"},
		"repeated pairs":           {file: "pairs: {a: 1, a: 2}\n", want: ":1: a is here twice"},
		"an octal number":          {file: "size: 010\n", want: ":1: 010 is an octal number for some parsers"},
		"an alias":                 {file: "size: &a 1\n", want: ":1: anchors and aliases are not supported"},
		"a file in a file":         {file: "config: a\n", want: ":1: there is no key config"},
		"a number in quotes":       {file: "size: '24'\n", want: `:1: size: "24" is text, not a number: write it without quotation marks`},
		"a number too large":       {file: "on: true\nsize: 99999999999\n", want: `:2: size: "99999999999": `},
		"a fraction":               {file: "size: 24.5\n", want: ":1: size: 24.5 is not a number"},
		"a bool in quotes":         {file: "on: 'true'\n", want: `:1: on: "true" is text, not true or false: write it without quotation marks`},
		"yes":                      {file: "on: yes\n", want: ":1: on: yes is not true or false"},
		"a number as text":         {file: "clusterCIDR: 10\n", want: ":1: clusterCIDR: 10 is not text: put it into quotation marks"},
		"a bool as text":           {file: "clusterCIDR: true\n", want: ":1: clusterCIDR: true is not text"},
		"a date as text":           {file: "clusterCIDR: 2026-01-01\n", want: ":1: clusterCIDR: 2026-01-01 is not text"},
		"a time without a unit":    {file: "wait: 15\n", want: ":1: wait: 15 is not a time such as 15s"},
		"a time that is none":      {file: "wait: soon\n", want: `:1: wait: "soon": `},
		"no value":                 {file: "size:\n", want: ":1: size: the value is missing"},
		"a list of a number":       {file: "size: [24]\n", want: ":1: size: this is no list"},
		"a list as of a flag":      {file: "names: a,b\n", want: ":1: names: a comma is part of the value here: write a list"},
		"a list of lists":          {file: "names: [[a]]\n", want: ":1: names: want a list of plain values"},
		"keys in place of one":     {file: "size: {a: 1}\n", want: ":1: size: want one value, not keys and values"},
		"every mistake is named":   {file: "a: 1\nsize: x\n", want: ":2: size: x is not a number"},
		"every mistake, the first": {file: "a: 1\nsize: x\n", want: ":1: there is no key a"},
	} {
		t.Run(name, func(t *testing.T) {
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			fs.Int32("size", 0, "")
			fs.Bool("on", false, "")
			fs.Duration("wait", 0, "")
			fs.Float32("rate", 0, "")
			fs.String("cluster-cidr", "", "")
			fs.StringSlice("names", []string{"*"}, "")
			fs.StringToString("pairs", nil, "")
			(&configfile.File{}).AddFlags(fs)
			if err := fs.Parse(tc.args); err != nil {
				t.Fatal(err)
			}
			var got []string
			if err := set(write(t, tc.file), fs); err != nil {
				if place.MatchString(err.Error()) != strings.HasPrefix(tc.want, ":") {
					t.Errorf("the place in: %v", err)
				}
				got = append(got, err.Error())
			} else {
				fs.VisitAll(func(f *pflag.Flag) {
					if f.Value.String() != f.DefValue {
						got = append(got, f.Name+"="+f.Value.String())
					}
				})
			}
			if text := strings.Join(got, " "); text != tc.want && (tc.want == "" || !strings.Contains(text, tc.want) || strings.Contains(tc.want, "=")) {
				t.Errorf("got %s\nwant %s", text, tc.want)
			}
		})
	}
}

var place = regexp.MustCompile(`file\.yaml:[0-9]+: `)

// TestExplain: an error about flags says which of them are in the file, and where.
func TestExplain(t *testing.T) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, name := range []string{"lease", "renew", "renew-more"} {
		fs.Int(name, 0, "")
	}
	if err := fs.Parse([]string{"--renew-more=3"}); err != nil {
		t.Fatal(err)
	}
	file := write(t, "renewMore: 1\n\nlease: 1\nrenew: 2\n")
	if err := set(file, fs); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"--lease=1 must be longer than --renew=2": "(--lease is file.yaml:3, --renew is file.yaml:4)",
		"--renew-more=3 is wrong":                 "", // by a flag
		"X is wrong":                              "(some flags are set in file.yaml)",
	} {
		err := errors.New(text)
		explained := file.Explain(err)
		if !errors.Is(explained, err) {
			t.Errorf("%v is not %v", explained, err)
		}
		got := strings.TrimSpace(strings.TrimPrefix(explained.Error(), text))
		for _, word := range strings.FieldsFunc(got, func(r rune) bool { return r == ' ' || r == '(' }) {
			if strings.Contains(word, "file.yaml") {
				got = strings.Replace(got, word, filepath.Base(word), 1)
			}
		}
		if got != want {
			t.Errorf("%s is explained by %q, want %q", text, got, want)
		}
	}
}

// set sets flags as a program does that knows only the flat form.
func set(file *configfile.File, fs *pflag.FlagSet) error {
	if err := file.Read(); err != nil {
		return err
	}
	values, err := file.Flat(fs)
	if err != nil {
		return err
	}
	_, err = file.Set(fs, values)
	return err
}

func write(t *testing.T, content string) *configfile.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	file := &configfile.File{}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	file.AddFlags(fs)
	if err := fs.Set("config", path); err != nil {
		t.Fatal(err)
	}
	return file
}

func marshal(t *testing.T, fs *pflag.FlagSet) string {
	t.Helper()
	data, err := yaml.Marshal(configfile.Values(fs))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// texts are the values of all flags.
func texts(fs *pflag.FlagSet) map[string]string {
	all := map[string]string{}
	fs.VisitAll(func(f *pflag.Flag) { all[f.Name] = f.Value.String() })
	return all
}
