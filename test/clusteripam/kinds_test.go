package clusteripam

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml" // large integers stay integers
	"k8s.io/client-go/dynamic"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/test/controlplane"
)

const crds = "../../manifests/clusteripam/crds"

// The originals of the kinds that come from a Go module. The sums are those that go.sum would have.
var originals = []struct{ module, sum, crds string }{
	{"sigs.k8s.io/cluster-api@v1.14.2", "h1:o3GFNaeNFAOEEMpDPfhCK+2CjmV6gtQ8yLEcUwCg7bA=", "core/config/crd/bases/ipam.cluster.x-k8s.io_*.yaml"},
	{"sigs.k8s.io/cluster-api-ipam-provider-in-cluster@v1.1.0", "h1:SfF3aKymnb/kTgF7kDS2gtbtmahteYgPTpuMfdThO2I=", "config/crd/bases/*.yaml"},
}

var (
	claims            = v1beta1.GroupVersion.WithResource("clusteripamclaims")
	ipams             = v1beta1.GroupVersion.WithResource("clusteripams")
	deployments       = v1beta1.GroupVersion.WithResource("clusterdeployments")
	pools             = v1alpha2.GroupVersion.WithResource("inclusterippools")
	globalPools       = v1alpha2.GroupVersion.WithResource("globalinclusterippools")
	prefixPools       = v1alpha2.GroupVersion.WithResource("inclusterprefixpools")
	globalPrefixPools = v1alpha2.GroupVersion.WithResource("globalinclusterprefixpools")
	addresses         = v1beta2.GroupVersion.WithResource("ipaddresses")
	requests          = v1beta2.GroupVersion.WithResource("ipaddressclaims")
	instances         = v1alpha1.GroupVersion.WithResource("infobloxinstances")
	infoblox          = v1alpha1.GroupVersion.WithResource("infobloxippools")

	kinds = map[schema.GroupVersionResource]string{
		claims: v1beta1.KindClusterIPAMClaim, ipams: v1beta1.KindClusterIPAM, deployments: v1beta1.KindClusterDeployment,
		pools: v1alpha2.KindInClusterIPPool, globalPools: v1alpha2.KindGlobalInClusterIPPool,
		prefixPools: v1alpha2.KindInClusterPrefixPool, globalPrefixPools: v1alpha2.KindGlobalInClusterPrefixPool,
		addresses: v1beta2.KindIPAddress, requests: v1beta2.KindIPAddressClaim,
		instances: v1alpha1.KindInfobloxInstance, infoblox: v1alpha1.KindInfobloxIPPool,
	}
	clusterScoped = []schema.GroupVersionResource{globalPools, globalPrefixPools, instances}
)

// row is an object that the API server takes or refuses.
type row struct {
	of     schema.GroupVersionResource
	object string // spec, and whatever else it has beside metadata
	// was is the object before this update. Without it, object is created.
	was string
	// status: it is an update of the status.
	status bool
	// want is a part of the error; empty if the object is taken.
	want string
}

