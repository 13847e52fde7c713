package beside_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

type object = map[string]any

type logged struct {
	rev  int64
	at   time.Time
	typ  string
	name string
	obj  []byte // as JSON, with this resource version
}

// store is etcd with API servers.
type store struct {
	mu        sync.Mutex
	rng       *rand.Rand
	rev       int64
	uids      int
	compacted int64
	now       map[string]map[string]object // by resource, name
	log       map[string][]logged
	changed   chan struct{} // closed at each change
	judge     func(res, name string, before, after object, by string, sent time.Time)
	down      time.Time // until then nothing answers
	lag       map[string]time.Duration
	conns     map[*conn]bool
	hang      map[string]time.Time // by resource: watch requests hang until then
	refuse    map[string]refusal   // by process+resource
	late      bool                 // a PATCH of a Node is on its way for long
	absent    map[string]time.Time // until then there is no such resource
	patchFail func() string        // "", "lost", "late", "refuse", "5xx", "drop", "panic"
	noChunk   bool
	noWL      bool
	firstSent map[string]time.Time
}

type refusal struct {
	until time.Time
	code  int
}

type conn struct {
	res, proc string
	cut       chan struct{}
	once      sync.Once
}

func newStore(rng *rand.Rand) *store {
	return &store{rng: rng, rev: 100, now: map[string]map[string]object{}, log: map[string][]logged{}, changed: make(chan struct{}),
		lag: map[string]time.Duration{}, conns: map[*conn]bool{}, hang: map[string]time.Time{}, refuse: map[string]refusal{}, absent: map[string]time.Time{}, firstSent: map[string]time.Time{}}
}

func (s *store) rand(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.Intn(n)
}

func meta(o object) object { return o["metadata"].(object) }

func str(o object, path ...string) string {
	for _, p := range path[:len(path)-1] {
		next, _ := o[p].(object)
		if next == nil {
			return ""
		}
		o = next
	}
	v, _ := o[path[len(path)-1]].(string)
	return v
}

func strs(v any) (all []string) {
	l, _ := v.([]any)
	for _, x := range l {
		all = append(all, x.(string))
	}
	return all
}

func clone(o object) object {
	if o == nil {
		return nil
	}
	b, _ := json.Marshal(o)
	var c object
	_ = json.Unmarshal(b, &c)
	return c
}

