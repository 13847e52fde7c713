package runner

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
)

// takesAway is an API server whose admission takes away what is written.
type takesAway struct{ API }

func (takesAway) Patch(_ context.Context, _ *Kind, _ types.NamespacedName, _ Patch, stored metav1.Object) error {
	stored.SetUID("u")
	stored.SetResourceVersion("1")
	return nil
}

// A change that is confirmed and not stored is an error: no event brings the object back.
func TestNotKept(t *testing.T) {
	is := &v1beta2.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", UID: "u", ResourceVersion: "1"}}
	want := is.DeepCopy()
	want.Annotations = map[string]string{"a": "b"}
	if err := (&Term{API: takesAway{}}).Change(t.Context(), IPAddressClaims, is, want, &v1beta2.IPAddressClaim{}); !errors.Is(err, ErrNotKept) {
		t.Error(err)
	}
}
