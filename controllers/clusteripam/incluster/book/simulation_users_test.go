package book

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
)

// What users do, and what is judged.

var (
	simPools = []Key{{kindPool, "a", "one"}, {kindPool, "a", "two"}, {kindPool, "b", "one"}, {kindGlobal, "", "all"}}
	specs    = []v1alpha2.InClusterIPPoolSpec{
		{Addresses: []string{"10.0.0.0/29"}, Prefix: 29, Gateway: "10.0.0.1"},
		{Addresses: []string{"10.0.0.2-10.0.0.4"}, Prefix: 29},
		{Addresses: []string{"10.0.0.5", "10.0.0.3", "10.0.0.4"}, Prefix: 24, Gateway: "10.0.0.1"},
		{Addresses: []string{"10.0.0.0/30"}, Prefix: 30, AllocateReservedIPAddresses: true},
		{Addresses: []string{"10.0.0.0/29"}, ExcludedAddresses: []string{"10.0.0.2", "10.0.0.4-10.0.0.5"}, Prefix: 29},
		{Addresses: []string{"10.0.0.4/31"}, Prefix: 31},
		{Addresses: []string{"nope"}, Prefix: 24},
		{Addresses: []string{"fd00::/126"}, Prefix: 126, Gateway: "fd00::1"},
	}
)

func pick[T any](d *rand.Rand, of []T) T { return of[d.IntN(len(of))] }

// some picks an existing object of a kind.
func (w *world) some(d *rand.Rand, kind string) (Key, bool) {
	all := w.server.of(kind)
	if len(all) == 0 {
		return Key{}, false
	}
	return pick(d, all), true
}

func (w *world) user(d *rand.Rand) {
	s := w.server
	n := d.IntN(100)
	if w.focused && d.IntN(4) > 0 {
		n = pick(d, []int{0, 20, 20, 20, 20, 60, 60, 60, 70, 85, 88})
	}
	switch {
	case n < 7:
		w.userPool(d)
	case n < 50:
		key := ClaimKey(pick(d, []string{"a", "a", "b"}), fmt.Sprintf("c%d", d.IntN(8)))
		if w.focused {
			key.Namespace = "a"
		}
		if s.objects[key] != nil {
			return
		}
		pool := pick(d, simPools)
		if all := append(s.of(kindPool), s.of(kindGlobal)...); len(all) > 0 && d.IntN(5) > 0 {
			pool = all[0] // mostly one, so that it is full at times
		}
		c := &v1beta2.IPAddressClaim{Spec: v1beta2.IPAddressClaimSpec{PoolRef: v1beta2.IPPoolReference{Name: pool.Name, Kind: pool.Kind, APIGroup: v1alpha2.GroupName}}}
		switch d.IntN(8) {
		case 0:
			c.Spec.ClusterName = "cl"
		case 1:
			c.Labels = map[string]string{v1beta2.LabelClusterName: "cl"}
		case 2:
			c.Spec.PoolRef.Kind = "InfobloxIPPool"
		}
		if d.IntN(5) == 0 {
			c.Finalizers = []string{"example.com/hold"}
		}
		s.create(key, c)
		w.note("user creates %v for %v", key, pool)
	case n < 68:
		if key, ok := w.some(d, kindClaim); ok {
			s.delete(key)
			w.note("user deletes %v", key)
		}
	case n < 72: // by force
		if key, ok := w.some(d, kindClaim); ok {
			w.stripped[key] = true
			s.edit(key, func(o metav1.Object) { o.SetFinalizers(nil) })
			w.note("user strips %v", key)
		}
	case n < 76:
		if key, ok := w.some(d, kindClaim); ok && slices.Contains(s.objects[key].GetFinalizers(), "example.com/hold") {
			s.edit(key, func(o metav1.Object) { o.SetFinalizers(without(o.GetFinalizers(), "example.com/hold")) })
			w.note("user lets %v go", key)
		}
	case n < 77:
		w.editAddress(d)
	case n < 78:
		w.editClaim(d)
	case n < 80:
		if key, ok := w.some(d, kindAddress); ok {
			s.delete(key)
			w.note("user deletes %v", key)
		}
	case n < 82:
		if key, ok := w.some(d, kindAddress); ok {
			w.stripped[ClaimKey(key.Namespace, key.Name)] = true
			if d.IntN(4) > 0 {
				w.forceAway(key)
				return
			}
			s.edit(key, func(o metav1.Object) { o.SetFinalizers(nil) })
			w.note("user strips %v", key)
		}
	case n < 86:
		w.foreign(d)
	case n < 90:
		if !s.collectGarbage() {
			return
		}
		w.note("garbage is collected")
	case n < 95:
		key := pick(d, []Key{{kindCluster, "a", "cl"}, {kindCluster, "b", "cl"}})
		switch {
		case s.objects[key] == nil:
			s.create(key, &simCluster{})
		case d.IntN(4) == 0:
			s.delete(key)
		default:
			s.edit(key, func(o metav1.Object) { c := o.(*simCluster); c.Paused = !c.Paused })
		}
		w.note("user changes %v", key)
	default: // pause
		key, ok := w.some(d, pick(d, []string{kindClaim, kindPool, kindGlobal}))
		if !ok {
			return
		}
		s.edit(key, func(o metav1.Object) {
			if paused(o) {
				o.SetAnnotations(nil)
			} else {
				o.SetAnnotations(map[string]string{v1beta2.AnnotationPaused: "true"})
			}
		})
		w.note("user pauses or resumes %v", key)
	}
}

