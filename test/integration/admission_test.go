package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/controlplane"
)

const (
	crdFile = "../../manifests/crds/networking.x-k8s.io_clustercidrs.yaml"

	admissionTimeout = 30 * time.Second
	admissionPoll    = 20 * time.Millisecond
)

// TestAdmission shows what the CRD and the RBAC manifests do on a real API server. It has a control plane of its own
// without a manager: it stores broken objects and swaps the CRD, which no other test should see.
func TestAdmission(t *testing.T) {
	admission := newAdmission(t, controlplane.StartForTest(t, controlplane.Options{}))

	t.Run("kubectl applies CRD and RBAC", admission.testKubectlApply)
	t.Run("the service account may do its work and no more", admission.testRBAC)
	t.Run("create", admission.testCreate)
	t.Run("update", admission.testUpdate)
	t.Run("block sizes of the flags of kube-controller-manager", admission.testFromFlags)
	t.Run("a status with a cursor", admission.testCursor)
	t.Run("kubectl applies every example", admission.testExamples)
	t.Run("kubectl get cc", admission.testPrinterColumns)
	t.Run("objects stored under an older CRD", admission.testLegacyObjects)
	t.Run("the CRD is upgraded and rolled back", admission.testCRDVersions)
}

// admission is the control plane of TestAdmission with its clients.
type admission struct {
	cp   *controlplane.ControlPlane
	kube kubernetes.Interface
	// raw can express what the Go types cannot, for instance an object without a spec.
	raw   dynamic.ResourceInterface
	typed versioned.Interface
}

func newAdmission(t *testing.T, cp *controlplane.ControlPlane) *admission {
	t.Helper()
	config := cp.AdminConfig()
	// Updates of objects that break a rule are answered with a warning, which is no news here.
	config.WarningHandler = rest.NoWarnings{}
	return &admission{
		cp:    cp,
		kube:  kubernetes.NewForConfigOrDie(config),
		raw:   dynamic.NewForConfigOrDie(config).Resource(networkingv1.SchemeGroupVersion.WithResource("clustercidrs")),
		typed: versioned.NewForConfigOrDie(config),
	}
}

func (a *admission) testKubectlApply(t *testing.T) {
	a.kubectl(t, "", "apply", "-f", "../../manifests/crds/", "-f", "../../manifests/rbac/")
	// Client-side apply keeps the whole manifest in an annotation, which has a limit; both ways must work.
	a.kubectl(t, "", "apply", "--server-side", "-f", "../../manifests/crds/", "-f", "../../manifests/rbac/")
	a.kubectl(t, "", "wait", "--for=condition=Established", "--timeout=30s", "crd/clustercidrs.networking.x-k8s.io")
}

func (a *admission) testRBAC(t *testing.T) {
	type access struct{ verb, group, resource, subresource, namespace string }
	tests := map[string]struct {
		access access
		want   bool
	}{
		"write the podCIDRs of a Node":       {access{"patch", "", "nodes", "", ""}, true},
		"watch Nodes":                        {access{"watch", "", "nodes", "", ""}, true},
		"watch ClusterCIDRs":                 {access{"watch", networkingv1.GroupName, "clustercidrs", "", ""}, true},
		"put the finalizer on a ClusterCIDR": {access{"patch", networkingv1.GroupName, "clustercidrs", "", ""}, true},
		"make the ClusterCIDR of the flags":  {access{"create", networkingv1.GroupName, "clustercidrs", "", ""}, true},
		"report status":                      {access{"patch", networkingv1.GroupName, "clustercidrs", "status", ""}, true},
		"watch service ranges":               {access{"watch", "networking.k8s.io", "servicecidrs", "", ""}, true},
		"write an event about a Node":        {access{"create", "", "events", "", "default"}, true},
		"renew it":                           {access{"patch", "", "events", "", "default"}, true},
		"not write events elsewhere":         {access{"create", "", "events", "", "kube-system"}, false},
		"not delete a Node":                  {access{"delete", "", "nodes", "", ""}, false},
		"not write the status of a Node":     {access{"patch", "", "nodes", "status", ""}, false},
		"not delete a ClusterCIDR":           {access{"delete", networkingv1.GroupName, "clustercidrs", "", ""}, false},
		"not delete all ClusterCIDRs":        {access{"deletecollection", networkingv1.GroupName, "clustercidrs", "", ""}, false},
	}
	check := func(user string, groups []string, name string, access access, want bool) {
		t.Run(user+" may "+name, func(t *testing.T) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, Groups: groups,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: access.verb, Group: access.group, Resource: access.resource, Subresource: access.subresource, Namespace: access.namespace,
				},
			}}
			// The authorizer learns of a new role through a watch, a moment after the role was applied.
			err := wait.PollUntilContextTimeout(t.Context(), admissionPoll, admissionTimeout, true, func(ctx context.Context) (bool, error) {
				answer, err := a.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
				if err != nil {
					return false, err
				}
				return answer.Status.Allowed == want, nil
			})
			if err != nil {
				t.Errorf("never got allowed=%v: %v", want, err)
			}
		})
	}
	const manager, account = "system:kube-controller-manager", controlplane.AloneUser
	for name, tc := range tests {
		check(account, []string{"system:serviceaccounts"}, name, tc.access, tc.want)
	}
	// By now the authorizer knows manifests/rbac, which gives nothing to the user of the whole kube-controller-manager.
	for name, tc := range tests {
		if tc.want && tc.access.verb != "watch" && tc.access.resource != "events" { // upstream gives those to it
			check(manager, nil, name+" only with manifests/rbac-user", tc.access, false)
		}
	}
	a.kubectl(t, "", "apply", "-f", "../../manifests/rbac-user/")
	for name, tc := range tests {
		if tc.access.resource != "events" {
			check(manager, nil, name, tc.access, tc.want)
		}
	}
	// What only --cluster-cidr takes goes with its file.
	a.kubectl(t, "", "delete", "-f", "../../manifests/rbac/cluster-cidr-flag.yaml")
	create := access{"create", networkingv1.GroupName, "clustercidrs", "", ""}
	check(account, []string{"system:serviceaccounts"}, "create ClusterCIDRs only with cluster-cidr-flag.yaml", create, false)
	check(manager, nil, "create ClusterCIDRs only with cluster-cidr-flag.yaml", create, false)
	a.kubectl(t, "", "apply", "-f", "../../manifests/rbac/")
}