// put stores an object; the caller holds the lock. A deleted object without finalizers goes.
func (s *store) put(res, name string, o object, by string, sent time.Time) object {
	before := s.now[res][name]
	if s.now[res] == nil {
		s.now[res] = map[string]object{}
	}
	s.rev++
	m := meta(o)
	m["resourceVersion"] = strconv.FormatInt(s.rev, 10)
	typ := "MODIFIED"
	if before == nil {
		typ = "ADDED"
		s.uids++
		m["uid"] = fmt.Sprintf("u%d", s.uids)
		m["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		m["name"] = name
	}
	after := o
	if m["deletionTimestamp"] != nil && len(strs(m["finalizers"])) == 0 {
		typ, after = "DELETED", nil
		delete(s.now[res], name)
	} else {
		s.now[res][name] = o
	}
	b, _ := json.Marshal(o)
	s.log[res] = append(s.log[res], logged{s.rev, time.Now(), typ, name, b})
	if s.judge != nil {
		s.judge(res, name, before, after, by, sent)
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return o
}

// user changes something behind the API servers' back, as a user of an API server that the controller does not reach.
func (s *store) user(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *store) create(res, name string, o object, by string) bool {
	if s.now[res][name] != nil {
		return false
	}
	s.put(res, name, o, by, time.Now())
	return true
}

func (s *store) remove(res, name string, by string) bool {
	o := clone(s.now[res][name])
	if o == nil {
		return false
	}
	if meta(o)["deletionTimestamp"] == nil {
		meta(o)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	}
	s.put(res, name, o, by, time.Now())
	return true
}

// at returns what a cache with this lag shows, and its revision. The caller holds the lock.
func (s *store) at(res string, rev int64) map[string][]byte {
	all := map[string][]byte{}
	for _, l := range s.log[res] {
		if l.rev > rev {
			break
		}
		if l.typ == "DELETED" {
			delete(all, l.name)
		} else {
			all[l.name] = l.obj
		}
	}
	return all
}

func (s *store) visible(res string) int64 {
	lag := s.lag[res]
	rev := s.rev
	for _, v := range slices.Backward(s.log[res]) {
		if l := v; time.Since(l.at) < lag {
			rev = l.rev - 1
		} else {
			break
		}
	}
	return rev
}

var kindOf = map[string][2]string{
	"nodes": {"Node", "v1"}, "clustercidrs": {"ClusterCIDR", "networking.x-k8s.io/v1"}, "servicecidrs": {"ServiceCIDR", "networking.k8s.io/v1"}, "leases": {"Lease", "coordination.k8s.io/v1"},
}

// side is one process's way to the API servers.
type side struct {
	*store
	proc string
	dead bool
	down time.Time
}

var errDial = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

func status(code int, reason, message string) (int, []byte) {
	b, _ := json.Marshal(object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message})
	return code, b
}

func (p *side) gone() (bool, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead, later(p.down, p.store.down)
}

// lacks reports whether there is no such resource now.
func (s *store) lacks(res string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.absent[res])
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// RoundTrip is the network and the API server.
func (p *side) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
		req.Body.Close()
	}
	ctx := req.Context()
	dead, until := p.gone()
	if dead || time.Now().Before(until) {
		if !sleep(ctx, time.Duration(p.rand(20))*time.Millisecond) {
			return nil, ctx.Err()
		}
		return nil, errDial
	}
	path := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	if req.URL.Path == "/apis/networking.k8s.io/v1" || req.URL.Path == "/apis/networking.x-k8s.io/v1" {
		resources := []object{}
		if !p.lacks("servicecidrs") {
			resources = append(resources, object{"name": "servicecidrs", "kind": "ServiceCIDR"})
		}
		b, _ := json.Marshal(object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": strings.TrimPrefix(req.URL.Path, "/apis/"), "resources": resources})
		return answer(req, 200, b), nil
	}
	if res, _, _ := resource(path); p.lacks(res) {
		return answer(req, 404, []byte("404 page not found")), nil
	}
	q := req.URL.Query()
	if q.Get("watch") == "true" || q.Get("watch") == "1" {
		return p.watch(req, path)
	}
	fail := ""
	if req.Method != http.MethodGet && p.patchFail != nil {
		p.mu.Lock()
		fail = p.patchFail()
		p.mu.Unlock()
	}
	res, _, _ := resource(path)
	if fail == "panic" && req.Method == http.MethodPatch && res == "nodes" {
		panic("injected")
	}
	if res == "leases" && fail != "lost" {
		fail = ""
	}
	sent := time.Now()
	if req.Method == http.MethodPatch && res == "nodes" { // What may have been written may be written again: the first time counts.
		p.mu.Lock()
		key := p.proc + " " + string(body)
		if p.firstSent[key].IsZero() {
			p.firstSent[key] = sent
		}
		sent = p.firstSent[key]
		p.late = p.late || fail == "late" || fail == "slow"
		p.mu.Unlock()
	}
	transit := time.Duration(1+p.rand(4)) * time.Millisecond
	if fail == "late" {
		transit = time.Duration(p.rand(4500)) * time.Millisecond
	}
	type result struct {
		code int
		body []byte
	}
	done := make(chan result, 1)
	if fail == "dropped" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	go func() {
		time.Sleep(transit)
		timeout := 30 * time.Second
		if d, err := time.ParseDuration(q.Get("timeout")); err == nil {
			timeout = d
		}
		took := time.Duration(0)
		if fail == "slow" {
			took = time.Duration(p.rand(5500)) * time.Millisecond
		}
		if took >= timeout {
			time.Sleep(timeout)
			code, b := status(504, "Timeout", "too slow")
			done <- result{code, b}
			return
		}
		time.Sleep(took)
		var r result
		switch fail {
		case "refuse":
			r.code, r.body = status(403, "Forbidden", "admission webhook says no")
		case "5xx":
			r.code, r.body = status(500, "InternalError", "no")
		case "429":
			r.code, r.body = status(429, "TooManyRequests", "no")
		default:
			r.code, r.body = p.serve(req.Method, path, q, body, sent)
		}
		time.Sleep(time.Millisecond)
		done <- r
	}()
	if fail == "lost" {
		if p.rand(2) == 0 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		sleep(ctx, 2*time.Millisecond)
		return nil, io.ErrUnexpectedEOF
	}
	select {
	case r := <-done:
		if dead, until := p.gone(); dead || time.Now().Before(until) {
			return nil, io.EOF
		}
		return answer(req, r.code, r.body), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func answer(req *http.Request, code int, body []byte) *http.Response {
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}
}

// resource returns the resource, name and subresource of a path.
func resource(path []string) (res, name, sub string) {
	switch path[0] {
	case "api":
		path = path[2:]
	default:
		path = path[3:]
	}
	if path[0] == "namespaces" {
		path = path[2:]
	}
	res = path[0]
	if len(path) > 1 {
		name = path[1]
	}
	if len(path) > 2 {
		sub = path[2]
	}
	return res, name, sub
}

func (p *side) serve(method string, path []string, q map[string][]string, body []byte, sent time.Time) (int, []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	res, name, sub := resource(path)
	if res == "events" {
		return 201, body
	}
	get := func(k string) string {
		if len(q[k]) > 0 {
			return q[k][0]
		}
		return ""
	}
	if r := p.refuse[p.proc+res]; method == http.MethodGet && time.Now().Before(r.until) && res != "leases" {
		return status(r.code, reasonOf(r.code), "refused for a while")
	}
	o := p.now[res][name]
	switch method {
	case http.MethodGet:
		if name == "" {
			return p.list(res, get)
		}
		if o == nil {
			return status(404, "NotFound", name+" not found")
		}
		return ok(o)
	case http.MethodPost:
		var n object
		_ = json.Unmarshal(body, &n)
		name = str(n, "metadata", "name")
		if p.now[res][name] != nil {
			return status(409, "AlreadyExists", name)
		}
		return ok(p.put(res, name, n, p.proc, sent))
	case http.MethodPut:
		var n object
		_ = json.Unmarshal(body, &n)
		if o == nil {
			return status(404, "NotFound", name)
		}
		if str(n, "metadata", "resourceVersion") != str(o, "metadata", "resourceVersion") {
			return status(409, "Conflict", "version")
		}
		meta(n)["uid"] = meta(o)["uid"]
		return ok(p.put(res, name, n, p.proc, sent))
	case http.MethodDelete:
		if o == nil {
			return status(404, "NotFound", name)
		}
		var opts object
		_ = json.Unmarshal(body, &opts)
		for _, f := range []string{"uid", "resourceVersion"} {
			if want := str(opts, "preconditions", f); want != "" && want != str(o, "metadata", f) {
				return status(409, "Conflict", f)
			}
		}
		p.remove(res, name, p.proc)
		return ok(o)
	case http.MethodPatch:
		if o == nil {
			return status(404, "NotFound", name)
		}
		return p.patch(res, name, sub, clone(o), body, sent)
	}
	return status(405, "MethodNotAllowed", method)
}

func reasonOf(code int) string {
	switch code {
	case 403:
		return "Forbidden"
	case 429:
		return "TooManyRequests"
	case 503:
		return "ServiceUnavailable"
	case 410:
		return "Expired"
	}
	return "InternalError"
}

func ok(o object) (int, []byte) {
	b, _ := json.Marshal(o)
	return 200, b
}

func (p *side) patch(res, name, sub string, o object, body []byte, sent time.Time) (int, []byte) {
	var patch object
	_ = json.Unmarshal(body, &patch)
	for _, f := range []string{"uid", "resourceVersion"} {
		if want := str(patch, "metadata", f); want != "" && want != str(o, "metadata", f) {
			return status(409, "Conflict", f+" differs")
		}
	}
	if sub == "status" {
		st, _ := patch["status"].(object)
		before, _ := json.Marshal(o["status"])
		after, _ := json.Marshal(st)
		if bytes.Equal(before, after) {
			return ok(o)
		}
		o["status"] = st
		meta(o)["managedFields"] = []any{object{"manager": "multi-cidr-node-ipam-controller", "operation": "Apply", "subresource": "status", "apiVersion": "networking.x-k8s.io/v1", "fieldsType": "FieldsV1", "fieldsV1": object{"f:status": object{"f:conditions": object{}}}}}
		return ok(p.put(res, name, o, p.proc, sent))
	}
	before, _ := json.Marshal(o)
	if m, has := patch["metadata"].(object); has {
		if a, has := m["annotations"].(object); has {
			now, _ := meta(o)["annotations"].(object)
			if now == nil {
				now = object{}
			}
			for k, v := range a {
				if v == nil {
					delete(now, k)
				} else {
					now[k] = v
				}
			}
			meta(o)["annotations"] = now
		}
		if f, has := m["finalizers"]; has {
			for _, x := range strs(f) {
				if meta(o)["deletionTimestamp"] != nil && !slices.Contains(strs(meta(o)["finalizers"]), x) {
					return status(422, "Invalid", "no new finalizers")
				}
			}
			meta(o)["finalizers"] = f
		}
	}
	if sp, has := patch["spec"].(object); has {
		spec, _ := o["spec"].(object)
		if spec == nil {
			spec = object{}
		}
		if res == "nodes" {
			old, now := strs(spec["podCIDRs"]), strs(sp["podCIDRs"])
			if len(old) > 0 && !slices.Equal(old, now) {
				return status(422, "Invalid", "podCIDRs are set")
			}
		}
		maps.Copy(spec, sp)
		o["spec"] = spec
	}
	if after, _ := json.Marshal(o); bytes.Equal(before, after) {
		return ok(o)
	}
	return ok(p.put(res, name, o, p.proc, sent))
}

func (p *side) list(res string, get func(string) string) (int, []byte) {
	rev := p.rev
	rv, cont := get("resourceVersion"), get("continue")
	after := ""
	limit, _ := strconv.Atoi(get("limit"))
	switch {
	case cont != "":
		r, name, _ := strings.Cut(cont, ":")
		rev, _ = strconv.ParseInt(r, 10, 64)
		after = name
		if rev < p.compacted {
			return status(410, "Expired", "continue")
		}
	case rv == "0":
		rev, limit = p.visible(res), 0
	case rv != "":
		want, _ := strconv.ParseInt(rv, 10, 64)
		if want > p.rev {
			b, _ := json.Marshal(object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 504, "reason": "Timeout", "message": "Too large resource version",
				"details": object{"causes": []object{{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}}, "retryAfterSeconds": 1}})
			return 504, b
		}
		rev = max(want, p.visible(res))
	}
	if limit > 0 {
		limit = 3
	}
	if p.noChunk {
		limit = 0
	}
	all := p.at(res, rev)
	names := make([]string, 0, len(all))
	for n := range all {
		names = append(names, n)
	}
	sort.Strings(names)
	if f := get("fieldSelector"); strings.HasPrefix(f, "metadata.name=") {
		want := strings.TrimPrefix(f, "metadata.name=")
		names = slices.DeleteFunc(names, func(n string) bool { return n != want })
	}
	items := []json.RawMessage{}
	next := ""
	for _, n := range names {
		if n <= after {
			continue
		}
		if limit > 0 && len(items) == limit {
			next = fmt.Sprintf("%d:%s", rev, last(items))
			break
		}
		items = append(items, all[n])
	}
	k := kindOf[res]
	b, _ := json.Marshal(object{"kind": k[0] + "List", "apiVersion": k[1], "metadata": object{"resourceVersion": strconv.FormatInt(rev, 10), "continue": next}, "items": items})
	return 200, b
}

