package integration

import (
	"context"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWrongFlags starts the manager with flags of the in-tree allocator that make no sense, one of those of fromflags TestSpec. Our controller says so, in its health
// check and in the log; other controllers work, and Nodes keep what they have.
func TestWrongFlags(t *testing.T) {
	c := sharedCluster(t)
	must(t, createNode(c, []string{"n1", "10.244.0.0/24"}))
	must(t, manage(c, []string{"restart", "--cluster-cidr=10.244.0.0/16,fd00::/48", "--node-cidr-mask-size=24", "--allocate-node-cidrs",
		"--controllers=multi-cidr-node-ipam-controller,serviceaccount-controller"}))
	want := sentence(t, "fromflags TestSpec/the_general_mask_with_two_families")
	expect(t, c.healthSays(want))
	expect(t, logSays(c, []string{"--", strings.Trim(strconv.Quote(want), `"`)}))
	// A namespace gets its default ServiceAccount from one of upstream's controllers.
	ctx := context.Background()
	namespace, err := c.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "others-work-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, eventually(patience, func(ctx context.Context) error {
		_, err := c.kube.CoreV1().ServiceAccounts(namespace.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	}))
	expect(t, served(c, []string{"n1", "10.244.0.0/24"}))
	// And once the flags are right, so is everything.
	must(t, manage(c, []string{"restart", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16"}))
	expect(t, c.healthy())
	must(t, createNode(c, []string{"n2"}))
	expect(t, served(c, []string{"n2", "10.244.1.0/24"}))
}
