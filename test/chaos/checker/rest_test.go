package checker

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestOverlaps(t *testing.T) {
	for name, tc := range map[string]struct {
		podCIDRs [][]string // of one Node after the other
		want     []string   // the blocks that the error names first; none: no error
	}{
		"neighbours":                   {[][]string{{"10.0.0.0/24", "fd00::/64"}, {"10.0.1.0/24", "fd00:0:0:1::/64"}}, nil},
		"the same block":               {[][]string{{"10.0.0.0/24"}, {"10.0.1.0/24"}, {"10.0.0.0/24"}}, []string{"10.0.0.0/24 of"}},
		"a block inside another":       {[][]string{{"10.0.255.0/24"}, {"10.0.0.0/16"}}, []string{"10.0.255.0/24 of"}},
		"the second family overlaps":   {[][]string{{"10.0.0.0/24", "fd00::/64"}, {"10.0.1.0/24", "fd00::/72"}}, []string{"fd00::/72 of"}},
		"behind the one that overlaps": {[][]string{{"10.0.0.0/8"}, {"10.0.0.0/24"}, {"10.9.0.0/24"}}, []string{"10.0.0.0/24 of", "10.9.0.0/24 of"}},
		"what cannot be read":          {[][]string{{"10.0.0.0/24"}, {"10.0.0/24"}}, []string{"podCIDRs of"}},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes []corev1.Node
			for _, podCIDRs := range tc.podCIDRs {
				nodes = append(nodes, corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: podCIDRs}})
			}
			var got []string
			if err := Overlaps(nodes); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if len(got) != len(tc.want) {
				t.Fatalf("got %q, want %q", got, tc.want)
			}
			for i, want := range tc.want {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("got %q, want %q first", got[i], want)
				}
			}
		})
	}
}
