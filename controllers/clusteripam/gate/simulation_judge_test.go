package gate

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
)

// The judge looks at every write, and at the world once it is at rest. It knows the packages under test only by what they wrote.

// known is what the judge has seen.
type known struct {
	cluster  map[string]string // the recorded ClusterDeployment, by the claim's UID
	bound    map[string]bool   // claims whose own ClusterIPAM was Bound, by UID
	eligible map[string]bool   // ClusterDeployment and claim, by "name/name", that were meant for each other while the claim was bound
	owned    map[string]bool   // objects that once belonged to a claim of their name, or claims that once belonged to a ClusterDeployment, by UID
}

func newKnown() known {
	return known{map[string]string{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
}

// mine are the fields that each controller may change, by kind: "0" is claims and "1" is the gate.
var mine = map[string]map[*shell.Kind][][]string{
	"0": {
		shell.ClusterIPAMClaims: {{"spec", "clusterIPAMRef"}, {"status"}},
		shell.ClusterIPAMs:      {{"spec", "provider"}, {"spec", "clusterIPAMClaimRef"}, {"metadata", "ownerReferences"}, {"metadata", "annotations", "networking.x-k8s.io/cluster-deployment"}, {"status"}},
		shell.InClusterIPPools:  {{"spec", "addresses"}, {"spec", "prefix"}, {"spec", "gateway"}, {"metadata", "ownerReferences"}},
		shell.InfobloxIPPools:   {{"spec", "instance"}, {"spec", "subnets"}, {"metadata", "ownerReferences"}},
	},
	"1": {
		shell.ClusterIPAMClaims: {{"spec"}},
		shell.ClusterDeployments: {{"spec", "ipamClaim", "ref"}, {"spec", "config", "ipPool"}, {"spec", "config", "ipamEnabled"}, {"metadata", "annotations", "networking.x-k8s.io/ipam-config"},
			{"status", "conditions"}},
	},
}

// without returns an object without some of its fields, and without what is empty then.
func without(o object, fields [][]string) object {
	o = runtime.DeepCopyJSON(o)
	for _, path := range append(fields, []string{"metadata", "resourceVersion"}, []string{"metadata", "deletionTimestamp"}) {
		set(o, nil, path...)
	}
	return pruned(o)
}

func pruned(o object) object {
	for field, value := range o {
		if m, ok := value.(object); ok && len(pruned(m)) == 0 {
			delete(o, field)
		}
	}
	return o
}

// judge is told of every write before anybody hears of it.
func (w *world) judge(by string, kind *shell.Kind, before, after object) {
	_, controller, _ := strings.Cut(by, "/")
	if controller != "" && before != nil {
		w.covered["written: "+kind.Name]++
		if after == nil {
			after = before // deleted, and what was there before is as it was
		}
		if fields := mine[controller][kind]; !reflect.DeepEqual(without(before, fields), without(after, fields)) {
			w.violate("what users write stays: %s made of %v %s", by, shell.Encode(before), shell.Encode(after))
		}
		w.judgeOwner(by, kind, before, after)
	}
	if after == nil {
		return
	}
	uid, _ := at(after, "metadata", "uid").(string)
	name, _ := at(after, "metadata", "name").(string)
	if before == nil {
		before = object{}
	}
	switch kind {
	case shell.ClusterIPAMClaims:
		recorded := message(after, "BoundToCluster")
		if is := w.known.cluster[uid]; is != "" && recorded != is {
			w.violate("a binding never moves: claim %s was bound to %s, and %s binds it to %q", name, is, by, recorded)
		}
		w.known.cluster[uid] = recorded
		if controller != "" && at(before, "status", "bound") != true && at(after, "status", "bound") == true && !w.known.bound[uid] {
			w.violate("a claim is bound by its own ClusterIPAM: %s", name)
		}
	case shell.ClusterDeployments:
		w.judgeConfig(by, controller, name, before, after)
	}
	w.learn(kind, after)
}

// judgeOwner: what belongs to somebody else is not touched.
func (w *world) judgeOwner(by string, kind *shell.Kind, before, after object) {
	uid, _ := at(before, "metadata", "uid").(string)
	name, _ := at(before, "metadata", "name").(string)
	switch kind {
	case shell.InClusterIPPools, shell.InfobloxIPPools:
		if !same(before["spec"], after["spec"]) && !w.known.owned[uid] {
			w.violate("pools of others stay: %s changes %v %s", by, kind, name)
		}
		if !same(at(before, "metadata", "ownerReferences"), at(after, "metadata", "ownerReferences")) {
			w.covered["a pool was adopted"]++
		}
	case shell.ClusterIPAMs:
		if ref := at(before, "spec", "clusterIPAMClaimRef"); ref != nil && ref != name && !w.known.owned[uid] {
			w.violate("ClusterIPAMs of others stay: %s changes %s", by, name)
		}
	case shell.ClusterIPAMClaims:
		if strings.HasSuffix(by, "/1") && !w.known.owned[uid] {
			w.violate("claims of users stay: %s changes %s", by, name)
		}
	}
}

// judgeConfig: the gate opens in one write, for the right claim only, and does not change what others wrote.
func (w *world) judgeConfig(by, controller, name string, before, after object) {
	was, is := at(before, "spec", "config", "ipPool"), at(after, "spec", "config", "ipPool")
	if controller != "" && at(before, "spec", "config", "ipamEnabled") != true && at(after, "spec", "config", "ipamEnabled") == true {
		entry, _ := is.(object)
		if pool, _ := at(entry, "config", "name").(string); !w.known.eligible[name+"/"+pool] {
			w.violate("the gate opens for the pool of the claim only: %s enables %s", by, shell.Encode(after))
		}
	}
	if controller == "" || same(was, is) {
		return
	}
	if is == nil {
		w.violate("the gate never closes: %s removes ipPool from %s", by, name)
		return
	}
	if at(after, "spec", "config", "ipamEnabled") != true {
		w.violate("the gate opens in one write: %s", shell.Encode(after))
	}
	if pool, _ := at(is.(object), "config", "name").(string); !w.known.eligible[name+"/"+pool] {
		w.violate("the gate opens for the claim of the ClusterDeployment only: %s gets %s", name, pool)
	}
	if was != nil {
		w.covered["the config was renewed"]++
		if written, _ := at(before, "metadata", "annotations", "networking.x-k8s.io/ipam-config").(string); written == "" || !same(decode([]byte(written))["ipPool"], was) {
			w.violate("what users write stays: %s changes ipPool of %s from %s", by, name, shell.Encode(was))
		}
	}
}

// learn records what an object shows.
func (w *world) learn(kind *shell.Kind, o object) {
	uid, _ := at(o, "metadata", "uid").(string)
	name, _ := at(o, "metadata", "name").(string)
	owners, _ := at(o, "metadata", "ownerReferences").([]any)
	if slices.ContainsFunc(owners, func(r any) bool {
		kindOf := at(r.(object), "kind")
		return kindOf == "ClusterIPAMClaim" && at(r.(object), "name") == name || kindOf == "ClusterDeployment"
	}) {
		w.known.owned[uid] = true
	}
	for _, name := range claimNames {
		claim, ipam := get[v1beta1.ClusterIPAMClaim](w, shell.ClusterIPAMClaims, name), get[v1beta1.ClusterIPAM](w, shell.ClusterIPAMs, name)
		if claim != nil && ipam != nil && ipam.Status.Phase == "Bound" && controlledBy(ipam, claim) {
			w.known.bound[string(claim.UID)] = true
		}
		if claim == nil || !claim.Status.Bound || !w.known.bound[string(claim.UID)] {
			continue
		}
		if recorded := condition(claim.Status.Conditions, "BoundToCluster"); recorded != nil {
			w.known.eligible[recorded.Message+"/"+name] = true
		}
		for _, r := range claim.OwnerReferences {
			if r.Kind == "ClusterDeployment" {
				w.known.eligible[r.Name+"/"+name] = true
			}
		}
	}
}

func message(o object, kind string) string {
	conditions, _ := at(o, "status", "conditions").([]any)
	for _, c := range conditions {
		if at(c.(object), "type") == kind {
			return at(c.(object), "message").(string)
		}
	}
	return ""
}

func condition(all []metav1.Condition, kind string) *metav1.Condition {
	return meta.FindStatusCondition(all, kind)
}

func get[T any](w *world, kind *shell.Kind, name string) *T {
	o, _ := any(w.server.typed[kind][name]).(*T)
	return o
}

func controlledBy(ipam *v1beta1.ClusterIPAM, claim *v1beta1.ClusterIPAMClaim) bool {
	return slices.ContainsFunc(ipam.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == claim.UID && r.Controller != nil && *r.Controller })
}

func ownedBy(o, owner metav1.Object) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() })
}

