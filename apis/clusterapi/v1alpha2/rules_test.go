package v1alpha2

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// TestRules compares the rules of the CRD with the same rules in Go, on random pools. The addresses are close to each other and close to the
// ends of subnets, because that is where the rules say yes or no.
func TestRules(t *testing.T) {
	crd := readCRD(t, "../../../manifests/clusteripam/crds/ipam.cluster.x-k8s.io_inclusterippools.yaml")
	const pools = 2_000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := &poolDice{rand.New(rand.NewPCG(seed, 0))}
	refusals := map[string]int{}
	for range pools {
		spec := dice.pool()
		want := problemOf(spec)
		got := crd.errors(t, spec)
		if (want == "") != (len(got) == 0) {
			t.Fatalf("%+v\nthe reference says %q\nthe CRD says %q", spec, want, got)
		}
		refusals[want]++
		for _, message := range got {
			if strings.Contains(message, "failed rule") || strings.Contains(message, "error") {
				t.Fatalf("%+v\na rule cannot be evaluated, or explains nothing: %s", spec, message)
			}
		}
	}
	for _, problem := range []string{"", badEntry, badOrder, badPrefix, badFamilies, badSubnet, badGateway, badExclusions} {
		if refusals[problem] < 5 {
			t.Errorf("only %d pools with %q: the dice test too little", refusals[problem], problem)
		}
	}
}

// crd validates objects as the API server does.
type crd struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

