package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/multicidr/controller-manager/test/controlplane"
)

const debugPath = "/debug/controllers/multi-cidr-node-ipam-controller"

// TestDebug looks at the debug page of a running controller as a script does, and as others do.
func TestDebug(t *testing.T) {
	const nodes = 30
	c := sharedCluster(t)
	must(t, createClusterCIDR(c, []string{"dual", "10.0.0.0/19", "fd00:1::/48", "hb8", "v6hb64"}))
	want := map[string][]string{} // podCIDRs by Node
	for i := range nodes {
		name := fmt.Sprintf("n%02d", i)
		must(t, createNode(c, []string{name}))
		node, err := c.waitServed(name, patience)
		if err != nil {
			t.Fatal(err)
		}
		want[name] = node.Spec.PodCIDRs
	}
	must(t, createNode(c, []string{"foreign", "10.0.2.0/24"}))
	must(t, event(c, []string{"foreign", "CIDRConflict", "n02"}))
	want["foreign"] = []string{"10.0.2.0/24"}

	t.Run("JSON says what the Nodes show", func(t *testing.T) { debugJSON(t, c, want) })
	t.Run("who may see it", func(t *testing.T) { debugOfOthers(t, c) })
}

func debugJSON(t *testing.T, c *cluster, want map[string][]string) {
	var got map[string][]string
	must(t, eventually(patience, func(ctx context.Context) error {
		status, body, err := c.manager.Get(ctx, debugPath+"?format=json")
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("status %d: %s (%w)", status, body, err)
		}
		var page struct {
			Nodes []struct {
				Node, State string
				PodCIDRs    []string
			}
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return err
		}
		got = map[string][]string{}
		for _, n := range page.Nodes {
			if n.State != "Allocated" {
				return fmt.Errorf("Node %s is %s", n.Node, n.State) // the watch shows it in a moment
			}
			got[n.Node] = n.PodCIDRs
		}
		return nil
	}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("podCIDRs by Node (-want +got):\n%s", diff)
	}
}

// debugOfOthers asks without credentials, with a permission as docs/operate/troubleshooting.md gives it, and a manager that does not lead.
func debugOfOthers(t *testing.T, c *cluster) {
	ctx := t.Context()
	const name = "see-node-ipam-ledger"
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{debugPath}, Verbs: []string{"get"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "auditor"}},
	}
	if _, err := c.kube.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.kube.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		expect(t, c.kube.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{}), c.kube.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{}))
	})
	auditor, err := c.cp.Config("auditor")
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := c.cp.Config("stranger")
	if err != nil {
		t.Fatal(err)
	}
	standby := c.start(t, controlplane.ManagerOptions{Name: "standby", Args: ours})

	for name, tc := range map[string]struct {
		config  *rest.Config
		manager *controlplane.Manager
		want    int
	}{
		"nobody":                       {rest.AnonymousClientConfig(c.cp.AdminConfig()), c.manager, http.StatusForbidden},
		"somebody without permission":  {stranger, c.manager, http.StatusForbidden},
		"somebody with the permission": {auditor, c.manager, http.StatusOK},
		"a manager that does not lead": {c.cp.AdminConfig(), standby, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := rest.HTTPClientFor(tc.config)
			if err != nil {
				t.Fatal(err)
			}
			// A permission that was given a moment ago is not known everywhere yet.
			expect(t, eventually(patience, func(context.Context) error {
				response, err := client.Get(tc.manager.URL() + debugPath)
				if err != nil {
					return err
				}
				if response.StatusCode != tc.want {
					err = fmt.Errorf("status %d, want %d", response.StatusCode, tc.want)
				}
				return errors.Join(err, response.Body.Close())
			}))
		})
	}
}