// atRest compares the world with what users asked for.
func (w *world) atRest() {
	for _, name := range claimNames {
		if claim := get[v1beta1.ClusterIPAMClaim](w, shell.ClusterIPAMClaims, name); claim != nil {
			w.claimAtRest(claim)
		}
	}
	for _, name := range deploymentNames {
		if d := get[v1beta1.ClusterDeployment](w, shell.ClusterDeployments, name); d != nil {
			w.deploymentAtRest(d)
		}
	}
}

// meant is what a pool of the claim has to say, by the networks that the moves write; valid is false if it cannot be carried out.
func meant(claim *v1beta1.ClusterIPAMClaim) (addresses []string, prefix int, valid bool) {
	n := claim.Spec.NodeNetwork
	if claim.Spec.ClusterIPAMRef != "" && claim.Spec.ClusterIPAMRef != claim.Name || n.Gateway == "fd00::1" || n.CIDR == "nope" {
		return nil, 0, false
	}
	if strings.Contains(strings.Join(n.IPAddresses, ""), "-") {
		return nil, 0, false
	}
	if claim.Spec.Provider == "ipam-infoblox" {
		return nil, 0, n.Gateway != "" && n.CIDR != ""
	}
	if len(n.IPAddresses) > 0 {
		return n.IPAddresses, n.Prefix, true
	}
	if n.CIDR == "" {
		return nil, 0, false
	}
	if prefix = n.Prefix; prefix == 0 {
		prefix = netip.MustParsePrefix(n.CIDR).Bits()
	}
	return []string{n.CIDR}, prefix, true
}

