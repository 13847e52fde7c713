package clusteripam

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/test/wapitest"
)

// withInfoblox makes an Infoblox and the Secret of its user known to a cluster.
func withInfoblox(c *cluster, name string, grid *wapitest.Grid) *wapitest.Server {
	c.t.Helper()
	server := wapitest.New(c.t, grid)
	_, err := c.kube.CoreV1().Secrets(metav1.NamespaceSystem).Create(c.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"username": server.Username, "password": server.Password},
	}, metav1.CreateOptions{})
	c.do("create a Secret", err)
	host, port := server.Address()
	c.create(instances, name, fmt.Sprintf(`{spec: {host: %q, port: %q, wapiVersion: "2.12", credentialsSecretRef: {name: %s}, customCAPath: %s}}`, host, port, name, server.CAFile))
	return server
}

// records returns the host records as "name address address".
func records(server *wapitest.Server) (all []string) {
	server.Grid(func(g *wapitest.Grid) {
		for _, h := range g.Hosts() {
			all = append(all, strings.TrimSpace(h.Name+" "+strings.Trim(fmt.Sprint(h.Addresses), "[]")))
		}
	})
	return all
}

// untilRecords waits until Infoblox has exactly these host records.
func (c *cluster) untilRecords(server *wapitest.Server, want ...string) {
	c.t.Helper()
	c.eventually(func(context.Context) error {
		if is := records(server); !slices.Equal(is, want) {
			return fmt.Errorf("Infoblox has %q, want %q", is, want)
		}
		return nil
	})
}

// writesOf counts the requests that were sent to change something.
func writesOf(server *wapitest.Server) map[string]int {
	n := map[string]int{}
	for _, r := range server.Requests() {
		if r.Method != "GET" {
			n[r.Method]++
		}
	}
	return n
}

func (c *cluster) request(name, pool string, metadata ...string) {
	c.t.Helper()
	c.create(requests, name, claimOf("InfobloxIPPool", pool, metadata...))
}

func ready(status, reason string) map[string]string {
	return map[string]string{"status.conditions.0.type": `"Ready"`, "status.conditions.0.status": `"` + status + `"`, "status.conditions.0.reason": `"` + reason + `"`}
}

