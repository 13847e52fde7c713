package v1alpha2

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// TestPrefixRules: the CRDs of prefix pools refuse what the original's webhook refuses.
func TestPrefixRules(t *testing.T) {
	for _, file := range []string{"inclusterprefixpools", "globalinclusterprefixpools"} {
		path := "../../../manifests/clusteripam/crds/ipam.cluster.x-k8s.io_" + file + ".yaml"
		accepted(t, path)
		crd := readCRD(t, path)
		for name, tc := range map[string]struct{ spec, refused string }{
			"prefixes":                   {spec: "{prefixes: ['fd00::/48', 'fd01::/56'], allocationPrefixLength: 64, gateway: 'fe80::1', excludedPrefixes: ['fd00::7', 'fd00::8-fd00::9', 'fd00:0:0:5::/64']}"},
			"single addresses":           {spec: "{prefixes: ['fd00::/120'], allocationPrefixLength: 128, gateway: ''}"},
			"nothing":                    {spec: "{allocationPrefixLength: 64}", refused: "spec.prefixes"},
			"no prefix":                  {spec: "{prefixes: [], allocationPrefixLength: 64}", refused: "spec.prefixes"},
			"IPv4":                       {spec: "{prefixes: ['10.0.0.0/8'], allocationPrefixLength: 64}", refused: "must be an IPv6 CIDR"},
			"host bits":                  {spec: "{prefixes: ['fd00::1/48'], allocationPrefixLength: 64}", refused: "without host bits"},
			"an address":                 {spec: "{prefixes: ['fd00::1'], allocationPrefixLength: 64}", refused: "must be an IPv6 CIDR"},
			"too small for a claim":      {spec: "{prefixes: ['fd00::/65'], allocationPrefixLength: 64}", refused: "smaller than what a claim gets"},
			"too long":                   {spec: "{prefixes: ['fd00::/48'], allocationPrefixLength: 129}", refused: "allocationPrefixLength"},
			"an IPv4 gateway":            {spec: "{prefixes: ['fd00::/48'], allocationPrefixLength: 64, gateway: 10.0.0.1}", refused: "must be an IPv6 address"},
			"an IPv4 exclusion":          {spec: "{prefixes: ['fd00::/48'], allocationPrefixLength: 64, excludedPrefixes: [10.0.0.0/8]}", refused: "must be IPv6"},
			"a reversed range":           {spec: "{prefixes: ['fd00::/48'], allocationPrefixLength: 64, excludedPrefixes: ['fd00::9-fd00::8']}", refused: "swap them"},
			"an exclusion that is none":  {spec: "{prefixes: ['fd00::/48'], allocationPrefixLength: 64, excludedPrefixes: [x]}", refused: "must be an address"},
			"a range of both families":   {spec: "{prefixes: ['fd00::/48'], allocationPrefixLength: 64, excludedPrefixes: ['10.0.0.1-fd00::8']}", refused: "must be an address"},
			"the whole IPv6, in halves":  {spec: "{prefixes: ['::/0'], allocationPrefixLength: 1}"},
			"a prefix written otherwise": {spec: "{prefixes: ['FD00:0::/48'], allocationPrefixLength: 64}"},
		} {
			got := strings.Join(crd.refusals(t, tc.spec, ""), "; ")
			if (got == "") != (tc.refused == "") || !strings.Contains(got, tc.refused) {
				t.Errorf("%s: %s: the CRD says %q, want %q", file, name, got, tc.refused)
			}
		}
		if got := crd.refusals(t, "{prefixes: ['fd00::/48'], allocationPrefixLength: 60}", "{prefixes: ['fd00::/48'], allocationPrefixLength: 64}"); len(got) != 1 || !strings.Contains(got[0], "cannot be changed") {
			t.Errorf("%s: a changed length: %q", file, got)
		}
	}
}

// accepted validates a CRD as the API server does, with the cost of its rules.
func accepted(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var external apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(content, &external); err != nil {
		t.Fatal(err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&external)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&external.Spec)
	var crd apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&external, &crd, nil); err != nil {
		t.Fatal(err)
	}
	crd.Status.StoredVersions = []string{"v1alpha2"}
	for _, err := range crdvalidation.ValidateCustomResourceDefinition(t.Context(), &crd) {
		t.Errorf("%s: %.400v", path, err)
	}
}

// refusals returns why the CRD refuses a spec, as YAML, in place of an old one if there is one.
func (c crd) refusals(t *testing.T, spec, old string) (messages []string) {
	t.Helper()
	object := func(spec string) map[string]any {
		var o map[string]any
		body, err := yaml.YAMLToJSON([]byte("{apiVersion: ipam.cluster.x-k8s.io/v1alpha2, kind: InClusterPrefixPool, metadata: {name: p}, spec: " + spec + "}"))
		if err == nil {
			err = json.Unmarshal(body, &o)
		}
		if err != nil {
			t.Fatal(err)
		}
		if s := o["spec"].(map[string]any); s["allocationPrefixLength"] != nil {
			s["allocationPrefixLength"] = int64(s["allocationPrefixLength"].(float64))
		}
		return o
	}
	now := object(spec)
	for _, err := range validation.ValidateCustomResource(nil, now, c.schema) {
		messages = append(messages, err.Error())
	}
	var before any
	if old != "" {
		before = object(old)
	}
	found, _ := c.rules.Validate(t.Context(), nil, c.structural, now, before, celconfig.RuntimeCELCostBudget)
	for _, err := range found {
		messages = append(messages, err.Error())
	}
	return messages
}
