package runner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// server is an API server. It implements http.RoundTripper, so that a test can run in a synctest bubble.
type server struct {
	mu      sync.Mutex
	version int
	served  map[string]bool                      // by group/version/resource
	objects map[string]map[string]map[string]any // by resource, and by namespace/name
	watches map[*watcher]bool
	code    int      // of answers to writes; 0: the connection breaks
	expired bool     // the next watch must list again
	writes  []string // arrived
	bad     []string // requests that must not be
}

type watcher struct {
	resource string
	selector string // of fields: that of a name, or empty
	pipe     *io.PipeWriter
	events   chan string
}

func newServer() *server {
	return &server{
		version: 1,
		served:  map[string]bool{"apiextensions.k8s.io/v1/customresourcedefinitions": true, "coordination.k8s.io/v1/leases": true, "/v1/secrets": true},
		objects: map[string]map[string]map[string]any{}, watches: map[*watcher]bool{}, code: http.StatusOK,
	}
}

// kindOf returns the kind in the answers about a resource.
func kindOf(resource string) (apiVersion, kind string) {
	switch resource {
	case "customresourcedefinitions":
		return "apiextensions.k8s.io/v1", "CustomResourceDefinition"
	case "leases":
		return "coordination.k8s.io/v1", "Lease"
	default:
		return "g/v", "Kind"
	}
}

// put stores an object; nil fields delete it. It does not matter whether it exists.
func (s *server) put(resource, namespace, name string, fields map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	key, event := namespace+"/"+name, "MODIFIED"
	before, existed := s.objects[resource][key]
	switch {
	case fields == nil:
		event = "DELETED"
		fields = maps.Clone(before)
		delete(s.objects[resource], key)
	case !existed:
		event = "ADDED"
		if s.objects[resource] == nil {
			s.objects[resource] = map[string]map[string]any{}
		}
		fallthrough
	default:
		fields = maps.Clone(fields)
		s.objects[resource][key] = fields
	}
	metadata, _ := fields["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["namespace"], metadata["name"], metadata["resourceVersion"] = namespace, name, strconv.Itoa(s.version)
	if metadata["uid"] == nil {
		metadata["uid"] = "uid-" + name
	}
	fields["metadata"] = metadata
	fields["apiVersion"], fields["kind"] = kindOf(resource)
	for w := range s.watches {
		if w.resource == resource && selects(w.selector, fields) {
			w.events <- watchEvent(event, fields)
		}
	}
}

// refuses sets the code of all answers to writes, except events. 0: the connection breaks.
func (s *server) refuses(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.code = code
}

// wrote takes those writes out of the ones that have arrived which contain something.
func (s *server) wrote(what string) (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = slices.DeleteFunc(s.writes, func(w string) bool {
		if strings.Contains(w, what) {
			all = append(all, w)
		}
		return strings.Contains(w, what)
	})
	return all
}

func selects(selector string, object map[string]any) bool {
	return selector == "" || selector == fmt.Sprintf("metadata.name=%s", object["metadata"].(map[string]any)["name"])
}

// serves sets the versions of a kind, and the labels of its CustomResourceDefinition; without versions there is none.
func (s *server) serves(kind *Kind, labels map[string]any, versions ...string) {
	s.mu.Lock()
	var crd map[string]any
	var served []any
	for _, v := range kind.Versions {
		is := slices.Contains(versions, v)
		s.served[kind.Group+"/"+v+"/"+kind.Resource] = is
		served = append(served, map[string]any{"name": v, "served": is})
	}
	if versions == nil {
		s.end(kind.Resource)
	} else {
		crd = map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"versions": served},
			"status": map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}}
	}
	s.mu.Unlock()
	s.put(definitions.Resource, "", kind.crd(), crd)
}

// deletes marks the CustomResourceDefinition of a kind as deleted.
func (s *server) deletes(kind *Kind) {
	s.mu.Lock()
	crd := maps.Clone(s.objects[definitions.Resource]["/"+kind.crd()])
	metadata := maps.Clone(crd["metadata"].(map[string]any))
	s.mu.Unlock()
	metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	crd["metadata"] = metadata
	s.put(definitions.Resource, "", kind.crd(), crd)
}