// TestInfoblox is one claim after the other on an Infoblox that answers, does not answer, and fails.
func TestInfoblox(t *testing.T) {
	inBothPrograms(t, func(c *cluster) {
		grid := wapitest.NewGrid("10.0.0.0/24", "10.0.9.0/30", "fd00::/120")
		grid.Reserved[netip.MustParseAddr("10.0.0.1")] = true
		server := withInfoblox(c, "i", grid)
		c.until(instances, "i", ready("True", "ConfigurationValid"))

		// From a ClusterIPAMClaim to a pool.
		c.create(claims, "c", `{spec: {provider: ipam-infoblox, nodeNetwork: {cidr: 10.0.0.0/24, gateway: 10.0.0.1}}}`)
		c.until(infoblox, "c", map[string]string{"spec.instance.name": `"i"`, "spec.subnets": `[{"cidr":"10.0.0.0/24","gateway":"10.0.0.1"}]`})
		c.until(infoblox, "c", ready("True", "Ready"))
		c.until(claims, "c", map[string]string{"status.bound": "true"})
		c.until(ipams, "c", map[string]string{"status.providerData.0.config.apiGroup": `"ipam.cluster.x-k8s.io"`, "status.providerData.0.ready": "true"})
		asked := map[string]bool{}
		for _, r := range server.Requests() {
			asked[r.Path] = true
		}
		if !asked["networkview"] || !asked["network"] {
			t.Errorf("Infoblox was asked for %v", asked)
		}

		// One claim is one POST, also after a restart.
		c.request("h1", "c")
		c.until(addresses, "h1", map[string]string{
			"spec.address": `"10.0.0.2"`, "spec.prefix": "24", "spec.gateway": `"10.0.0.1"`, "metadata.ownerReferences.0.controller": "true",
			"metadata.ownerReferences.1.kind": `"InfobloxIPPool"`, "metadata.finalizers": `["ipam.cluster.x-k8s.io/ProtectAddress"]`,
		})
		c.until(requests, "h1", ready("True", "Ready"))
		c.until(requests, "h1", map[string]string{"status.addressRef.name": `"h1"`})
		c.restart()

		// The answer to a POST is lost.
		server.Fail("POST", "record:host", wapitest.DropAfter, 1)
		c.request("h2", "c")
		c.until(addresses, "h2", map[string]string{"spec.address": `"10.0.0.3"`})
		if n := writesOf(server); n["POST"] != 2 || len(n) != 1 {
			t.Errorf("%v for two claims, one of which lost an answer", n)
		}
		// The POST is lost.
		server.Fail("POST", "record:host", wapitest.DropBefore, 1)
		c.request("h3", "c")
		c.until(addresses, "h3", map[string]string{"spec.address": `"10.0.0.4"`})
		c.untilRecords(server, "h1 10.0.0.2", "h2 10.0.0.3", "h3 10.0.0.4")

		// A claim of the same name in another namespace, and a record of somebody else.
		server.Grid(func(g *wapitest.Grid) {
			g.Do("POST", "record:host", nil, []byte(`{"name": "h4", "configure_for_dns": false, "ipv4addrs": [{"ipv4addr": "10.0.0.200"}]}`))
		})
		c.request("h4", "c")
		c.until(addresses, "h4", map[string]string{"spec.address": `"10.0.0.5"`})
		uid := strings.Trim(at(c.get(requests, "h4"), "metadata.uid"), `"`)
		c.untilRecords(server, "h1 10.0.0.2", "h2 10.0.0.3", "h3 10.0.0.4", "h4 10.0.0.200", "h4."+uid+" 10.0.0.5")

		// A release that Infoblox refuses is tried again, and the claim stays until then.
		server.Requests()
		end := server.Fail("DELETE", "", wapitest.Fails, -1)
		c.delete(requests, "h4")
		c.untilEvent("h4", "ReleaseFailed")
		if c.get(requests, "h4") == nil {
			t.Error("the claim is gone, and the host record is not")
		}
		end()
		c.untilGone(requests, "h4")
		c.untilGone(addresses, "h4")
		c.untilRecords(server, "h1 10.0.0.2", "h2 10.0.0.3", "h3 10.0.0.4", "h4 10.0.0.200")
		// The answer to a DELETE is lost.
		server.Fail("DELETE", "", wapitest.DropAfter, 1)
		c.delete(requests, "h3")
		c.untilGone(requests, "h3")
		c.untilRecords(server, "h1 10.0.0.2", "h2 10.0.0.3", "h4 10.0.0.200")

		// Two claims of one machine share a record. One gives it up, the other keeps it.
		c.create(infoblox, "v6", `{spec: {instance: {name: i}, subnets: [{cidr: "fd00::/120"}]}}`)
		c.request("m-v4", "c", `annotations: {ipam.cluster.x-k8s.io/hostname: m}`)
		c.until(addresses, "m-v4", map[string]string{"spec.address": `"10.0.0.4"`})
		c.request("m-v6", "v6", `annotations: {ipam.cluster.x-k8s.io/hostname: m}`)
		c.until(addresses, "m-v6", map[string]string{"spec.address": `"fd00::1"`, "spec.prefix": "120", "spec.gateway": ""})
		c.untilRecords(server, "h1 10.0.0.2", "h2 10.0.0.3", "h4 10.0.0.200", "m 10.0.0.4 fd00::1")
		c.delete(requests, "m-v4")
		c.untilGone(requests, "m-v4")
		c.untilRecords(server, "h1 10.0.0.2", "h2 10.0.0.3", "h4 10.0.0.200", "m fd00::1")
		c.delete(requests, "m-v6")
		c.untilRecords(server, "h1 10.0.0.2", "h2 10.0.0.3", "h4 10.0.0.200")

		// The gateway is not reserved in Infoblox, and the network is full: of two addresses one can be used.
		c.create(infoblox, "small", `{spec: {instance: {name: i}, subnets: [{cidr: 10.0.9.0/30, gateway: 10.0.9.1}]}}`)
		c.request("s1", "small")
		c.until(addresses, "s1", map[string]string{"spec.address": `"10.0.9.2"`})
		c.request("s2", "small")
		c.until(requests, "s2", ready("False", "PoolExhausted"))
		c.delete(requests, "s1")
		c.until(addresses, "s2", map[string]string{"spec.address": `"10.0.9.2"`})

		// The credentials are wrong for a while.
		_, err := c.kube.CoreV1().Secrets(metav1.NamespaceSystem).Patch(t.Context(), "i", "application/merge-patch+json", []byte(`{"stringData": {"password": "wrong"}}`), metav1.PatchOptions{})
		c.do("change the password", err)
		c.until(instances, "i", ready("False", "AuthenticationFailed"))
		c.request("h5", "c")
		c.until(requests, "h5", ready("False", "PoolNotReady"))
		_, err = c.kube.CoreV1().Secrets(metav1.NamespaceSystem).Patch(t.Context(), "i", "application/merge-patch+json", []byte(`{"stringData": {"password": "infoblox"}}`), metav1.PatchOptions{})
		c.do("change the password back", err)
		c.until(addresses, "h5", map[string]string{"spec.address": `"10.0.0.4"`})

		// A pool goes when its last claim has gone.
		c.delete(infoblox, "small")
		c.until(infoblox, "small", map[string]string{"metadata.finalizers": `["ipam.cluster.x-k8s.io/ProtectPool"]`})
		c.delete(requests, "s2")
		c.untilGone(requests, "s2")
		c.untilGone(infoblox, "small")
	})
}