// TestKinds shows what our CRDs take and refuse. For k0rdent's kinds, which are in no module, that is what the originals do, as it was looked up once. What comes
// from a module is compared by TestSchemas: of its kinds this has only the rules that ours add.
func TestKinds(t *testing.T) {
	const (
		claimSpec   = `{spec: {provider: in-cluster}}`
		needsTypes  = `Unsupported value`
		onceSet     = ` reference is immutable once set`
		requestSpec = `{spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: p}}}`
		addressSpec = `claimRef: {name: c}, poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: p}`
	)
	compare(t, map[string]row{
		"claim: the least":                           {of: claims, object: claimSpec},
		"claim: without spec":                        {of: claims, object: `{}`},
		"claim: without provider":                    {of: claims, object: `{spec: {nodeNetwork: {cidr: 10.0.0.0/24}}}`, want: "spec.provider: Required value"},
		"claim: Infoblox":                            {of: claims, object: `{spec: {provider: ipam-infoblox}}`},
		"claim: another provider":                    {of: claims, object: `{spec: {provider: metal3}}`, want: needsTypes},
		"claim: everything":                          {of: claims, object: `{spec: {provider: in-cluster, cluster: d, clusterIPAMRef: c, nodeNetwork: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, prefix: 24, ipAddresses: [10.0.0.5]}, clusterNetwork: {cidr: 10.1.0.0/16}, externalNetwork: {ipAddresses: [192.0.2.1]}}}`},
		"claim: texts and numbers that mean nothing": {of: claims, object: `{spec: {provider: in-cluster, nodeNetwork: {cidr: nope, gateway: none, prefix: -5, ipAddresses: ["", a-b]}}}`},
		"claim: prefix as a text":                    {of: claims, object: `{spec: {provider: in-cluster, nodeNetwork: {prefix: "24"}}}`, want: "spec.nodeNetwork.prefix: Invalid value"},
		"claim: cluster is set later":                {of: claims, was: claimSpec, object: `{spec: {provider: in-cluster, cluster: d}}`},
		"claim: cluster is changed":                  {of: claims, was: `{spec: {provider: in-cluster, cluster: d}}`, object: `{spec: {provider: in-cluster, cluster: e}}`, want: "Cluster" + onceSet},
		"claim: cluster is emptied":                  {of: claims, was: `{spec: {provider: in-cluster, cluster: d}}`, object: `{spec: {provider: in-cluster, cluster: ""}}`, want: "Cluster" + onceSet},
		"claim: cluster is removed":                  {of: claims, was: `{spec: {provider: in-cluster, cluster: d}}`, object: claimSpec},
		"claim: clusterIPAMRef is changed":           {of: claims, was: `{spec: {provider: in-cluster, clusterIPAMRef: c}}`, object: `{spec: {provider: in-cluster, clusterIPAMRef: d}}`, want: "ClusterIPAM" + onceSet},
		"claim: provider is changed":                 {of: claims, was: claimSpec, object: `{spec: {provider: ipam-infoblox}}`},
		"claim: bound":                               {of: claims, was: claimSpec, status: true, object: `{status: {bound: true}}`},

		"ClusterIPAM: empty":             {of: ipams, object: `{spec: {}}`},
		"ClusterIPAM: another provider":  {of: ipams, object: `{spec: {provider: metal3}}`, want: needsTypes},
		"ClusterIPAM: the claim changes": {of: ipams, was: `{spec: {clusterIPAMClaimRef: c}}`, object: `{spec: {clusterIPAMClaimRef: d}}`, want: "Claim" + onceSet},
		"ClusterIPAM: Bound":             {of: ipams, was: `{spec: {}}`, status: true, object: `{status: {phase: Bound, providerData: [{name: ipPool, ready: true, config: {apiGroup: g, kind: k, name: n, more: {a: [1]}}}]}}`},
		"ClusterIPAM: another phase":     {of: ipams, was: `{spec: {}}`, status: true, object: `{status: {phase: Ready}}`, want: needsTypes},

		"cluster: the least":                      {of: deployments, object: `{spec: {template: t}}`},
		"cluster: without spec":                   {of: deployments, object: `{}`, want: "spec: Required value"},
		"cluster: without template":               {of: deployments, object: `{spec: {credential: c}}`, want: "spec.template: Required value"},
		"cluster: an empty template":              {of: deployments, object: `{spec: {template: ""}}`, want: "spec.template: Invalid value"},
		"cluster: a template of 253 characters":   {of: deployments, object: `{spec: {template: ` + strings.Repeat("t", 253) + `}}`},
		"cluster: a template of 254 characters":   {of: deployments, object: `{spec: {template: ` + strings.Repeat("t", 254) + `}}`, want: "Too long"},
		"cluster: a claim by name":                {of: deployments, object: `{spec: {template: t, ipamClaim: {ref: c}}}`},
		"cluster: a claim written out":            {of: deployments, object: `{spec: {template: t, ipamClaim: {ref: c, spec: {provider: in-cluster, nodeNetwork: {cidr: 10.0.0.0/24}}}}}`},
		"cluster: a claim without provider":       {of: deployments, object: `{spec: {template: t, ipamClaim: {spec: {}}}}`, want: "spec.ipamClaim.spec.provider: Required value"},
		"cluster: the cluster of a claim changes": {of: deployments, was: `{spec: {template: t, ipamClaim: {spec: {provider: in-cluster, cluster: d}}}}`, object: `{spec: {template: t, ipamClaim: {spec: {provider: in-cluster, cluster: e}}}}`, want: "Cluster" + onceSet},

		"request: the pool changes": {of: requests, was: requestSpec, object: strings.Replace(requestSpec, "name: p", "name: q", 1), want: "spec: Invalid value: cannot be changed"},

		"address: a zone":               {of: addresses, object: `{spec: {address: "fe80::5%eth0", prefix: 64, ` + addressSpec + `}}`},
		"address: IPv4 written as IPv6": {of: addresses, object: `{spec: {address: "::FFFF:10.0.0.5", prefix: 24, ` + addressSpec + `}}`},
		"address: a label changes":      {of: addresses, was: `{spec: {address: 10.0.0.5, prefix: 24, ` + addressSpec + `}}`, object: `{metadata: {labels: {a: b}}, spec: {address: 10.0.0.5, prefix: 24, ` + addressSpec + `}}`},
		"address: with a prefix length": {of: addresses, object: `{spec: {address: 10.0.0.5/24, prefix: 24, ` + addressSpec + `}}`, want: "must be an address without a prefix length"},
		"address: with leading zeros":   {of: addresses, object: `{spec: {address: 010.0.0.5, prefix: 24, ` + addressSpec + `}}`, want: "must be an address without a prefix length"},
		"address: with a blank":         {of: addresses, object: `{spec: {address: "10.0.0.5 ", prefix: 24, ` + addressSpec + `}}`, want: "must be an address without a prefix length"},
		"address: the address changes":  {of: addresses, was: `{spec: {address: 10.0.0.5, prefix: 24, ` + addressSpec + `}}`, object: `{spec: {address: 10.0.0.6, prefix: 24, ` + addressSpec + `}}`, want: "spec: Invalid value: cannot be changed"},

		"prefix pool: everything":       {of: globalPrefixPools, object: `{spec: {prefixes: ["fd00::/48", "fd01::/56"], allocationPrefixLength: 60, gateway: "fe80::1", excludedPrefixes: ["fd00::/60", "fd01::1", "fd01::10-fd01::20"]}}`},
		"prefix pool: IPv4":             {of: prefixPools, object: `{spec: {prefixes: ["10.0.0.0/8"]}}`, want: "must be an IPv6 CIDR without host bits"},
		"prefix pool: host bits":        {of: prefixPools, object: `{spec: {prefixes: ["fd00::1/48"]}}`, want: "must be an IPv6 CIDR without host bits"},
		"prefix pool: smaller prefixes": {of: prefixPools, object: `{spec: {prefixes: ["fd00::/80"]}}`, want: "prefixes are smaller than what a claim gets"},
		"prefix pool: other length":     {of: prefixPools, was: `{spec: {prefixes: ["fd00::/48"]}}`, object: `{spec: {prefixes: ["fd00::/48"], allocationPrefixLength: 63}}`, want: "cannot be changed: create another pool"},

		"instance: the least":              {of: instances, object: `{spec: {host: infoblox.example.com, wapiVersion: "2.12", credentialsSecretRef: {name: s}}}`},
		"instance: without host":           {of: instances, object: `{spec: {wapiVersion: "2.12", credentialsSecretRef: {name: s}}}`, want: "spec.host: Required value"},
		"instance: without Secret":         {of: instances, object: `{spec: {host: h, wapiVersion: "2.12"}}`, want: "spec.credentialsSecretRef: Required value"},
		"Infoblox pool: the least":         {of: infoblox, object: `{spec: {instance: {name: i}, subnets: [{cidr: 10.0.0.0/24}]}}`},
		"Infoblox pool: both families":     {of: infoblox, object: `{spec: {instance: {name: i}, subnets: [{cidr: 10.0.0.0/24, gateway: 10.0.0.1}, {cidr: "fd00::/64", gateway: "fd00::1"}]}}`},
		"Infoblox pool: an empty instance": {of: infoblox, object: `{spec: {instance: {name: ""}, subnets: [{cidr: 10.0.0.0/24}]}}`, want: "spec.instance.name: Invalid value"},
		"Infoblox pool: without subnets":   {of: infoblox, object: `{spec: {instance: {name: i}, subnets: []}}`, want: "spec.subnets: Invalid value"},
		"Infoblox pool: host bits":         {of: infoblox, object: `{spec: {instance: {name: i}, subnets: [{cidr: 10.0.0.1/24}]}}`, want: "must be a CIDR whose address is the first of the network"},
		"Infoblox pool: no CIDR":           {of: infoblox, object: `{spec: {instance: {name: i}, subnets: [{cidr: ""}]}}`, want: "must be a CIDR whose address is the first of the network"},
		"Infoblox pool: mixed families":    {of: infoblox, object: `{spec: {instance: {name: i}, subnets: [{cidr: 10.0.0.0/24, gateway: "fd00::1"}]}}`, want: "gateway and cidr are of different families"},
	})
}

