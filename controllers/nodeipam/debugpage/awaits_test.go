package debugpage

import (
	"net/http"
	"strings"
	"testing"

	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/steps"
)

// A ClusterCIDR waits for its finalizer only for a moment, but for as long as the Lease cannot be renewed or writes hang. That is when somebody
// looks at the page.
func TestShowsClusterCIDRWithoutFinalizer(t *testing.T) {
	c := showing(nil, Set(ClusterCIDR("new", Spec4("10.0.0.0/20", 8, nil), NoFinalizer)))
	for _, format := range []string{"", "?format=json"} {
		if w := ask(c, http.MethodGet, format, nil); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "finalizer is being added") {
			t.Errorf("%q: %d %s", format, w.Code, w.Body)
		}
	}
}