// forceAway deletes an IPAddress whatever finalizers it has. The processes that know that its claim has the address keep it for the claim.
func (w *world) forceAway(key Key) {
	if w.keeps(w.server.address(key)) {
		w.cover("an IPAddress is forced away")
	}
	w.server.delete(key)
	if w.server.objects[key] != nil {
		w.server.edit(key, func(o metav1.Object) { o.SetFinalizers(nil) })
	}
	w.note("user forces %v away", key)
}

// keeps notes which processes know that a claim has what its IPAddress says, which is about to change.
func (w *world) keeps(o *v1beta2.IPAddress) (any bool) {
	pool, _ := poolOf(o.Spec.PoolRef, o.Namespace)
	place := fmt.Sprint(pool, " ", o.Spec.Address)
	for _, p := range w.processes {
		if !p.started || w.mixed[place] {
			continue
		}
		c, now := p.book.claims[claimOf(o)], w.server.claim(claimOf(o))
		if c != nil && now != nil && c.uid() == now.UID && c.state == Assigned && c.pool.key == pool && c.addr.String() == o.Spec.Address {
			w.kept[place] = append(w.kept[place], keeper{p, use{now, c.key}})
			any = true
		}
	}
	return any
}

// editAddress edits the spec of an IPAddress, as an API server without Cluster API's webhooks and our CRDs lets users do.
func (w *world) editAddress(d *rand.Rand) {
	key, ok := w.some(d, kindAddress)
	if !ok {
		return
	}
	o := w.server.address(key)
	if w.keeps(o) {
		w.cover("the spec of an IPAddress is edited")
	}
	pool, _ := poolOf(o.Spec.PoolRef, o.Namespace)
	w.stripped[claimOf(o)], w.altered[o.UID], w.former[fmt.Sprint(pool, " ", o.Spec.Address)] = true, true, true
	w.server.edit(key, func(o metav1.Object) {
		switch a := o.(*v1beta2.IPAddress); d.IntN(4) {
		case 0:
			a.Spec.ClaimRef.Name = "another"
		case 1:
			a.Spec.PoolRef = w.reference(d, key.Namespace)
		default:
			a.Spec.Address = fmt.Sprintf("10.0.0.%d", d.IntN(7))
		}
	})
	o = w.server.address(key)
	pool, _ = poolOf(o.Spec.PoolRef, o.Namespace)
	w.mixed[fmt.Sprint(pool, " ", o.Spec.Address)] = true
	w.note("user edits %v: %+v", key, o.Spec)
}

// editClaim lets a claim name another pool, also one of another provider.
func (w *world) editClaim(d *rand.Rand) {
	key, ok := w.some(d, kindClaim)
	if !ok || w.server.claim(key).Spec.PoolRef.Kind == "InfobloxIPPool" && !w.elsewhere[w.server.claim(key).UID] {
		return
	}
	if o := w.server.address(addressKey(key)); o != nil && w.keeps(o) {
		w.cover("the spec of a claim is edited")
	}
	w.stripped[key] = true
	w.server.edit(key, func(o metav1.Object) {
		c := o.(*v1beta2.IPAddressClaim)
		c.Spec.PoolRef = w.reference(d, key.Namespace)
		if d.IntN(3) == 0 {
			c.Spec.PoolRef.Kind = "InfobloxIPPool"
			w.elsewhere[c.UID] = true
		}
	})
	w.note("user edits %v: %+v", key, w.server.claim(key).Spec.PoolRef)
}

