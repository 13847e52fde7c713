// Package debugpage shows the allocation state as an HTML page and as JSON.
package debugpage

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/munnerz/goautoneg"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
)

// Look is everything that the page shows, at one point in time.
type Look struct {
	Controller string // the controller's name
	Time       time.Time
	// Problem is what the health check reports; empty if all is well.
	Problem string
	// State is an immutable copy; Nodes are those of the cache.
	State *allocator.State
	Nodes []*v1.Node
}

// Handler shows the result of look as a page or, with ?format=json or an Accept header that prefers it, as JSON. It is read-only.
func Handler(look func() (Look, error)) http.Handler {
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
		seen, err := look()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		var body bytes.Buffer // so that the answer is complete or an error
		status, mediaType := http.StatusOK, "text/html; charset=utf-8"
		switch format := r.FormValue("format"); {
		case format == "json", format == "" && goautoneg.Negotiate(r.Header.Get("Accept"), []string{"text/html", "application/json"}) == "application/json":
			mediaType = "application/json"
			err = json.NewEncoder(&body).Encode(ledgerOf(seen))
		default:
			data := pageOf(ledgerOf(seen), seen.State, r.URL.Query())
			status, err = data.Status, page.Execute(&body, data)
		}
		if err != nil {
			klog.FromContext(r.Context()).Error(err, "Cannot show the ledger")
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		header := w.Header()
		header.Set("Content-Type", mediaType)
		header.Set("Vary", "Accept")
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		// No script runs, whatever a name contains, and nothing external is loaded.
		header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		w.WriteHeader(status)
		if _, err := w.Write(body.Bytes()); err != nil {
			klog.FromContext(r.Context()).V(4).Info("The reader of the ledger has gone", "err", err)
		}
	})
}