// TestInfobloxNotReady is what InfobloxInstances and InfobloxIPPools say of what is wrong, and that it ends without a restart.
func TestInfobloxNotReady(t *testing.T) {
	inBothPrograms(t, func(c *cluster) {
		grid := wapitest.NewGrid("10.0.0.0/24")
		grid.DNSViews = nil // Nobody needs one without a zone.
		server := withInfoblox(c, "i", grid)
		host, port := server.Address()
		c.until(instances, "i", ready("True", "ConfigurationValid"))

		spec := func(more string) string {
			return fmt.Sprintf(`{spec: {host: %q, port: %q, wapiVersion: "2.12", credentialsSecretRef: {name: i}, %s}}`, host, port, more)
		}
		c.create(instances, "no-ca", spec(`customCAPath: /does/not/exist`))
		c.create(instances, "unknown-ca", spec(``))
		c.create(instances, "unverified", spec(`disableTLSVerification: true`))
		c.create(instances, "no-view", spec(`defaultNetworkView: nope, disableTLSVerification: true`))
		c.create(instances, "no-dns-view", spec(`defaultDNSView: nope, disableTLSVerification: true`))
		c.create(instances, "no-secret", fmt.Sprintf(`{spec: {host: %q, wapiVersion: "2.12", credentialsSecretRef: {name: later}}}`, host))
		c.until(instances, "no-ca", ready("False", "AuthenticationFailed"))
		c.until(instances, "unknown-ca", ready("False", "AuthenticationFailed"))
		c.until(instances, "unverified", ready("True", "ConfigurationValid"))
		c.until(instances, "no-view", ready("False", "NetworkViewNotFound"))
		c.until(instances, "no-dns-view", ready("False", "DNSViewNotFound"))
		c.until(instances, "no-secret", ready("False", "AuthenticationFailed"))
		for _, r := range server.Requests() {
			if r.User != server.Username {
				t.Errorf("a request of %q", r.User)
			}
		}

		for name, tc := range map[string]struct{ spec, status, reason string }{
			"well":        {`{instance: {name: i}, subnets: [{cidr: 10.0.0.0/24}]}`, "True", "Ready"},
			"no-network":  {`{instance: {name: i}, subnets: [{cidr: 10.0.0.0/24}, {cidr: 10.1.0.0/24}]}`, "False", "NetworkNotFound"},
			"no-view":     {`{instance: {name: i}, subnets: [{cidr: 10.0.0.0/24}], networkView: nope}`, "False", "NetworkViewNotFound"},
			"no-dns-view": {`{instance: {name: i}, subnets: [{cidr: 10.0.0.0/24}], dnsZone: example.com}`, "False", "DNSViewNotFound"},
			"no-instance": {`{instance: {name: later}, subnets: [{cidr: 10.0.0.0/24}]}`, "False", "AuthenticationFailed"},
			"other":       {`{instance: {name: no-ca}, subnets: [{cidr: 10.0.0.0/24}]}`, "False", "AuthenticationFailed"},
		} {
			c.create(infoblox, name, "{spec: "+tc.spec+"}")
			c.until(infoblox, name, ready(tc.status, tc.reason))
		}
		// The pool of a claim is corrected in the claim.
		for name, says := range map[string]string{
			"claim-i":     `NetworkNotFound: Infoblox has no network 10.9.0.0/24 in the network view default. Create it there, or correct spec.nodeNetwork of the ClusterIPAMClaim claim-i.`,
			"claim-later": `AuthenticationFailed: The InfobloxInstance later does not exist. Create it, or name another one in the annotation networking.x-k8s.io/infoblox-instance of the ClusterIPAMClaim claim-later.`,
		} {
			c.create(claims, name, fmt.Sprintf(`{metadata: {annotations: {networking.x-k8s.io/infoblox-instance: %q}}, spec: {provider: ipam-infoblox, nodeNetwork: {cidr: 10.9.0.0/24, gateway: 10.9.0.1}}}`,
				strings.TrimPrefix(name, "claim-")))
			c.untilCondition(claims, name, "IPAMProviderConditionError", "message", asJSON("The InfobloxIPPool is not ready: "+says))
			c.delete(claims, name)
		}
		c.create(instances, "later", spec(`disableTLSVerification: true`))
		c.until(infoblox, "no-instance", ready("True", "Ready"))
		server.Grid(func(g *wapitest.Grid) {
			g.Networks["default"] = append(g.Networks["default"], netip.MustParsePrefix("10.1.0.0/24"))
		})
		if took := c.until(infoblox, "no-network", ready("True", "Ready")); took > 30*time.Second {
			t.Errorf("a network that was missing was found after %v", took)
		}

		// An InfobloxInstance is gone before its claims: the claim waits for it and says so.
		c.request("a", "no-instance")
		c.until(addresses, "a", map[string]string{"spec.address": `"10.0.0.1"`})
		c.delete(instances, "later")
		c.until(infoblox, "no-instance", ready("False", "AuthenticationFailed"))
		c.delete(requests, "a")
		c.untilEvent("a", "ReleaseFailed")
		c.create(instances, "later", spec(`disableTLSVerification: true`))
		c.untilGone(requests, "a")
		c.untilRecords(server)
	})
}

