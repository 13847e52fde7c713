package beside

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	discoveryfake "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestHasServiceCIDRs: API servers older than 1.33 serve the group without the kind. A newer API server does not start without the kind, so
// this cannot be tested with a real one.
func TestHasServiceCIDRs(t *testing.T) {
	group := func(kinds ...string) []*metav1.APIResourceList {
		list := &metav1.APIResourceList{GroupVersion: "networking.k8s.io/v1"}
		for _, kind := range kinds {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: kind})
		}
		return []*metav1.APIResourceList{list}
	}
	unavailable := errors.New("unavailable")
	for name, tc := range map[string]struct {
		served  []*metav1.APIResourceList
		err     error
		want    bool
		wantErr error
	}{
		"1.33 and later":   {served: group("ingresses", "servicecidrs"), want: true},
		"before 1.33":      {served: group("ingresses", "networkpolicies"), want: false},
		"not even a group": {want: false},
		"no answer":        {err: unavailable, wantErr: unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			api := &discoveryfake.FakeDiscovery{Fake: &clienttesting.Fake{Resources: tc.served}}
			api.AddReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) { return tc.err != nil, nil, tc.err })
			got, err := hasServiceCIDRs(api)
			if got != tc.want || !errors.Is(err, tc.wantErr) {
				t.Errorf("got %t, %v, want %t, %v", got, err, tc.want, tc.wantErr)
			}
		})
	}
}

// TestUntilServed: untilServed asks again and again for ServiceCIDRs. An error is no answer, and the end of the process ends it.
func TestUntilServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &clienttesting.Fake{}
		api := &discoveryfake.FakeDiscovery{Fake: fake}
		begin := time.Now()
		fake.AddReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
			switch since := time.Since(begin); {
			case since < time.Minute:
				return false, nil, nil
			case since < 2*time.Minute:
				return true, nil, errors.New("unavailable")
			}
			fake.Resources = []*metav1.APIResourceList{{GroupVersion: "networking.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "servicecidrs"}}}}
			return false, nil, nil
		})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		untilServed(ended, api, func() { t.Error("the process ends, and nobody waits any more") })
		served := 0
		untilServed(t.Context(), api, func() { served++ })
		if got := time.Since(begin); got != 2*time.Minute || served != 1 {
			t.Errorf("told %d times after %v, want once after 2m0s", served, got)
		}
	})
}
