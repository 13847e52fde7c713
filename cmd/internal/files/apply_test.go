package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// As kubectl apply does.
func TestApply(t *testing.T) {
	const last = `{"spec":{"ipv4":"10.0.0.0/16","perNodeHostBits":8,"priority":3,"excludedCIDRs":["10.0.0.0/24"]}}`
	for description, tc := range map[string]struct {
		file, object string // specs
		last         string // the annotation of the object
		want         string
		err          string
	}{
		"what was patched since stays": {
			"{ipv4: 10.0.0.0/16, perNodeHostBits: 8}", "{ipv4: 10.0.0.0/16, perNodeHostBits: 8, allocation: Disabled, priority: 5, excludedCIDRs: [10.0.1.0/24]}", `{"spec":{"ipv4":"10.0.0.0/16","perNodeHostBits":8}}`,
			"{ipv4: 10.0.0.0/16, perNodeHostBits: 8, allocation: Disabled, priority: 5, excludedCIDRs: [10.0.1.0/24]}", ""},
		"what the file named before goes": {
			"{ipv4: 10.0.0.0/16, perNodeHostBits: 8}", "{ipv4: 10.0.0.0/16, perNodeHostBits: 8, priority: 5, excludedCIDRs: [10.0.1.0/24]}", last,
			"{ipv4: 10.0.0.0/16, perNodeHostBits: 8}", ""},
		"without the annotation nothing goes": {
			"{ipv4: 10.0.0.0/16, perNodeHostBits: 8}", "{ipv4: 10.0.0.0/16, perNodeHostBits: 8, nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}", "",
			"{ipv4: 10.0.0.0/16, perNodeHostBits: 8, nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}", ""},
		"what the file names wins, zero and empty too": {
			"{ipv4: 10.0.0.0/16, perNodeHostBits: 9, priority: 0, excludedCIDRs: []}", "{ipv4: 10.0.0.0/16, perNodeHostBits: 8, priority: 5, excludedCIDRs: [10.0.1.0/24]}", "",
			"{ipv4: 10.0.0.0/16, perNodeHostBits: 9, priority: 0, excludedCIDRs: []}", ""},
		"null takes a field away": {
			"{ipv4: 10.0.0.0/16, perNodeHostBits: 8, excludedCIDRs: null}", "{ipv4: 10.0.0.0/16, perNodeHostBits: 8, excludedCIDRs: [10.0.1.0/24]}", "",
			"{ipv4: 10.0.0.0/16, perNodeHostBits: 8}", ""},
		"an annotation that is no JSON": {"{ipv4: 10.0.0.0/16}", "{ipv4: 10.0.0.0/16}", "rubbish", "", "cannot be read"},
	} {
		t.Run(description, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f.yaml")
			if err := os.WriteFile(path, []byte(header+"metadata: {name: a}\nspec: "+tc.file+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			read, _, err := Read([]string{path})
			if err != nil {
				t.Fatal(err)
			}
			specOf := func(text string) (spec networkingv1.ClusterCIDRSpec) {
				if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
					t.Fatal(err)
				}
				return spec
			}
			object := &networkingv1.ClusterCIDR{Spec: specOf(tc.object)}
			object.Name = "a"
			if tc.last != "" {
				object.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: tc.last}
			}
			other := &networkingv1.ClusterCIDR{Spec: specOf("{priority: 9}")}
			err = Apply(read, []*networkingv1.ClusterCIDR{other, object})
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got error %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(specOf(tc.want), read[0].Spec); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
