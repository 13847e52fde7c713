package worlds

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// object is an API object as JSON has it.
type object = map[string]any

const (
	nodes        = "nodes"
	clusterCIDRs = "clustercidrs"
	serviceCIDRs = "servicecidrs"
	leases       = "leases"
)

var kinds = map[string]schema.GroupVersionKind{
	nodes:        {Version: "v1", Kind: "Node"},
	clusterCIDRs: {Group: "networking.x-k8s.io", Version: "v1", Kind: "ClusterCIDR"},
	serviceCIDRs: {Group: "networking.k8s.io", Version: "v1", Kind: "ServiceCIDR"},
	leases:       {Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
}

// change is one revision of one object.
type change struct {
	revision int64
	at       time.Time
	event    string // as in a watch
	name     string
	json     []byte
}

// write is who writes, and what its watches had shown by then.
type write struct {
	by string
	// asOf: everything that happened before was shown to the writer before it decided. Zero: not known.
	asOf time.Time
}

// server is etcd and its API servers.
type server struct {
	judge *judge

	mu        sync.Mutex
	rng       *rand.Rand // for what the test decides
	noise     *rand.Rand // for what comes with requests, whose order no seed decides
	revision  int64
	compacted int64 // older revisions are gone
	uids      int
	objects   map[string]map[string]object // by resource and name
	log       map[string][]change          // by resource
	changed   chan struct{}                // closed at the next change
	streams   map[*stream]bool
	// lag is how much later watches and caches show a change, by resource.
	lag map[string]time.Duration
	// watchLists: watches can begin with a list.
	watchLists bool
	// bookmarks is how often a watch gets one; 0: never.
	bookmarks time.Duration
	// watchesLast is how long the next watch lasts; nil: as long as the client wishes.
	watchesLast func() time.Duration
	// listsTake is how long a list takes; nil: no time.
	listsTake func() time.Duration
	// admit is a webhook or a policy. It may change after, or refuse it.
	admit func(resource, name string, after object, by string) *metav1.Status
	// writes counts what was stored, by resource, and patches what came for each Node.
	writes, patches map[string]int
	told            []string // events
}

func newServer(seed uint64, j *judge) *server {
	return &server{
		judge: j, rng: rand.New(rand.NewSource(int64(seed))), noise: rand.New(rand.NewSource(-int64(seed))), revision: 100, objects: map[string]map[string]object{}, log: map[string][]change{},
		changed: make(chan struct{}), streams: map[*stream]bool{}, lag: map[string]time.Duration{}, watchLists: true, bookmarks: time.Minute,
		writes: map[string]int{}, patches: map[string]int{},
	}
}

// do calls f with the lock held.
func (s *server) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// random returns a number below n.
func (s *server) random(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.Intn(n)
}

func meta(o object) object { return o["metadata"].(object) }

// field returns a nested field; nil if there is none.
func field(o object, path ...string) any {
	for _, p := range path[:len(path)-1] {
		o, _ = o[p].(object)
	}
	return o[path[len(path)-1]]
}

func text(o object, path ...string) string {
	s, _ := field(o, path...).(string)
	return s
}

func list(v any) (all []string) {
	items, _ := v.([]any)
	for _, item := range items {
		all = append(all, item.(string))
	}
	return all
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func decode[T any](b []byte) (v T) {
	if err := json.Unmarshal(b, &v); err != nil {
		panic(fmt.Sprintf("%v: %s", err, b))
	}
	return v
}

func clone(o object) object { return decode[object](encode(o)) }

// put stores an object. An object that is being deleted and has no finalizer goes. The caller holds the lock.
func (s *server) put(resource, name string, o object, w write) object {
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]object{}
	}
	before := s.objects[resource][name]
	s.revision++
	m := meta(o)
	o["kind"], o["apiVersion"] = kinds[resource].Kind, kinds[resource].GroupVersion().String()
	m["name"], m["resourceVersion"] = name, strconv.FormatInt(s.revision, 10)
	c := change{revision: s.revision, at: time.Now(), event: "MODIFIED", name: name}
	if before == nil {
		c.event = "ADDED"
		s.uids++
		m["uid"], m["generation"] = fmt.Sprintf("uid-%d", s.uids), 1
		m["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	} else if generation, ok := m["generation"].(float64); ok && resource == clusterCIDRs &&
		(string(encode(before["spec"])) != string(encode(o["spec"])) || meta(before)["deletionTimestamp"] != m["deletionTimestamp"]) {
		m["generation"] = generation + 1
	}
	c.json = encode(o)
	o = decode[object](c.json)
	s.objects[resource][name] = o
	if m["deletionTimestamp"] != nil && len(list(meta(o)["finalizers"])) == 0 {
		c.event = "DELETED"
		delete(s.objects[resource], name)
	}
	s.log[resource] = append(s.log[resource], c)
	s.writes[resource]++
	s.judge.stored(resource, c, before, w)
	close(s.changed)
	s.changed = make(chan struct{})
	return o
}

// remove deletes an object, or begins to. The caller holds the lock.
func (s *server) remove(resource, name string, w write) {
	o := clone(s.objects[resource][name])
	if meta(o)["deletionTimestamp"] == nil {
		meta(o)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	}
	s.put(resource, name, o, w)
}

// visible returns the revision that watches and caches show. The caller holds the lock.
func (s *server) visible(resource string) int64 {
	revision := s.revision
	for _, c := range slices.Backward(s.log[resource]) {
		if time.Since(c.at) >= s.lag[resource] {
			break
		}
		revision = c.revision - 1
	}
	return revision
}

// after returns the index in the log of the first change after a revision. The caller holds the lock.
func (s *server) after(resource string, revision int64) int {
	log := s.log[resource]
	return sort.Search(len(log), func(i int) bool { return log[i].revision > revision })
}

// at returns all objects as of a revision, sorted by name. The caller holds the lock.
func (s *server) at(resource string, revision int64) []change {
	all := map[string]change{}
	for _, c := range s.log[resource] {
		switch {
		case c.revision > revision:
		case c.event == "DELETED":
			delete(all, c.name)
		default:
			all[c.name] = c
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b change) int { return strings.Compare(a.name, b.name) })
}

// request is a request that is neither a watch nor about discovery.
type request struct {
	method, resource, name, subresource string
	query                               url.Values
	contentType                         string
	body                                []byte
}

// parse reads a path such as /apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE.
func parse(r *http.Request, body []byte) request {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if parts[0] == "api" {
		parts = parts[2:]
	} else {
		parts = parts[min(3, len(parts)):]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	parts = append(parts, "", "", "")
	return request{r.Method, parts[0], parts[1], parts[2], r.URL.Query(), r.Header.Get("Content-Type"), body}
}

func failed(code int, format string, args ...any) *metav1.Status {
	status := &apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", "", 0, false).ErrStatus
	if code == http.StatusGone {
		status = &apierrors.NewResourceExpired("").ErrStatus
	}
	status.TypeMeta, status.Message = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, fmt.Sprintf(format, args...)
	return status
}

// serve carries out a request. It returns the HTTP status code and the body.
func (s *server) serve(r request, w write) (int, []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.resource == "events" {
		s.writes["events"]++
		e := decode[object](r.body)
		s.told = append(s.told, text(e, "involvedObject", "name")+": "+text(e, "reason")+": "+text(e, "message"))
		return http.StatusCreated, r.body
	}
	answer, status := s.carryOut(r, w)
	if status != nil {
		return int(status.Code), encode(status)
	}
	return http.StatusOK, encode(answer)
}

func (s *server) carryOut(r request, w write) (answer any, status *metav1.Status) {
	o, exists := s.objects[r.resource][r.name]
	switch {
	case kinds[r.resource].Kind == "":
		return nil, failed(http.StatusNotFound, "there is no resource %q", r.resource)
	case r.method == http.MethodGet && r.name == "":
		return s.list(r)
	case r.method == http.MethodPost:
		return s.create(r, w)
	case !exists:
		return nil, failed(http.StatusNotFound, "%s %q not found", r.resource, r.name)
	case r.method == http.MethodGet:
		return o, nil
	case r.method == http.MethodPut:
		after := decode[object](r.body)
		if text(after, "metadata", "resourceVersion") != text(o, "metadata", "resourceVersion") {
			return nil, failed(http.StatusConflict, "the object has been modified")
		}
		meta(after)["uid"], meta(after)["creationTimestamp"] = meta(o)["uid"], meta(o)["creationTimestamp"]
		return s.put(r.resource, r.name, after, w), nil
	case r.method == http.MethodDelete:
		for _, precondition := range []string{"uid", "resourceVersion"} {
			if want := text(decode[object](r.body), "preconditions", precondition); want != "" && want != text(o, "metadata", precondition) {
				return nil, failed(http.StatusConflict, "Precondition failed: %s", precondition)
			}
		}
		s.remove(r.resource, r.name, w)
		return o, nil
	case r.method == http.MethodPatch:
		return s.patch(r, clone(o), w)
	}
	return nil, failed(http.StatusMethodNotAllowed, "%s", r.method)
}

func (s *server) create(r request, w write) (any, *metav1.Status) {
	o := decode[object](r.body)
	name := text(o, "metadata", "name")
	if s.objects[r.resource][name] != nil {
		status := failed(http.StatusConflict, "%s %q already exists", r.resource, name)
		status.Reason = metav1.StatusReasonAlreadyExists
		return nil, status
	}
	return s.put(r.resource, name, o, w), nil
}

// patch carries out a strategic merge patch of a Node, a merge patch, or a server-side apply of a status.
func (s *server) patch(r request, o object, w write) (any, *metav1.Status) {
	before := s.objects[r.resource][r.name]
	patch := decode[object](r.body)
	for _, precondition := range []string{"uid", "resourceVersion"} {
		if want := text(patch, "metadata", precondition); want != "" && want != text(o, "metadata", precondition) {
			return nil, failed(http.StatusConflict, "Precondition failed: %s is %s, not %s", precondition, text(o, "metadata", precondition), want)
		}
	}
	after := o
	switch {
	case r.subresource == "status" && r.contentType == string(types.ApplyYAMLPatchType):
		// The controller is the only manager of it.
		after["status"] = patch["status"]
		meta(after)["managedFields"] = []any{object{
			"manager": r.query.Get("fieldManager"), "operation": "Apply", "subresource": "status", "apiVersion": kinds[r.resource].GroupVersion().String(),
			"fieldsType": "FieldsV1", "fieldsV1": object{"f:status": object{"f:conditions": object{}}},
		}}
	case r.contentType == string(types.StrategicMergePatchType):
		merged, err := strategicpatch.StrategicMergePatch(encode(o), r.body, corev1.Node{})
		if err != nil {
			return nil, failed(http.StatusBadRequest, "%v", err)
		}
		after = decode[object](merged)
	case r.contentType == string(types.MergePatchType):
		merge(after, patch)
	default:
		return nil, failed(http.StatusUnsupportedMediaType, "%s of %s", r.contentType, r.subresource)
	}
	for _, fixed := range []string{"uid", "resourceVersion"} {
		meta(after)[fixed] = meta(before)[fixed]
	}
	if s.admit != nil && r.subresource == "" {
		if refusal := s.admit(r.resource, r.name, after, w.by); refusal != nil {
			return nil, refusal
		}
	}
	if had := list(field(before, "spec", "podCIDRs")); len(had) > 0 && !slices.Equal(had, list(field(after, "spec", "podCIDRs"))) {
		return nil, failed(http.StatusUnprocessableEntity, "spec.podCIDRs: Forbidden: may not change from %v", had)
	}
	for _, f := range list(meta(after)["finalizers"]) {
		if meta(before)["deletionTimestamp"] != nil && !slices.Contains(list(meta(before)["finalizers"]), f) {
			return nil, failed(http.StatusUnprocessableEntity, "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted")
		}
	}
	if string(encode(before)) == string(encode(after)) {
		return before, nil
	}
	return s.put(r.resource, r.name, after, w), nil
}

// merge carries out a merge patch (RFC 7386).
func merge(o, patch object) {
	for k, v := range patch {
		inner, isObject := v.(object)
		switch {
		case v == nil:
			delete(o, k)
		case isObject:
			if _, has := o[k].(object); !has {
				o[k] = object{}
			}
			merge(o[k].(object), inner)
		default:
			o[k] = v
		}
	}
}

// pageSize is the most that a page has, so that there are several.
const pageSize = 500

// list answers consistently, from a cache that lags (resourceVersion=0), or not older than a version.
func (s *server) list(r request) (any, *metav1.Status) {
	revision, after := s.revision, ""
	limit, _ := strconv.Atoi(r.query.Get("limit"))
	if limit > 0 {
		limit = min(limit, pageSize)
	}
	version := r.query.Get("resourceVersion")
	switch token := r.query.Get("continue"); {
	case token != "":
		of, name, _ := strings.Cut(token, ":")
		revision, _ = strconv.ParseInt(of, 10, 64)
		after = name
		if revision < s.compacted {
			return nil, failed(http.StatusGone, "The provided continue parameter is too old")
		}
	case version != "":
		atLeast, _ := strconv.ParseInt(version, 10, 64)
		if atLeast > s.revision {
			status := failed(http.StatusGatewayTimeout, "Too large resource version")
			status.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
			return nil, status
		}
		revision, limit = max(atLeast, s.visible(r.resource)), 0
	}
	items, next := []json.RawMessage{}, ""
	only, one := strings.CutPrefix(r.query.Get("fieldSelector"), "metadata.name=")
	for _, c := range s.at(r.resource, revision) {
		if c.name <= after || one && c.name != only {
			continue
		}
		if limit > 0 && len(items) == limit {
			next = fmt.Sprintf("%d:%s", revision, after)
			break
		}
		items, after = append(items, c.json), c.name
	}
	kind := kinds[r.resource]
	return object{
		"kind": kind.Kind + "List", "apiVersion": kind.GroupVersion().String(), "items": items,
		"metadata": object{"resourceVersion": strconv.FormatInt(revision, 10), "continue": next},
	}, nil
}

// holder returns the holder of a Lease and how long it is still good, from when the holder took the time of its last renewal.
func (s *server) holder(lease string) (identity string, left time.Duration) {
	o := s.objects[leases][lease]
	renewed, err := time.Parse(time.RFC3339Nano, text(o, "spec", "renewTime"))
	if err != nil {
		return "", 0
	}
	seconds, _ := field(o, "spec", "leaseDurationSeconds").(float64)
	return text(o, "spec", "holderIdentity"), time.Until(renewed.Add(time.Duration(seconds) * time.Second))
}

// podCIDRs returns those of a Node; none if there is no such Node. The caller holds the lock.
func (s *server) podCIDRs(node string) []string {
	return list(field(s.objects[nodes][node], "spec", "podCIDRs"))
}

func finalized(o object) bool {
	return slices.Contains(list(field(o, "metadata", "finalizers")), networkingv1.Finalizer)
}