// The messages of the CRD, which say what to write instead.
const (
	notAnIPv4Range = `spec.ipv4: Invalid value: %q: must be an IPv4 range in CIDR notation without leading zeros, for example 10.244.0.0/16`
	notAnIPv6Range = `spec.ipv6: Invalid value: %q: must be an IPv6 range in CIDR notation, for example fd00:10:244::/48, and not an IPv4-mapped range`
	noRange        = `spec: Invalid value: at least one range is required: set ipv4 (for example 10.244.0.0/16), ipv6 (for example fd00:10:244::/48) or both`
	noSpec         = `<nil>: Required value: spec is required and cannot be removed: set spec.perNodeHostBits, and spec.ipv4, spec.ipv6 or both`
	noHostBits     = `spec.perNodeHostBits: Required value: perNodeHostBits is required unless allocation is None: set it to the number of host bits of one Node's block, for example 8 for an IPv4 block of /24`
	tooSmall       = `spec.perNodeHostBits: Invalid value: must be at least 4 (16 addresses): for example 8 for an IPv4 block of /24`
	ownTooSmall    = `spec.ipv6PerNodeHostBits: Invalid value: must be at least 4 (16 addresses): for example 64 for an IPv6 block of /64`
	tooBigForIPv4  = `spec.perNodeHostBits: Invalid value: a block of this size does not fit into ipv4: use a value from 4 to 32 minus the prefix length of ipv4 (4 to 16 for a /16), or a wider ipv4. For larger IPv6 blocks set ipv6PerNodeHostBits`
	tooBigForIPv6  = `spec.perNodeHostBits: Invalid value: a block of this size does not fit into ipv6: use a value from 4 to 128 minus the prefix length of ipv6 (4 to 16 for a /112), or a wider ipv6. For smaller IPv6 blocks set ipv6PerNodeHostBits`
	ownTooBig      = `spec.ipv6PerNodeHostBits: Invalid value: a block of this size does not fit into ipv6: use a value from 4 to 128 minus the prefix length of ipv6 (4 to 80 for a /48), or a wider ipv6`
	ownWithoutIPv6 = `spec.ipv6PerNodeHostBits: Invalid value: ipv6PerNodeHostBits needs ipv6: set ipv6, or remove ipv6PerNodeHostBits`
	notACIDR       = `spec.excludedCIDRs[0]: Invalid value: %q: must be a CIDR without leading zeros, for example 10.244.0.0/28 or fd00:10:244::/64, and not an IPv4-mapped CIDR`
	mappedInside   = `spec.ipv6: Invalid value: %q: must not contain IPv4-mapped addresses (::ffff:0:0/96), because no Node can have a block of them: use a range without them, for example fd00:10:244::/48`
	notInside      = `spec.excludedCIDRs: Invalid value: every excluded CIDR must be inside ipv4 or ipv6: remove the one that is not, or replace it by the part of it that is inside`
	noTerm         = `spec.nodeSelector.nodeSelectorTerms: Invalid value: at least one term is required: add a term, or remove nodeSelector to select every Node`

	firstExpression = `spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].`
	firstField      = `spec.nodeSelector.nodeSelectorTerms[0].matchFields[0].`
	inNeedsValues   = firstExpression + `values: Invalid value: operators In and NotIn need at least one value: add the label values to compare with, or use Exists or DoesNotExist`
	existsHasValues = firstExpression + `values: Invalid value: operators Exists and DoesNotExist take no values: remove values, or use In or NotIn`
	gtNeedsInteger  = firstExpression + `values: Invalid value: operators Gt and Lt need exactly one value, an integer of at most 18 digits, for example ["10"]`
	oneNodeName     = firstField + `values: Invalid value: matchFields needs exactly one value, the name of a Node: for several Nodes, use one term for each`

	fixedRange       = `spec.%[1]s: Invalid value: %[1]s cannot be changed, added or removed: create another ClusterCIDR with the range you want, then delete this one`
	fixedHostBits    = `spec.perNodeHostBits: Invalid value: perNodeHostBits cannot be changed: create another ClusterCIDR with the block size you want, then delete this one`
	fixedOwnHostBits = `spec.ipv6PerNodeHostBits: Invalid value: ipv6PerNodeHostBits cannot be changed, added or removed: create another ClusterCIDR with the block size you want, then delete this one`
	fixedNone        = `spec.allocation: Invalid value: allocation cannot be changed to or from None: create another ClusterCIDR with the allocation you want, then delete this one`
	fixedSelector    = `spec.nodeSelector: Invalid value: nodeSelector cannot be changed, added or removed: create another ClusterCIDR with the nodeSelector you want, then delete this one`
)