// reference returns a reference to some pool that objects of a namespace can have.
func (w *world) reference(d *rand.Rand, namespace string) v1beta2.IPPoolReference {
	for {
		if pool := pick(d, simPools); pool.Namespace == "" || pool.Namespace == namespace {
			return v1beta2.IPPoolReference{Name: pool.Name, Kind: pool.Kind, APIGroup: v1alpha2.GroupName}
		}
	}
}

// heldByOthers reports whether a claim has finalizers of others: its machine may still run.
func heldByOthers(c *v1beta2.IPAddressClaim) bool {
	return slices.ContainsFunc(c.Finalizers, func(f string) bool { return !strings.HasPrefix(f, v1beta2.GroupName) })
}

// userPool makes, changes or deletes a pool.
func (w *world) userPool(d *rand.Rand) {
	s, key := w.server, pick(d, simPools)
	if w.focused {
		key = simPools[0]
	}
	old := s.pool(key)
	switch {
	case old == nil:
		spec := pick(d, specs[:5])
		if w.focused {
			spec = pick(d, specs[1:4])
		} else if d.IntN(6) == 0 {
			spec = pick(d, specs)
		}
		if d.IntN(3) == 0 {
			grace := int32(5 + d.IntN(40))
			spec.AddressReuseGracePeriodSeconds = &grace
		}
		s.create(key, &Pool{Kind: key.Kind, Spec: spec})
		w.specs[key] = append(w.specs[key], spec)
		w.note("user creates %v: %+v", key, spec)
	case d.IntN(3) == 0:
		w.edited[key] = true
		s.delete(key)
		w.note("user deletes %v", key)
	case d.IntN(2) == 0:
		w.edited[key] = true
		spec := pick(d, specs)
		if w.focused {
			spec = pick(d, specs[1:4])
		}
		spec.AddressReuseGracePeriodSeconds = old.Spec.AddressReuseGracePeriodSeconds
		s.edit(key, func(o metav1.Object) { o.(*Pool).Spec = *spec.DeepCopy() })
		w.specs[key] = append(w.specs[key], spec)
		w.note("user changes %v: %+v", key, spec)
	}
}

// foreign makes an IPAddress as another program does: for a claim that exists, or for none.
func (w *world) foreign(d *rand.Rand) {
	claim := ClaimKey(pick(d, []string{"a", "b"}), fmt.Sprintf("c%d", d.IntN(9)))
	key, pool, prefix := addressKey(claim), pick(d, simPools), int32(24)
	if w.server.objects[key] != nil || pool.Namespace != "" && pool.Namespace != claim.Namespace {
		return
	}
	of := claim.Name
	if d.IntN(4) == 0 {
		of = "another"
	}
	w.stripped[claim] = true
	o := &v1beta2.IPAddress{Spec: v1beta2.IPAddressSpec{
		Address: fmt.Sprintf("10.0.0.%d", d.IntN(7)), Prefix: &prefix,
		PoolRef: v1beta2.IPPoolReference{Name: pool.Name, Kind: pool.Kind, APIGroup: v1alpha2.GroupName}, ClaimRef: v1beta2.IPAddressClaimReference{Name: of},
	}}
	o.Labels = map[string]string{"made-by": "another"}
	w.mixed[fmt.Sprint(pool, " ", o.Spec.Address)] = true
	for place, kept := range w.kept { // the claim has this address from now on
		w.kept[place] = slices.DeleteFunc(kept, func(k keeper) bool { return k.key == claim })
	}
	w.server.create(key, o)
	w.note("another program creates %v with %s of %v", key, o.Spec.Address, pool)
	if d.IntN(2) == 0 {
		w.server.delete(key)
		w.note("another program deletes %v", key)
	}
}

func foreignMade(o *v1beta2.IPAddress) bool { return o.Labels["made-by"] == "another" }

