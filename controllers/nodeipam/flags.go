package nodeipam

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
)

// Flags are the flags of the in-tree allocator, which stand for one ClusterCIDR without a selector. Their names, defaults and rules
// are those of kube-controller-manager.
type Flags struct {
	Allocate         bool   // --allocate-node-cidrs: without it --cluster-cidr says only which family comes first
	ClusterCIDR      string // --cluster-cidr: one CIDR, or one of each family
	NodeMaskSize     int32  // --node-cidr-mask-size: of the one family there is; 0: the default
	NodeMaskSizeIPv4 int32  // --node-cidr-mask-size-ipv4; 0: the default
	NodeMaskSizeIPv6 int32  // --node-cidr-mask-size-ipv6; 0: the default
	ServiceRange     string // --service-cluster-ip-range: one CIDR, or one of each family
}

// The prefix lengths of Nodes' blocks that kube-controller-manager takes unless told otherwise.
const (
	defaultMaskSizeIPv4 = 24
	defaultMaskSizeIPv6 = 64
)

// Spec returns the ClusterCIDR that the flags stand for, nil if --cluster-cidr is not set.
func (f Flags) Spec() (*networkingv1.ClusterCIDRSpec, error) {
	if strings.TrimSpace(f.ClusterCIDR) == "" {
		return nil, nil
	}
	ranges, err := ParseCIDRs("--cluster-cidr", f.ClusterCIDR)
	if err != nil {
		return nil, err
	}
	masks, err := f.masks(ranges)
	if err != nil {
		return nil, err
	}
	spec := &networkingv1.ClusterCIDRSpec{}
	hostBits := map[ipam.Family]int32{}
	for i, prefix := range ranges {
		family := ipam.FamilyOf(prefix)
		bits := family.Bits() - masks[i]
		if _, err := ipam.NewRange(prefix, bits); err != nil || bits < minHostBits {
			return nil, fmt.Errorf("Nodes cannot get /%d blocks of --cluster-cidr %v: use a --node-cidr-mask-size from %d to %d, or a wider range",
				masks[i], prefix, prefix.Bits(), family.Bits()-minHostBits)
		}
		hostBits[family] = int32(bits)
		if family == ipam.IPv4 {
			spec.IPv4 = prefix.String()
		} else {
			spec.IPv6 = prefix.String()
		}
	}
	bits4, dual := hostBits[ipam.IPv4]
	bits6, six := hostBits[ipam.IPv6]
	spec.PerNodeHostBits = bits4
	switch {
	case !dual:
		spec.PerNodeHostBits = bits6
	case six && bits6 != bits4:
		spec.IPv6PerNodeHostBits = &bits6
	}
	return spec, nil
}

// ParseCIDRs reads the value of a flag that takes one CIDR, or two of different families, as upstream's flags do.
func ParseCIDRs(flag, value string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for s := range strings.SplitSeq(strings.TrimSpace(value), ",") {
		prefix, err := parseCIDR(strings.TrimSpace(s))
		if err != nil {
			return nil, fmt.Errorf("%s: %w: write one CIDR, or one of each family with a comma between them", flag, err)
		}
		prefixes = append(prefixes, prefix)
	}
	if len(prefixes) > 2 || len(prefixes) == 2 && ipam.FamilyOf(prefixes[0]) == ipam.FamilyOf(prefixes[1]) {
		return nil, fmt.Errorf("%s: %q: at most one CIDR of each family", flag, value)
	}
	return prefixes, nil
}

// masks returns the block length of each range.
func (f Flags) masks(ranges []netip.Prefix) ([]int, error) {
	pick := func(family ipam.Family) int32 {
		if family == ipam.IPv4 {
			return f.NodeMaskSizeIPv4
		}
		return f.NodeMaskSizeIPv6
	}
	if len(ranges) == 1 {
		other := ipam.IPv6
		if ipam.FamilyOf(ranges[0]) == ipam.IPv6 {
			other = ipam.IPv4
		}
		switch {
		case f.NodeMaskSize != 0 && (f.NodeMaskSizeIPv4 != 0 || f.NodeMaskSizeIPv6 != 0):
			return nil, errors.New("--node-cidr-mask-size and --node-cidr-mask-size-ipv4 or -ipv6 exclude each other: remove one of them")
		case pick(other) != 0:
			return nil, fmt.Errorf("--node-cidr-mask-size-%s is set, but --cluster-cidr has no %v range: remove it", strings.ToLower(other.String()), other)
		}
	} else if f.NodeMaskSize != 0 {
		return nil, errors.New("--node-cidr-mask-size cannot be used with two families: use --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6")
	}
	masks := make([]int, len(ranges))
	for i, prefix := range ranges {
		family := ipam.FamilyOf(prefix)
		fallback := int32(defaultMaskSizeIPv4)
		if family == ipam.IPv6 {
			fallback = defaultMaskSizeIPv6
		}
		for _, size := range []int32{fallback, f.NodeMaskSize, pick(family)} {
			if size != 0 {
				masks[i] = int(size)
			}
		}
	}
	return masks, nil
}

// flagsPrefix begins the name of every ClusterCIDR that was created from flags (KEP-2593).
const flagsPrefix = "created-from-flags-"

