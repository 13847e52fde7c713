package manager

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	cmconfig "k8s.io/controller-manager/config"
	cmoptions "k8s.io/controller-manager/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/multicidr/controller-manager/controllers/nodeipam"
)

func TestReplacements(t *testing.T) {
	left := []string{"node-ipam-controller"}
	cases := map[string]struct {
		controllers []string
		want        []string
	}{
		"ours is off by default":                                         {controllers: []string{"*"}},
		"ours off by name leaves the in-tree one alone":                  {controllers: []string{"*", "-multi-cidr-node-ipam-controller"}},
		"ours off by name, in-tree on by name":                           {controllers: []string{"-multicidrnodeipam", "nodeipam"}},
		"ours on, in-tree only through *":                                {controllers: []string{"*", "multi-cidr-node-ipam-controller"}, want: left},
		"ours on, in-tree only through *, which comes last":              {controllers: []string{"multi-cidr-node-ipam-controller", "*"}, want: left},
		"ours on through its alias":                                      {controllers: []string{"*", "multicidrnodeipam"}, want: left},
		"ours on without *: the in-tree one is off anyway":               {controllers: []string{"multi-cidr-node-ipam-controller"}},
		"ours on, in-tree off by name":                                   {controllers: []string{"*", "multi-cidr-node-ipam-controller", "-node-ipam-controller"}},
		"ours on, in-tree off through its alias":                         {controllers: []string{"*", "multi-cidr-node-ipam-controller", "-nodeipam"}},
		"the first mention decides: in-tree off, then named":             {controllers: []string{"-nodeipam", "node-ipam-controller", "multicidrnodeipam"}},
		"the first mention decides: ours off, then named; in-tree named": {controllers: []string{"-multicidrnodeipam", "multicidrnodeipam", "nodeipam"}},
	}
	for sentence, tc := range cases {
		t.Run(sentence, func(t *testing.T) {
			replacing, err := replacing(t, tc.controllers)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range replacing {
				got = append(got, d.Replaces)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("replacements of %v (-want +got):\n%s", tc.controllers, diff)
			}
		})
	}
}

// replacing asks about a value of --controllers, as upstream's options read it.
func replacing(t *testing.T, controllers []string) ([]Descriptor, error) {
	t.Helper()
	r := newRoster([]Descriptor{NodeIPAM()})
	o := cmoptions.NewGenericControllerManagerConfigurationOptions(&cmconfig.GenericControllerManagerConfiguration{Controllers: controllers})
	var c cmconfig.GenericControllerManagerConfiguration
	if err := o.ApplyTo(&c, r.names, r.disabled, r.aliases); err != nil {
		t.Fatal(err)
	}
	return r.replacing(c.Controllers)
}

func TestBothNamedIsAnError(t *testing.T) {
	cases := map[string][]string{
		"canonical names":                 {"node-ipam-controller", "multi-cidr-node-ipam-controller"},
		"aliases":                         {"nodeipam", "multicidrnodeipam"},
		"beside *":                        {"*", "node-ipam-controller", "multi-cidr-node-ipam-controller"},
		"in-tree turned off too late":     {"nodeipam", "-nodeipam", "multi-cidr-node-ipam-controller"},
		"ours first":                      {"multi-cidr-node-ipam-controller", "nodeipam", "*"},
		"among others, with one twice":    {"*", "-ttl-controller", "nodeipam", "nodeipam", "multicidrnodeipam"},
		"alias of one, name of the other": {"nodeipam", "multi-cidr-node-ipam-controller"},
	}
	for sentence, controllers := range cases {
		t.Run(sentence, func(t *testing.T) {
			_, err := replacing(t, controllers)
			if err == nil {
				t.Fatalf("replacements of %v: no error", controllers)
			}
			for _, part := range []string{`"node-ipam-controller"`, `"multi-cidr-node-ipam-controller"`, "remove"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %s: %v", part, err)
				}
			}
		})
	}
}

func TestRosterAddsToWhatUpstreamKnows(t *testing.T) {
	r := newRoster([]Descriptor{NodeIPAM(), {Name: "zebra-controller", Alias: "zebra"}})

	wantNames := slices.Sorted(slices.Values(append(app.KnownControllers(), nodeipam.Name, "zebra-controller")))
	if diff := cmp.Diff(wantNames, r.names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	wantDisabled := slices.Sorted(slices.Values(append(app.ControllersDisabledByDefault(), nodeipam.Name, "zebra-controller")))
	if diff := cmp.Diff(wantDisabled, r.disabled); diff != "" {
		t.Errorf("disabled by default (-want +got):\n%s", diff)
	}
	wantAliases := app.ControllerAliases()
	wantAliases["multicidrnodeipam"] = nodeipam.Name
	wantAliases["zebra"] = "zebra-controller"
	if diff := cmp.Diff(wantAliases, r.aliases); diff != "" {
		t.Errorf("aliases (-want +got):\n%s", diff)
	}
}