// TestPoolRules shows that the API server refuses by itself the pools that the in-cluster provider refuses in its webhook, and says what to do.
func TestPoolRules(t *testing.T) {
	pool := func(spec, want string) row {
		return row{of: pools, object: `{spec: {` + spec + `}}`, want: want}
	}
	const (
		noEntry  = "must be an address, a range without blanks, or a CIDR"
		subnet   = "addresses are not all in one subnet of this prefix length"
		families = "addresses are of both families"
	)
	compare(t, map[string]row{
		"IPv4":                                    pool(`addresses: [10.0.0.0/24], prefix: 24`, ""),
		"IPv6":                                    pool(`addresses: ["fd00::/64"], prefix: 64, gateway: "fd00::1"`, ""),
		"addresses, ranges and CIDRs":             pool(`addresses: [10.0.0.200, 10.0.0.5-10.0.0.9, 10.0.0.16/28], prefix: 24`, ""),
		"host bits in a CIDR":                     pool(`addresses: [10.0.0.5/28], prefix: 24`, ""),
		"overlaps":                                pool(`addresses: [10.0.0.0/25, 10.0.0.5, 10.0.0.1-10.0.0.9], prefix: 24`, ""),
		"a gateway outside":                       pool(`addresses: [10.0.0.0/24], prefix: 24, gateway: 192.168.7.1`, ""),
		"only the gateway":                        pool(`addresses: [10.0.0.1], prefix: 24, gateway: 10.0.0.1`, ""),
		"prefix 0 holds everything":               pool(`addresses: [10.0.0.1, 192.168.0.1-200.0.0.0], prefix: 0`, ""),
		"a range of one":                          pool(`addresses: ["fd00::1-FD00:0::1"], prefix: 64`, ""),
		"exclusions outside":                      pool(`addresses: [10.0.0.0/24], prefix: 24, excludedAddresses: [192.168.0.0/16]`, ""),
		"no spec":                                 {of: pools, object: `{}`, want: "spec is required"},
		"an empty list":                           pool(`addresses: [], prefix: 24`, "should have at least 1 items"),
		"an empty entry":                          pool(`addresses: [""], prefix: 24`, noEntry),
		"a word":                                  pool(`addresses: [pool], prefix: 24`, noEntry),
		"a range with blanks":                     pool(`addresses: ["10.0.0.1 - 10.0.0.5"], prefix: 24`, noEntry),
		"half a range":                            pool(`addresses: ["10.0.0.1-"], prefix: 24`, noEntry),
		"a range of three":                        pool(`addresses: ["10.0.0.1-10.0.0.5-10.0.0.9"], prefix: 24`, noEntry),
		"a range of both families":                pool(`addresses: ["10.0.0.1-fd00::1"], prefix: 24`, noEntry),
		"a bad exclusion":                         pool(`addresses: [10.0.0.0/24], prefix: 24, excludedAddresses: [10.0.0]`, noEntry),
		"a reversed range":                        pool(`addresses: [10.0.0.9-10.0.0.5], prefix: 24`, "swap them"),
		"a reversed range of IPv6":                pool(`addresses: ["fd00::1:0-fd00::ffff"], prefix: 64`, "swap them"),
		"a reversed exclusion":                    pool(`addresses: [10.0.0.0/24], prefix: 24, excludedAddresses: [10.0.0.10-10.0.0.9]`, "swap them"),
		"a prefix too long for IPv4":              pool(`addresses: [10.0.0.0/24], prefix: 33`, "an IPv4 address has at most 32 bits"),
		"both families":                           pool(`addresses: [10.0.0.0/24, "fd00::/64"], prefix: 24`, families),
		"a second subnet":                         pool(`addresses: [10.0.0.0/24, 10.0.1.5], prefix: 24`, subnet),
		"a range that leaves the subnet":          pool(`addresses: [10.0.0.250-10.0.1.5], prefix: 24`, subnet),
		"a CIDR wider than the subnet":            pool(`addresses: [10.0.0.0/23], prefix: 24`, subnet),
		"IPv6 with a gateway of IPv4":             pool(`addresses: ["fd00::/64"], prefix: 64, gateway: 10.0.0.1`, "gateway and addresses are of different families"),
		"a gateway that is no address":            pool(`addresses: [10.0.0.0/24], prefix: 24, gateway: 10.0.0.1/24`, "must be an address without a prefix length"),
		"exclusions of the other family":          pool(`addresses: [10.0.0.0/24], prefix: 24, excludedAddresses: ["fd00::1"]`, "excludedAddresses and addresses are of different families"),
		"a zone, which is silently dropped there": pool(`addresses: ["fe80::1%eth0"], prefix: 64`, noEntry),
		"IPv4 written as IPv6, taken there":       pool(`addresses: ["::ffff:10.0.0.1"], prefix: 120`, noEntry),
		"1024 entries":                            pool(`prefix: 8, addresses: [`+strings.Repeat("10.0.0.1-10.255.255.254,", 1024)+`]`, ""),
		"1025 entries, any number there":          pool(`prefix: 8, addresses: [`+strings.Repeat("10.0.0.1,", 1025)+`]`, "Too many"),
	})
}

