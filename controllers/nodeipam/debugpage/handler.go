// Package debugpage shows what the controller knows, as text and as JSON. Package inspect says what that is.
package debugpage

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/api"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/inspect"
)

// Source is where the page is from. Its functions are safe for concurrent use.
type Source struct {
	Health *health.Health
	Nodes  func() []*v1.Node
	// With calls a function with the state, which does not change meanwhile. It returns false if there is none to show.
	With func(func(*allocator.State)) bool
}

// Page is the JSON format. docs/operate/troubleshooting.md documents the fields. Operators' scripts read them, so their names and meanings must
// not change.
type Page struct {
	Controller string    `json:"controller"`
	Time       time.Time `json:"time"`
	Problem    string    `json:"problem,omitempty"`
	// Summary has the numbers of Nodes.
	Summary      inspect.NodeCounts          `json:"summary"`
	ClusterCIDRs []inspect.ClusterCIDRStatus `json:"clusterCIDRs"`
	Pending      []inspect.PendingNodes      `json:"pending"`
	Nodes        []inspect.NodeStatus        `json:"nodes"`
}

// Handler shows a page as text or, with ?format=json or if only that is accepted, as JSON. It is read-only.
func Handler(s Source) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "This only shows. Use GET.", http.StatusMethodNotAllowed)
			return
		}
		if strings.Trim(r.URL.Path, "/") != "" { // what follows the handler's own path
			http.NotFound(w, r)
			return
		}
		page, ok := s.page()
		if !ok {
			http.Error(w, "There is nothing to show: "+page.Problem, http.StatusServiceUnavailable)
			return
		}
		mediaType, write := "text/plain; charset=utf-8", page.write
		if r.FormValue("format") == "json" || strings.HasPrefix(r.Header.Get("Accept"), "application/json") {
			mediaType, write = "application/json", func(w io.Writer) error { return json.NewEncoder(w).Encode(page) }
		}
		var body bytes.Buffer // so that the answer is complete or an error
		if err := write(&body); err != nil {
			klog.FromContext(r.Context()).Error(err, "Cannot show the debug page")
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		header := w.Header()
		header.Set("Content-Type", mediaType)
		header.Set("Vary", "Accept")
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		if _, err := w.Write(body.Bytes()); err != nil {
			klog.FromContext(r.Context()).V(4).Info("The reader of the debug page has gone", "err", err)
		}
	})
}

// page returns what to show; ok is false if only Problem says something.
func (s *Source) page() (p Page, ok bool) {
	p = Page{Controller: api.Manager, Time: time.Now().UTC()}
	if err := s.Health.Check(nil); err != nil {
		p.Problem = err.Error()
	}
	nodes := s.Nodes()
	ok = s.With(func(state *allocator.State) {
		c := inspect.Of(state, nodes)
		p.Nodes = c.Nodes()
		status := c.StatusOf(p.Nodes)
		p.Summary, p.ClusterCIDRs, p.Pending = status.Nodes, status.ClusterCIDRs, status.Pending
	})
	return p, ok
}