// TestInfobloxRelease is what a claim in deletion may be like: its user wishes another name, others have finalizers on it, and this program cannot read
// all of it.
func TestInfobloxRelease(t *testing.T) {
	c := newCluster(t, alone)
	c.apply(crds)
	c.start()
	server := withInfoblox(c, "i", wapitest.NewGrid("10.0.0.0/24"))
	c.create(infoblox, "p", `{spec: {instance: {name: i}, subnets: [{cidr: 10.0.0.0/24}]}}`)
	c.until(infoblox, "p", ready("True", "Ready"))
	c.request("a", "p", `annotations: {ipam.cluster.x-k8s.io/hostname: Web-1}`, `finalizers: [example.com/machine]`)
	c.until(requests, "a", ready("True", "Ready"))
	c.untilRecords(server, "web-1 10.0.0.1")
	c.patch(requests, "a", `{metadata: {annotations: {ipam.cluster.x-k8s.io/hostname: web-2}}}`)
	c.delete(requests, "a")
	c.request("b", "p")
	c.until(addresses, "b", map[string]string{"spec.address": `"10.0.0.2"`})
	c.until(addresses, "a", map[string]string{"spec.address": `"10.0.0.1"`})
	c.patch(requests, "a", `{metadata: {finalizers: [ipam.cluster.x-k8s.io/ReleaseAddress]}}`)
	c.untilGone(requests, "a")
	c.untilGone(addresses, "a")
	c.untilRecords(server, "b 10.0.0.2")
}
