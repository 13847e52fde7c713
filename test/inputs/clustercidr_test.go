package inputs

import (
	"fmt"
	"math"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

type clusterCIDR = networkingv1.ClusterCIDR

var clusterCIDRs = newKind("cc", networkingv1.SchemeGroupVersion.WithResource("clustercidrs"), "ClusterCIDR", 20, ordinaryClusterCIDR, clusterCIDRTable)

const (
	// poolLabel is what ordinary ClusterCIDRs select by.
	poolLabel = "inputs.example.com/pool"
	// numberLabel is what some select by with Gt and Lt.
	numberLabel = "inputs.example.com/number"
)

var poolLabels = []string{"a", "b", "c"}

// ordinaryClusterCIDR has ranges out of a space that is so small that many overlap and some are soon full.
func ordinaryClusterCIDR(name string, d *dice) *clusterCIDR {
	cc := &clusterCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}}
	hostBits := 4 + d.IntN(5)
	bits := 32 - hostBits - d.IntN(6)
	address := netip.AddrFrom4([4]byte{10, byte(d.IntN(16)), byte(d.IntN(4)), 0})
	cc.Spec.IPv4, cc.Spec.PerNodeHostBits = netip.PrefixFrom(address, bits).Masked().String(), int32(hostBits)
	if d.IntN(3) == 0 {
		cc.Spec.IPv6, cc.Spec.IPv6PerNodeHostBits = fmt.Sprintf("fd00:%x::/%d", d.IntN(16), 56+d.IntN(5)), ptr.To[int32](64)
		if d.IntN(3) == 0 {
			cc.Spec.IPv4 = ""
		}
	}
	if d.IntN(3) > 0 {
		cc.Spec.NodeSelector = selector(in(poolLabel, pickOf(d, poolLabels...)))
	}
	return cc
}

func selector(terms ...corev1.NodeSelectorTerm) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: terms}
}

func term(rs ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: rs}
}

func require(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
}

func in(key string, values ...string) corev1.NodeSelectorTerm {
	return term(require(key, corev1.NodeSelectorOpIn, values...))
}

func named(operator corev1.NodeSelectorOperator, name string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{require(metav1.ObjectNameField, operator, name)}}
}

// ranges sets both ranges; a size of 0 means that IPv6 has that of IPv4.
func ranges(ipv4, ipv6 string, hostBits, ipv6HostBits int32) func(*clusterCIDR, *dice) {
	return func(cc *clusterCIDR, _ *dice) {
		cc.Spec.IPv4, cc.Spec.IPv6, cc.Spec.PerNodeHostBits, cc.Spec.IPv6PerNodeHostBits = ipv4, ipv6, hostBits, nil
		if ipv6HostBits != 0 {
			cc.Spec.IPv6PerNodeHostBits = &ipv6HostBits
		}
	}
}

func selects(s *corev1.NodeSelector) func(*clusterCIDR, *dice) {
	return func(cc *clusterCIDR, _ *dice) { cc.Spec.NodeSelector = s }
}

// eachRange calls f for every range of cc with the host bits of its blocks.
func eachRange(cc *clusterCIDR, f func(r netip.Prefix, hostBits int)) {
	if cc.Spec.IPv4 != "" {
		f(netip.MustParsePrefix(cc.Spec.IPv4).Masked(), int(cc.Spec.PerNodeHostBits))
	}
	if cc.Spec.IPv6 != "" {
		f(netip.MustParsePrefix(cc.Spec.IPv6).Masked(), int(ptr.Deref(cc.Spec.IPv6PerNodeHostBits, cc.Spec.PerNodeHostBits)))
	}
}

// excludes excludes something of every range.
func excludes(of func(r netip.Prefix, hostBits int) []string) func(*clusterCIDR, *dice) {
	return func(cc *clusterCIDR, _ *dice) {
		eachRange(cc, func(r netip.Prefix, hostBits int) {
			cc.Spec.ExcludedCIDRs = append(cc.Spec.ExcludedCIDRs, of(r, hostBits)...)
		})
	}
}