func last(items []json.RawMessage) string {
	var o object
	_ = json.Unmarshal(items[len(items)-1], &o)
	return str(o, "metadata", "name")
}

func (p *side) watch(req *http.Request, path []string) (*http.Response, error) {
	ctx := req.Context()
	q := req.URL.Query()
	res, _, _ := resource(path)
	time.Sleep(time.Duration(1+p.rand(10)) * time.Millisecond)
	p.mu.Lock()
	until := p.hang[p.proc+res]
	p.mu.Unlock()
	if d := time.Until(until); d > 0 && !sleep(ctx, d) {
		return nil, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead || time.Now().Before(p.down) || time.Now().Before(p.store.down) {
		return nil, errDial
	}
	if r := p.refuse[p.proc+res]; time.Now().Before(r.until) {
		code, b := status(r.code, reasonOf(r.code), "refused for a while")
		return answer(req, code, b), nil
	}
	initial := q.Get("sendInitialEvents") == "true"
	if initial && p.noWL {
		code, b := status(422, "Invalid", "sendInitialEvents is forbidden")
		return answer(req, code, b), nil
	}
	from, _ := strconv.ParseInt(q.Get("resourceVersion"), 10, 64)
	if !initial && from < p.compacted || initial && from > p.rev {
		code, b := status(410, "Expired", "too old")
		return answer(req, code, b), nil
	}
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
	if seconds == 0 {
		seconds = 300
	}
	c := &conn{res: res, proc: p.proc, cut: make(chan struct{})}
	p.conns[c] = true
	pr, pw := io.Pipe()
	resp := answer(req, 200, nil)
	resp.Body, resp.ContentLength = pr, -1
	bookmarks := time.Duration(1+p.rng.Intn(60)) * time.Second
	var first []byte
	if initial {
		var buf bytes.Buffer
		at := p.visible(res)
		if from > 0 {
			at = max(at, from)
		} else {
			at = p.rev
		}
		all := p.at(res, at)
		for _, o := range all {
			line(&buf, "ADDED", o)
		}
		k := kindOf[res]
		b, _ := json.Marshal(object{"kind": k[0], "apiVersion": k[1], "metadata": object{"resourceVersion": strconv.FormatInt(at, 10), "annotations": object{"k8s.io/initial-events-end": "true"}}})
		line(&buf, "BOOKMARK", b)
		first, from = buf.Bytes(), at
	}
	go p.stream(ctx, c, pw, first, res, from, time.Duration(seconds)*time.Second, bookmarks)
	return resp, nil
}

func line(w *bytes.Buffer, typ string, o []byte) {
	fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", typ, o)
}

func (p *side) stream(ctx context.Context, c *conn, pw *io.PipeWriter, first []byte, res string, from int64, lasts, bookmarks time.Duration) {
	defer func() {
		p.mu.Lock()
		delete(p.conns, c)
		p.mu.Unlock()
	}()
	stop := context.AfterFunc(ctx, func() { pw.CloseWithError(ctx.Err()) })
	defer stop()
	if len(first) > 0 {
		// In pieces, so that it can be cut within.
		for len(first) > 0 {
			n := bytes.IndexByte(first, '\n') + 1
			if _, err := pw.Write(first[:n]); err != nil {
				return
			}
			first = first[n:]
			select {
			case <-c.cut:
				pw.CloseWithError(io.ErrUnexpectedEOF)
				return
			case <-time.After(time.Millisecond):
			}
		}
	}
	end := time.NewTimer(lasts)
	defer end.Stop()
	mark := time.NewTicker(bookmarks)
	defer mark.Stop()
	for {
		p.mu.Lock()
		changed := p.changed
		upTo := p.visible(res)
		var buf bytes.Buffer
		var wait time.Duration
		i := sort.Search(len(p.log[res]), func(i int) bool { return p.log[res][i].rev > from })
		for ; i < len(p.log[res]); i++ {
			l := p.log[res][i]
			if l.rev > upTo {
				wait = p.lag[res] - time.Since(l.at) + time.Millisecond
				break
			}
			line(&buf, l.typ, l.obj)
			from = l.rev
		}
		if wait <= 0 {
			wait = time.Hour
		}
		p.mu.Unlock()
		if buf.Len() > 0 {
			if _, err := pw.Write(buf.Bytes()); err != nil {
				return
			}
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-changed:
		case <-t.C:
		case <-mark.C:
			k := kindOf[res]
			b, _ := json.Marshal(object{"kind": k[0], "apiVersion": k[1], "metadata": object{"resourceVersion": strconv.FormatInt(max(from, upTo), 10)}})
			var m bytes.Buffer
			line(&m, "BOOKMARK", b)
			if _, err := pw.Write(m.Bytes()); err != nil {
				t.Stop()
				return
			}
			from = max(from, upTo)
		case <-end.C:
			t.Stop()
			pw.Close()
			return
		case <-c.cut:
			t.Stop()
			if p.rand(4) == 0 {
				code, b := status(410, "Expired", "too old")
				_ = code
				var m bytes.Buffer
				line(&m, "ERROR", b)
				_, _ = pw.Write(m.Bytes())
			}
			if p.rand(2) == 0 {
				pw.Close()
			} else {
				pw.CloseWithError(io.ErrUnexpectedEOF)
			}
			return
		case <-ctx.Done():
			t.Stop()
			return
		}
		t.Stop()
	}
}

// cutConns ends watches.
func (s *store) cutConns(match func(*conn) bool) {
	for c := range s.conns {
		if match(c) {
			c.once.Do(func() { close(c.cut) })
		}
	}
}

func prefixes(o object) (all []netip.Prefix) {
	sp, _ := o["spec"].(object)
	if sp == nil {
		return nil
	}
	for _, x := range strs(sp["podCIDRs"]) {
		all = append(all, netip.MustParsePrefix(x))
	}
	return all
}