func readCRD(t *testing.T, path string) crd {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var object apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(content, &object); err != nil {
		t.Fatal(err)
	}
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(object.Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := schema.NewStructural(&props)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(&props)
	if err != nil {
		t.Fatal(err)
	}
	return crd{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

func (c crd) errors(t *testing.T, spec InClusterIPPoolSpec) (messages []string) {
	t.Helper()
	encoded, err := json.Marshal(map[string]any{
		"apiVersion": GroupVersion.String(), "kind": KindInClusterIPPool, "metadata": map[string]any{"name": "p"}, "spec": spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := yaml.Unmarshal(encoded, &object); err != nil {
		t.Fatal(err)
	}
	object["spec"].(map[string]any)["prefix"] = int64(spec.Prefix)
	for _, err := range validation.ValidateCustomResource(nil, object, c.schema) {
		messages = append(messages, err.Error())
	}
	found, _ := c.rules.Validate(t.Context(), nil, c.structural, object, nil, celconfig.RuntimeCELCostBudget)
	for _, err := range found {
		messages = append(messages, err.Error())
	}
	return messages
}

// The first problem that a pool has.
const (
	badEntry      = "an entry is no address, range or CIDR"
	badOrder      = "a range is reversed"
	badPrefix     = "prefix is too long for IPv4"
	badFamilies   = "addresses of both families"
	badSubnet     = "addresses of two subnets"
	badGateway    = "gateway"
	badExclusions = "exclusions of another family"
)

func problemOf(spec InClusterIPPoolSpec) string {
	type ends struct{ first, last netip.Addr }
	parse := func(entries []string) (all []ends, problem string) {
		for _, entry := range entries {
			from, to, isRange := strings.Cut(entry, "-")
			if cidr, err := netip.ParsePrefix(entry); err == nil {
				all = append(all, ends{cidr.Masked().Addr(), lastOf(cidr)})
				continue
			}
			if !isRange {
				to = from
			}
			first, err1 := netip.ParseAddr(from)
			last, err2 := netip.ParseAddr(to)
			if err1 != nil || err2 != nil || first.Zone() != "" || first.BitLen() != last.BitLen() {
				return nil, badEntry
			}
			if last.Less(first) {
				problem = badOrder
			}
			all = append(all, ends{first, last})
		}
		return all, problem
	}
	addresses, problem := parse(spec.Addresses)
	if problem != "" {
		return problem
	}
	excluded, problem := parse(spec.ExcludedAddresses)
	if problem != "" {
		return problem
	}
	first := addresses[0].first
	if first.Is4() && spec.Prefix > 32 {
		return badPrefix
	}
	subnet := netip.PrefixFrom(first, spec.Prefix)
	for _, a := range addresses {
		if a.first.BitLen() != first.BitLen() {
			return badFamilies
		}
	}
	for _, a := range addresses {
		if !subnet.Contains(a.first) || !subnet.Contains(a.last) {
			return badSubnet
		}
	}
	if spec.Gateway != "" {
		if gateway, err := netip.ParseAddr(spec.Gateway); err != nil || gateway.BitLen() != first.BitLen() {
			return badGateway
		}
	}
	for _, e := range excluded {
		if e.first.BitLen() != first.BitLen() {
			return badExclusions
		}
	}
	return ""
}

func lastOf(cidr netip.Prefix) netip.Addr {
	bytes := cidr.Masked().Addr().AsSlice()
	for i := cidr.Bits(); i < len(bytes)*8; i++ {
		bytes[i/8] |= 1 << (7 - i%8)
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return addr
}

type poolDice struct{ *rand.Rand }

func (d *poolDice) pool() InClusterIPPoolSpec {
	base := netip.MustParseAddr([]string{"10.0.0.0", "192.168.255.250", "fd00::", "2001:db8:0:ffff:ffff:ffff:ffff:fff0"}[d.IntN(4)])
	rare := func() bool { return d.IntN(20) == 0 }
	one := func() string {
		if rare() {
			return d.entry(netip.MustParseAddr([]string{"10.0.0.7", "fd00::7"}[d.IntN(2)]))
		}
		return d.entry(base)
	}
	spec := InClusterIPPoolSpec{Addresses: []string{one()}, Prefix: d.prefix(base)}
	for range d.IntN(4) {
		spec.Addresses = append(spec.Addresses, one())
	}
	for range d.IntN(3) {
		spec.ExcludedAddresses = append(spec.ExcludedAddresses, one())
	}
	switch {
	case rare():
		spec.Gateway = []string{"10.0.0.1", "fd00::1", "10.0.0.1/24", "gateway"}[d.IntN(4)]
	case d.IntN(2) == 0:
		spec.Gateway = d.near(base).String()
	}
	return spec
}

// prefix is often short, so that many pools are valid.
func (d *poolDice) prefix(base netip.Addr) int {
	switch d.IntN(4) {
	case 0:
		return d.IntN(129)
	case 1:
		return base.BitLen() - d.IntN(10)
	}
	return d.IntN(9)
}

func (d *poolDice) entry(base netip.Addr) string {
	a, b := d.near(base), d.near(base)
	switch d.IntN(40) {
	case 0:
		return []string{"", " ", "pool", "10.0.0.256", "10.0.0.0/33", "fd00::/129", a.String() + " - " + b.String(), a.String() + "-", "-" + a.String(),
			a.String() + "-" + b.String() + "-" + b.String(), "10.0.0.1-fd00::1", a.String() + "/24-" + b.String(), "010.0.0.1", "fd00::1%eth0"}[d.IntN(14)]
	case 1:
		return a.String() + "-" + b.String()
	}
	if b.Less(a) {
		a, b = b, a
	}
	switch d.IntN(4) {
	case 0:
		return a.String()
	case 1:
		return fmt.Sprintf("%s/%d", a, a.BitLen()-d.IntN(6))
	case 2:
		return strings.ToUpper(a.StringExpanded() + "-" + b.StringExpanded())
	}
	return a.String() + "-" + b.String()
}

// near is base, some bits of which are changed, or a number added: both its neighbours and addresses far from it.
func (d *poolDice) near(base netip.Addr) netip.Addr {
	n := new(big.Int).SetBytes(base.AsSlice())
	switch d.IntN(3) {
	case 0:
		n.SetBit(n, d.IntN(base.BitLen()), uint(d.IntN(2)))
	case 1:
		n.Add(n, big.NewInt(int64(d.IntN(300))))
	}
	addr, _ := netip.AddrFromSlice(n.FillBytes(make([]byte, 17))[17-base.BitLen()/8:])
	return addr
}