// creates judges a create request of ours on its arrival.
func (w *world) creates(r *Request, o *v1beta2.IPAddress) {
	claim := claimOf(o)
	pool, _ := poolOf(o.Spec.PoolRef, o.Namespace)
	at := netip.MustParseAddr(o.Spec.Address)
	for _, other := range w.server.addressesOf(pool) {
		if other.Spec.Address == o.Spec.Address && !foreignMade(other) && !w.altered[other.UID] {
			w.violate("%s of %v is allocated twice: to %s/%s and to %v", at, pool, other.Namespace, other.Name, claim)
		}
	}
	place := fmt.Sprint(pool, " ", at)
	if !w.mixed[place] && !slices.ContainsFunc(w.specs[pool], func(s v1alpha2.InClusterIPPoolSpec) bool { return slices.Contains(slowPool(s), at) }) {
		w.violate("%s is allocated from %v, which never had it", at, pool)
	}
	if p := w.server.pool(pool); !w.edited[pool] && !slices.Contains(p.Finalizers, v1beta2.FinalizerProtectPool) {
		w.violate("%s is allocated from %v, which does not have the finalizer", at, pool)
	}
	for _, before := range slices.Backward(w.server.changes[:w.arriving.p.asOf]) {
		if before.key == pool {
			if o := before.object; o != nil && o.GetDeletionTimestamp() != nil && o.GetUID() == r.Object.OwnerReferences[1].UID {
				w.violate("%s is allocated from %v, which was being deleted before the process led", at, pool)
			}
			break
		}
	}
	c := w.server.claim(claim)
	if !w.stripped[claim] && (c == nil || c.UID != o.OwnerReferences[0].UID || !slices.Contains(c.Finalizers, v1beta2.FinalizerReleaseAddress)) {
		w.violate("an IPAddress is created for %v, which does not have the finalizer", claim)
	}
	if last := w.lastUse[place]; last != nil && last.claim.UID != o.OwnerReferences[0].UID {
		w.cover("an address is reused")
		if now := w.server.claim(last.key); now != nil && now.UID == last.claim.UID && !w.stripped[last.key] && (now.DeletionTimestamp == nil || heldByOthers(now)) {
			w.violate("%s of %v is allocated to %v while %v has it", at, pool, claim, last.key)
		}
	}
	for _, k := range w.kept[place] {
		now := w.server.claim(k.key)
		switch {
		case k.p != w.arriving.p || w.mixed[place] || now == nil || now.UID != k.claim.UID:
		case now.UID == o.OwnerReferences[0].UID:
			w.cover("an IPAddress that was forced away is created again")
		default:
			w.violate("%s of %v is allocated to %v by %s, which knows that %v has it", at, pool, claim, k.p.name, k.key)
		}
	}
	if c != nil {
		w.lastUse[place] = &use{c, claim}
	}
}

// deletes judges a delete request on its arrival.
func (w *world) deletes(key Key) { w.releases(key) }

// finalizes judges a change of finalizers on its arrival.
func (w *world) finalizes(key Key, before, after []string) {
	for _, f := range before {
		if !slices.Contains(after, f) && !strings.HasPrefix(f, v1beta2.GroupName) {
			w.violate("the finalizer %s of %v is taken away", f, key)
		}
	}
	lost := func(f string) bool { return slices.Contains(before, f) && !slices.Contains(after, f) }
	switch {
	case key.Kind == kindAddress && !lost(v1beta2.FinalizerProtectAddress): // adopted
		o := w.server.address(key)
		pool, _ := poolOf(o.Spec.PoolRef, o.Namespace)
		if c := w.server.claim(claimOf(o)); c != nil {
			w.lastUse[fmt.Sprint(pool, " ", o.Spec.Address)] = &use{c, claimOf(o)}
		}
	case lost(v1beta2.FinalizerProtectAddress):
		w.releases(key)
	case lost(v1beta2.FinalizerReleaseAddress):
		c := w.server.claim(key)
		if a := w.server.address(addressKey(key)); a != nil && !w.stripped[key] && a.Spec.ClaimRef.Name == key.Name && a.Spec.PoolRef == c.Spec.PoolRef {
			w.violate("%v goes before its IPAddress", key)
		}
		if c.DeletionTimestamp == nil {
			w.violate("%v, which is not being deleted, loses its finalizer", key)
		}
	case lost(v1beta2.FinalizerProtectPool):
		for _, a := range w.server.addressesOf(key) {
			if !foreignMade(a) && !w.stripped[claimOf(a)] {
				w.violate("%v goes before the IPAddress %s/%s", key, a.Namespace, a.Name)
			}
		}
	}
}

