package clusteripam

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestPermissions shows that the controllers have the permissions that they need, also where the API server checks who may write an owner
// reference, and no permission that they do not use.
func TestPermissions(t *testing.T) {
	for _, program := range []string{alone, insideManager} {
		t.Run(program, func(t *testing.T) {
			audit, log, err := controlplane.Audit(t.TempDir(), `users: [`+strings.Join(append(accounts(), aloneUser), ", ")+`]`)
			if err != nil {
				t.Fatal(err)
			}
			c := newCluster(t, program, append(audit, "--enable-admission-plugins=OwnerReferencesPermissionEnforcement")...)
			c.apply(crds)
			c.start()
			c.doEverything()
			c.do("stop the program", c.manager.Stop())

			events, err := controlplane.ReadAudit(log, 0)
			c.do("read the audit log", err)
			used := map[string]map[permission]bool{}
			for _, e := range events {
				if e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusForbidden {
					t.Errorf("%s may not %s %s: %s", e.User.Username, e.Verb, e.RequestURI, e.ResponseStatus.Message)
				}
				if e.ObjectRef == nil {
					continue
				}
				user := e.User.Username[strings.LastIndex(e.User.Username, ":")+1:]
				if used[user] == nil {
					used[user] = map[permission]bool{}
				}
				used[user][permission{e.ObjectRef.APIGroup, strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/"), reading(e.Verb)}] = true
			}
			if program == alone {
				if len(used[aloneUser]) == 0 {
					t.Error("the audit log has no request of the program")
				}
				return
			}
			for _, controller := range clusteripam.Names() {
				for _, p := range granted(t, controller) {
					if !used[controller][p] && !slices.Contains(rare[controller], p) {
						t.Errorf("%s may %s %s in %q and never does", controller, p.verb, p.resource, p.group)
					}
				}
			}
		})
	}
}

// permission is to do something with a kind of object. Lists and watches are reads.
type permission struct{ group, resource, verb string }

// rare are permissions that are needed only if something goes wrong, with Cluster API, with an Infoblox that answers, or by the admission plugin
// alone: it asks for update of an owner's finalizers, and for delete of what is adopted.
var rare = map[string][]permission{
	"cluster-ipam-controller": {
		{"", "events", "patch"},
		{"k0rdent.mirantis.com", "clusteripamclaims/finalizers", "update"},
		{"k0rdent.mirantis.com", "clusteripams", "delete"},
		{"ipam.cluster.x-k8s.io", "inclusterippools", "delete"},
	},
	"cluster-deployment-ipam-controller": {{"", "events", "patch"}},
	"in-cluster-ip-pool-controller": {
		{"", "events", "patch"},
		{"cluster.x-k8s.io", "clusters", "read"},
		{"ipam.cluster.x-k8s.io", "ipaddressclaims/finalizers", "update"},
		{"ipam.cluster.x-k8s.io", "inclusterippools/finalizers", "update"},
		{"ipam.cluster.x-k8s.io", "globalinclusterippools/finalizers", "update"},
		{"ipam.cluster.x-k8s.io", "inclusterprefixpools/finalizers", "update"},
		{"ipam.cluster.x-k8s.io", "globalinclusterprefixpools/finalizers", "update"},
	},
	"infoblox-ip-pool-controller": {
		{"", "events", "patch"},
		{"cluster.x-k8s.io", "clusters", "read"},
		{"ipam.cluster.x-k8s.io", "ipaddressclaims/finalizers", "update"},
		{"ipam.cluster.x-k8s.io", "infobloxippools/finalizers", "update"},
		{"infrastructure.cluster.x-k8s.io", "metal3datas", "read"},
		{"infrastructure.cluster.x-k8s.io", "metal3machines", "read"},
		{"infrastructure.cluster.x-k8s.io", "vspheremachines", "read"},
		{"infrastructure.cluster.x-k8s.io", "vspherevms", "read"},
		{"ipam.cluster.x-k8s.io", "ipaddressclaims", "patch"},
		{"ipam.cluster.x-k8s.io", "ipaddresses", "create"},
		{"ipam.cluster.x-k8s.io", "ipaddresses", "patch"},
		{"ipam.cluster.x-k8s.io", "ipaddresses", "delete"},
	},
}

func reading(verb string) string {
	if slices.Contains([]string{"get", "list", "watch"}, verb) {
		return "read"
	}
	return verb
}

func accounts() (users []string) {
	for _, name := range clusteripam.Names() {
		users = append(users, `"system:serviceaccount:kube-system:`+name+`"`)
	}
	return users
}

func granted(t *testing.T, controller string) (all []permission) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../../manifests/clusteripam/rbac", controller+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict(content, &role); err != nil {
		t.Fatal(err)
	}
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				all = append(all, permission{rule.APIGroups[0], resource, reading(verb)})
			}
		}
	}
	return all
}

