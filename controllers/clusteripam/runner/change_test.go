package runner

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
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

// What changes is written exactly, and nothing else: a number that no float has, a list as a whole, what goes as null.
func TestChange(t *testing.T) {
	is := &v1alpha2.InClusterIPPool{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", ResourceVersion: "1", Annotations: map[string]string{"stays": "", "goes": ""}}}
	is.Status.IPAddresses = &v1alpha2.PoolUsage{Total: math.MaxInt, Free: math.MaxInt}
	used := is.DeepCopy()
	used.Status.IPAddresses.Free, used.Status.IPAddresses.Used = math.MaxInt-1, 1
	protected := is.DeepCopy()
	protected.Finalizers = []string{"f"}
	delete(protected.Annotations, "goes")
	first := &v1alpha2.InClusterIPPool{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "1"}}
	told := first.DeepCopy()
	told.Status.IPAddresses = &v1alpha2.PoolUsage{}
	for what, tc := range map[string]struct {
		is, want *v1alpha2.InClusterIPPool
		body     string
	}{
		"nothing":      {is, is.DeepCopy(), ""},
		"status":       {is, used, `{"metadata":{"resourceVersion":"1","uid":"u"},"status":{"ipAddresses":{"free":9223372036854775806,"used":1}}}`},
		"first status": {first, told, `{"metadata":{"resourceVersion":"1","uid":"u"},"status":{"ipAddresses":{"free":0,"outOfRange":0,"total":0,"used":0}}}`},
		"metadata":     {is, protected, `{"metadata":{"annotations":{"goes":null},"finalizers":["f"],"resourceVersion":"1","uid":"u"}}`},
	} {
		t.Run(what, func(t *testing.T) {
			patch, ok := Change(tc.is, tc.want)
			if string(patch.Body) != tc.body || ok != (tc.body != "") || patch.Status != strings.Contains(tc.body, "status") {
				t.Errorf("%t, %t: %s\nwant %s", ok, patch.Status, patch.Body, tc.body)
			}
		})
	}
}
