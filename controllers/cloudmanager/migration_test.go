package cloudmanager

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The shared Lease of a leader migration counts while this program holds it without a break, and it never counts again after that.
func TestMigration(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	held := func(by string, acquired, renewed int) resourcelock.LeaderElectionRecord {
		at := func(s int) metav1.Time { return metav1.NewTime(start.Add(time.Duration(s) * time.Second)) }
		return resourcelock.LeaderElectionRecord{HolderIdentity: by, LeaseDurationSeconds: 15, AcquireTime: at(acquired), RenewTime: at(renewed)}
	}
	for name, tc := range map[string]struct {
		own, shared []resourcelock.LeaderElectionRecord // one after the other
		want        int                                 // seconds from start to the end of the last one
		wantErr     string
	}{
		"held":                     {records(held("me", 0, 0)), records(held("me", 1, 1)), 16, ""},
		"renewed":                  {records(held("me", 0, 0), held("me", 0, 2)), records(held("me", 1, 1), held("me", 1, 3)), 18, ""},
		"not won yet":              {records(held("me", 0, 0)), records(held("kcm", 0, 0)), 0, `is held by "kcm", and kube-system/cloud-controller-manager by "me"`},
		"released":                 {records(held("me", 0, 0)), records(held("", 0, 0)), 0, "does not hold both"},
		"lost":                     {records(held("me", 0, 0), held("me", 0, 2)), records(held("me", 1, 1), held("kcm", 30, 30)), 0, "does not hold both"},
		"both lost to one program": {records(held("me", 0, 0), held("other", 30, 30)), records(held("me", 1, 1), held("other", 31, 31)), 0, "went to another process"},
		"lost and won again":       {records(held("me", 0, 0), held("me", 0, 2)), records(held("me", 1, 1), held("me", 60, 60)), 0, "went to another process"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			lock := func(name string) resourcelock.Interface {
				l, err := resourcelock.New(resourcelock.LeasesResourceLock, "kube-system", name, client.CoreV1(), client.CoordinationV1(), resourcelock.ResourceLockConfig{})
				if err != nil {
					t.Fatal(err)
				}
				return l
			}
			m := &migration{own: lock("cloud-controller-manager"), shared: lock("node-ipam-migration")}
			var err error
			for i := range tc.own {
				write(t, m.own, tc.own[i])
				write(t, m.shared, tc.shared[i])
				err = m.read(t.Context())
			}
			switch {
			case tc.wantErr != "":
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("got error %v, want %q in it", err, tc.wantErr)
				}
			case err != nil:
				t.Error(err)
			default:
				if got, want := m.expires(), start.Add(time.Duration(tc.want)*time.Second); !got.Equal(want) {
					t.Errorf("expires at %v, want %v", got, want)
				}
			}
		})
	}
}

func records(all ...resourcelock.LeaderElectionRecord) []resourcelock.LeaderElectionRecord {
	return all
}

func write(t *testing.T, lock resourcelock.Interface, record resourcelock.LeaderElectionRecord) {
	t.Helper()
	ctx := context.Background()
	_, _, err := lock.Get(ctx)
	if err != nil {
		err = lock.Create(ctx, record)
	} else {
		err = lock.Update(ctx, record)
	}
	if err != nil {
		t.Fatal(err)
	}
}
