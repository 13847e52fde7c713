package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// A file is refused for what is in it, also for a value that the Go type has no word for. Each want is from the answer of a kube-apiserver.
func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		spec   string
		exists string // the spec of the one that exists
		want   string // part of the first refusal; empty if there is none
	}{
		"all is well":               {spec: "{ipv4: 10.0.0.0/16, perNodeHostBits: 8}"},
		"an empty allocation":       {spec: `{ipv4: 10.0.0.0/16, perNodeHostBits: 8, allocation: ""}`, want: `spec.allocation: Unsupported value: "": supported values: "Enabled", "Disabled"`},
		"the same in a change":      {spec: `{ipv4: 10.0.0.0/16, perNodeHostBits: 8, allocation: ""}`, exists: "{ipv4: 10.0.0.0/16, perNodeHostBits: 8, allocation: Disabled}", want: `spec.allocation: Unsupported value: ""`},
		"no allocation":             {spec: "{ipv4: 10.0.0.0/16, perNodeHostBits: 8, allocation: null}"},
		"a term that is null":       {spec: "{ipv4: 10.0.0.0/16, perNodeHostBits: 8, nodeSelector: {nodeSelectorTerms: [null]}}", want: "spec.nodeSelector.nodeSelectorTerms[0]: Invalid value: \"null\""},
		"an empty term":             {spec: "{ipv4: 10.0.0.0/16, perNodeHostBits: 8, nodeSelector: {nodeSelectorTerms: [{}]}}"},
		"an empty selector":         {spec: "{ipv4: 10.0.0.0/16, perNodeHostBits: 8, nodeSelector: {}}", want: "spec.nodeSelector.nodeSelectorTerms: Required value"},
		"values that are null":      {spec: "{ipv4: 10.0.0.0/16, perNodeHostBits: 8, nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists, values: null}]}]}}"},
		"a requirement without key": {spec: "{ipv4: 10.0.0.0/16, perNodeHostBits: 8, nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{operator: Exists}]}]}}", want: "spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].key: Required value"},
		"an exclusion that is null": {spec: "{ipv4: 10.0.0.0/16, perNodeHostBits: 8, excludedCIDRs: [null]}", want: `spec.excludedCIDRs[0]: Invalid value: "null"`},
		"no host bits":              {spec: "{ipv4: 10.0.0.0/16}", want: "spec.perNodeHostBits: Required value"},
		"host bits that are null":   {spec: "{ipv4: 10.0.0.0/16, perNodeHostBits: null}", want: "spec.perNodeHostBits: Required value"},
		"host bits of 0":            {spec: "{ipv4: 10.0.0.0/16, perNodeHostBits: 0}", want: "must be at least 4 (16 addresses)"},
		"IPv6 host bits of 0":       {spec: "{ipv6: fd00::/48, perNodeHostBits: 8, ipv6PerNodeHostBits: 0}", want: "must be at least 4 (16 addresses)"},
		"an empty range":            {spec: `{ipv4: "", ipv6: fd00::/112, perNodeHostBits: 8}`},
		"a change of the priority":  {spec: "{priority: 3}", exists: "{ipv4: 10.0.0.0/16, perNodeHostBits: 8}"},
		"a change of the range":     {spec: "{ipv4: 10.1.0.0/16}", exists: "{ipv4: 10.0.0.0/16, perNodeHostBits: 8}", want: "ipv4 cannot be changed"},
		"a range that goes":         {spec: "{ipv4: null}", exists: "{ipv4: 10.0.0.0/16, perNodeHostBits: 8}", want: "ipv4 cannot be changed"},
	} {
		t.Run(name, func(t *testing.T) {
			read := func(spec string) []networkingv1.ClusterCIDR {
				t.Helper()
				path := filepath.Join(t.TempDir(), "f.yaml")
				if err := os.WriteFile(path, []byte(header+"metadata: {name: a}\nspec: "+spec), 0o600); err != nil {
					t.Fatal(err)
				}
				all, _, err := Read([]string{path})
				if err != nil || len(all) != 1 {
					t.Fatalf("%d ClusterCIDRs, %v", len(all), err)
				}
				return all
			}
			planned := read(tc.spec)
			var before []*networkingv1.ClusterCIDR
			if tc.exists != "" {
				before = []*networkingv1.ClusterCIDR{&read(tc.exists)[0]}
				before[0].Annotations = nil
				if err := Apply(planned, before); err != nil {
					t.Fatal(err)
				}
			}
			got, err := Refusals(t.Context(), planned, before)
			if err != nil {
				t.Fatal(err)
			}
			if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) == 0 || !strings.Contains(got[0].Message, tc.want)) {
				t.Errorf("the refusals are %v, want %q", got, tc.want)
			}
		})
	}
}