// compare tries the rows.
func compare(t *testing.T, rows map[string]row) {
	cp := controlplane.StartForTest(t, controlplane.Options{})
	client := dynamic.NewForConfigOrDie(cp.AdminConfig())
	apply(t, cp, crds)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		r := rows[name]
		if err := r.try(t, client); (err == nil) != (r.want == "") || err != nil && !strings.Contains(err.Error(), r.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, r.want)
		}
	}
}

// deleteCRDs deletes all CustomResourceDefinitions, with their objects. One after the other: kube-apiserver leaves the objects of a collection in etcd.
func deleteCRDs(t *testing.T, client dynamic.Interface) {
	t.Helper()
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := crds.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, crd := range list.Items {
			if err := crds.Delete(ctx, crd.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return false, err
			}
		}
		return len(list.Items) == 0, nil
	})
	if err != nil {
		t.Fatalf("CustomResourceDefinitions do not go: %v", err)
	}
}

// try sends the object as a dry run.
func (r row) try(t *testing.T, client dynamic.Interface) error {
	t.Helper()
	resource := dynamic.ResourceInterface(client.Resource(r.of))
	if !slices.Contains(clusterScoped, r.of) {
		resource = client.Resource(r.of).Namespace(metav1.NamespaceDefault)
	}
	object := r.read(t, r.object)
	dryRun := []string{metav1.DryRunAll}
	if r.was == "" {
		_, err := created(t, resource, object, dryRun)
		return err
	}
	was, err := created(t, resource, r.read(t, r.was), nil)
	if err != nil {
		t.Fatalf("the object to update: %v", err)
	}
	defer func() {
		if err := resource.Delete(context.WithoutCancel(t.Context()), was.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	object.SetResourceVersion(was.GetResourceVersion())
	if !r.status {
		_, err := resource.Update(t.Context(), object, metav1.UpdateOptions{DryRun: dryRun})
		return err
	}
	object.Object["spec"] = was.Object["spec"]
	_, err = resource.UpdateStatus(t.Context(), object, metav1.UpdateOptions{DryRun: dryRun})
	return err
}

// created creates an object, for which it waits until the kind is served: an API server may need a moment after the CRD is established.
func created(t *testing.T, resource dynamic.ResourceInterface, object *unstructured.Unstructured, dryRun []string) (created *unstructured.Unstructured, err error) {
	_ = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		created, err = resource.Create(ctx, object, metav1.CreateOptions{DryRun: dryRun})
		return !apierrors.IsNotFound(err), nil
	})
	return created, err
}