// testCreate sends every object as a dry run: the answer is the same, and there is nothing to clean up.
func (a *admission) testCreate(t *testing.T) {
	selector := func(term string) string {
		return "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, nodeSelector: {nodeSelectorTerms: [" + term + "]}}"
	}
	expression := func(e string) string { return selector("{matchExpressions: [" + e + "]}") }
	field := func(e string) string { return selector("{matchFields: [" + e + "]}") }
	exclude := func(cidrs ...string) string {
		return "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, ipv6: fd00::/112, excludedCIDRs: [" + strings.Join(cidrs, ",") + "]}"
	}
	many := func(n int, s string) string { return strings.Repeat(s+",", n-1) + s }

	tests := map[string]struct {
		spec string
		want []string
	}{
		// Legal, including what looks odd.
		"IPv4 only":                                  {spec: "{perNodeHostBits: 8, ipv4: 10.10.0.0/16}"},
		"IPv6 only":                                  {spec: "{perNodeHostBits: 8, ipv6: 'fd00:20:100::/112'}"},
		"dual stack with one block size":             {spec: "{perNodeHostBits: 8, ipv4: 192.168.0.0/16, ipv6: 'fd00:30:100::/112'}"},
		"dual stack with a /24 and a /64":            {spec: "{perNodeHostBits: 8, ipv6PerNodeHostBits: 64, ipv4: 10.0.0.0/16, ipv6: 'fd00::/48'}"},
		"host bits in the address are masked off":    {spec: "{perNodeHostBits: 8, ipv4: 10.244.7.9/16}"},
		"an empty ipv6 is an absent one":             {spec: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, ipv6: ''}"},
		"the smallest block in the smallest range":   {spec: "{perNodeHostBits: 4, ipv4: 10.0.0.0/28}"},
		"one block that is the whole IPv4 range":     {spec: "{perNodeHostBits: 16, ipv4: 10.0.0.0/16}"},
		"one block that is the whole IPv6 range":     {spec: "{perNodeHostBits: 16, ipv6: 'fd00::/112'}"},
		"one IPv6 block of its own size":             {spec: "{perNodeHostBits: 8, ipv6PerNodeHostBits: 80, ipv6: 'fd00::/48'}"},
		"all of IPv4 and half of IPv6":               {spec: "{perNodeHostBits: 32, ipv6PerNodeHostBits: 127, ipv4: 0.0.0.0/0, ipv6: '8000::/1'}"},
		"IPv6 with an IPv4 tail that is not mapped":  {spec: "{perNodeHostBits: 8, ipv6: '64:ff9b::192.0.2.0/112'}"},
		"IPv6 in its longest form":                   {spec: "{perNodeHostBits: 8, ipv6: 'fd00:1111:2222:3333:4444:5555:255.255.255.255/100'}"},
		"the lowest priority":                        {spec: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, priority: -2147483648}"},
		"no podCIDRs needed":                         {spec: "{allocation: None}"},
		"no podCIDRs needed, with host bits of 0":    {spec: "{perNodeHostBits: 0, allocation: None}"}, // as Go programs write it
		"no podCIDRs needed, with a range":           {spec: "{allocation: None, ipv4: 10.0.0.0/16}"},
		"disabled":                                   {spec: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, allocation: Disabled}"},
		"exclusions inside both families":            {spec: exclude("10.0.0.0/24", "10.0.200.3/32", "'fd00::8000/120'")},
		"an exclusion of the whole range":            {spec: exclude("10.0.0.0/16")},
		"an exclusion with host bits":                {spec: exclude("10.0.3.7/24")},
		"an exclusion from a range with host bits":   {spec: "{perNodeHostBits: 8, ipv4: 10.244.7.9/16, excludedCIDRs: [10.244.0.0/24]}"},
		"as many exclusions as allowed":              {spec: exclude(many(256, "10.0.0.0/24"))},
		"an empty term, which matches no Node":       {spec: selector("{}")},
		"two terms":                                  {spec: selector("{matchExpressions: [{key: a, operator: In, values: ['1']}]}, {matchExpressions: [{key: b, operator: In, values: ['1']}]}")},
		"every operator on labels":                   {spec: expression("{key: a, operator: In, values: [v, w]}, {key: b, operator: NotIn, values: ['']}, {key: c, operator: Exists}, {key: d, operator: DoesNotExist, values: []}, {key: e, operator: Gt, values: ['10']}, {key: f, operator: Lt, values: ['010']}")},
		"a qualified label key":                      {spec: expression("{key: topology.kubernetes.io/zone, operator: Exists}")},
		"a Node by name":                             {spec: field("{key: metadata.name, operator: In, values: [node-1.example.com]}")},
		"all Nodes but one":                          {spec: field("{key: metadata.name, operator: NotIn, values: [node-1]}")},
		"labels and name in one term":                {spec: selector("{matchExpressions: [{key: a, operator: Exists}], matchFields: [{key: metadata.name, operator: In, values: [node-1]}]}")},
		"as many terms and requirements as allowed":  {spec: selector(many(64, "{matchExpressions: ["+many(64, "{key: a, operator: Gt, values: ['1']}")+"]}"))},
		"as many values in a requirement as allowed": {spec: expression("{key: a, operator: In, values: [" + many(256, "x") + "]}")},

		// Refused: the spec as a whole.
		"no spec":       {want: []string{noSpec}},
		"an empty spec": {spec: "{}", want: []string{noHostBits, noRange}},

		// Refused: ranges.
		"no range":                   {spec: "{perNodeHostBits: 8}", want: []string{noRange}},
		"two empty ranges":           {spec: "{perNodeHostBits: 8, ipv4: '', ipv6: ''}", want: []string{noRange}},
		"no CIDR":                    {spec: "{perNodeHostBits: 8, ipv4: 10.0.0.0}", want: []string{fmt.Sprintf(notAnIPv4Range, "10.0.0.0")}},
		"IPv6 in ipv4":               {spec: "{perNodeHostBits: 8, ipv4: 'fd00::/48'}", want: []string{fmt.Sprintf(notAnIPv4Range, "fd00::/48")}},
		"IPv4 in ipv6":               {spec: "{perNodeHostBits: 8, ipv6: 10.0.0.0/16}", want: []string{fmt.Sprintf(notAnIPv6Range, "10.0.0.0/16")}},
		"leading zeros in an octet":  {spec: "{perNodeHostBits: 8, ipv4: 10.010.0.0/16}", want: []string{fmt.Sprintf(notAnIPv4Range, "10.010.0.0/16")}},
		"leading zero in the length": {spec: "{perNodeHostBits: 8, ipv4: 10.0.0.0/08}", want: []string{fmt.Sprintf(notAnIPv4Range, "10.0.0.0/08")}},
		"a prefix length above 32":   {spec: "{perNodeHostBits: 8, ipv4: 10.0.0.0/33}", want: []string{fmt.Sprintf(notAnIPv4Range, "10.0.0.0/33")}},
		"IPv4-mapped addresses inside an IPv6 range":     {spec: "{perNodeHostBits: 32, ipv6: '::fffe:0:0/95'}", want: []string{fmt.Sprintf(mappedInside, "::fffe:0:0/95")}},
		"IPv4-mapped addresses inside a wide IPv6 range": {spec: "{perNodeHostBits: 64, ipv6: '::/1'}", want: []string{fmt.Sprintf(mappedInside, "::/1")}},
		"IPv4-mapped addresses in all of IPv6":           {spec: "{perNodeHostBits: 128, ipv6: '::/0'}", want: []string{fmt.Sprintf(mappedInside, "::/0")}},
		"an IPv4-mapped IPv6 range":                      {spec: "{perNodeHostBits: 8, ipv6: '::ffff:10.0.0.0/112'}", want: []string{fmt.Sprintf(notAnIPv6Range, "::ffff:10.0.0.0/112")}},
		"an IPv6 range with a zone":                      {spec: "{perNodeHostBits: 8, ipv6: 'fe80::%eth0/64'}", want: []string{fmt.Sprintf(notAnIPv6Range, "fe80::%eth0/64")}},
		"more than a range in ipv4":                      {spec: "{perNodeHostBits: 8, ipv4: '10.0.0.0/16,10.1.0.0/16'}", want: []string{"spec.ipv4: Too long: may not be more than 18 bytes"}},
		"a range that is not in text":                    {spec: "{perNodeHostBits: 8, ipv4: 10}", want: []string{`spec.ipv4: Invalid value: "integer": spec.ipv4 in body must be of type string: "integer"`}},

		// Refused: block sizes.
		"negative host bits":                      {spec: "{perNodeHostBits: -1, ipv4: 10.0.0.0/16}", want: []string{"spec.perNodeHostBits: Invalid value: -1: spec.perNodeHostBits in body should be greater than or equal to 0", tooSmall}},
		"no host bits":                            {spec: "{perNodeHostBits: 0, ipv4: 10.0.0.0/16}", want: []string{tooSmall}},
		"3 host bits":                             {spec: "{perNodeHostBits: 3, ipv4: 10.0.0.0/16}", want: []string{tooSmall}},
		"129 host bits":                           {spec: "{perNodeHostBits: 129, ipv6: '8000::/1'}", want: []string{"spec.perNodeHostBits: Invalid value: 129: spec.perNodeHostBits in body should be less than or equal to 128", tooBigForIPv6}},
		"16 host bits in a /24":                   {spec: "{perNodeHostBits: 16, ipv4: 10.0.0.0/24}", want: []string{tooBigForIPv4}},
		"64 host bits in IPv4":                    {spec: "{perNodeHostBits: 64, ipv4: 10.0.0.0/16}", want: []string{tooBigForIPv4}},
		"64 host bits for both families":          {spec: "{perNodeHostBits: 64, ipv4: 10.0.0.0/16, ipv6: 'fd00::/48'}", want: []string{tooBigForIPv4}},
		"one bit more than the IPv4 range has":    {spec: "{perNodeHostBits: 17, ipv4: 10.0.0.0/16}", want: []string{tooBigForIPv4}},
		"one bit more than the IPv6 range has":    {spec: "{perNodeHostBits: 17, ipv6: 'fd00::/112'}", want: []string{tooBigForIPv6}},
		"fits IPv4 only":                          {spec: "{perNodeHostBits: 12, ipv4: 10.0.0.0/16, ipv6: 'fd00::/120'}", want: []string{tooBigForIPv6}},
		"an IPv4 range below 16 addresses":        {spec: "{perNodeHostBits: 4, ipv4: 10.0.0.0/29}", want: []string{tooBigForIPv4}},
		"3 host bits for IPv6":                    {spec: "{perNodeHostBits: 8, ipv6PerNodeHostBits: 3, ipv6: 'fd00::/48'}", want: []string{ownTooSmall}},
		"129 host bits for IPv6":                  {spec: "{perNodeHostBits: 8, ipv6PerNodeHostBits: 129, ipv6: '8000::/1'}", want: []string{"spec.ipv6PerNodeHostBits: Invalid value: 129: spec.ipv6PerNodeHostBits in body should be less than or equal to 128", ownTooBig}},
		"an IPv6 block larger than its range":     {spec: "{perNodeHostBits: 8, ipv6PerNodeHostBits: 81, ipv6: 'fd00::/48'}", want: []string{ownTooBig}},
		"an IPv6 block size without ipv6":         {spec: "{perNodeHostBits: 8, ipv6PerNodeHostBits: 64, ipv4: 10.0.0.0/16}", want: []string{ownWithoutIPv6}},
		"an IPv6 block size with an empty ipv6":   {spec: "{perNodeHostBits: 8, ipv6PerNodeHostBits: 64, ipv4: 10.0.0.0/16, ipv6: ''}", want: []string{ownWithoutIPv6}},
		"IPv4 is checked beside a good IPv6 size": {spec: "{perNodeHostBits: 17, ipv6PerNodeHostBits: 64, ipv4: 10.0.0.0/16, ipv6: 'fd00::/48'}", want: []string{tooBigForIPv4}},

		// Refused: additions.
		"an unknown allocation mode":              {spec: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, allocation: Paused}", want: []string{`spec.allocation: Unsupported value: "Paused": supported values: "Enabled", "Disabled", "None"`}},
		"an empty allocation mode":                {spec: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, allocation: ''}", want: []string{`spec.allocation: Unsupported value: "": supported values: "Enabled", "Disabled", "None"`}},
		"an exclusion that is no CIDR":            {spec: exclude("10.0.0.1"), want: []string{fmt.Sprintf(notACIDR, "10.0.0.1")}},
		"an exclusion with leading zeros":         {spec: exclude("10.0.01.0/24"), want: []string{fmt.Sprintf(notACIDR, "10.0.01.0/24")}},
		"an IPv4-mapped exclusion":                {spec: exclude("'::ffff:10.0.0.0/112'"), want: []string{fmt.Sprintf(notACIDR, "::ffff:10.0.0.0/112")}},
		"an exclusion beside the range":           {spec: exclude("10.1.0.0/24"), want: []string{notInside}},
		"an exclusion wider than the range":       {spec: exclude("10.0.0.0/15"), want: []string{notInside}},
		"an exclusion of a family without range":  {spec: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, excludedCIDRs: ['fd00::/120']}", want: []string{notInside}},
		"one good and one bad exclusion":          {spec: exclude("10.0.0.0/24", "10.1.0.0/24"), want: []string{notInside}},
		"more exclusions than allowed":            {spec: exclude(many(257, "10.0.0.0/24")), want: []string{"spec.excludedCIDRs: Too many: 257: must have at most 256 items"}},
		"a priority that does not fit into int32": {spec: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, priority: 2147483648}", want: []string{`<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.priority`}},

		// Refused: node selectors, as core validation does.
		"no term":                                  {spec: selector(""), want: []string{noTerm}},
		"no list of terms":                         {spec: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, nodeSelector: {}}", want: []string{"spec.nodeSelector.nodeSelectorTerms: Required value"}},
		"operator Foo":                             {spec: expression("{key: a, operator: Foo, values: [x]}"), want: []string{firstExpression + `operator: Unsupported value: "Foo": supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"`}},
		"no operator":                              {spec: expression("{key: a, values: [x]}"), want: []string{firstExpression + "operator: Required value"}},
		"no key":                                   {spec: expression("{operator: Exists}"), want: []string{firstExpression + "key: Required value"}},
		"In without values":                        {spec: expression("{key: a, operator: In}"), want: []string{inNeedsValues}},
		"In with an empty list":                    {spec: expression("{key: a, operator: In, values: []}"), want: []string{inNeedsValues}},
		"NotIn without values":                     {spec: expression("{key: a, operator: NotIn}"), want: []string{inNeedsValues}},
		"Exists with a value":                      {spec: expression("{key: a, operator: Exists, values: [x]}"), want: []string{existsHasValues}},
		"DoesNotExist with a value":                {spec: expression("{key: a, operator: DoesNotExist, values: [x]}"), want: []string{existsHasValues}},
		"Gt without values":                        {spec: expression("{key: a, operator: Gt}"), want: []string{gtNeedsInteger}},
		"Gt with two values":                       {spec: expression("{key: a, operator: Gt, values: ['1', '2']}"), want: []string{gtNeedsInteger}},
		"Gt with text":                             {spec: expression("{key: a, operator: Gt, values: [ten]}"), want: []string{gtNeedsInteger}},
		"Lt with a fraction":                       {spec: expression("{key: a, operator: Lt, values: ['1.5']}"), want: []string{gtNeedsInteger}},
		"Lt with more than an int64":               {spec: expression("{key: a, operator: Lt, values: ['9999999999999999999']}"), want: []string{gtNeedsInteger}},
		"matchFields on another field":             {spec: field("{key: metadata.uid, operator: In, values: [x]}"), want: []string{firstField + `key: Unsupported value: "metadata.uid": supported values: "metadata.name"`}},
		"matchFields with another operator":        {spec: field("{key: metadata.name, operator: Exists, values: [x]}"), want: []string{firstField + `operator: Unsupported value: "Exists": supported values: "In", "NotIn"`}},
		"matchFields with two names":               {spec: field("{key: metadata.name, operator: In, values: [a, b]}"), want: []string{oneNodeName}},
		"matchFields without a name":               {spec: field("{key: metadata.name, operator: In}"), want: []string{oneNodeName}},
		"more terms than allowed":                  {spec: selector(many(65, "{}")), want: []string{"spec.nodeSelector.nodeSelectorTerms: Too many: 65: must have at most 64 items"}},
		"more requirements on fields than allowed": {spec: field(many(65, "{key: metadata.name, operator: In, values: [a]}")), want: []string{strings.TrimSuffix(firstField, "[0].") + ": Too many: 65: must have at most 64 items"}},
		"more values than allowed":                 {spec: expression("{key: a, operator: In, values: [" + many(257, "x") + "]}"), want: []string{firstExpression + "values: Too many: 257: must have at most 256 items"}},
		"a label key that is too long":             {spec: expression("{key: " + strings.Repeat("a", 316) + "/x, operator: Exists}"), want: []string{firstExpression + "key: Too long: may not be more than 317 bytes"}},
		"a Node name that is too long":             {spec: field("{key: metadata.name, operator: In, values: [" + strings.Repeat("a", 254) + "]}"), want: []string{firstField + "values[0]: Too long: may not be more than 253 bytes"}},
		"a label key with a space":                 {spec: expression("{key: 'a b', operator: Exists}"), want: []string{firstExpression + `key: Invalid value: "a b": ` + firstExpression + `key in body should match '^([a-z0-9]([-a-z0-9_]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9_]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'`}},
		"a label value with a space":               {spec: expression("{key: a, operator: In, values: ['x y']}"), want: []string{firstExpression + `values[0]: Invalid value: "x y": ` + firstExpression + `values[0] in body should match '^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'`}},
		"a Node name in capitals":                  {spec: field("{key: metadata.name, operator: In, values: [Node]}"), want: []string{firstField + `values[0]: Invalid value: "Node": ` + firstField + `values[0] in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'`}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := a.raw.Create(t.Context(), clusterCIDRWithSpec(t, "created", tc.spec), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if diff := cmp.Diff(tc.want, refusals(t, err)); diff != "" {
				t.Errorf("refusals (-want +got):\n%s", diff)
			}
		})
	}
}

