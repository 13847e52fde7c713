package wapitest

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Grid is what an Infoblox keeps, and what it does when it is asked. It knows no connections; Server gives it some.
type Grid struct {
	// NetworkViews and DNSViews exist.
	NetworkViews, DNSViews []string
	// Networks exist, by network view.
	Networks map[string][]netip.Prefix
	// Zones exist, by DNS view.
	Zones map[string][]string
	// Reserved addresses are not given, as if a fixed address kept them.
	Reserved map[netip.Addr]bool

	hosts map[string]object // by reference
}

// object is an object of WAPI as JSON.
type object = map[string]any

// NewGrid returns an Infoblox with its default views, and with networks in the default network view.
func NewGrid(networks ...string) *Grid {
	g := &Grid{NetworkViews: []string{"default"}, DNSViews: []string{"default"}, Networks: map[string][]netip.Prefix{}, Zones: map[string][]string{}, Reserved: map[netip.Addr]bool{}, hosts: map[string]object{}}
	for _, n := range networks {
		g.Networks["default"] = append(g.Networks["default"], netip.MustParsePrefix(n))
	}
	return g
}

// refused is an answer that is an error.
type refused struct {
	Status int    `json:"-"`
	Error  string `json:"Error"`
	Code   string `json:"code"`
	Text   string `json:"text"`
}

func refuse(status int, class, code, format string, args ...any) *refused {
	text := fmt.Sprintf(format, args...)
	return &refused{status, fmt.Sprintf("%s: %s", class, text), code, text}
}

func duplicate(name string) *refused {
	return refuse(http.StatusBadRequest, "AdmConDataError: None (IBDataConflictError: IB.Data.Conflict)", "Client.Ibap.Data.Conflict", "The record '%s' already exists.", name)
}

func full() *refused {
	return refuse(http.StatusBadRequest, "AdmConDataError: None (IBDataError: IB.Data)", "Client.Ibap.Data", "Cannot find 1 available IP address(es) in this network.")
}

func notFound(what string) *refused {
	return refuse(http.StatusNotFound, "AdmConDataNotFoundError", "Client.Ibap.Data.NotFound", "Reference %s not found", what)
}

// Do carries out one request. path is below the version: a kind of object, or a reference.
func (g *Grid) Do(method, path string, query url.Values, body []byte) (status int, answer any) {
	kind, _, isRef := strings.Cut(path, "/")
	var sent object
	_ = json.Unmarshal(body, &sent) // What is no JSON lacks everything.
	var err *refused
	switch status = http.StatusOK; {
	case method == http.MethodGet && !isRef:
		answer, err = g.search(kind, query)
	case kind != "record:host":
		err = refuse(http.StatusBadRequest, "AdmConProtoError", "Client.Ibap.Proto", "Unknown object type (%s)", kind)
	case method == http.MethodPost && !isRef:
		status = http.StatusCreated
		answer, err = g.create(sent)
	case g.hosts[path] == nil:
		err = notFound(path)
	case method == http.MethodGet:
		answer = shown(g.hosts[path], query.Get("_return_fields"))
	case method == http.MethodPut:
		answer, err = g.update(path, sent)
	case method == http.MethodDelete:
		delete(g.hosts, path)
		answer = path
	}
	if err != nil {
		return err.Status, err
	}
	return status, answer
}

// search answers with the objects that have the values that were asked for.
func (g *Grid) search(kind string, query url.Values) (found []object, _ *refused) {
	all, ok := g.objects(kind)
	if !ok {
		return nil, refuse(http.StatusBadRequest, "AdmConProtoError", "Client.Ibap.Proto", "Unknown object type (%s)", kind)
	}
	found = []object{}
	for _, o := range all {
		if matches(o, query) {
			found = append(found, shown(o, query.Get("_return_fields")))
		}
	}
	return found, nil
}

// objects returns all objects of a kind.
func (g *Grid) objects(kind string) (all []object, ok bool) {
	switch kind {
	case "networkview":
		for _, name := range g.NetworkViews {
			all = append(all, object{"_ref": "networkview/" + name + ":" + name + "/true", "name": name})
		}
	case "view":
		for _, name := range g.DNSViews {
			all = append(all, object{"_ref": "view/" + name + ":" + name + "/true", "name": name})
		}
	case "network", "ipv6network":
		for _, view := range slices.Sorted(maps.Keys(g.Networks)) {
			for _, n := range g.Networks[view] {
				if n.Addr().Is4() == (kind == "network") {
					all = append(all, object{"_ref": fmt.Sprintf("%s/%s:%s/%s", kind, n, n, view), "network": n.String(), "network_view": view})
				}
			}
		}
	case "record:host":
		for _, ref := range slices.Sorted(maps.Keys(g.hosts)) {
			all = append(all, g.hosts[ref])
		}
	default:
		return nil, false
	}
	return all, true
}