func (r row) read(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	object.SetGroupVersionKind(r.of.GroupVersion().WithKind(kinds[r.of]))
	object.SetName("row")
	return object
}

func apply(t *testing.T, cp *controlplane.ControlPlane, paths ...string) {
	t.Helper()
	if err := cp.Apply(t.Context(), paths...); err != nil {
		t.Fatal(err)
	}
}

// TestSchemas: our CRDs have the schemas of the originals that come from a module, and limits, rules and conditions beside.
func TestSchemas(t *testing.T) {
	for _, file := range originalCRDs(t) {
		original := versionsOf(t, file)
		for version, ours := range versionsOf(t, filepath.Join(crds, filepath.Base(file))) {
			adds(t, filepath.Base(file)+" "+version, original[version], ours)
		}
	}
}

// versionsOf returns the versions of a CustomResourceDefinition, without what matters to people only.
func versionsOf(t *testing.T, file string) map[string]map[string]any {
	t.Helper()
	var crd struct {
		Spec struct {
			Scope    string
			Versions []map[string]any
		}
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(text, &crd)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]any{}
	for _, v := range crd.Spec.Versions {
		all[v["name"].(string)] = map[string]any{"scope": crd.Spec.Scope, "schema": v["schema"], "subresources": v["subresources"]}
	}
	return all
}

