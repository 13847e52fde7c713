package incluster

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// server has one IPAddressClaim and its IPAddress. Something in it takes back the labels of the IPAddress.
type server struct {
	t         *testing.T
	claim     *v1beta2.IPAddressClaim
	address   *v1beta2.IPAddress
	version   int
	noOps     bool // what is taken back leaves no trace; otherwise the IPAddress has a new version each time
	labelling int  // requests that write labels
	later     time.Duration
}

func (s *server) Get(context.Context, *shell.Kind, types.NamespacedName, metav1.Object) error {
	return errors.New("not expected")
}

func (s *server) Create(context.Context, *shell.Kind, metav1.Object, metav1.Object) error {
	return errors.New("not expected")
}

func (s *server) Delete(context.Context, *shell.Kind, types.NamespacedName, types.UID, string) error {
	return errors.New("not expected")
}

func (s *server) Patch(_ context.Context, kind *shell.Kind, _ types.NamespacedName, patch shell.Patch, stored metav1.Object) error {
	apply := func(to, stored any) {
		now, err := jsonpatch.MergePatch(shell.Encode(to), patch.Body)
		if err == nil {
			err = json.Unmarshal(now, stored)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	switch kind {
	case shell.IPAddressClaims:
		apply(s.claim, stored)
		s.claim = stored.(*v1beta2.IPAddressClaim)
		s.version++
		s.claim.ResourceVersion = strconv.Itoa(s.version)
	case shell.IPAddresses:
		apply(s.address, stored)
		s.address = stored.(*v1beta2.IPAddress)
		if s.address.Labels = nil; !s.noOps {
			s.version++
			s.address.ResourceVersion = strconv.Itoa(s.version)
		}
		if s.labelling++; s.labelling > 1000 {
			s.t.Fatal("there is no end of requests")
		}
	default:
		s.t.Fatalf("a patch of a %v is not expected", kind)
	}
	return nil
}

func (s *server) Add(shell.Key) {}

func (s *server) AddAfter(_ shell.Key, d time.Duration) { s.later = d }

// serve returns a logic that knows a pool, the claim and its IPAddress.
func (s *server) serve(now *time.Time, grace int32) *logic {
	meta := func(name string, finalizer string) metav1.ObjectMeta {
		s.version++
		return metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID("uid of " + name), ResourceVersion: strconv.Itoa(s.version), Finalizers: []string{finalizer}}
	}
	l := newLogic(shell.Parts{
		API: s, Lock: &shell.Lock{}, Now: func() time.Time { return *now }, Queue: s, Tell: func(shell.Event) {}, Took: func(time.Duration) {},
		Served: func(*shell.Kind) (string, bool) { return "", false },
	}, nil)
	l.Fill()
	l.Heard(shell.Change{Kind: shell.InClusterIPPools, Now: &v1alpha2.InClusterIPPool{ObjectMeta: meta("p", v1beta2.FinalizerProtectPool),
		Spec: v1alpha2.InClusterIPPoolSpec{Addresses: []string{"10.0.0.5"}, Prefix: 24, AddressReuseGracePeriodSeconds: &grace}}})
	pool := v1beta2.IPPoolReference{APIGroup: v1alpha2.GroupName, Kind: v1alpha2.KindInClusterIPPool, Name: "p"}
	s.claim = &v1beta2.IPAddressClaim{ObjectMeta: meta("a", v1beta2.FinalizerReleaseAddress), Spec: v1beta2.IPAddressClaimSpec{PoolRef: pool}}
	s.claim.Labels = map[string]string{v1beta2.LabelClusterName: "cl"}
	s.address = &v1beta2.IPAddress{ObjectMeta: meta("a", v1beta2.FinalizerProtectAddress),
		Spec: v1beta2.IPAddressSpec{Address: "10.0.0.5", PoolRef: pool, ClaimRef: v1beta2.IPAddressClaimReference{Name: "a"}}}
	l.Heard(shell.Change{Kind: shell.IPAddresses, Now: s.address})
	l.Heard(shell.Change{Kind: shell.IPAddressClaims, Now: s.claim})
	return l
}

// Something takes back what is written. The controller does not write it for ever, says so, and does the rest.
func TestWritesThatAreTakenBack(t *testing.T) {
	for name, noOps := range map[string]bool{"as if nothing was written": true, "with another change each time": false} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			s := &server{t: t, noOps: noOps}
			l := s.serve(&now, 0)
			key := shell.KeyOf(shell.IPAddressClaims, s.claim)
			if err := l.Sync(t.Context(), key); !errors.Is(err, errTakenBack) {
				t.Errorf("the first attempt returns %v, want %v", err, errTakenBack)
			}
			if len(s.claim.Status.Conditions) == 0 {
				t.Error("the claim has no condition")
			}
			tried := s.labelling
			var later writes.Later
			if err := l.Sync(t.Context(), key); !errors.As(err, &later) || s.labelling != tried { // as an event makes it
				t.Errorf("an attempt at once returns %v after %d requests, want none and a pause", err, s.labelling-tried)
			}
			now = now.Add(time.Duration(later))
			if err := l.Sync(t.Context(), key); !errors.Is(err, errTakenBack) || s.labelling == tried {
				t.Errorf("after the pause an attempt returns %v after %d requests, want some", err, s.labelling-tried)
			}
		})
	}
}

// In the grace period there is nothing to do, so nothing fails any more, whatever failed before.
func TestTheGracePeriodIsNoFailure(t *testing.T) {
	now := time.Now()
	s := &server{t: t}
	l := s.serve(&now, 3600)
	s.claim = s.claim.DeepCopy()
	s.claim.ResourceVersion, s.claim.DeletionTimestamp = "1000", &metav1.Time{Time: now}
	l.Heard(shell.Change{Kind: shell.IPAddressClaims, Now: s.claim})
	if err := l.Sync(t.Context(), shell.KeyOf(shell.IPAddressClaims, s.claim)); err != nil || s.later != time.Hour {
		t.Errorf("the attempt returns %v, and the next one is in %v, want no error and an hour", err, s.later)
	}
}