func matches(o object, query url.Values) bool {
	for field, values := range query {
		switch {
		case strings.HasPrefix(field, "_"): // for example _proxy_search=GM: there is only this one
		case field == "ipv4addr", field == "ipv6addr":
			if !slices.ContainsFunc(addressesOf(o, field), func(a object) bool { return a[field] == values[0] }) {
				return false
			}
		case o[field] != values[0]:
			return false
		}
	}
	return true
}

// shown is an object with the fields that were asked for, or those of which WAPI says that they are shown by default.
func shown(o object, fields string) object {
	s := object{"_ref": o["_ref"]}
	for field := range strings.SplitSeq(cmp.Or(fields, "name,network,network_view,view,ipv4addrs,ipv6addrs"), ",") {
		if v, ok := o[field]; ok && v != "" {
			s[field] = v
		}
	}
	return s
}

func (g *Grid) create(sent object) (ref string, _ *refused) {
	h := maps.Clone(sent)
	for field, value := range map[string]any{"network_view": "default", "configure_for_dns": true, "comment": ""} {
		if h[field] == nil {
			h[field] = value
		}
	}
	name, _ := h["name"].(string)
	networkView, _ := h["network_view"].(string)
	if h["configure_for_dns"] == true {
		view, _ := h["view"].(string)
		h["view"] = cmp.Or(view, "default")
		zone, ok := g.zoneOf(name, h["view"].(string))
		if !ok {
			return "", refuse(http.StatusBadRequest, "AdmConDataError: None (IBDataError: IB.Data)", "Client.Ibap.Data", "The action is not allowed. A parent was not found.")
		}
		h["zone"] = zone
	} else {
		h["view"] = " "
	}
	if name == "" || len(name) > 255 || len(h["comment"].(string)) > 256 {
		return "", refuse(http.StatusBadRequest, "AdmConProtoError", "Client.Ibap.Proto", "Invalid value for field name or comment")
	}
	if g.has(name, h["view"], networkView) {
		return "", duplicate(name)
	}
	if err := g.place(h); err != nil {
		return "", err
	}
	return g.keep(h), nil
}

// keep keeps a host record. As in Infoblox, a record of the same name that is made later has the same reference: a DELETE that comes late finds it.
func (g *Grid) keep(h object) (ref string) {
	name, view := h["name"].(string), h["view"].(string)
	id := base64.RawURLEncoding.EncodeToString([]byte("dns.host$." + view + "." + h["network_view"].(string) + "." + name))
	ref = fmt.Sprintf("record:host/%s:%s/%s", id, url.PathEscape(name), strings.ReplaceAll(view, " ", "%20"))
	h["_ref"] = ref
	g.hosts[ref] = h
	return ref
}

// has reports whether there is a host record of this name: in a DNS view, or, without one, in a network view.
func (g *Grid) has(name string, view, networkView any) bool {
	for _, other := range g.hosts {
		if other["name"] == name && other["view"] == view && (view != " " || other["network_view"] == networkView) {
			return true
		}
	}
	return false
}

func (g *Grid) zoneOf(name, view string) (string, bool) {
	for _, zone := range g.Zones[view] {
		if strings.HasSuffix(name, "."+zone) {
			return zone, true
		}
	}
	return "", false
}

func (g *Grid) update(ref string, sent object) (string, *refused) {
	_, zone := sent["zone"]
	_, networkView := sent["network_view"]
	host := func(a object) bool { return a["host"] != nil }
	if zone || networkView || slices.ContainsFunc(slices.Concat(addressesOf(sent, "ipv4addr"), addressesOf(sent, "ipv6addr")), host) {
		return "", refuse(http.StatusBadRequest, "AdmConProtoError", "Client.Ibap.Proto", "Field is not writable: zone, network_view or host")
	}
	h := maps.Clone(g.hosts[ref])
	if name, ok := sent["name"].(string); ok && name != h["name"] && g.has(name, h["view"], h["network_view"]) {
		return "", duplicate(name)
	}
	maps.Copy(h, sent)
	if err := g.place(h); err != nil {
		return "", err
	}
	if h["name"] == g.hosts[ref]["name"] { // Its network view may have another name by now, and its reference the former one.
		g.hosts[ref] = h
		return ref, nil
	}
	delete(g.hosts, ref)
	return g.keep(h), nil
}