// releases judges the release of an IPAddress: its claim is being deleted, and its grace is over.
func (w *world) releases(key Key) {
	o := w.server.address(key)
	claim := claimOf(o)
	c := w.server.claim(claim)
	pool, _ := poolOf(o.Spec.PoolRef, o.Namespace)
	if c != nil { // which keeps the address until it is gone
		w.lastUse[fmt.Sprint(pool, " ", o.Spec.Address)] = &use{c, claim}
	}
	if w.stripped[claim] {
		return
	}
	if c == nil || c.DeletionTimestamp == nil {
		w.violate("%v is released, whose claim is not being deleted", key)
		return
	}
	if heldByOthers(c) {
		w.violate("%v is released while others have finalizers on its claim", key)
	}
	if p := w.server.pool(pool); p != nil && !w.edited[pool] && p.Spec.AddressReuseGracePeriodSeconds != nil {
		w.cover("an address waits for its grace")
		if now := w.now(); now.Before(c.DeletionTimestamp.Add(time.Duration(*p.Spec.AddressReuseGracePeriodSeconds) * time.Second)) {
			w.violate("%v is released at %v, before its grace is over", key, now)
		}
	}
}

// judge judges what the server has when nothing is left to do.
func (w *world) judge(p *process) {
	s := w.server
	for _, key := range s.of(kindAddress) {
		o := s.address(key)
		c := s.claim(claimOf(o))
		if pool, ok := poolOf(o.Spec.PoolRef, o.Namespace); c == nil && ok && o.DeletionTimestamp != nil && !isPausedPool(s.pool(pool)) {
			w.violate("%v leaks: it is being deleted and its claim is gone", key)
		}
	}
	for _, key := range s.of(kindClaim) {
		w.judgeClaim(p, key)
	}
	for _, key := range simPools {
		w.judgePool(p, key)
	}
	writes := w.writes
	w.elapsed += 3600e9
	p.renewed = w.elapsed
	for _, k := range append(s.of(kindClaim), simPools...) {
		p.work(k)
	}
	if w.writes != writes {
		w.violate("it is not idle: %v", p.flights[0].request)
	}
}

func isPausedPool(p *Pool) bool { return p != nil && paused(p) }

// pauses reports whether a claim or its Cluster is paused.
func (w *world) pauses(c *v1beta2.IPAddressClaim) bool {
	cl, _ := w.server.objects[Key{kindCluster, c.Namespace, "cl"}].(*simCluster)
	return paused(c) || (c.Spec.ClusterName != "" || c.Labels[v1beta2.LabelClusterName] != "") && cl != nil && cl.Paused
}

func (w *world) judgeClaim(p *process, key Key) {
	s := w.server
	c := s.claim(key)
	pool, ours := poolOf(c.Spec.PoolRef, c.Namespace)
	of := s.pool(pool)
	a := s.address(addressKey(key))
	if a != nil && (a.Spec.ClaimRef.Name != key.Name || a.Spec.PoolRef != c.Spec.PoolRef) &&
		!slices.ContainsFunc(a.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == c.UID }) {
		a = nil
	}
	obstructed := a == nil && s.address(addressKey(key)) != nil
	known := p.book.claims[key]
	if !ours && w.elsewhere[c.UID] {
		if source := known.pool; source != nil && !w.pauses(c) && !isPausedPool(s.pool(source.key)) && c.DeletionTimestamp != nil && !heldByOthers(c) {
			w.violate("%v leaks: it is being deleted, names another provider by now, and still has %v of %v", key, known.addr, source.key)
		}
		return
	}
	if !ours {
		if slices.Contains(c.Finalizers, v1beta2.FinalizerReleaseAddress) || len(c.Status.Conditions) > 0 {
			w.violate("%v, which is of another provider, was changed", key)
		}
		return
	}
	named := c.Spec.ClusterName != "" || c.Labels[v1beta2.LabelClusterName] != ""
	cl, _ := s.objects[Key{kindCluster, key.Namespace, "cl"}].(*simCluster)
	if isPausedPool(s.pool(known.source().key)) || w.pauses(c) || isPausedPool(of) {
		return
	}
	ready := find(c.Status.Conditions, v1beta2.ConditionReady)
	switch {
	case c.DeletionTimestamp != nil:
		if heldByOthers(c) && (a != nil || !known.unresolved() && (known.had || known.state == Released)) { // or its pool is gone, so the IPAddress cannot be created again
			w.cover("an address waits for the finalizers of others")
			return
		}
		if slices.Contains(c.Finalizers, v1beta2.FinalizerReleaseAddress) {
			w.violate("%v leaks: it is being deleted and still has the finalizer", key)
		}
		if a != nil && !foreignMade(a) && len(a.Finalizers) > 0 {
			w.violate("%v leaks: its claim is being deleted", addressKey(key))
		}
	case a != nil:
		if c.Status.AddressRef.Name != key.Name || ready == nil || ready.Status != metav1.ConditionTrue {
			w.violate("%v has an IPAddress and the status %+v", key, c.Status)
		}
	default:
		if ready == nil || ready.Status != metav1.ConditionFalse {
			w.violate("%v has no IPAddress and the status %+v", key, c.Status)
			return
		}
		w.cover("a claim waits with reason: " + ready.Reason)
		if obstructed || named && cl == nil || of == nil || of.DeletionTimestamp != nil || p.book.claims[key].had {
			return
		}
		if free := w.free(p, pool); len(free) > 0 {
			w.violate("%v waits (%s) although %v is free in %v", key, ready.Message, free[0], pool)
		}
	}
}