func (w *world) claimAtRest(claim *v1beta1.ClusterIPAMClaim) {
	name, has := claim.Name, func(kind string) bool { return condition(claim.Status.Conditions, kind) != nil }
	wrong := func(what string) {
		w.violate("at rest: claim %s: %s\n  claim %s\n  ClusterIPAM %s\n  pools %s %s", name, what, shell.Encode(claim), shell.Encode(w.server.objects[shell.ClusterIPAMs][name]),
			shell.Encode(w.server.objects[shell.InClusterIPPools][name]), shell.Encode(w.server.objects[shell.InfobloxIPPools][name]))
	}
	addresses, prefix, valid := meant(claim)
	if valid == has("InvalidClaimCondition") {
		wrong("InvalidClaimCondition is wrong")
	}
	recorded := w.known.cluster[string(claim.UID)]
	if recorded == "" && claim.Spec.Cluster != "" || has("ClusterChanged") != (recorded != claim.Spec.Cluster) {
		wrong("its cluster is not what is recorded")
	}

	ipam := get[v1beta1.ClusterIPAM](w, shell.ClusterIPAMs, name)
	switch {
	case ipam == nil && valid:
		wrong("it has no ClusterIPAM")
		return
	case ipam == nil || !controlledBy(ipam, claim) || ipam.DeletionTimestamp != nil:
		if ref := ""; ipam != nil && valid {
			ref = ipam.Spec.ClusterIPAMClaimRef
			if ipam.DeletionTimestamp == nil && len(ipam.OwnerReferences) == 0 && (ref == "" || ref == name) {
				wrong("the ClusterIPAM was not adopted")
			}
			w.covered["at rest: ClusterIPAM of somebody else"]++
		}
		if claim.Status.Bound || valid && !has("IPAMProviderConditionError") {
			wrong("without a ClusterIPAM of its own it says something else")
		}
		return
	}
	if valid && (ipam.Spec.Provider != claim.Spec.Provider || ipam.Spec.ClusterIPAMClaimRef != name || claim.Spec.ClusterIPAMRef != name ||
		ipam.Annotations["networking.x-k8s.io/cluster-deployment"] != recorded) {
		wrong("the ClusterIPAM is wrong")
	}
	provider := ipam.Spec.Provider // that of the claim when it was valid
	if provider == "" {
		provider = claim.Spec.Provider
	}
	ready := w.poolAtRest(claim, provider, addresses, prefix, valid, wrong)
	if !ready && valid && !has("IPAMProviderConditionError") {
		wrong("nobody is told why it is not bound")
	}
	if claim.Status.Bound != ready || (ipam.Status.Phase == "Bound") != ready || len(ipam.Status.ProviderData) != 1 || ipam.Status.ProviderData[0].Ready != ready {
		wrong("bound is wrong")
	}
	if ready {
		w.covered["at rest: bound"]++
	}
}

