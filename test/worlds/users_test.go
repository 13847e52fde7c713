package worlds

import (
	"fmt"
	"maps"
	"math/rand"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// All methods of this file are called with the lock held.

func pickOf[T any](rng *rand.Rand, all ...T) T { return all[rng.Intn(len(all))] }

// any returns the name of an object; empty if there is none.
func (s *server) any(resource string) string {
	names := slices.Sorted(maps.Keys(s.objects[resource]))
	if len(names) == 0 {
		return ""
	}
	return pickOf(s.rng, names...)
}

func (s *server) randomNode(name string) object {
	var labels []string
	for _, l := range []string{"a", "b", "c"} {
		if s.rng.Intn(2) == 0 {
			labels = append(labels, fmt.Sprintf("%s=%d", l, s.rng.Intn(2)))
		}
	}
	o := newNode(name, labels...)
	if s.rng.Intn(8) == 0 {
		meta(o)["finalizers"] = []any{"example.com/hold"}
	}
	return o
}

func (s *server) randomPool(name string) object {
	spec := object{"perNodeHostBits": 4 + s.rng.Intn(2), "allocation": "Enabled"}
	families := s.rng.Intn(4)
	if families < 2 {
		spec["ipv6"] = pickOf(s.rng, "fd00::/120", "fd00::/121", "fd00::80/121", "fd00::40/122")
	}
	if families > 0 {
		spec["ipv4"] = pickOf(s.rng, "10.0.0.0/25", "10.0.0.0/26", "10.0.0.64/26", "10.0.0.0/24", "10.0.0.128/25", "10.0.0.32/27")
	}
	if s.rng.Intn(2) == 0 {
		spec["nodeSelector"] = object{"nodeSelectorTerms": []any{
			object{"matchExpressions": []any{s.randomRequirement()}},
			object{"matchExpressions": []any{s.randomRequirement(), s.randomRequirement()}},
		}[:1+s.rng.Intn(2)]}
	}
	if s.rng.Intn(3) == 0 {
		spec["priority"] = s.rng.Intn(3) - 1
	}
	return object{"metadata": object{"name": name}, "spec": spec}
}

func (s *server) randomRequirement() object {
	r := object{"key": pickOf(s.rng, "a", "b", "c"), "operator": pickOf(s.rng, "In", "NotIn", "Exists", "DoesNotExist")}
	if operator := r["operator"]; operator == "In" || operator == "NotIn" {
		r["values"] = []any{fmt.Sprint(s.rng.Intn(2))}
	}
	return r
}

func (s *server) randomBlock() string {
	address := netip.AddrFrom4([4]byte{10, 0, 0, byte(s.rng.Intn(256))})
	return netip.PrefixFrom(address, pickOf(s.rng, 28, 28, 28, 27, 26)).Masked().String()
}

// taken reports whether a Node has addresses of a prefix.
func (s *server) taken(prefix string) bool {
	p := netip.MustParsePrefix(prefix)
	for name := range s.objects[nodes] {
		if slices.ContainsFunc(s.podCIDRs(name), func(b string) bool { return p.Overlaps(netip.MustParsePrefix(b)) }) {
			return true
		}
	}
	return false
}

func (s *server) users() {
	switch n := s.rng.Intn(100); {
	case n < 66:
		s.nodeUsers(n)
	case n < 92:
		s.poolUsers(n)
	case n < 96:
		name := fmt.Sprintf("s%d", s.rng.Intn(2))
		s.create(request{resource: serviceCIDRs, body: encode(object{"metadata": object{"name": name}, "spec": object{"cidrs": []any{s.randomBlock()}}})}, write{by: user})
	default:
		if name := s.any(serviceCIDRs); name != "" {
			s.remove(serviceCIDRs, name, write{by: user})
		}
	}
}

func (s *server) nodeUsers(n int) {
	create := func(o object) { s.create(request{resource: nodes, body: encode(o)}, write{by: user}) }
	name := s.any(nodes)
	switch {
	case n < 35:
		if len(s.objects[nodes]) < 22 {
			create(s.randomNode(fmt.Sprintf("n%d", s.rng.Intn(24))))
		}
	case n < 38: // somebody else's
		if block := s.randomBlock(); !s.taken(block) {
			o := s.randomNode(fmt.Sprintf("other%d", s.rng.Intn(5)))
			all := []any{block}
			if block6 := fmt.Sprintf("fd00::%x0/124", s.rng.Intn(16)); s.rng.Intn(3) == 0 && !s.taken(block6) {
				all = append(all, block6)
			}
			o["spec"] = object{"podCIDR": block, "podCIDRs": all}
			create(o)
		}
	case name == "":
	case n < 52:
		s.remove(nodes, name, write{by: user})
		if s.rng.Intn(5) == 0 { // its machine registers again at once
			create(s.randomNode(name))
		}
	case n < 56: // the kubelet
		s.change(nodes, name, func(o object) { o["status"] = object{"heartbeat": time.Now().String()} })
	case n < 60:
		s.change(nodes, name, func(o object) { meta(o)["labels"] = meta(s.randomNode(name))["labels"] })
	default:
		s.change(nodes, name, func(o object) { delete(meta(o), "finalizers") })
	}
}

func (s *server) poolUsers(n int) {
	create := func(name string) {
		s.create(request{resource: clusterCIDRs, body: encode(s.randomPool(name))}, write{by: user})
	}
	name := s.any(clusterCIDRs)
	switch {
	case n < 74:
		if len(s.objects[clusterCIDRs]) < 7 {
			create(fmt.Sprintf("c%d", s.rng.Intn(8)))
		}
	case name == "" || s.objects[clusterCIDRs][name] == nil:
	case n < 78:
		s.remove(clusterCIDRs, name, write{by: user})
		if s.objects[clusterCIDRs][name] == nil && s.rng.Intn(2) == 0 {
			create(name)
		}
	default:
		s.change(clusterCIDRs, name, func(o object) {
			spec := o["spec"].(object)
			switch s.rng.Intn(3) {
			case 0:
				if strings.HasPrefix(name, "created-from-flags-") {
					return // Whether it is superseded as well, only its maker knows.
				}
				spec["allocation"] = pickOf(s.rng, "Enabled", "Disabled", "Enabled")
			case 1:
				spec["priority"] = float64(s.rng.Intn(3) - 1)
			case 2:
				spec["excludedCIDRs"] = s.randomExclusions(text(spec, "ipv4"))
			}
		})
	}
}

func (s *server) randomExclusions(ipv4 string) (all []any) {
	for range s.rng.Intn(3) {
		if block := s.randomBlock(); ipv4 != "" && netip.MustParsePrefix(ipv4).Overlaps(netip.MustParsePrefix(block)) {
			all = append(all, block)
		}
	}
	return all
}

// randomFault is what happens to a request of a process.
func (s *server) randomFault(l *link, r request, perMille int) (f fault) {
	if s.noise.Intn(1000) >= perMille {
		return f
	}
	if r.method == http.MethodGet {
		if f.refused = pickOf(s.noise, 429, 500, 503, 403, 404); f.refused == http.StatusNotFound {
			f.text = "default backend - 404" // of a proxy
		}
		return f
	}
	switch kind := s.noise.Intn(9); {
	case kind == 0:
		f.lost, f.reset = true, s.noise.Intn(2) == 0
	case kind == 1:
		f.silent = true
	case kind == 2:
		f.reset = true
	case kind == 3:
		f.slow = time.Duration(s.noise.Intn(5500)) * time.Millisecond
	case kind == 4:
		f.answered = pickOf(s.noise, 500, 504)
	case kind == 5:
		f.twice = true
	case r.resource == leases:
	case kind == 6:
		f.refused = pickOf(s.noise, 429, 500, 503)
	case kind == 7:
		f.refused = pickOf(s.noise, 403, 422)
	default:
		f.late = time.Duration(s.noise.Int63n(int64(l.lateAtMost()) + 1))
	}
	return f
}

// trouble begins some that ends by itself.
func (w *world) trouble(r *replica) {
	most := pickOf(w.rng, 3*time.Second, 3*time.Second, 20*time.Second, 20*time.Second, 2*time.Minute)
	d := time.Duration(w.rng.Int63n(int64(most)))
	resource := pickOf(w.rng, nodes, clusterCIDRs, serviceCIDRs)
	note := func(format string, args ...any) {
		w.judge.logf("TROUBLE of %s for %v: %s", r.process, d, fmt.Sprintf(format, args...))
	}
	switch w.rng.Intn(10) {
	case 0:
		note("connections are refused")
		w.refuse(r.link, d)
	case 1:
		note("the API server's machine is off")
		w.off(r.link, d)
	case 2:
		note("the API server of all is off")
		for _, r := range w.replicas {
			w.off(r.link, d)
		}
	case 3:
		note("watches of %s are cut", resource)
		w.cutStreams(func(s *stream) bool { return s.resource == resource })
	case 4:
		note("old versions are gone, and watches are cut")
		w.compacted = w.revision
		w.cutStreams(func(*stream) bool { return true })
	case 5:
		w.lag[resource] = min(d, 5*time.Second)
		note("%s come %v late", resource, w.lag[resource])
	case 6:
		note("it does not run")
		r.stopped = time.Now().Add(d)
	case 7:
		note("answers are slow")
		until, l := time.Now().Add(d), r.link
		l.slow = func() time.Duration {
			if time.Now().After(until) {
				return 0
			}
			return time.Duration(w.noise.Intn(6000)) * time.Millisecond
		}
	case 8:
		r.ahead += d
		note("its clock was set forward")
	case 9:
		until, drops, which := time.Now().Add(d), w.rng.Intn(2) == 0, w.any(nodes)
		note("a policy about podCIDRs of %s drops=%t", which, drops)
		w.admit = func(resource, name string, after object, by string) *metav1.Status {
			if resource != nodes || by == user || time.Now().After(until) || !drops && name != which {
				return nil
			}
			if !drops {
				return failed(http.StatusForbidden, "admission webhook denied the request")
			}
			if had := w.podCIDRs(name); len(had) == 0 {
				after["spec"] = object{}
			}
			return nil
		}
	}
}
