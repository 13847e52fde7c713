package component

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"

	"github.com/multicidr/controller-manager/controllers/configfile"
)

// withoutFlag are the fields that no flag of kube-controller-manager stands for.
var withoutFlag = []string{
	"GarbageCollectorController.GCIgnoredResources",
	"Generic.Address",
	"Generic.ClientConnection.acceptContentTypes",
	"Generic.LeaderMigration.apiVersion",
	"Generic.LeaderMigration.controllerLeaders",
	"Generic.LeaderMigration.kind",
	"Generic.LeaderMigration.leaderName",
	"Generic.LeaderMigration.resourceLock",
	"Generic.Port",
	"NodeIPAMController.SecondaryServiceCIDR",
	"NodeLifecycleController.PodEvictionTimeout",
	"PersistentVolumeBinderController.VolumeConfiguration.PersistentVolumeRecyclerConfiguration.MaximumRetry",
	"ServiceController.ConcurrentServiceSyncs",
}

// TestEveryField sets every field of the type, each by itself, in a file: its flag then has the value, and no other flag has changed.
func TestEveryField(t *testing.T) {
	var without []string
	flagOf := map[string]string{}
	for _, l := range allLeaves(reflect.ValueOf(defaults()).Elem(), nil) {
		t.Run(l.name(), func(t *testing.T) {
			object := map[string]any{"apiVersion": apiVersion, "kind": kind}
			at := object
			for _, key := range l.path[:len(l.path)-1] {
				inner := map[string]any{}
				at[key], at = inner, inner
			}
			at[l.path[len(l.path)-1]] = sample(t, l.value).Interface()
			data, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			file := read(t, string(data))
			values, err := Values(file)
			if err != nil && strings.Contains(err.Error(), l.name()+" has no effect: kube-controller-manager has no flag for it") {
				without = append(without, l.name())
				return
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, data)
			}
			if len(values) != 1 {
				t.Fatalf("it stands for %+v, want one flag", values)
			}
			name := values[0].Flag
			if other, ok := flagOf[name]; ok {
				t.Errorf("%s stands for --%s, too", other, name)
			}
			flagOf[name] = l.name()

			opts, err := options.NewKubeControllerManagerOptions()
			if err != nil {
				t.Fatal(err)
			}
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			sections := opts.Flags(nil, nil, nil)
			for _, section := range sections.FlagSets {
				fs.AddFlagSet(section)
			}
			if unknown, err := file.Set(fs, values); err != nil || len(unknown) > 0 {
				t.Fatalf("set: unknown %q, %v", unknown, err)
			}
			fs.VisitAll(func(f *pflag.Flag) {
				want := f.DefValue
				if f.Name == name {
					want = written(sample(t, l.value))
				}
				if f.Value.String() != want {
					t.Errorf("--%s is %s, want %s", f.Name, f.Value, want)
				}
			})
		})
	}
	if diff := cmp.Diff(withoutFlag, without); diff != "" {
		t.Errorf("fields without a flag (-want +got):\n%s", diff)
	}
	if len(flagOf) < 100 {
		t.Errorf("only %d fields have a flag", len(flagOf))
	}
}

// TestValues: a value that is the default of the type, and not of the flag, is the flag's value, and text is text, even if older YAML has another
// meaning for it.
func TestValues(t *testing.T) {
	for field, want := range map[string]configfile.Value{
		"Generic: {LeaderElection: {resourceName: ''}}":   {Flag: "leader-elect-resource-name"},
		"KubeCloudShared: {AllocateNodeCIDRs: false}":     {Flag: "allocate-node-cidrs", Text: "false"},
		"KubeCloudShared: {CIDRAllocatorType: ''}":        {Flag: "cidr-allocator-type"},
		"KubeCloudShared: {ClusterName: yes}":             {Flag: "cluster-name", Text: "yes"},
		"Generic: {Controllers: [off]}":                   {Flag: "controllers", Text: "[off]", List: []string{"off"}},
		"Generic: {Controllers: []}":                      {Flag: "controllers", Text: "[]", List: []string{}},
		"Generic: {LeaderElection: {leaseDuration: 15s}}": {Flag: "leader-elect-lease-duration", Text: "15s"},
	} {
		values, err := Values(read(t, header+field))
		if err != nil {
			t.Fatal(err)
		}
		want.Line = 3
		if diff := cmp.Diff([]configfile.Value{want}, values); diff != "" {
			t.Errorf("%s (-want +got):\n%s", field, diff)
		}
	}
}

const header = "apiVersion: kubecontrollermanager.config.k8s.io/v1alpha1\nkind: KubeControllerManagerConfiguration\n"