var nextAvailable = regexp.MustCompile(`^func:nextavailableip:([^,]+),(.+)$`)

// place writes addresses into a host record where it asks for the next free one.
func (g *Grid) place(h object) *refused {
	used := maps.Clone(g.Reserved)
	for _, other := range append(slices.Collect(maps.Values(g.hosts)), h) {
		for _, a := range g.addresses(other, h["network_view"]) {
			used[a] = true
		}
	}
	total := 0
	for _, field := range []string{"ipv4addr", "ipv6addr"} {
		var placed []any
		for _, a := range addressesOf(h, field) {
			address, err := g.choose(a[field], used)
			if err != nil {
				return err
			}
			a = maps.Clone(a)
			a[field], a["host"] = address, h["name"]
			placed = append(placed, a)
		}
		h[field+"s"] = placed
		if total += len(placed); placed == nil {
			delete(h, field+"s")
		}
	}
	if total == 0 {
		return refuse(http.StatusBadRequest, "AdmConDataError: None (IBDataError: IB.Data)", "Client.Ibap.Data", "A host record must have at least one address.")
	}
	return nil
}

// choose returns an address that was asked for, or the next free one.
func (g *Grid) choose(asked any, used map[netip.Addr]bool) (string, *refused) {
	network, view, exclude, isNext := function(asked)
	if !isNext {
		text, _ := asked.(string)
		if _, err := netip.ParseAddr(text); err != nil {
			return "", refuse(http.StatusBadRequest, "AdmConProtoError", "Client.Ibap.Proto", "Invalid address: %q", text)
		}
		return text, nil
	}
	of, err := netip.ParsePrefix(network)
	if err != nil || !slices.Contains(g.Networks[view], of) {
		return "", notFound("network " + network)
	}
	taken := maps.Clone(used)
	for _, a := range exclude {
		taken[a] = true
	}
	address, ok := next(of, taken)
	if !ok {
		return "", full()
	}
	used[address] = true
	return address.String(), nil
}

// function reads both forms of the function that returns the next free address. Only the second one can exclude addresses.
func function(asked any) (network, view string, exclude []netip.Addr, ok bool) {
	switch asked := asked.(type) {
	case string:
		if m := nextAvailable.FindStringSubmatch(asked); m != nil {
			return m[1], m[2], nil, true
		}
	case object:
		parameters, _ := asked["_parameters"].(object)
		of, _ := asked["_object_parameters"].(object)
		network, _ = of["network"].(string)
		view, _ = of["network_view"].(string)
		list, _ := parameters["exclude"].([]any)
		for _, e := range list {
			text, _ := e.(string)
			if a, err := netip.ParseAddr(text); err == nil {
				exclude = append(exclude, a)
			}
		}
		kind, _ := asked["_object"].(string)
		rightKind := (kind == "network") == !strings.Contains(network, ":")
		return network, view, exclude, asked["_object_function"] == "next_available_ip" && asked["_result_field"] == "ips" && rightKind
	}
	return "", "", nil, false
}

// next returns the lowest free address of a network that a host may have.
func next(network netip.Prefix, used map[netip.Addr]bool) (netip.Addr, bool) {
	small := network.Bits() >= network.Addr().BitLen()-1
	for a := network.Addr(); network.Contains(a); a = a.Next() {
		reserved := a == network.Addr() || a.Is4() && !network.Contains(a.Next())
		if !used[a] && (small || !reserved) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// addressesOf returns the addresses of a family as they are in an object.
func addressesOf(h object, field string) (all []object) {
	list, _ := h[field+"s"].([]any)
	for _, a := range list {
		if a, ok := a.(object); ok {
			all = append(all, a)
		}
	}
	return all
}

func (g *Grid) addresses(h object, networkView any) (all []netip.Addr) {
	if h["network_view"] != networkView {
		return nil
	}
	for _, field := range []string{"ipv4addr", "ipv6addr"} {
		for _, a := range addressesOf(h, field) {
			text, _ := a[field].(string)
			if address, err := netip.ParseAddr(text); err == nil {
				all = append(all, address)
			}
		}
	}
	return all
}

// Host is a stored host record as a test looks at it.
type Host struct {
	Name, NetworkView, Comment string
	Addresses                  []netip.Addr
}

// Hosts returns all host records, by name and network view.
func (g *Grid) Hosts() (all []Host) {
	for _, h := range g.hosts {
		all = append(all, Host{h["name"].(string), h["network_view"].(string), h["comment"].(string), g.addresses(h, h["network_view"])})
	}
	slices.SortFunc(all, func(a, b Host) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.NetworkView, b.NetworkView))
	})
	return all
}