// doEverything has every controller do what it can without an Infoblox.
func (c *cluster) doEverything() {
	// A ClusterIPAM and a pool that the claim adopts, a network that is changed, and a provider that is changed back.
	c.create(ipams, "c", `{spec: {provider: in-cluster, clusterIPAMClaimRef: c}}`)
	c.create(pools, "c", `{spec: {addresses: [10.0.0.0/24], prefix: 24}}`)
	c.create(claims, "c", `{spec: {provider: in-cluster, cluster: d, nodeNetwork: {cidr: 10.0.0.0/24}}}`)
	c.until(claims, "c", map[string]string{"status.bound": "true", "spec.clusterIPAMRef": `"c"`})
	c.patch(claims, "c", `{spec: {nodeNetwork: {cidr: 10.0.0.0/23}}}`)
	c.until(pools, "c", map[string]string{"spec.addresses": `["10.0.0.0/23"]`})
	c.create(instances, "i", `{spec: {host: 127.0.0.1, port: "1", wapiVersion: "2.12", credentialsSecretRef: {name: missing}}}`)
	c.until(instances, "i", map[string]string{"status.conditions.0.reason": `"AuthenticationFailed"`})
	c.create(claims, "moves", `{spec: {provider: ipam-infoblox, nodeNetwork: {cidr: 10.1.0.0/24, gateway: 10.1.0.2}}}`)
	c.until(infoblox, "moves", map[string]string{"status.conditions.0.type": `"Ready"`})
	c.patch(claims, "moves", `{spec: {nodeNetwork: {gateway: 10.1.0.1}}}`)
	c.until(infoblox, "moves", map[string]string{"spec.subnets.0.gateway": `"10.1.0.1"`})
	c.patch(claims, "moves", `{spec: {provider: in-cluster}}`)
	c.until(claims, "moves", map[string]string{"status.bound": "true"})
	c.untilGone(infoblox, "moves")

	// ClusterDeployments by reference and inline, one of which changes.
	c.create(deployments, "d", `{spec: {template: t, ipamClaim: {ref: c}}}`)
	c.create(deployments, "e", `{spec: {template: t, ipamClaim: {spec: {provider: in-cluster, nodeNetwork: {cidr: 10.2.0.0/24}}}}}`)
	for _, name := range []string{"d", "e"} {
		c.until(deployments, name, map[string]string{"spec.config.ipamEnabled": "true", "status.conditions.0.status": `"True"`})
	}
	c.patch(deployments, "e", `{spec: {ipamClaim: {spec: {nodeNetwork: {cidr: 10.2.0.0/23}}}}}`)
	c.until(claims, "e-ipam", map[string]string{"spec.nodeNetwork.cidr": `"10.2.0.0/23"`})

	// Addresses of both kinds of pools, and back.
	c.create(globalPools, "g", `{spec: {addresses: [10.3.0.0/24], prefix: 24}}`)
	c.create(prefixPools, "p", `{spec: {prefixes: ["fd00:1::/48"], allocationPrefixLength: 64}}`)
	c.create(globalPrefixPools, "gp", `{spec: {prefixes: ["fd00:2::/48"], allocationPrefixLength: 64}}`)
	for name, kind := range map[string]string{"c": "InClusterIPPool", "g": "GlobalInClusterIPPool", "p": "InClusterPrefixPool", "gp": "GlobalInClusterPrefixPool"} {
		c.create(requests, name, `{spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: `+kind+`, name: `+name+`}}}`)
		c.until(requests, name, map[string]string{"status.addressRef.name": `"` + name + `"`})
		c.delete(requests, name)
		c.untilGone(addresses, name)
		c.untilGone(requests, name)
	}
	// One whose pool is missing, of which an event says so.
	c.create(requests, "early", `{spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: later}}}`)
	c.untilEvent("early", v1beta2.ReasonPoolNotReady)
	c.delete(requests, "early")
	c.untilGone(requests, "early")
	// One that an Infoblox would have to answer.
	c.create(infoblox, "x", `{spec: {instance: {name: i}, subnets: [{cidr: 10.4.0.0/24}]}}`)
	c.create(requests, "x", `{spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InfobloxIPPool, name: x}}}`)
	c.until(requests, "x", map[string]string{"status.conditions.0.reason": `"PoolNotReady"`})
	c.delete(requests, "x")
	c.untilGone(requests, "x")
}