func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct{ file, want string }{
		"no kind":                 {"apiVersion: " + apiVersion, "file.yaml:1: kind is missing: write kind: " + kind},
		"another version":         {"apiVersion: kubecontrollermanager.config.k8s.io/v1\nkind: " + kind, "file.yaml:1: apiVersion is kubecontrollermanager.config.k8s.io/v1, want " + apiVersion},
		"another kind":            {"apiVersion: " + apiVersion + "\nkind: KubeletConfiguration", "file.yaml:2: kind is KubeletConfiguration, want " + kind},
		"an unknown field":        {header + "Generic:\n  Nothing: 1", "file.yaml:4: there is no field Generic.Nothing in " + apiVersion},
		"as /configz shows it":    {header + "Generic:\n  LeaderElection:\n    LeaderElect: true", "file.yaml:5: there is no field Generic.LeaderElection.LeaderElect: write leaderElect"},
		"the other way round":     {header + "nodeIPAMController:\n  NodeCIDRMaskSize: 1", "file.yaml:3: there is no field nodeIPAMController: write NodeIPAMController"},
		"a key of the other form": {header + "clusterCIDR: 10.0.0.0/8", "file.yaml:3: there is no field clusterCIDR"},
		"no number":               {header + "NodeIPAMController:\n  NodeCIDRMaskSize: '24'", "file.yaml:4: NodeIPAMController.NodeCIDRMaskSize: \"24\" is text, not a whole number: write it without quotation marks"},
		"a fraction":              {header + "NodeIPAMController:\n  NodeCIDRMaskSize: 24.5", "file.yaml:4: NodeIPAMController.NodeCIDRMaskSize: 24.5 is not a whole number"},
		"no bool":                 {header + "KubeCloudShared: {AllocateNodeCIDRs: maybe}", "file.yaml:3: KubeCloudShared.AllocateNodeCIDRs: maybe is not true or false"},
		"yes":                     {header + "KubeCloudShared: {AllocateNodeCIDRs: yes}", "file.yaml:3: KubeCloudShared.AllocateNodeCIDRs: yes is not true or false"},
		"no text":                 {header + "KubeCloudShared: {ClusterName: 12}", "file.yaml:3: KubeCloudShared.ClusterName: 12 is not text: put it into quotation marks"},
		"no time in quotes":       {header + "Generic: {LeaderElection: {leaseDuration: '15'}}", "file.yaml:3: Generic.LeaderElection.leaseDuration: 15 is not a time such as 15s"},
		"no time":                 {header + "Generic: {LeaderElection: {leaseDuration: 15}}", "file.yaml:3: Generic.LeaderElection.leaseDuration: 15 is not a time such as 15s"},
		"no list":                 {header + "Generic: {Controllers: a}", "file.yaml:3: Generic.Controllers: a is not a list"},
		"a list":                  {header + "KubeCloudShared: {ClusterCIDR: [a, b]}", "file.yaml:3: KubeCloudShared.ClusterCIDR: want text"},
		"no fields":               {header + "Generic: 1", "file.yaml:3: Generic: want keys and values"},
		"no value":                {header + "Generic:", "file.yaml:3: Generic: the value is missing"},
		"no flag":                 {header + "Generic: {Port: 1}", "file.yaml:3: Generic.Port has no effect: kube-controller-manager has no flag for it. Remove it"},
		"the second range":        {header + "NodeIPAMController: {SecondaryServiceCIDR: fd00::/112}", "Write both CIDRs into NodeIPAMController.ServiceCIDR, separated by a comma"},
		"a migration":             {header + "Generic: {LeaderMigration: {leaderName: a}}", "its name into the flag --leader-migration-config"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Values(read(t, tc.file)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
	if _, err := Values(read(t, header+"Generic: {Port: 0, Address: 0.0.0.0}\nServiceController: {}")); err != nil {
		t.Errorf("defaults of fields without a flag: %v", err)
	}
	_, err := Values(read(t, header+"A: 1\nB: 2"))
	if got := strings.Count(fmt.Sprint(err), "there is no field"); got != 2 {
		t.Errorf("%d of two mistakes in: %v", got, err)
	}
}

func read(t *testing.T, content string) *configfile.File {
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
	if err := file.Read(); err != nil {
		t.Fatal(err)
	}
	return file
}

// allLeaves are all fields of the type, sorted.
func allLeaves(v reflect.Value, path []string) (all []leaf) {
	known := fields(v)
	for name, field := range known {
		own := append(slices.Clone(path), name)
		switch {
		case len(own) == 1 && (name == "apiVersion" || name == "kind"):
		case isLeaf(field.Type()):
			all = append(all, leaf{path: own, value: field})
		default:
			all = append(all, allLeaves(field, own)...)
		}
	}
	slices.SortFunc(all, func(a, b leaf) int { return strings.Compare(a.name(), b.name()) })
	return all
}

// sample is a value that is neither the default of the field nor of a flag.
func sample(t *testing.T, of reflect.Value) reflect.Value {
	t.Helper()
	v := reflect.New(of.Type()).Elem()
	if of.Type() == reflect.TypeFor[metav1.Duration]() {
		v.Set(reflect.ValueOf(metav1.Duration{Duration: 4321 * time.Second}))
		return v
	}
	switch of.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(of.Type().Elem()))
		value := reflect.Zero(of.Type().Elem())
		if !of.IsNil() {
			value = of.Elem()
		}
		v.Elem().Set(sample(t, value))
	case reflect.Bool:
		v.SetBool(!of.Bool())
	case reflect.Int32:
		v.SetInt(4321)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(4321.5)
	case reflect.String:
		v.SetString("another value")
	case reflect.Slice:
		if of.Type().Elem().Kind() == reflect.String {
			v.Set(reflect.ValueOf([]string{"a", "b"}))
		} else {
			v.Set(reflect.Append(v, reflect.Zero(of.Type().Elem())))
		}
	default:
		t.Fatalf("no sample of %s", of.Type())
	}
	return v
}

// written is how a flag writes a value.
func written(v reflect.Value) string {
	switch value := v.Interface().(type) {
	case metav1.Duration:
		return value.Duration.String()
	case []string:
		return "[" + strings.Join(value, ",") + "]"
	}
	return fmt.Sprint(reflect.Indirect(v).Interface())
}
