package fromflags

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/said"
)

var (
	a = Flags{Allocate: true, ClusterCIDR: "10.1.0.0/16"}
	b = Flags{Allocate: true, ClusterCIDR: "10.2.0.0/16"}
)

func nameOf(f Flags) string {
	spec, err := f.Spec()
	if err != nil {
		panic(err)
	}
	return NameOf(spec)
}

func made(f Flags, with ...func(*networkingv1.ClusterCIDR)) *networkingv1.ClusterCIDR {
	spec, _ := f.Spec()
	cc := fromSpec(nameOf(f), spec)
	for _, change := range with {
		change(cc)
	}
	return cc
}

func named(name string) func(*networkingv1.ClusterCIDR) {
	return func(cc *networkingv1.ClusterCIDR) { cc.Name = name }
}

func created(second int64) func(*networkingv1.ClusterCIDR) {
	return func(cc *networkingv1.ClusterCIDR) { cc.CreationTimestamp = metav1.Unix(second, 0) }
}

func byUser(cc *networkingv1.ClusterCIDR) { cc.Spec.Allocation = networkingv1.AllocationDisabled }

func byController(cc *networkingv1.ClusterCIDR) {
	byUser(cc)
	metav1.SetMetaDataAnnotation(&cc.ObjectMeta, networkingv1.AnnotationSuperseded, "true")
}

func unlabelled(cc *networkingv1.ClusterCIDR) { cc.Labels = nil }

func otherRange(cc *networkingv1.ClusterCIDR) { cc.Spec.IPv4 = "10.9.0.0/16" }

func terminating(cc *networkingv1.ClusterCIDR) {
	cc.DeletionTimestamp = &metav1.Time{Time: time.Unix(9, 0)}
}

func held(cc *networkingv1.ClusterCIDR) { cc.Finalizers = append(cc.Finalizers, "example.com/hold") }

func TestDecide(t *testing.T) {
	second := nameOf(a) + "-2"
	for name, tc := range map[string]struct {
		flags                              Flags
		all                                []*networkingv1.ClusterCIDR
		inUse                              bool
		create, enable, disable, otherwise []string
	}{
		"new flags": {flags: a, create: []string{nameOf(a)}},
		"the same flags again, also where a user disabled their ClusterCIDR": {
			flags: a, all: []*networkingv1.ClusterCIDR{made(a, byUser)}},
		"other flags": {
			flags: b, all: []*networkingv1.ClusterCIDR{made(a)}, create: []string{nameOf(b)}, disable: []string{nameOf(a)}},
		"no flags any more": {
			all: []*networkingv1.ClusterCIDR{made(a), made(b, byUser)}, disable: []string{nameOf(a)}},
		"flags that cannot be read leave everything as it is": {
			flags: Flags{Allocate: true, ClusterCIDR: "10.0.0.0"}, all: []*networkingv1.ClusterCIDR{made(a), made(b, byController)}},
		"flags that come back": {
			flags: a, all: []*networkingv1.ClusterCIDR{made(a, byController), made(b)}, enable: []string{nameOf(a)}, disable: []string{nameOf(b)}},
		"others are the users' own": {
			flags: a, create: []string{nameOf(a)},
			all: []*networkingv1.ClusterCIDR{made(b, named("copied")), made(b, unlabelled), made(b, named("x"), byController)}},
		"the label was removed": {
			flags: a, all: []*networkingv1.ClusterCIDR{made(a, unlabelled)}},
		"it is stored with another range": {
			flags: a, all: []*networkingv1.ClusterCIDR{made(a, otherRange)}, disable: []string{nameOf(a)}, otherwise: []string{nameOf(a)}},
		"of two for the same flags the older one stays": {
			flags: a, all: []*networkingv1.ClusterCIDR{made(a, created(2)), made(a, named(second), created(1))}, disable: []string{nameOf(a)}},
		"it goes at once": {
			flags: a, all: []*networkingv1.ClusterCIDR{made(a, terminating)}},
		"it is deleted and in use": {
			flags: a, all: []*networkingv1.ClusterCIDR{made(a, terminating)}, inUse: true, create: []string{second}},
		"it is deleted and somebody holds it": {
			flags: a, all: []*networkingv1.ClusterCIDR{made(a, terminating, held)}, create: []string{second}},
		"the second one is there": {
			flags: a, all: []*networkingv1.ClusterCIDR{made(a, terminating), made(a, named(second))}, inUse: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(tc.flags, tc.all, func(string) bool { return tc.inUse })
			var create []string
			for _, cc := range d.Create {
				create = append(create, cc.Name)
				if why := Superseded(cc, tc.flags); !Made(cc) || why != "" {
					t.Errorf("it creates what is not recognised: %+v, %s", cc, why)
				}
			}
			if diff := cmp.Diff([][]string{tc.create, tc.enable, tc.disable, tc.otherwise}, [][]string{create, d.Enable, d.Disable, d.Otherwise}); diff != "" {
				t.Errorf("create, enable, disable, otherwise (-want +got):\n%s", diff)
			}
		})
	}
}

// What is superseded allocates nothing even before that is written.
func TestSuperseded(t *testing.T) {
	for name, tc := range map[string]struct {
		cc    *networkingv1.ClusterCIDR
		flags Flags
		holds bool // that it is superseded
	}{
		"its own flags":                     {made(a), a, false},
		"no flags":                          {made(a), Flags{}, true},
		"other flags":                       {made(a), b, true},
		"another one for the flags":         {made(a, byController), a, true},
		"disabled by a user":                {made(a, byUser), a, false},
		"a user's own":                      {made(a, named("mine")), b, false},
		"flags that cannot be read":         {made(a), Flags{Allocate: true, ClusterCIDR: "10.0.0.0"}, false},
		"the range without a block size":    {made(a), Flags{Allocate: true, ClusterCIDR: "10.1.0.0/16", NodeMaskSize: 26}, true},
		"flags that are not about this one": {made(a), Flags{ClusterCIDR: "10.1.0.0/16"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got := Superseded(tc.cc, tc.flags)
			if (got != "") != tc.holds {
				t.Errorf("got %q, want something: %t", got, tc.holds)
			}
			said.Check(t, got)
		})
	}
}

func TestWhatIsSaid(t *testing.T) {
	excluding := made(a)
	excluding.Spec.ExcludedCIDRs = []string{"10.1.5.0/24"}
	said.Check(t, Event(made(a), "it was old"), Event(excluding, "it was old"))
}