// adds compares a part of a CustomResourceDefinition with that of the original. Ours may refuse more, and has conditions. Nobody fills the deprecated fields of
// an IPAddressClaim's status.
func adds(t *testing.T, path string, original, ours map[string]any) {
	t.Helper()
	may := []string{"x-kubernetes-validations", "maxLength", "maxItems", "minItems", "conditions"}
	fields := maps.Clone(original)
	maps.Copy(fields, ours)
	for field := range fields {
		was, isObject := original[field].(map[string]any)
		is, areObjects := ours[field].(map[string]any)
		switch _, had := original[field]; {
		case field == "description", !had && slices.Contains(may, field), field == "deprecated" && !areObjects:
		case isObject && areObjects:
			adds(t, path+"."+field, was, is)
		case !cmp.Equal(original[field], ours[field]):
			t.Errorf("%s.%s is %v, in the original %v", path, field, ours[field], original[field])
		}
	}
}

// originalCRDs are files in the module cache. The program go verifies what it downloads.
func originalCRDs(t *testing.T) (files []string) {
	t.Helper()
	for _, original := range originals {
		cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", original.module)
		cmd.Dir = t.TempDir() // This module does not need that one.
		output, err := cmd.Output()
		if err != nil {
			t.Fatalf("download %s: %v\n%s", original.module, err, output)
		}
		var module struct{ Dir, Sum string }
		if err := json.Unmarshal(output, &module); err != nil {
			t.Fatal(err)
		}
		if module.Sum != original.sum {
			t.Fatalf("%s has the sum %s, want %s", original.module, module.Sum, original.sum)
		}
		found, err := filepath.Glob(filepath.Join(module.Dir, filepath.FromSlash(original.crds)))
		if err != nil || len(found) == 0 {
			t.Fatal(fmt.Errorf("%s has the CRDs %q: %w", original.module, found, err))
		}
		files = append(files, found...)
	}
	return files
}