// firsts returns the first n prefixes of a length in r, or all of them.
func firsts(r netip.Prefix, length, n int) []string {
	var all []string
	address := r.Addr()
	for len(all) < n && r.Contains(address) {
		p := netip.PrefixFrom(address, length)
		all = append(all, p.String())
		if address = lastOf(p).Next(); !address.IsValid() {
			break
		}
	}
	return all
}

// lastOf returns the last address of p.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < 8*len(b); bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	address, _ := netip.AddrFromSlice(b)
	return address
}

// half returns the lower or the upper half of r.
func half(r netip.Prefix, upper bool) netip.Prefix {
	lower := netip.PrefixFrom(r.Addr(), min(r.Bits()+1, r.Addr().BitLen()))
	if upper {
		return netip.PrefixFrom(lastOf(r), lower.Bits()).Masked()
	}
	return lower
}

func then(s step) func(*clusterCIDR, *dice) {
	return func(_ *clusterCIDR, d *dice) { d.then(s) }
}

// status is what somebody else writes into the status.
func status(s map[string]any) func(*clusterCIDR, *dice) {
	return then(step{patchStatus, merge(map[string]any{"status": s})})
}

func rangeStatus(of *clusterCIDR, change func(s map[string]any)) map[string]any {
	statuses := map[string]any{}
	eachRange(of, func(r netip.Prefix, hostBits int) {
		s := map[string]any{"cidr": r.String(), "blockPrefixLength": r.Addr().BitLen() - hostBits, "total": 1, "allocated": 0, "unavailable": 0, "free": 1}
		change(s)
		statuses[map[bool]string{true: "ipv4", false: "ipv6"}[r.Addr().Is4()]] = s
	})
	return statuses
}

func statusOfRanges(change func(s map[string]any)) func(*clusterCIDR, *dice) {
	return func(cc *clusterCIDR, d *dice) {
		d.then(step{patchStatus, merge(map[string]any{"status": rangeStatus(cc, change)})})
	}
}

func condition(kind, status, reason, message string, generation int64) map[string]any {
	return map[string]any{"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": generation, "lastTransitionTime": "1970-01-01T00:00:00Z"}
}