// poolAtRest judges the pool of a claim and reports whether it is ready.
func (w *world) poolAtRest(claim *v1beta1.ClusterIPAMClaim, provider string, addresses []string, prefix int, valid bool, wrong func(string)) (ready bool) {
	inCluster, infoblox := get[v1alpha2.InClusterIPPool](w, shell.InClusterIPPools, claim.Name), get[v1alpha1.InfobloxIPPool](w, shell.InfobloxIPPools, claim.Name)
	if provider == "ipam-infoblox" {
		instances := w.server.objects[shell.InfobloxInstances]
		asked := claim.Annotations["networking.x-k8s.io/infoblox-instance"]
		if infoblox == nil {
			if valid && (asked != "" || len(instances) == 1) {
				wrong("it has no InfobloxIPPool")
			}
			return false
		}
		if !ownedBy(infoblox, claim) || infoblox.DeletionTimestamp != nil {
			return false
		}
		_, ready = instances[infoblox.Spec.InstanceRef.Name]
		n := claim.Spec.NodeNetwork
		if valid && (len(infoblox.Spec.Subnets) != 1 || infoblox.Spec.Subnets[0].CIDR != n.CIDR || infoblox.Spec.Subnets[0].Gateway != n.Gateway) {
			wrong("the InfobloxIPPool is wrong")
		}
		if asked != "" && asked != infoblox.Spec.InstanceRef.Name && !ready && valid {
			wrong("the InfobloxIPPool does not follow the annotation")
		}
		if ready && valid && inCluster != nil && ownedBy(inCluster, claim) && inCluster.DeletionTimestamp == nil && !w.used[string(inCluster.UID)] {
			wrong("the pool of the earlier provider was not deleted")
		}
		return ready
	}
	if inCluster == nil {
		if valid {
			wrong("it has no InClusterIPPool")
		}
		return false
	}
	is := inCluster.Spec
	agrees := slices.Equal(is.Addresses, addresses) && is.Prefix == prefix && is.Gateway == claim.Spec.NodeNetwork.Gateway
	if !ownedBy(inCluster, claim) {
		if valid && agrees && len(inCluster.OwnerReferences) == 0 && inCluster.DeletionTimestamp == nil {
			wrong("the InClusterIPPool was not adopted")
		}
		w.covered["at rest: pool of somebody else"]++
		return false
	}
	if inCluster.DeletionTimestamp != nil {
		return false
	}
	if valid && !agrees {
		wrong("the InClusterIPPool is wrong")
	}
	ready = inCluster.Status.IPAddresses != nil && inCluster.Status.IPAddresses.Total > 0
	if ready && valid && infoblox != nil && ownedBy(infoblox, claim) && infoblox.DeletionTimestamp == nil {
		wrong("the pool of the earlier provider was not deleted")
	}
	return ready
}

func (w *world) deploymentAtRest(d *v1beta1.ClusterDeployment) {
	o := w.server.objects[shell.ClusterDeployments][d.Name]
	ready := condition(d.Status.Conditions, "IPAMReady")
	wrong := func(what string) { w.violate("at rest: ClusterDeployment %s: %s\n  %s", d.Name, what, shell.Encode(o)) }
	if d.Spec.IPAMClaim == nil || d.Spec.IPAMClaim.Spec == nil && d.Spec.IPAMClaim.Ref == "" {
		if ready != nil {
			wrong("it has no claim and a condition")
		}
		return
	}
	if ready == nil {
		wrong("it has no condition")
		return
	}
	name, inline := d.Spec.IPAMClaim.Ref, d.Spec.IPAMClaim.Spec
	if inline != nil {
		if name != d.Name+"-ipam" {
			wrong("ref is not the inline claim")
		}
		name = d.Name + "-ipam"
	}
	claim := get[v1beta1.ClusterIPAMClaim](w, shell.ClusterIPAMClaims, name)
	open := claim != nil && claim.Status.Bound
	if claim == nil && inline != nil {
		wrong("the inline claim was not created")
	}
	if claim != nil {
		says := inline != nil && same(inline.NodeNetwork, claim.Spec.NodeNetwork) && inline.Provider == claim.Spec.Provider && claim.Spec.Cluster != ""
		owned := ownedBy(claim, d)
		if inline != nil && owned && !says {
			wrong("the inline claim says something else")
		}
		recorded := w.known.cluster[string(claim.UID)]
		open = open && (owned || recorded == d.Name) && (inline == nil || says)
	}
	pool, enabled := at(o, "spec", "config", "ipPool"), at(o, "spec", "config", "ipamEnabled")
	if _, object := at(o, "spec", "config").(map[string]any); !object && at(o, "spec", "config") != nil {
		open = false
	}
	var entry any
	if data, _ := at(w.server.objects[shell.ClusterIPAMs][name], "status", "providerData").([]any); len(data) > 0 {
		entry = data[0]
	}
	written, _ := at(o, "metadata", "annotations", "networking.x-k8s.io/ipam-config").(string)
	ours := pool == nil || same(pool, entry) || written != "" && same(decode([]byte(written))["ipPool"], pool)
	if open && ours && (pool == nil || enabled == nil) {
		wrong("the gate is closed")
	}
	if is := ready.Status == metav1.ConditionTrue; is != (open && ours && enabled == true) {
		wrong("IPAMReady is wrong")
	}
	if open && ours && enabled == true && !same(entry, pool) {
		wrong("the config is stale")
	}
	if open && !ours {
		w.covered["at rest: pool of somebody else in the config"]++
	}
	if open {
		w.covered["at rest: gate open"]++
	}
}