// nameFromFlags depends on what the flags say only, so that every process with the same flags means the same object.
func nameFromFlags(spec *networkingv1.ClusterCIDRSpec) string {
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err) // numbers and strings only
	}
	return fmt.Sprintf("%s%.4x", flagsPrefix, sha256.Sum256(text))
}

// followFlags sees to it that there is a ClusterCIDR for what the flags say now, and that those for what they said before are
// being deleted, which takes until their last Node is gone. One that a user deletes is made again, and if Nodes keep the deleted
// one a while, under another name.
func (c *Controller) followFlags(ctx context.Context) error {
	made, err := c.clusterCIDRs.List(labels.SelectorFromSet(labels.Set{networkingv1.LabelCreatedFromFlags: "true"}))
	if err != nil {
		return err
	}
	var live []*networkingv1.ClusterCIDR
	goes := false
	for _, cc := range made {
		switch {
		case cc.DeletionTimestamp != nil:
			goes = goes || !c.superseded(cc) && c.goesAtOnce(cc)
		case c.superseded(cc):
			if err := c.deleteFromFlags(ctx, cc); err != nil {
				return err
			}
		default:
			live = append(live, cc)
		}
	}
	// A try to create one may be carried out after a later one. Everybody keeps the same.
	slices.SortFunc(live, func(a, b *networkingv1.ClusterCIDR) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	for i, cc := range live {
		if i == 0 {
			continue
		}
		if err := c.deleteFromFlags(ctx, cc); err != nil {
			return err
		}
	}
	if len(live) > 0 || goes || c.flags == nil {
		return nil // what goes leaves its name, and then this is called again
	}
	name := nameFromFlags(c.flags)
	for i := 2; ; i++ {
		cc, err := c.clusterCIDRs.Get(name)
		switch {
		case apierrors.IsNotFound(err):
			return c.createFromFlags(ctx, name)
		case err != nil:
			return err
		case cc.DeletionTimestamp == nil && cc.Labels[networkingv1.LabelCreatedFromFlags] != "" && !c.superseded(cc):
			return nil // an earlier try to create it was not in vain, and showed while others were being deleted
		}
		name = fmt.Sprintf("%s-%d", nameFromFlags(c.flags), i)
	}
}

// goesAtOnce reports whether nothing but us keeps a ClusterCIDR that is being deleted, and we do not for long.
func (c *Controller) goesAtOnce(cc *networkingv1.ClusterCIDR) (goes bool) {
	c.with(func(b *book) {
		goes = !b.inUse(cc.Name) && slices.Equal(cc.Finalizers, []string{networkingv1.Finalizer})
	})
	return goes
}

// superseded reports whether a ClusterCIDR was made from flags that say something else now.
func (c *Controller) superseded(cc *networkingv1.ClusterCIDR) bool {
	_, made := cc.Labels[networkingv1.LabelCreatedFromFlags]
	return made && (c.flags == nil || !sameRanges(cc.Spec, *c.flags))
}

// compile is the function of that name, save that a superseded ClusterCIDR gives nothing: it is deleted in a moment, but at a
// start Nodes are served before that. The caller holds entering.
func (c *Controller) compile(cc *networkingv1.ClusterCIDR) *pool {
	p := compileWith(cc, c.selectors)
	if c.superseded(cc) && (p.State == ipam.Enabled || p.State == ipam.Pending) {
		p.State, p.problem = ipam.Pending, "the flags say something else now, so it will be deleted"
	}
	return p
}

// sameRanges compares what is immutable; the rest of a ClusterCIDR is for users to change.
func sameRanges(a, b networkingv1.ClusterCIDRSpec) bool {
	bits6 := func(s networkingv1.ClusterCIDRSpec) int32 {
		if s.IPv6PerNodeHostBits != nil {
			return *s.IPv6PerNodeHostBits
		}
		return s.PerNodeHostBits
	}
	return a.IPv4 == b.IPv4 && a.IPv6 == b.IPv6 && a.PerNodeHostBits == b.PerNodeHostBits && bits6(a) == bits6(b) && a.NodeSelector == nil && b.NodeSelector == nil
}

func (c *Controller) createFromFlags(ctx context.Context, name string) error {
	cc := &networkingv1.ClusterCIDR{
		ObjectMeta: metav1.ObjectMeta{
			Name:       name,
			Labels:     map[string]string{networkingv1.LabelCreatedFromFlags: "true"},
			Finalizers: []string{networkingv1.Finalizer},
		},
		Spec: *c.flags,
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	err := c.api.createClusterCIDR(ctx, cc)
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Created a ClusterCIDR from the flags", "clusterCIDR", klog.KObj(cc), "ipv4", cc.Spec.IPv4, "ipv6", cc.Spec.IPv6)
		return nil
	case apierrors.IsAlreadyExists(err):
		return nil // the watch is about to tell
	default:
		return fmt.Errorf("create ClusterCIDR %s from the flags: %w", name, err)
	}
}

func (c *Controller) deleteFromFlags(ctx context.Context, cc *networkingv1.ClusterCIDR) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	err := c.api.deleteClusterCIDR(ctx, cc.Name, cc.UID)
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Deleting a ClusterCIDR of the flags that is too many", "clusterCIDR", klog.KObj(cc))
		return nil
	case notThere(err), apierrors.IsConflict(err):
		return nil
	default:
		return fmt.Errorf("delete ClusterCIDR %s: %w", cc.Name, err)
	}
}
