package inputs

import (
	"fmt"

	networkingapiv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type serviceCIDR = networkingapiv1.ServiceCIDR

var serviceCIDRs = newKind("service", networkingapiv1.SchemeGroupVersion.WithResource("servicecidrs"), "ServiceCIDR", 6, ordinaryServiceCIDR, serviceCIDRTable)

func ordinaryServiceCIDR(name string, d *dice) *serviceCIDR {
	s := &serviceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.CIDRs = []string{fmt.Sprintf("10.%d.%d.0/26", d.IntN(16), d.IntN(4))}
	return s
}

func cidrs(of ...string) func(*serviceCIDR, *dice) {
	return func(s *serviceCIDR, _ *dice) { s.Spec.CIDRs = of }
}

var serviceCIDRTable = []extreme[serviceCIDR]{
	{field: "name", name: "a name of 253 characters", set: func(s *serviceCIDR, d *dice) { s.Name = longName(d) }},
	{field: "cidrs", name: "all IPv4 addresses", set: cidrs("0.0.0.0/0"), swallows: true},
	{field: "cidrs", name: "all IPv6 addresses", set: cidrs("::/0"), swallows: true},
	{field: "cidrs", name: "all addresses, IPv6 first", set: cidrs("::/0", "0.0.0.0/0"), swallows: true},
	{field: "cidrs", name: "10.0.0.0/8", set: cidrs("10.0.0.0/8"), swallows: true},
	{field: "cidrs", name: "half of the ClusterCIDRs", set: cidrs("10.8.0.0/13", "fd00:8::/29")},
	{field: "cidrs", name: "one ClusterCIDR and more", set: cidrs("10.0.0.0/20", "fd00:1::/32")},
	{field: "cidrs", name: "a part of a block", set: cidrs("10.2.0.8/29", "fd00:2::8/125")},
	{field: "cidrs", name: "one address", set: cidrs("10.1.0.1/32")},
	{field: "cidrs", name: "one IPv6 address", set: cidrs("fd00::/128")},
	{field: "cidrs", name: "the last addresses", set: cidrs("255.255.255.255/32", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")},
	{field: "cidrs", name: "the API server's own", set: cidrs("198.51.100.0/24", "2001:db8::/112")},
	{field: "cidrs", name: "the second family later", set: func(s *serviceCIDR, d *dice) {
		s.Spec.CIDRs = []string{"10.3.0.0/28"}
		d.then(step{patchObject, `{"spec":{"cidrs":["10.3.0.0/28","fd00:3::/96"]}}`})
	}},
	{field: "finalizers", name: "a finalizer of others", set: func(s *serviceCIDR, _ *dice) { s.Finalizers = []string{foreignFinalizer} }},
	{field: "end", name: "deleted later", set: func(_ *serviceCIDR, d *dice) { d.then(step{deleteObject, ""}) }},
	{field: "end", name: "being deleted", set: func(s *serviceCIDR, d *dice) {
		s.Finalizers = append(s.Finalizers, foreignFinalizer+"-end")
		d.then(step{deleteObject, ""})
	}},
}
