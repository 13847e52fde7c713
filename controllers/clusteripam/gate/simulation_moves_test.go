package gate

import (
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
)

// What happens in the world. A move is a number, from which everything in it is rolled. So a history is a list of numbers, and can be shortened.

func (w *world) make(move uint64) {
	w.dice = rand.New(rand.NewPCG(move, 2))
	if w.dice.IntN(3) == 0 {
		w.meanwhile()
		return
	}
	p := w.processes[w.dice.IntN(len(w.processes))]
	c := p.controllers[w.dice.IntN(len(p.controllers))]
	switch n := w.dice.IntN(30); {
	case n == 0:
		w.note("process %s restarts", p.name)
		w.covered["restart"]++
		for i := range w.processes {
			if w.processes[i] == p {
				w.processes[i] = w.boot(p.name)
			}
		}
	case n == 1:
		c.relist(w.dice.IntN(len(c.sources)))
	case n < 10:
		for _, k := range c.later {
			c.Add(k)
		}
		c.later = nil
		c.work()
	default:
		c.work()
	}
}

// meanwhile is what can happen during a request, too.
func (w *world) meanwhile() {
	switch n := w.dice.IntN(20); {
	case n < 7:
		w.user()
	case n < 8:
		w.server.collectGarbage()
	case n < 10:
		w.allocate()
	case n < 11 && len(w.network) > 0:
		i := w.dice.IntN(len(w.network))
		late := w.network[i]
		w.network = append(w.network[:i:i], w.network[i+1:]...)
		w.note("    a late request arrives: %v", late())
	default:
		for range 1 + w.dice.IntN(8) {
			p := w.processes[w.dice.IntN(len(w.processes))]
			c := p.controllers[w.dice.IntN(len(p.controllers))]
			c.deliver(w.dice.IntN(len(c.sources)))
		}
	}
	w.now = w.now.Add(300 * time.Millisecond)
}

func oneOf[T any](d *rand.Rand, of ...T) T { return of[d.IntN(len(of))] }

func decode(text []byte) (o object) {
	if err := json.Unmarshal(text, &o); err != nil {
		panic(err)
	}
	return o
}

var (
	claimNames      = []string{"a", "b", "d-ipam", "e-ipam"}
	deploymentNames = []string{"d", "e"}
)

func (w *world) someNetwork() object {
	return decode([]byte(oneOf(w.dice,
		`{"cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "prefix": 24}`,
		`{"cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "prefix": 24}`,
		`{"cidr": "10.0.1.0/24", "gateway": "10.0.1.1"}`,
		`{"cidr": "10.0.1.0/24"}`,
		`{"cidr": "10.0.1.0/24", "gateway": "10.0.9.1"}`,
		`{"cidr": "10.0.2.0/31"}`,
		`{"ipAddresses": ["10.0.0.5", "10.0.0.7"], "prefix": 24, "gateway": "10.0.0.1"}`,
		`{"ipAddresses": ["10.0.0.5"], "cidr": "10.0.0.0/24"}`,
		`{"cidr": "nope"}`,
		`{"ipAddresses": ["10.0.0.1-10.0.0.5"]}`,
		`{"cidr": "10.0.0.0/24", "gateway": "fd00::1"}`,
		`{}`)))
}

func (w *world) claimSpec() object {
	spec := object{"provider": oneOf(w.dice, "in-cluster", "in-cluster", "ipam-infoblox"), "nodeNetwork": w.someNetwork()}
	if cluster := oneOf(w.dice, "", "d", "e"); cluster != "" {
		spec["cluster"] = cluster
	}
	return spec
}