func (a *admission) testUpdate(t *testing.T) {
	const selectA = "nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}"
	tests := map[string]struct {
		from, to string
		want     []string
	}{
		"add ipv6":                   {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16}", to: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, ipv6: 'fd00::/112'}", want: []string{fmt.Sprintf(fixedRange, "ipv6")}},
		"remove ipv6":                {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, ipv6: 'fd00::/112'}", to: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16}", want: []string{fmt.Sprintf(fixedRange, "ipv6")}},
		"empty ipv6":                 {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, ipv6: 'fd00::/112'}", to: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, ipv6: ''}", want: []string{fmt.Sprintf(fixedRange, "ipv6")}},
		"add ipv4":                   {from: "{perNodeHostBits: 8, ipv6: 'fd00::/112'}", to: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, ipv6: 'fd00::/112'}", want: []string{fmt.Sprintf(fixedRange, "ipv4")}},
		"swap ipv4 for ipv6":         {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16}", to: "{perNodeHostBits: 8, ipv6: 'fd00::/112'}", want: []string{fmt.Sprintf(fixedRange, "ipv4"), fmt.Sprintf(fixedRange, "ipv6")}},
		"remove both ranges":         {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, ipv6: 'fd00::/112'}", to: "{perNodeHostBits: 8}", want: []string{fmt.Sprintf(fixedRange, "ipv4"), fmt.Sprintf(fixedRange, "ipv6")}},
		"widen ipv4":                 {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16}", to: "{perNodeHostBits: 8, ipv4: 10.0.0.0/15}", want: []string{fmt.Sprintf(fixedRange, "ipv4")}},
		"change perNodeHostBits":     {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16}", to: "{perNodeHostBits: 9, ipv4: 10.0.0.0/16}", want: []string{fixedHostBits}},
		"remove perNodeHostBits":     {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16}", to: "{ipv4: 10.0.0.0/16}", want: []string{fixedHostBits}},
		"add ipv6PerNodeHostBits":    {from: "{perNodeHostBits: 8, ipv6: 'fd00::/48'}", to: "{perNodeHostBits: 8, ipv6PerNodeHostBits: 64, ipv6: 'fd00::/48'}", want: []string{fixedOwnHostBits}},
		"remove ipv6PerNodeHostBits": {from: "{perNodeHostBits: 8, ipv6PerNodeHostBits: 64, ipv6: 'fd00::/48'}", to: "{perNodeHostBits: 8, ipv6: 'fd00::/48'}", want: []string{fixedOwnHostBits}},
		"change ipv6PerNodeHostBits": {from: "{perNodeHostBits: 8, ipv6PerNodeHostBits: 64, ipv6: 'fd00::/48'}", to: "{perNodeHostBits: 8, ipv6PerNodeHostBits: 65, ipv6: 'fd00::/48'}", want: []string{fixedOwnHostBits}},
		"add nodeSelector":           {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16}", to: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, " + selectA + "}", want: []string{fixedSelector}},
		"remove nodeSelector":        {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, " + selectA + "}", to: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16}", want: []string{fixedSelector}},
		"change nodeSelector":        {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, " + selectA + "}", to: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, nodeSelector: {nodeSelectorTerms: [{}]}}", want: []string{fixedSelector}},
		"disabled to None":           {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, allocation: Disabled}", to: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, allocation: None}", want: []string{fixedNone}},
		"None to the default":        {from: "{allocation: None}", to: "{}", want: []string{fixedNone}},
		"a range for None":           {from: "{allocation: None}", to: "{allocation: None, ipv4: 10.0.0.0/16}", want: []string{fmt.Sprintf(fixedRange, "ipv4")}},
		"drop spec":                  {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16}", to: "", want: []string{noSpec}},
		"exclude outside the range":  {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16}", to: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, excludedCIDRs: [10.1.0.0/24]}", want: []string{notInside}},

		"the same nodeSelector again":     {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, " + selectA + "}", to: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, " + selectA + "}"},
		"an absent ipv6 written as empty": {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16}", to: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, ipv6: ''}"},
		"priority":                        {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, priority: 3}", to: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, priority: -3}"},
		"add an exclusion":                {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16}", to: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, excludedCIDRs: [10.0.0.0/24]}"},
		"remove all exclusions":           {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, excludedCIDRs: [10.0.0.0/24]}", to: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16}"},
		"disable":                         {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16}", to: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, allocation: Disabled}"},
		"None, by a Go program":           {from: "{allocation: None}", to: "{perNodeHostBits: 0, allocation: None, priority: 3}"},
		"enable again":                    {from: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, allocation: Disabled}", to: "{perNodeHostBits: 8, ipv4: 10.0.0.0/16}"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored := a.create(t, clusterCIDRWithSpec(t, "updated", tc.from))
			update := clusterCIDRWithSpec(t, stored.GetName(), tc.to)
			update.SetResourceVersion(stored.GetResourceVersion())
			_, err := a.raw.Update(t.Context(), update, metav1.UpdateOptions{})
			if diff := cmp.Diff(tc.want, refusals(t, err)); diff != "" {
				t.Errorf("refusals (-want +got):\n%s", diff)
			}
		})
	}
}