// misses ends the watches of a resource, and forgets what happens until they begin again.
func (s *server) misses(resource string, what func()) {
	s.mu.Lock()
	s.end(resource)
	s.expired = true
	s.mu.Unlock()
	what()
}

func (s *server) end(resource string) {
	for w := range s.watches {
		if w.resource == resource {
			delete(s.watches, w)
			close(w.events)
		}
	}
}

func watchEvent(event string, object any) string {
	return string(encode(map[string]any{"type": event, "object": object})) + "\n"
}

func answer(r *http.Request, code int, body any) *http.Response {
	text, ok := body.(string)
	if !ok {
		text = string(encode(body))
	}
	contentType := "application/json"
	if ok {
		contentType = "text/plain"
	}
	return &http.Response{
		StatusCode: code, Status: fmt.Sprint(code), Header: http.Header{"Content-Type": {contentType}, "Retry-After": {"0"}},
		Body: io.NopCloser(bytes.NewReader([]byte(text))), Request: r, ProtoMajor: 1,
	}
}

func status(r *http.Request, code int, reason string) *http.Response {
	return answer(r, code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": reason, "code": code})
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	prefix, rest := "/v1", path[min(2, len(path)):]
	if path[0] == "apis" {
		prefix, rest = path[1]+"/"+path[2], path[3:]
	}
	namespace := ""
	if len(rest) > 2 && rest[0] == "namespaces" {
		namespace, rest = rest[1], rest[2:]
	}
	s.mu.Lock()
	served := s.served[prefix+"/"+rest[0]] || rest[0] == "events"
	s.mu.Unlock()
	switch {
	case !served:
		return answer(r, 404, "404 page not found"), nil
	case r.Method == http.MethodGet && len(rest) == 2:
		s.mu.Lock()
		defer s.mu.Unlock()
		if object := s.objects[rest[0]][namespace+"/"+rest[1]]; object != nil {
			return answer(r, 200, object), nil
		}
		return status(r, 404, "NotFound"), nil
	case r.Method != http.MethodGet:
		return s.writesTo(r, rest[0])
	default:
		return s.reads(r, rest[0])
	}
}

// writesTo notes a write, and returns what it contains.
func (s *server) writesTo(r *http.Request, resource string) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, r.Method+" "+r.URL.Path+" "+strings.TrimSpace(string(body)))
	switch {
	case resource == "events" || s.code == http.StatusOK:
		return answer(r, 200, json.RawMessage(body)), nil
	case s.code == 0:
		return nil, io.ErrUnexpectedEOF
	default:
		return status(r, s.code, http.StatusText(s.code)), nil
	}
}

// reads lists and watches.
func (s *server) reads(r *http.Request, resource string) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	query := r.URL.Query()
	if query.Get("resourceVersion") == "0" {
		s.bad = append(s.bad, "a read that need not be recent: "+r.URL.String())
	}
	apiVersion, kind := kindOf(resource)
	selector := query.Get("fieldSelector")
	objects := slices.DeleteFunc(slices.Collect(maps.Values(s.objects[resource])), func(o map[string]any) bool { return !selects(selector, o) })
	if query.Get("watch") == "" {
		return answer(r, 200, map[string]any{
			"apiVersion": apiVersion, "kind": kind + "List", "metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)}, "items": objects,
		}), nil
	}
	if query.Get("sendInitialEvents") != "true" && s.expired {
		s.expired = false
		return status(r, 410, "Expired"), nil
	}
	reader, writer := io.Pipe()
	w := &watcher{resource: resource, selector: selector, pipe: writer, events: make(chan string, 100)}
	s.watches[w] = true
	if query.Get("sendInitialEvents") == "true" {
		for _, object := range objects {
			w.events <- watchEvent("ADDED", object)
		}
		w.events <- watchEvent("BOOKMARK", map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{
			"resourceVersion": strconv.Itoa(s.version), "annotations": map[string]any{"k8s.io/initial-events-end": "true"}}})
	}
	go func() {
		defer writer.Close()
		for {
			select {
			case <-r.Context().Done():
				return
			case event, ok := <-w.events:
				if !ok {
					return
				}
				if _, err := io.WriteString(writer, event); err != nil {
					return
				}
			}
		}
	}()
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: reader, Request: r, ProtoMajor: 1}, nil
}