// user is one thing that a user does. What the API server refuses, it refuses.
func (w *world) user() {
	claim, deployment := oneOf(w.dice, claimNames...), oneOf(w.dice, deploymentNames...)
	kind, name := shell.ClusterIPAMClaims, claim
	var patch object
	create := func(k *shell.Kind, o object) {
		err := w.server.create("user", k, o)
		w.note("user: create %v %s: %v", k, shell.Encode(o), err)
	}
	remove := func(k *shell.Kind, name string) {
		err := w.server.delete("user", k, name, "", "")
		w.note("user: delete %v %s: %v", k, name, err)
	}
	metadata := func(name string) object { return object{"name": name} }
	switch w.dice.IntN(35) {
	case 0, 1, 2, 3:
		create(shell.ClusterIPAMClaims, object{"metadata": metadata(claim), "spec": w.claimSpec()})
	case 4, 5:
		patch = object{"spec": object{"nodeNetwork": nil}}
		_ = w.server.patch("user", kind, name, false, patch)
		patch = object{"spec": object{"nodeNetwork": w.someNetwork()}}
	case 6:
		patch = object{"spec": object{"provider": oneOf(w.dice, "in-cluster", "ipam-infoblox")}}
	case 7:
		patch = object{"spec": object{"cluster": oneOf[any](w.dice, nil, "d", "e")}}
	case 8:
		patch = object{"spec": object{"clusterIPAMRef": oneOf[any](w.dice, nil, claim, "other")}}
	case 9:
		patch = object{"metadata": object{"annotations": object{"networking.x-k8s.io/infoblox-instance": oneOf[any](w.dice, nil, "i1", "i2")}}}
	case 10:
		remove(shell.ClusterIPAMClaims, claim)
	case 11:
		o := object{"metadata": metadata(claim), "spec": object{"provider": "in-cluster"}}
		if ref := oneOf(w.dice, "", claim, "other"); ref != "" {
			set(o, ref, "spec", "clusterIPAMClaimRef")
		}
		if owner := w.server.objects[shell.ClusterIPAMClaims][oneOf(w.dice, claimNames...)]; owner != nil && w.dice.IntN(3) == 0 {
			set(o, []any{object{"kind": "ClusterIPAMClaim", "name": at(owner, "metadata", "name"), "uid": at(owner, "metadata", "uid"), "controller": true}}, "metadata", "ownerReferences")
		}
		create(shell.ClusterIPAMs, o)
	case 12:
		kind, patch = shell.ClusterIPAMs, object{"metadata": object{"annotations": oneOf[any](w.dice, nil, object{"networking.x-k8s.io/cluster-deployment": "e"})}}
	case 13:
		kind, patch = shell.ClusterIPAMs, object{"spec": oneOf[any](w.dice, nil, object{"clusterIPAMClaimRef": nil}, object{"clusterIPAMClaimRef": "other"}, object{"provider": "ipam-infoblox"})}
	case 14:
		kind, patch = shell.ClusterIPAMs, object{"metadata": oneOf(w.dice, object{"ownerReferences": nil}, object{"finalizers": nil}, object{"finalizers": nil}, object{"finalizers": []any{"theirs"}})}
	case 15, 16:
		remove(shell.ClusterIPAMs, claim)
	case 17:
		o := object{"metadata": metadata(claim), "spec": object{"addresses": []any{"10.0.0.0/24"}, "prefix": 24, "gateway": "10.0.0.1"}}
		if w.dice.IntN(2) == 0 {
			set(o, []any{"10.9.0.0/24"}, "spec", "addresses")
		}
		create(shell.InClusterIPPools, o)
	case 18:
		kind, patch = oneOf(w.dice, shell.InClusterIPPools, shell.InfobloxIPPools), object{"spec": oneOf(w.dice, object{"excludedAddresses": []any{"10.0.0.9"}},
			object{"networkView": "v"}, object{"addresses": []any{"10.7.0.0/24"}}, object{"gateway": nil}, object{"prefix": 8})}
	case 19:
		kind, patch = oneOf(w.dice, shell.InClusterIPPools, shell.InfobloxIPPools), object{"metadata": object{"ownerReferences": nil}}
	case 20, 21:
		remove(oneOf(w.dice, shell.InClusterIPPools, shell.InfobloxIPPools), claim)
	case 22, 23:
		create(shell.InfobloxInstances, object{"metadata": metadata(oneOf(w.dice, "i1", "i2"))})
	case 24:
		remove(shell.InfobloxInstances, oneOf(w.dice, "i1", "i2"))
	case 25:
		for _, k := range []*shell.Kind{shell.InClusterIPPools, shell.InfobloxIPPools} {
			if o := w.server.objects[k][claim]; o != nil {
				uid := at(o, "metadata", "uid").(string)
				w.used[uid] = !w.used[uid]
				w.note("addresses of %v %s are in use: %t", k, claim, w.used[uid])
			}
		}
	case 26, 27, 28:
		o := object{"metadata": metadata(deployment), "spec": object{"template": "t", "config": object{"workers": 3}}}
		if w.dice.IntN(2) == 0 {
			set(o, claim, "spec", "ipamClaim", "ref")
		}
		if w.dice.IntN(2) == 0 {
			set(o, w.claimSpec(), "spec", "ipamClaim", "spec")
		}
		create(shell.ClusterDeployments, o)
	case 29, 30:
		kind, name, patch = shell.ClusterDeployments, deployment, object{"spec": object{"ipamClaim": oneOf[any](w.dice, nil, object{"ref": claim}, object{"ref": nil},
			object{"spec": nil}, object{"spec": object{"provider": "in-cluster", "nodeNetwork": w.someNetwork()}})}}
	case 31:
		remove(shell.ClusterDeployments, deployment)
	case 32:
		kind, name, patch = shell.ClusterDeployments, deployment, object{"spec": object{"config": oneOf[any](w.dice, nil, object{"workers": 4}, object{"ipamEnabled": false},
			object{"ipamEnabled": nil}, object{"ipPool": nil}, object{"ipPool": "mine"}, "text")}}
	case 33:
		kind, name, patch = shell.ClusterDeployments, deployment, object{"metadata": object{"annotations": nil}}
	case 34:
		kind := oneOf(w.dice, shell.ClusterIPAMClaims, shell.ClusterIPAMs, shell.InClusterIPPools, shell.ClusterDeployments)
		w.server.takesBack[kind] = !w.server.takesBack[kind]
		w.note("a policy takes back what controllers write into %v: %t", kind, w.server.takesBack[kind])
	}
	if patch != nil {
		err := w.server.patch("user", kind, name, false, patch)
		w.note("user: patch %v %s %s: %v", kind, name, shell.Encode(patch), err)
	}
}
