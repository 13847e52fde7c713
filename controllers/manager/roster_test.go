package manager

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func TestReplacements(t *testing.T) {
	left := []replacement{{replaced: "node-ipam-controller", by: NodeIPAMController}}
	cases := map[string]struct {
		controllers []string
		want        []replacement
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
			got, err := testRoster(t, NodeIPAM()).replacements(tc.controllers)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(replacement{})); diff != "" {
				t.Errorf("replacements of %v (-want +got):\n%s", tc.controllers, diff)
			}
		})
	}
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
			_, err := testRoster(t, NodeIPAM()).replacements(controllers)
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
	r := testRoster(t, NodeIPAM(), Descriptor{Name: "zebra-controller", Aliases: []string{"zebra"}})

	wantNames := slices.Sorted(slices.Values(append(app.KnownControllers(), NodeIPAMController, "zebra-controller")))
	if diff := cmp.Diff(wantNames, r.names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	wantDisabled := slices.Sorted(slices.Values(append(app.ControllersDisabledByDefault(), NodeIPAMController, "zebra-controller")))
	if diff := cmp.Diff(wantDisabled, r.disabled); diff != "" {
		t.Errorf("disabled by default (-want +got):\n%s", diff)
	}
	wantAliases := app.ControllerAliases()
	wantAliases["multicidrnodeipam"] = NodeIPAMController
	wantAliases["zebra"] = "zebra-controller"
	if diff := cmp.Diff(wantAliases, r.aliases); diff != "" {
		t.Errorf("aliases (-want +got):\n%s", diff)
	}
}

func TestRosterRefusesContradictions(t *testing.T) {
	cases := map[string]struct {
		added []Descriptor
		want  string
	}{
		"no name":                        {added: []Descriptor{{}}, want: "empty or taken"},
		"an empty alias":                 {added: []Descriptor{{Name: "a", Aliases: []string{""}}}, want: "empty or taken"},
		"upstream's name":                {added: []Descriptor{{Name: "node-ipam-controller"}}, want: `"node-ipam-controller" is empty or taken`},
		"upstream's alias as a name":     {added: []Descriptor{{Name: "nodeipam"}}, want: `"nodeipam" is empty or taken`},
		"upstream's alias as an alias":   {added: []Descriptor{{Name: "a", Aliases: []string{"nodeipam"}}}, want: `"nodeipam" is empty or taken`},
		"one name twice":                 {added: []Descriptor{{Name: "a"}, {Name: "a"}}, want: `"a" is empty or taken`},
		"a name that is another's alias": {added: []Descriptor{{Name: "a", Aliases: []string{"b"}}, {Name: "b"}}, want: `"b" is empty or taken`},
		"replacing what does not exist": {
			added: []Descriptor{{Name: "a", Replaces: []string{"nodeipam"}}},
			want:  "is not an upstream controller",
		},
	}
	for sentence, tc := range cases {
		t.Run(sentence, func(t *testing.T) {
			_, err := newRoster(tc.added)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one that says %s", err, tc.want)
			}
		})
	}
}

func testRoster(t *testing.T, added ...Descriptor) roster {
	t.Helper()
	r, err := newRoster(added)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