// testFromFlags stores what the flags of kube-controller-manager can ask for, under a name that says so.
func (a *admission) testFromFlags(t *testing.T) {
	for name, spec := range map[string]string{
		"one address":     "{perNodeHostBits: 0, ipv4: 10.0.0.0/16}",
		"eight addresses": "{perNodeHostBits: 3, ipv4: 10.0.0.0/16}",
		"both families":   "{perNodeHostBits: 2, ipv6PerNodeHostBits: 0, ipv4: 10.0.0.0/16, ipv6: 'fd00::/112'}",
	} {
		t.Run(name, func(t *testing.T) {
			stored := a.create(t, clusterCIDRWithSpec(t, "created-from-flags-00000000", spec))
			a.patch(t, stored.GetName(), `{"spec": {"allocation": "Disabled"}}`)
		})
	}
}

// testCursor stores a status as earlier versions of the controller did.
func (a *admission) testCursor(t *testing.T) {
	stored := a.create(t, clusterCIDRWithSpec(t, "cursor", "{perNodeHostBits: 8, ipv4: 10.0.0.0/16}"))
	a.patch(t, stored.GetName(), `{"status": {"ipv4": {"cidr": "10.0.0.0/16", "blockPrefixLength": 24, "total": 256, "allocated": 0, "unavailable": 0, "free": 256, "cursor": "10.0.7.0"}}}`, "status")
}