// remembered returns the claims that hold addresses of a pool of which only this process knows: somebody has forced the IPAddress away, the outcome of
// its create is not known, or the claim is being deleted and its IPAddress, if it ever had one, is gone.
func (p *process) remembered(pool Key) (claims []*claim) {
	for _, h := range p.book.pool(pool).holdings {
		for _, c := range h.claims {
			if c.had && c.state != Assigned || c.unresolved() || c.state == Released {
				claims = append(claims, c)
			}
		}
	}
	return claims
}

// formerly counts the addresses of a pool that IPAddresses hold because they had them before they were edited, or after that.
func (p *process) formerly(pool Key) (n int) {
	for _, a := range p.book.addresses {
		if p.w.altered[a.object.UID] {
			for _, had := range a.holds {
				if had.pool.key == pool {
					n++
				}
			}
		}
	}
	return n
}

// free returns the addresses of a pool that nobody has: no IPAddress, no claim that is being deleted, and none that is remembered.
func (w *world) free(leader *process, pool Key) (free []netip.Addr) {
	p, remembered := w.server.pool(pool), leader.remembered(pool)
	for _, at := range slowPool(p.Spec) {
		taken := slices.ContainsFunc(remembered, func(c *claim) bool { return c.addr == at }) || slices.ContainsFunc(w.server.addressesOf(pool), func(o *v1beta2.IPAddress) bool { return o.Spec.Address == at.String() })
		if last := w.lastUse[fmt.Sprint(pool, " ", at)]; last != nil {
			now := w.server.claim(last.key)
			taken = taken || now != nil && now.UID == last.claim.UID && now.DeletionTimestamp != nil
		}
		if !taken && !w.former[fmt.Sprint(pool, " ", at)] {
			free = append(free, at)
		}
	}
	return free
}

func (w *world) judgePool(leader *process, key Key) {
	p := w.server.pool(key)
	if p == nil || paused(p) {
		return
	}
	objects, remembered, formerly := w.server.addressesOf(key), leader.remembered(key), leader.formerly(key)
	protected := slices.Contains(p.Finalizers, v1beta2.FinalizerProtectPool)
	if p.DeletionTimestamp != nil {
		if protected && len(objects)+formerly == 0 && !slices.ContainsFunc(remembered, (*claim).unresolved) {
			w.violate("%v does not go although no IPAddress uses it", key)
		}
		return
	}
	all, used, outside, twice := slowPool(p.Spec), map[string]bool{}, 0, false
	for _, o := range objects {
		twice = twice || used[o.Spec.Address]
		if !used[o.Spec.Address] && !slices.Contains(all, netip.MustParseAddr(o.Spec.Address)) {
			outside++
		}
		used[o.Spec.Address] = true
	}
	got := p.Status.IPAddresses
	if !protected || got == nil || got.Total != len(all) || got.Used < len(used) || got.OutOfRange < outside || got.Free != got.Total-got.Used+got.OutOfRange {
		w.violate("%v has the finalizers %v and the status %+v; it has %d addresses, %d used, %d out of range", key, p.Finalizers, got, len(all), len(used), outside)
		return
	}
	if c := find(p.Status.Conditions, v1alpha2.ConditionConflicted); !w.prunes && len(w.altered) == 0 && (c != nil && c.Status == metav1.ConditionTrue) != twice {
		w.violate("%v has two IPAddresses with one address: %t; its conditions are %+v", key, twice, p.Status.Conditions)
	}
	// Claims that are being deleted may hold addresses, too.
	held := len(remembered) + formerly
	for _, k := range w.server.of(kindClaim) {
		if c := w.server.claim(k); c.DeletionTimestamp != nil {
			held++
		}
	}
	if got.Used > len(used)+held {
		w.violate("%v leaks: %d addresses are used, the status is %+v", key, len(used), got)
	}
}
