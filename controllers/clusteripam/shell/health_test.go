package shell

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// That the API server takes what one object needs for invalid is told to its users, and counted. It is no reason to take the controller for broken, however long it
// lasts. Everything else that lasts is.
func TestWhatMakesAControllerUnhealthy(t *testing.T) {
	invalid := func(detail string) error {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "InClusterIPPool"}, "p", field.ErrorList{field.Invalid(field.NewPath("spec"), "", detail)})
	}
	for name, tc := range map[string]struct {
		err     error
		healthy bool
	}{
		"invalid":                   {invalid("must have at most 1024 items"), true},
		"invalid, says a webhook":   {invalid(`admission webhook "w" denied the request`), false},
		"forbidden":                 {apierrors.NewForbidden(schema.GroupResource{}, "p", errors.New("no")), false},
		"a request that nobody can": {apierrors.NewBadRequest("what"), false},
		"an API server that fails":  {apierrors.NewInternalError(errors.New("etcd")), false},
		"something else":            {errors.New("something else"), false},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			h := newHealth(func() time.Time { return now })
			h.waitFor(problem{})
			key := Key{Kind: ClusterIPAMClaims, Namespace: "n", Name: "c"}
			h.synced(key, tc.err)
			now = now.Add(failsFor)
			if _, tell, p := h.synced(key, tc.err); !tell || p.What == "" {
				t.Errorf("users are not told: %v", p)
			}
			if n := h.failing()[ClusterIPAMClaims]; n != 1 {
				t.Errorf("%d failing objects", n)
			}
			if problems := h.problems(); (len(problems) == 0) != tc.healthy {
				t.Errorf("problems: %s", strings.Join(problems, "; "))
			}
			h.synced(key, nil)
			if problems := h.problems(); len(problems) != 0 {
				t.Errorf("after it went well: %s", strings.Join(problems, "; "))
			}
		})
	}
}