func (a *admission) testExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples found: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { a.kubectl(t, "", "apply", "-f", file) })
	}
	a.kubectl(t, "", "delete", "-f", "../../examples/")
}

func (a *admission) testPrinterColumns(t *testing.T) {
	stored := a.create(t, clusterCIDRWithSpec(t, "printed", "{perNodeHostBits: 8, ipv6PerNodeHostBits: 64, ipv4: 10.0.0.0/16, ipv6: 'fd00::/48', priority: 7}"))
	const status = `{"status": {
		"ipv4": {"cidr": "10.0.0.0/16", "blockPrefixLength": 24, "total": 256, "allocated": 3, "unavailable": 1, "free": 252},
		"ipv6": {"cidr": "fd00::/48", "blockPrefixLength": 64, "total": 65536, "allocated": 3, "unavailable": 0, "free": 65533},
		"conditions": [{"type": "Ready", "status": "True", "reason": "Available", "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z"}]
	}}`
	if _, err := a.raw.Patch(t.Context(), stored.GetName(), types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"NAME": "printed", "IPV4": "10.0.0.0/16", "BLOCK4": "24", "ALLOCATED4": "3", "FREE4": "252", "IPV6": "fd00::/48", "BLOCK6": "64", "ALLOCATED6": "3",
		"FREE6": "65533", "STATE": "Available",
	}
	printed := func(options ...string) map[string]string {
		row := columnsOf(a.kubectl(t, "", append([]string{"get", "cc", stored.GetName()}, options...)...))[0]
		if row["AGE"] == "" {
			t.Errorf("no age in %v", row)
		}
		delete(row, "AGE")
		return row
	}
	if diff := cmp.Diff(want, printed()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	want["PRIORITY"], want["ALLOCATION"] = "7", "Enabled"
	if diff := cmp.Diff(want, printed("--output=wide")); diff != "" {
		t.Errorf("wide table (-want +got):\n%s", diff)
	}
	for _, reason := range []string{"Exhausted", "Disabled", "Superseded", "Terminating", "Invalid", "Pending"} {
		a.patch(t, stored.GetName(), `{"status": {"conditions": [
			{"type": "Conflicted", "status": "True", "reason": "Overlap", "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z"},
			{"type": "Ready", "status": "False", "reason": "`+reason+`", "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z"}]}}`, "status")
		if got := printed()["STATE"]; got != reason {
			t.Errorf("STATE is %q, want %q", got, reason)
		}
	}
	a.patch(t, stored.GetName(), `{"status": null}`, "status")
	if got, ok := printed()["STATE"]; got != "" || !ok {
		t.Errorf("without a status STATE is %q, want a blank", got)
	}
}

// brokenSpecs break every kind of rule of the CRD.
var brokenSpecs = map[string]string{
	"no spec":                          "",
	"no range":                         "{perNodeHostBits: 8}",
	"a range that is no CIDR":          "{perNodeHostBits: 8, ipv4: a-range-that-is-too-long}",
	"the wrong family":                 "{perNodeHostBits: 8, ipv4: 'fd00::/48'}",
	"too few host bits":                "{perNodeHostBits: 3, ipv4: 10.0.0.0/16}",
	"too many host bits":               "{perNodeHostBits: 17, ipv4: 10.0.0.0/16, ipv6: 'fd00::/120'}",
	"a block that does not fit IPv6":   "{perNodeHostBits: 8, ipv6PerNodeHostBits: 81, ipv6: 'fd00::/48'}",
	"an IPv6 block size without ipv6":  "{perNodeHostBits: 8, ipv6PerNodeHostBits: 64, ipv4: 10.0.0.0/16}",
	"a nodeSelector without terms":     "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, nodeSelector: {nodeSelectorTerms: []}}",
	"an unknown operator":              "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Foo}]}]}}",
	"matchFields on another field":     "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, nodeSelector: {nodeSelectorTerms: [{matchFields: [{key: spec.podCIDR, operator: Gt, values: [a, b]}]}]}}",
	"a list longer than it may be now": "{perNodeHostBits: 8, ipv4: 10.0.0.0/16, nodeSelector: {nodeSelectorTerms: [" + strings.Repeat("{},", 64) + "{}]}}",
}

// testLegacyObjects stores objects that break every kind of rule while the CRD has no rules, and then brings the
// rules back. Such objects must keep taking what the controller and an operator do to get rid of them.
func (a *admission) testLegacyObjects(t *testing.T) {
	names := a.storeBroken(t)
	for name, spec := range brokenSpecs {
		t.Run(name, func(t *testing.T) {
			_, err := a.raw.Create(t.Context(), clusterCIDRWithSpec(t, "broken-now", spec), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if !apierrors.IsInvalid(err) {
				t.Errorf("a new object of this kind: got %v, want Invalid; it breaks no rule and so shows nothing", err)
			}
			a.patch(t, names[name], `{"metadata": {"labels": {"seen": "true"}}}`)
			a.patch(t, names[name], `{"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Invalid", "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z"}]}}`, "status")
			if spec != "" {
				a.patch(t, names[name], `{"spec": {"allocation": "Disabled"}}`)
			}

			// Deletion as the controller does it, with the Go types: they must not add to a spec that is not there.
			client := a.typed.NetworkingV1().ClusterCIDRs()
			must(t, client.Delete(t.Context(), names[name], metav1.DeleteOptions{}))
			object, err := client.Get(t.Context(), names[name], metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			object.Finalizers = nil
			if _, err := client.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
				t.Fatalf("remove the finalizer: %v", err)
			}
			if _, err := client.Get(t.Context(), names[name], metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("after the finalizer went: got %v, want NotFound", err)
			}
		})
	}
}

// testCRDVersions upgrades the CRD from one that lacks the fields which kubernetes-sigs/node-ipam-controller does not have, rolls it back, and
// upgrades it again, with objects stored. docs/install/kubeadm.md says what that does to them.
func (a *admission) testCRDVersions(t *testing.T) {
	ctx := t.Context()
	newer := []string{"priority", "allocation", "excludedCIDRs", "ipv6PerNodeHostBits"}
	older := crdWithoutRules(t)
	versions, _, err := unstructured.NestedSlice(older.Object, "spec", "versions")
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range newer {
		unstructured.RemoveNestedField(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec", "properties", field)
	}
	unstructured.RemoveNestedField(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "status")
	must(t, unstructured.SetNestedSlice(older.Object, versions, "spec", "versions"))
	text, err := yaml.Marshal(older.Object)
	if err != nil {
		t.Fatal(err)
	}
	// with has an object shown with these fields of spec, and with a status or without.
	with := func(when, name string, hasStatus bool, fields ...string) {
		t.Helper()
		object, err := a.raw.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		spec, _, _ := unstructured.NestedMap(object.Object, "spec")
		var shown []string
		for _, field := range newer {
			if _, ok := spec[field]; ok {
				shown = append(shown, field)
			}
		}
		status, _, _ := unstructured.NestedMap(object.Object, "status")
		if !slices.Equal(shown, fields) || len(status) > 0 != hasStatus || spec["ipv4"] != "10.0.0.0/16" || !slices.Equal(object.GetFinalizers(), []string{networkingv1.Finalizer}) {
			t.Errorf("%s, %s shows %q, finalizers %q and status %v; want %q, our finalizer and a status: %t", when, name, shown, object.GetFinalizers(), status, fields, hasStatus)
		}
	}
	rollBack := func() { a.kubectl(t, string(text), "apply", "-f", "-"); a.waitForRules(t, false) }
	upgrade := func() { a.kubectl(t, "", "apply", "-f", crdFile); a.waitForRules(t, true) }
	store := func(name, spec string) {
		t.Helper()
		object := clusterCIDRWithSpec(t, name, spec)
		object.SetFinalizers([]string{networkingv1.Finalizer})
		a.create(t, object)
		t.Cleanup(func() {
			_, err := a.raw.Patch(context.Background(), name, types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
			if err != nil {
				t.Error(err)
			}
		})
	}

	rollBack()
	store("from-older", `{ipv4: 10.0.0.0/16, perNodeHostBits: 8}`)
	upgrade()
	with("after the upgrade", "from-older", false, "allocation") // by its default
	const status = `{"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z"}]}}`
	const spec = `{ipv4: 10.0.0.0/16, ipv6: 'fd00::/48', perNodeHostBits: 8, ipv6PerNodeHostBits: 64, priority: 5, allocation: Disabled, excludedCIDRs: [10.0.0.0/24]}`
	for _, name := range []string{"untouched", "touched"} {
		store(name, spec)
		a.patch(t, name, status, "status")
		with("under the newer CRD", name, true, newer...)
	}

	rollBack()
	a.patch(t, "touched", `{"metadata": {"labels": {"a": "b"}}}`)
	for _, name := range []string{"untouched", "touched", "from-older"} {
		with("under the older CRD", name, false)
	}
	upgrade()
	with("upgraded again", "untouched", true, newer...)
	with("upgraded again", "touched", false, "allocation")
	if object, err := a.typed.NetworkingV1().ClusterCIDRs().Get(ctx, "touched", metav1.GetOptions{}); err != nil || object.Spec.Allocation != networkingv1.AllocationEnabled {
		t.Errorf("the one that was written under the older CRD is %v, %v; the documentation says that a disabled one allocates again", object.Spec, err)
	}
	// What was lost cannot be put back.
	_, err = a.raw.Patch(ctx, "touched", types.MergePatchType, []byte(`{"spec": {"ipv6PerNodeHostBits": 64}}`), metav1.PatchOptions{})
	if got := refusals(t, err); !slices.Equal(got, []string{fixedOwnHostBits}) {
		t.Errorf("ipv6PerNodeHostBits is put back: %q", got)
	}
}

// storeBroken stores an object of each broken spec while the CRD has no rules, brings the rules back, and returns the
// objects' names.
func (a *admission) storeBroken(t *testing.T) map[string]string {
	t.Helper()
	must(t, a.cp.ApplyObjects(t.Context(), crdWithoutRules(t)))
	a.waitForRules(t, false)
	names := map[string]string{}
	for name, spec := range brokenSpecs {
		object := clusterCIDRWithSpec(t, "legacy-"+strings.ReplaceAll(strings.ToLower(name), " ", "-"), spec)
		object.SetFinalizers([]string{networkingv1.Finalizer})
		names[name] = a.create(t, object).GetName()
	}
	must(t, a.cp.Apply(t.Context(), crdFile))
	a.waitForRules(t, true)
	return names
}

// create stores the object until the test ends.
func (a *admission) create(t *testing.T, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	stored, err := a.raw.Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The context of the test is done by now.
		if err := a.raw.Delete(context.Background(), stored.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return stored
}

func (a *admission) patch(t *testing.T, name, patch string, subresources ...string) {
	t.Helper()
	if _, err := a.raw.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...); err != nil {
		t.Errorf("patch %s: %v", patch, err)
	}
}

// waitForRules returns when the API server serves the CRD with, or without, rules. It takes up a changed CRD
// a moment after it has answered the change.
func (a *admission) waitForRules(t *testing.T, want bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), admissionPoll, admissionTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := a.raw.Create(ctx, clusterCIDRWithSpec(t, "probe", ""), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && !apierrors.IsInvalid(err) {
			return false, err
		}
		return apierrors.IsInvalid(err) == want, nil
	})
	if err != nil {
		t.Fatalf("wait for the CRD to be served with rules=%v: %v", want, err)
	}
}

// kubectl runs kubectl as an administrator would and returns what it prints.
func (a *admission) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	output, err := kubectl(t.Context(), a.cp, stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// clusterCIDRWithSpec is a ClusterCIDR with the spec in YAML; no text, no spec.
func clusterCIDRWithSpec(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(networkingv1.SchemeGroupVersion.WithKind("ClusterCIDR"))
	object.SetName(name)
	if spec == "" {
		return object
	}
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(spec), &parsed); err != nil {
		t.Fatalf("spec %s: %v", spec, err)
	}
	object.Object["spec"] = parsed
	return object
}

// refusals lists why the API server refused an object, as "field: reason", sorted; nil if it did not.
func refusals(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	status, ok := err.(apierrors.APIStatus)
	if !ok || !apierrors.IsInvalid(err) {
		t.Fatalf("got %v, want an Invalid error", err)
	}
	var reasons []string
	for _, cause := range status.Status().Details.Causes {
		// Added by the server whenever the schema alone refuses: the CEL rules have not been looked at.
		if strings.Contains(cause.Message, "some validation rules were not checked") {
			continue
		}
		reasons = append(reasons, cause.Field+": "+cause.Message)
	}
	slices.Sort(reasons)
	return reasons
}

// crdWithoutRules is our CRD as it might have been before there were rules.
func crdWithoutRules(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(crdFile)
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	must(t, yaml.Unmarshal(text, &crd.Object))
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil || len(versions) != 1 {
		t.Fatalf("want one version in %s, got %d: %v", crdFile, len(versions), err)
	}
	dropRules(versions[0].(map[string]any)["schema"])
	must(t, unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"))
	return crd
}

func dropRules(schema any) {
	switch schema := schema.(type) {
	case map[string]any:
		for _, rule := range []string{"x-kubernetes-validations", "enum", "minimum", "maximum", "maxItems", "maxLength", "pattern", "default"} {
			delete(schema, rule)
		}
		for _, nested := range schema {
			dropRules(nested)
		}
	case []any:
		for _, nested := range schema {
			dropRules(nested)
		}
	}
}
