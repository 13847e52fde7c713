package integration

import (
	"context"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWrongFlags starts the manager with flags of the in-tree allocator that make no sense. Our controller says so, in its health
// check and in the log; other controllers work, and Nodes keep what they have.
func TestWrongFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		flags []string
		want  string // of fromflags TestSpec
	}{
		"blocks larger than the range": {
			flags: []string{"--cluster-cidr=10.244.0.0/24", "--node-cidr-mask-size=16"},
			want:  "blocks_larger_than_the_range",
		},
		"two ranges of one family": {
			flags: []string{"--cluster-cidr=10.1.0.0/16,10.2.0.0/16"},
			want:  "two_of_one_family",
		},
		"one mask for two families": {
			flags: []string{"--cluster-cidr=10.244.0.0/16,fd00::/48", "--node-cidr-mask-size=24"},
			want:  "the_general_mask_with_two_families",
		},
		"no CIDR": {
			flags: []string{"--cluster-cidr=10.244.0.0"},
			want:  "no_CIDR",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := sharedCluster(t)
			if err := createNode(c, []string{"n1", "10.244.0.0/24"}); err != nil {
				t.Fatal(err)
			}
			flags := append(tc.flags, "--allocate-node-cidrs", "--controllers=multi-cidr-node-ipam-controller,serviceaccount-controller")
			if err := manage(c, append([]string{"restart"}, flags...)); err != nil {
				t.Fatal(err)
			}
			want := sentence(t, "fromflags TestSpec/"+tc.want)
			if err := c.healthSays(want); err != nil {
				t.Error(err)
			}
			if err := logSays(c, []string{"--", strings.Trim(strconv.Quote(want), `"`)}); err != nil {
				t.Error(err)
			}
			// A namespace gets its default ServiceAccount from one of upstream's controllers.
			ctx := context.Background()
			namespace, err := c.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "others-work-"}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := eventually(patience, func(ctx context.Context) error {
				_, err := c.kube.CoreV1().ServiceAccounts(namespace.Name).Get(ctx, "default", metav1.GetOptions{})
				return err
			}); err != nil {
				t.Error(err)
			}
			if err := served(c, []string{"n1", "10.244.0.0/24"}); err != nil {
				t.Error(err)
			}
			// And once the flags are right, so is everything.
			if err := manage(c, []string{"restart", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16"}); err != nil {
				t.Fatal(err)
			}
			if err := healthy(c, nil); err != nil {
				t.Error(err)
			}
			if err := createNode(c, []string{"n2"}); err != nil {
				t.Fatal(err)
			}
			if err := served(c, []string{"n2", "10.244.1.0/24"}); err != nil {
				t.Error(err)
			}
		})
	}
}