var clusterCIDRTable = []extreme[clusterCIDR]{
	{field: "name", name: "a name of 253 characters", set: func(cc *clusterCIDR, d *dice) { cc.Name = longName(d) }},
	{field: "name", name: "a name that is a number", set: func(cc *clusterCIDR, d *dice) { cc.Name = fmt.Sprint(d.number) }},
	{field: "name", name: "a name as the controller gives, without its label", set: func(cc *clusterCIDR, d *dice) { cc.Name = fmt.Sprintf("created-from-flags-%08x", d.number) }},
	{field: "name", name: "a name and a label as the controller gives", set: func(cc *clusterCIDR, d *dice) {
		cc.Name, cc.Labels = fmt.Sprintf("created-from-flags-%08x", d.number), map[string]string{networkingv1.LabelCreatedFromFlags: "true"}
	}},

	{field: "ranges", name: "0.0.0.0/0 in blocks of 16 addresses", set: ranges("0.0.0.0/0", "", 4, 0)},
	{field: "ranges", name: "0.0.0.0/0 in one block", set: ranges("0.0.0.0/0", "", 32, 0)},
	{field: "ranges", name: "0.0.0.0/0 in two blocks", set: ranges("0.0.0.0/0", "", 31, 0)},
	{field: "ranges", name: "128.0.0.0/1", set: ranges("128.0.0.0/1", "", 16, 0)},
	{field: "ranges", name: "the last 16 IPv4 addresses", set: ranges("255.255.255.240/28", "", 4, 0)},
	{field: "ranges", name: "the last IPv4 addresses in blocks of 16", set: ranges("255.255.255.0/24", "", 4, 0)},
	{field: "ranges", name: "the first 16 IPv4 addresses", set: ranges("0.0.0.0/28", "", 4, 0)},
	{field: "ranges", name: "an IPv4 range with host bits", set: ranges("10.77.88.99/12", "", 12, 0)},
	{field: "ranges", name: "loopback", set: ranges("127.0.0.0/8", "", 8, 0)},
	{field: "ranges", name: "multicast", set: ranges("224.0.0.0/4", "ff00::/8", 8, 64)},
	{field: "ranges", name: "inside the API server's service range", set: ranges("198.51.100.0/26", "", 4, 0)},
	{field: "ranges", name: "around the API server's service range", set: ranges("198.51.0.0/16", "2001:db8::/96", 8, 8)},
	{field: "ranges", name: "8000::/1 in blocks of 16 addresses, 2^123 of them", set: ranges("", "8000::/1", 4, 0)},
	{field: "ranges", name: "8000::/1 in 2^65 blocks", set: ranges("", "8000::/1", 62, 0)},
	{field: "ranges", name: "8000::/1 in 2^64 blocks", set: ranges("", "8000::/1", 63, 0)},
	{field: "ranges", name: "8000::/1 in 2^63 blocks", set: ranges("", "8000::/1", 64, 0)},
	{field: "ranges", name: "8000::/1 in 2^62 blocks", set: ranges("", "8000::/1", 65, 0)},
	{field: "ranges", name: "8000::/1 in one block", set: ranges("", "8000::/1", 127, 0)},
	{field: "ranges", name: "fd00::/60 in 2^64 blocks", set: ranges("", "fd00::/60", 4, 0)},
	{field: "ranges", name: "the last 16 IPv6 addresses", set: ranges("", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0/124", 4, 0)},
	{field: "ranges", name: "the last 2^64 blocks of IPv6", set: ranges("", "ffff:ffff:ffff:fff0::/60", 4, 0)},
	{field: "ranges", name: "IPv6 in capitals, in full and with host bits", set: ranges("", "FD00:0000:0000:000A:0000:0000:0000:0001/56", 8, 64)},
	{field: "ranges", name: "IPv6 that ends in IPv4", set: ranges("", "64:ff9b::10.0.0.0/104", 8, 0)},
	{field: "ranges", name: "all of IPv4 and half of IPv6", set: ranges("0.0.0.0/0", "8000::/1", 4, 4)},
	{field: "ranges", name: "both families in one block each", set: ranges("10.3.3.0/24", "fd00:3::/64", 8, 64)},
	{field: "ranges", name: "two IPv4 blocks and 2^123 IPv6 blocks", set: ranges("10.4.0.0/23", "8000::/1", 8, 4)},
	{field: "ranges", name: "2^28 IPv4 blocks and one IPv6 block", set: ranges("0.0.0.0/0", "fd00::/124", 4, 4)},
	{field: "ranges", name: "an empty IPv4 text", set: func(cc *clusterCIDR, d *dice) { ranges("", "fd00:1::/56", 64, 0)(cc, d) }},

	{field: "selector", name: "no nodeSelector", set: selects(nil)},
	{field: "selector", name: "64 terms", set: func(cc *clusterCIDR, d *dice) {
		cc.Spec.NodeSelector = selector()
		for i := range 64 {
			cc.Spec.NodeSelector.NodeSelectorTerms = append(cc.Spec.NodeSelector.NodeSelectorTerms, in(poolLabel, fmt.Sprint(i), pickOf(d, poolLabels...)))
		}
	}},
	{field: "selector", name: "64 requirements", set: func(cc *clusterCIDR, d *dice) {
		t := in(poolLabel, poolLabels...)
		for i := range 63 {
			t.MatchExpressions = append(t.MatchExpressions, require(fmt.Sprint("none", i), corev1.NodeSelectorOpDoesNotExist))
		}
		cc.Spec.NodeSelector = selector(t)
	}},
	{field: "selector", name: "256 values", set: selects(selector(in(poolLabel, append(many(253, func(i int) string { return fmt.Sprint(i) }), poolLabels...)...)))},
	{field: "selector", name: "300,000 bytes of values", set: func(cc *clusterCIDR, d *dice) {
		cc.Spec.NodeSelector = selector()
		for i := range 20 {
			values := many(255, func(n int) string { return fmt.Sprintf("%0*d", 60, 1000*i+n) })
			cc.Spec.NodeSelector.NodeSelectorTerms = append(cc.Spec.NodeSelector.NodeSelectorTerms, in(poolLabel, append(values, pickOf(d, poolLabels...))...))
		}
	}},
	{field: "selector", name: "a key of 317 characters", set: selects(selector(term(require(strings.Repeat(strings.Repeat("d", 49)+".", 5)+"dex/"+strings.Repeat("k", 63), corev1.NodeSelectorOpDoesNotExist))))},
	{field: "selector", name: "a key that no label can have", set: selects(selector(in("node_group/worker", "a")))},
	{field: "selector", name: "an empty value", set: selects(selector(in(poolLabel, "")))},
	{field: "selector", name: "a value twice", set: selects(selector(in(poolLabel, "a", "a")))},
	{field: "selector", name: "a value of 63 characters", set: selects(selector(in(poolLabel, strings.Repeat("v", 63), "b")))},
	{field: "selector", name: "NotIn", set: selects(selector(term(require(poolLabel, corev1.NodeSelectorOpNotIn, "a", "b"))))},
	{field: "selector", name: "Exists", set: selects(selector(term(require(poolLabel, corev1.NodeSelectorOpExists))))},
	{field: "selector", name: "DoesNotExist", set: selects(selector(term(require(poolLabel, corev1.NodeSelectorOpDoesNotExist))))},
	{field: "selector", name: "Gt 18 digits", set: selects(selector(term(require(numberLabel, corev1.NodeSelectorOpGt, "999999999999999999"))))},
	{field: "selector", name: "Gt with leading zeros", set: selects(selector(term(require(numberLabel, corev1.NodeSelectorOpGt, "000000000000000000"))))},
	{field: "selector", name: "Lt 0", set: selects(selector(term(require(numberLabel, corev1.NodeSelectorOpLt, "0"))))},
	{field: "selector", name: "what contradicts itself", set: selects(selector(term(require(poolLabel, corev1.NodeSelectorOpExists), require(poolLabel, corev1.NodeSelectorOpDoesNotExist))))},
	{field: "selector", name: "an empty term", set: selects(selector(corev1.NodeSelectorTerm{}))},
	{field: "selector", name: "an empty term beside another one", set: selects(selector(corev1.NodeSelectorTerm{}, in(poolLabel, "a")))},
	{field: "selector", name: "the name of a Node", set: selects(selector(named(corev1.NodeSelectorOpIn, "node-1")))},
	{field: "selector", name: "all names but one", set: selects(selector(named(corev1.NodeSelectorOpNotIn, "node-1")))},
	{field: "selector", name: "a label that is called as a field", set: selects(selector(in(metav1.ObjectNameField, "a"), in(poolLabel, "c")))},
	{field: "selector", name: "64 names", set: func(cc *clusterCIDR, d *dice) {
		cc.Spec.NodeSelector = selector()
		for i := range 64 {
			cc.Spec.NodeSelector.NodeSelectorTerms = append(cc.Spec.NodeSelector.NodeSelectorTerms, named(corev1.NodeSelectorOpIn, fmt.Sprintf("node-%d", i)))
		}
	}},

	{field: "priority", name: "the lowest priority", set: func(cc *clusterCIDR, _ *dice) { cc.Spec.Priority = math.MinInt32 }},
	{field: "priority", name: "the highest priority", set: func(cc *clusterCIDR, _ *dice) { cc.Spec.Priority = math.MaxInt32 }},
	{field: "priority", name: "priority -1", set: func(cc *clusterCIDR, _ *dice) { cc.Spec.Priority = -1 }},
	{field: "priority", name: "a priority that changes", set: then(step{patchObject, `{"spec":{"priority":2147483647}}`})},

	{field: "exclusions", name: "the range itself is excluded", set: excludes(func(r netip.Prefix, _ int) []string { return []string{r.String()} })},
	{field: "exclusions", name: "both halves are excluded", set: excludes(func(r netip.Prefix, _ int) []string {
		return []string{half(r, false).String(), half(r, true).String()}
	})},
	{field: "exclusions", name: "half of it is excluded", set: excludes(func(r netip.Prefix, _ int) []string { return []string{half(r, false).String()} })},
	{field: "exclusions", name: "the last address is excluded", set: excludes(func(r netip.Prefix, _ int) []string {
		return []string{netip.PrefixFrom(lastOf(r), r.Addr().BitLen()).String()}
	})},
	{field: "exclusions", name: "all but one block is excluded", set: excludes(func(r netip.Prefix, hostBits int) []string {
		var all []string
		for r.Addr().BitLen()-r.Bits() > hostBits {
			all = append(all, half(r, false).String())
			r = half(r, true)
		}
		return all
	})},
	{field: "exclusions", name: "as many addresses as the CRD allows are excluded", set: excludes(func(r netip.Prefix, _ int) []string {
		return firsts(r, r.Addr().BitLen(), 128)
	})},
	{field: "exclusions", name: "as many blocks as the CRD allows are excluded", set: excludes(func(r netip.Prefix, hostBits int) []string {
		return firsts(r, r.Addr().BitLen()-hostBits, 128)
	})},
	{field: "exclusions", name: "the same is excluded 128 times", set: excludes(func(r netip.Prefix, _ int) []string {
		return many(128, func(int) string { return half(r, true).String() })
	})},
	{field: "exclusions", name: "each address of a block has an exclusion of every length around it", set: excludes(func(r netip.Prefix, _ int) []string {
		var all []string
		for bits := r.Bits() + 1; bits <= r.Addr().BitLen(); bits++ {
			all = append(all, netip.PrefixFrom(r.Addr(), bits).String())
		}
		return all
	})},
	{field: "exclusions", name: "an exclusion with host bits", set: excludes(func(r netip.Prefix, hostBits int) []string {
		return []string{netip.PrefixFrom(lastOf(r), r.Addr().BitLen()-hostBits).String()}
	})},
	{field: "exclusions", name: "an empty list of exclusions", set: func(cc *clusterCIDR, _ *dice) { cc.Spec.ExcludedCIDRs = []string{} }},
	{field: "exclusions", name: "exclusions that come later", set: func(cc *clusterCIDR, d *dice) {
		var all []string
		eachRange(cc, func(r netip.Prefix, _ int) { all = append(all, half(r, true).String()) })
		d.then(step{patchObject, merge(map[string]any{"spec": map[string]any{"excludedCIDRs": all}})})
	}},
	{field: "exclusions", name: "exclusions that go", set: func(cc *clusterCIDR, d *dice) {
		eachRange(cc, func(r netip.Prefix, _ int) { cc.Spec.ExcludedCIDRs = append(cc.Spec.ExcludedCIDRs, r.String()) })
		d.then(step{patchObject, `{"spec":{"excludedCIDRs":null}}`})
	}},

	{field: "allocation", name: "disabled", set: func(cc *clusterCIDR, _ *dice) { cc.Spec.Allocation = networkingv1.AllocationDisabled }},
	{field: "allocation", name: "disabled, later enabled", set: func(cc *clusterCIDR, d *dice) {
		cc.Spec.Allocation = networkingv1.AllocationDisabled
		d.then(step{patchObject, `{"spec":{"allocation":"Enabled"}}`})
	}},
	{field: "allocation", name: "later disabled", set: then(step{patchObject, `{"spec":{"allocation":"Disabled"}}`})},

	{field: "labels", name: "1,000 labels", set: func(cc *clusterCIDR, _ *dice) {
		for key, value := range manyLabels(1000) {
			metav1.SetMetaDataLabel(&cc.ObjectMeta, key, value)
		}
	}},
	{field: "labels", name: "the label of flags on another name", set: func(cc *clusterCIDR, _ *dice) {
		if !strings.HasPrefix(cc.Name, "created-from-flags-") {
			metav1.SetMetaDataLabel(&cc.ObjectMeta, networkingv1.LabelCreatedFromFlags, "true")
		}
	}},
	{field: "annotations", name: "200,000 bytes of annotations", set: func(cc *clusterCIDR, _ *dice) { cc.Annotations = map[string]string{"a": strings.Repeat("ä", 100_000)} }},
	{field: "annotations", name: "annotations of ours", set: func(cc *clusterCIDR, _ *dice) {
		cc.Annotations = map[string]string{
			networkingv1.GroupName + "/undecodable": "no", networkingv1.AnnotationSuperseded: "maybe",
			networkingv1.AnnotationClusterCIDR: "\x00", networkingv1.AnnotationLeaseHolder: "nobody",
		}
	}},
	{field: "finalizers", name: "a finalizer of others", set: func(cc *clusterCIDR, _ *dice) { cc.Finalizers = []string{foreignFinalizer} }},
	{field: "finalizers", name: "our finalizer from the beginning", set: func(cc *clusterCIDR, _ *dice) { cc.Finalizers = []string{networkingv1.Finalizer} }},
	{field: "finalizers", name: "50 finalizers", set: func(cc *clusterCIDR, _ *dice) {
		cc.Finalizers = many(50, func(i int) string { return fmt.Sprintf("%s-%d", foreignFinalizer, i) })
	}},
	{field: "finalizers", name: "our finalizer between others", set: func(cc *clusterCIDR, _ *dice) {
		cc.Finalizers = []string{foreignFinalizer, networkingv1.Finalizer, foreignFinalizer + "-2"}
	}},
	{field: "owner", name: "an owner that does not exist", set: func(cc *clusterCIDR, _ *dice) {
		cc.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "nobody", UID: "nobody", BlockOwnerDeletion: new(true)}}
	}},

	{field: "status", name: "a cursor that is no address", set: statusOfRanges(func(s map[string]any) { s["cursor"] = "nowhere" })},
	{field: "status", name: "a cursor outside of the range", set: statusOfRanges(func(s map[string]any) { s["cursor"] = "192.0.2.1" })},
	{field: "status", name: "a cursor of the other family", set: statusOfRanges(func(s map[string]any) { s["cursor"] = "fd00::ffff:ffff" })},
	{field: "status", name: "numbers at the ends of an int64", set: statusOfRanges(func(s map[string]any) {
		s["total"], s["allocated"], s["free"], s["unavailable"] = int64(math.MinInt64), int64(math.MaxInt64), int64(-1), int64(math.MaxInt64)
	})},
	{field: "status", name: "another range", set: statusOfRanges(func(s map[string]any) { s["cidr"], s["blockPrefixLength"] = "", math.MaxInt32 })},
	{field: "status", name: "conditions of others under our names", set: status(map[string]any{"conditions": []any{
		condition("Ready", "Unknown", "Foreign", "", 0), condition("Conflicted", "True", "Foreign", strings.Repeat("x", 32768), math.MaxInt64),
	}})},
	{field: "status", name: "100 conditions of others", set: func(_ *clusterCIDR, d *dice) {
		var all []any
		for i := range 100 {
			all = append(all, condition(fmt.Sprintf("example.com/C%d", i), "True", "Foreign", strings.Repeat("x", 1000), 1))
		}
		d.then(step{patchStatus, merge(map[string]any{"status": map[string]any{"conditions": all}})})
	}},
	{field: "status", name: "no conditions", set: status(map[string]any{"conditions": []any{}})},

	{field: "end", name: "deleted at once", set: then(step{deleteObject, ""})},
	{field: "end", name: "deleted while others hold it", set: func(cc *clusterCIDR, d *dice) {
		cc.Finalizers = append(cc.Finalizers, foreignFinalizer+"-end")
		d.then(step{deleteObject, ""})
	}},
}
