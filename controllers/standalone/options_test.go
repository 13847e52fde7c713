package standalone

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// TestFlagsAreDocumented compares the table in docs/reference/flags-node-ipam-controller.md with the flags: names, variables and defaults.
func TestFlagsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/reference/flags-node-ipam-controller.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `--([a-z0-9-]+)` \\|([^|]*)\\|([^|]*)\\|").FindAllStringSubmatch(string(doc), -1) {
		cell := func(i int) string { return strings.Trim(row[i], " `") }
		documented[row[1]] = fmt.Sprintf("variable %s, default %s", cell(2), cell(3))
	}
	variableOf := map[string]string{}
	for _, v := range newNodeIPAM().variables() {
		if variableOf[v.flag] == "" {
			variableOf[v.flag] = v.name
		}
		if !strings.Contains(string(doc), "`"+v.name+"`") {
			t.Errorf("docs/reference/flags-node-ipam-controller.md does not name %s", v.name)
		}
	}
	flags := map[string]string{}
	sections := newOptions(newNodeIPAM()).sections()
	for _, name := range []string{"cluster", "serving", "leader election", "node ipam"} {
		sections.FlagSet(name).VisitAll(func(flag *pflag.Flag) {
			if flag.Deprecated == "" {
				flags[flag.Name] = fmt.Sprintf("variable %s, default %s", variableOf[flag.Name], flag.DefValue)
			}
		})
	}
	if diff := cmp.Diff(flags, documented); diff != "" {
		t.Errorf("the flags (-) and the table in docs/reference/flags-node-ipam-controller.md (+):\n%s", diff)
	}
}

// TestIdentity: whatever a process is called, no other one is called so.
func TestIdentity(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		env  map[string]string
		want string
	}{
		"the flag":              {args: []string{"--leader-elect-id=a"}, env: map[string]string{"IPAM_LEADER_ELECT_ID": "b", "POD_NAME": "c"}, want: "a"},
		"the variable":          {env: map[string]string{"IPAM_LEADER_ELECT_ID": "b", "POD_NAME": "c"}, want: "b"},
		"the Pod":               {env: map[string]string{"POD_NAME": "c"}, want: "c"},
		"the host, without any": {want: hostname(t)},
	} {
		t.Run(name, func(t *testing.T) {
			identities := map[string]bool{}
			for range 2 {
				o := newOptions(newNodeIPAM())
				fs := pflag.NewFlagSet("", pflag.ContinueOnError)
				for _, section := range o.sections().FlagSets {
					fs.AddFlagSet(section)
				}
				if err := fs.Parse(append(tc.args, "--leader-elect-namespace=ns")); err != nil {
					t.Fatal(err)
				}
				getenv := func(name string) string { return tc.env[name] }
				if err := o.complete(fs, getenv); err != nil {
					t.Fatal(err)
				}
				if !strings.HasPrefix(o.identity, tc.want+"_") {
					t.Errorf("it is %q, want %q and something random", o.identity, tc.want)
				}
				identities[o.identity] = true
			}
			if len(identities) != 2 {
				t.Errorf("two processes are both called %v", identities)
			}
		})
	}
}

func hostname(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return name
}
