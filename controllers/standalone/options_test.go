package standalone

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

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
