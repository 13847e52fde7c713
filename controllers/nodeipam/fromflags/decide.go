package fromflags

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	"github.com/multicidr/controller-manager/controllers/text"
)

// Decision is what has to be written so that one enabled ClusterCIDR exists for the flags, and none for other flags. A ClusterCIDR is never
// deleted, and nothing of one is carried over to another: processes with different flags can take turns as leader, and nothing is lost.
type Decision struct {
	Create    []*networkingv1.ClusterCIDR // at most one
	Enable    []string                    // names; the controller disabled them
	Disable   []string                    // names; with the annotation that the controller did so
	Otherwise []string                    // names that stand for these flags, of ClusterCIDRs that have other ranges: nothing else can be created
}

// Decide compares the flags with all ClusterCIDRs, of which only those that were made from flags matter. inUse reports whether a Node uses a
// ClusterCIDR. Flags that cannot be read decide nothing.
func Decide(flags Flags, all []*networkingv1.ClusterCIDR, inUse func(name string) bool) Decision {
	want, err := flags.Spec()
	if err != nil {
		return Decision{}
	}
	var d Decision
	names := map[string]*networkingv1.ClusterCIDR{}
	live := false
	for _, cc := range oldestFirst(all) {
		names[cc.Name] = cc
		switch {
		case !Made(cc), cc.DeletionTimestamp != nil:
		case !live && fits(cc, want):
			live = true
			if Disabled(cc) {
				d.Enable = append(d.Enable, cc.Name)
			}
		case cc.Spec.Allocation != networkingv1.AllocationDisabled:
			d.Disable = append(d.Disable, cc.Name)
		}
	}
	if !live && want != nil {
		d.create(want, names, inUse)
	}
	return d
}

// create adds the ClusterCIDR of the flags under the first free name: Nodes can keep one that is being deleted for any time.
func (d *Decision) create(want *networkingv1.ClusterCIDRSpec, names map[string]*networkingv1.ClusterCIDR, inUse func(name string) bool) {
	name := NameOf(want)
	for i := 2; names[name] != nil; i++ {
		switch cc := names[name]; {
		case cc.DeletionTimestamp != nil && !inUse(name) && !slices.ContainsFunc(cc.Finalizers, func(f string) bool { return f != networkingv1.Finalizer }):
			return // It goes in a moment. Then the name is free, and this is decided again.
		case cc.DeletionTimestamp == nil && fits(cc, want):
			return // It is a user's by now, who removed its label, and has the ranges of the flags.
		case cc.DeletionTimestamp == nil:
			d.Otherwise = append(d.Otherwise, name)
			return // What changed this one would change the next one, too.
		}
		name = fmt.Sprintf("%s-%d", NameOf(want), i)
	}
	d.Create = append(d.Create, fromSpec(name, want))
}

// oldestFirst makes every process keep the same one of two for the same flags. There can be two, because an attempt to create one may be
// carried out after a later attempt.
func oldestFirst(all []*networkingv1.ClusterCIDR) []*networkingv1.ClusterCIDR {
	return slices.SortedFunc(slices.Values(all), func(a, b *networkingv1.ClusterCIDR) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
}

// Prefix is the name prefix of every ClusterCIDR that was created from flags (KEP-2593).
const Prefix = pool.MadeFromFlags

// NameOf returns the name of a ClusterCIDR made from flags. It depends only on the flags, so that all processes with the same flags use the
// same object.
func NameOf(spec *networkingv1.ClusterCIDRSpec) string {
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err) // only numbers and strings
	}
	return fmt.Sprintf("%s%.4x", Prefix, sha256.Sum256(text))
}

// fromSpec returns a ClusterCIDR of flags, to be created.
func fromSpec(name string, spec *networkingv1.ClusterCIDRSpec) *networkingv1.ClusterCIDR {
	return &networkingv1.ClusterCIDR{
		ObjectMeta: metav1.ObjectMeta{
			Name:       name,
			Labels:     map[string]string{networkingv1.LabelCreatedFromFlags: "true"},
			Finalizers: []string{networkingv1.Finalizer},
		},
		Spec: *spec,
	}
}

// Made reports whether the controller made a ClusterCIDR from flags. It checks the name and the label, because a user who copies such an
// object to make another range also copies the label.
func Made(cc *networkingv1.ClusterCIDR) bool {
	return strings.HasPrefix(cc.Name, Prefix) && cc.Labels[networkingv1.LabelCreatedFromFlags] == "true"
}

// Disabled reports whether the controller, in this process or another one, disabled a ClusterCIDR.
func Disabled(cc *networkingv1.ClusterCIDR) bool {
	_, annotated := cc.Annotations[networkingv1.AnnotationSuperseded]
	return annotated && cc.Spec.Allocation == networkingv1.AllocationDisabled
}

// Superseded says why a ClusterCIDR that was made from flags allocates nothing any more; empty if it is the one of these flags, or if the
// flags cannot be read. It holds before that is written: at a start, podCIDRs are allocated before.
func Superseded(cc *networkingv1.ClusterCIDR, flags Flags) (why string) {
	want, err := flags.Spec()
	switch {
	case err != nil || !Made(cc):
		return ""
	case want == nil:
		return "it was made from flags, and the controller has no such flags now"
	case !fits(cc, want):
		return "it was made from flags, which now name another range or block size"
	case Disabled(cc): // Briefly also one that is about to be enabled again.
		return "it was made from flags, for which there is another ClusterCIDR"
	default:
		return ""
	}
}

// Event is the message of the event that tells that the controller disabled a ClusterCIDR. why is what Superseded says.
func Event(cc *networkingv1.ClusterCIDR, why string) string {
	message := "Disabled this ClusterCIDR: " + why + ". Nodes keep their podCIDRs."
	if len(cc.Spec.ExcludedCIDRs) > 0 {
		message += " What it excludes is not excluded from other ClusterCIDRs: " + text.ValuesText(cc.Spec.ExcludedCIDRs) + "."
	}
	return message
}

// fits reports whether a ClusterCIDR has the ranges and block sizes that flags ask for; nil asks for none. It compares only immutable
// fields; users may change the others.
func fits(cc *networkingv1.ClusterCIDR, want *networkingv1.ClusterCIDRSpec) bool {
	if want == nil {
		return false
	}
	is := cc.Spec
	is.Priority, is.ExcludedCIDRs, is.Allocation = want.Priority, want.ExcludedCIDRs, want.Allocation
	return equality.Semantic.DeepEqual(is, *want)
}
