package checker

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// fromFlags is how the names of ClusterCIDRs begin that the controller makes from its flags.
const fromFlags = "created-from-flags-"

// pool is one ClusterCIDR object through its life. Another object of the same name is another pool.
type pool struct {
	name     string
	uid      types.UID
	created  int64 // the revision
	ranges   []Range
	selector *nodeaffinity.NodeSelector // nil: every Node
	invalid  error                      // it breaks a rule and gives nothing
	flags    bool                       // see Options
	versions []version                  // as it changed, oldest first; never empty
}

// version is what can change about a pool.
type version struct {
	since      time.Time
	enabled    bool // neither disabled nor being deleted
	deleting   bool
	finalized  bool
	exclusions []netip.Prefix
	status     networkingv1.ClusterCIDRStatus
	superseded bool
	generation int64 // of the spec
}

// sameRules reports whether nothing but the status differs.
func (v version) sameRules(o version) bool {
	return v.enabled == o.enabled && v.deleting == o.deleting && v.finalized == o.finalized && slices.Equal(v.exclusions, o.exclusions)
}

func newPool(e Event, flags bool) (*pool, error) {
	cc := e.ClusterCIDR
	p := &pool{name: cc.Name, uid: cc.UID, created: e.Revision, flags: flags}
	bits6 := cc.Spec.PerNodeHostBits
	if cc.Spec.IPv6PerNodeHostBits != nil {
		bits6 = *cc.Spec.IPv6PerNodeHostBits
	}
	for _, family := range []struct {
		cidr           string
		bits, hostBits int
	}{{cc.Spec.IPv4, 32, int(cc.Spec.PerNodeHostBits)}, {cc.Spec.IPv6, 128, int(bits6)}} {
		if family.cidr == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(family.cidr)
		if err != nil {
			return nil, err
		}
		r, err := newRange(prefix, family.bits-family.hostBits)
		if err != nil {
			return nil, err
		}
		p.ranges = append(p.ranges, r)
	}
	if len(p.ranges) == 0 {
		return nil, errors.New("no range")
	}
	if s := cc.Spec.NodeSelector; s != nil {
		p.selector, p.invalid = nodeaffinity.NewNodeSelector(s)
	}
	return p, nil
}

// observe adds what the object looks like now.
func (p *pool) observe(e Event) error {
	cc := e.ClusterCIDR
	exclusions, err := parsePrefixes(cc.Spec.ExcludedCIDRs)
	if err != nil {
		return err
	}
	v := version{
		since:      e.At,
		enabled:    cc.Spec.Allocation != networkingv1.AllocationDisabled && cc.DeletionTimestamp == nil && p.invalid == nil,
		deleting:   cc.DeletionTimestamp != nil,
		finalized:  slices.Contains(cc.Finalizers, networkingv1.Finalizer),
		exclusions: exclusions,
		status:     cc.Status,
		generation: cc.Generation,
	}
	made := cc.Labels[networkingv1.LabelCreatedFromFlags] == "true" && strings.HasPrefix(cc.Name, fromFlags)
	v.superseded = made && (!p.flags || !v.enabled && !v.deleting && cc.Annotations[networkingv1.AnnotationSuperseded] == "true")
	v.enabled = v.enabled && !v.superseded
	if n := len(p.versions) - 1; n >= 0 && p.versions[n].sameRules(v) {
		v.since = p.versions[n].since
		p.versions[n] = v
		return nil
	}
	p.versions = append(p.versions, v)
	return nil
}

func (p *pool) now() version { return p.versions[len(p.versions)-1] }

// awaited reports whether p, which is gone since at, has waited for its finalizer. The API server that had begun to delete p before the finalizer was
// added does not look again.
func (p *pool) awaited(at time.Time, slack time.Duration) bool {
	return p.now().finalized && (p.now().deleting || at.Sub(p.now().since) > slack)
}

func (p *pool) matches(node *corev1.Node) bool { return p.selector == nil || p.selector.Match(node) }

// holds reports whether all blocks lie inside p's ranges.
func (p *pool) holds(blocks []netip.Prefix) bool {
	return !slices.ContainsFunc(blocks, func(b netip.Prefix) bool { return !p.touches(b) })
}

// touches reports whether one block lies inside one of p's ranges.
func (p *pool) touches(block netip.Prefix) bool {
	return slices.ContainsFunc(p.ranges, func(r Range) bool {
		return r.Prefix.Bits() <= block.Bits() && r.Prefix.Contains(block.Addr())
	})
}

// shaped reports whether blocks are one block of every range.
func shaped(ranges []Range, blocks []netip.Prefix) bool {
	if len(ranges) != len(blocks) {
		return false
	}
	for _, r := range ranges {
		if !slices.ContainsFunc(blocks, r.isBlock) {
			return false
		}
	}
	return true
}
