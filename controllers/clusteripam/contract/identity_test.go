package contract

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/test/contracttest"
)

// nobody is a Provider without pools.
type nobody struct{ Provider }

func (nobody) Pool(*v1beta2.IPAddressClaim) (metav1.Object, bool) { return nil, false }
func (nobody) ClaimShown(_, _ *v1beta2.IPAddressClaim)            {}

type noQueue struct{}

func (noQueue) Add(runner.Key)                     {}
func (noQueue) AddAfter(runner.Key, time.Duration) {}

// claimWith returns the claim n/<name> with annotations, in pairs. Later ones are younger.
func claimWith(name string, age time.Duration, annotations ...string) *v1beta2.IPAddressClaim {
	o := &v1beta2.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID("uid of " + name), Annotations: map[string]string{}}}
	o.CreationTimestamp = metav1.NewTime(time.Unix(1_000_000, 0).Add(-age))
	for i := 0; i < len(annotations); i += 2 {
		o.Annotations[annotations[i]] = annotations[i+1]
	}
	return o
}

func TestToken(t *testing.T) {
	address := func(annotations ...string) *v1beta2.IPAddress {
		return &v1beta2.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a", Annotations: claimWith("a", 0, annotations...).Annotations},
			Spec: v1beta2.IPAddressSpec{ClaimRef: v1beta2.IPAddressClaimReference{Name: "a"}}}
	}
	for name, tc := range map[string]struct {
		claim   *v1beta2.IPAddressClaim
		address *v1beta2.IPAddress
		others  []*v1beta2.IPAddressClaim
		want    types.UID
	}{
		"a new claim":                          {claim: claimWith("a", 0), want: "uid of a"},
		"its own annotation":                   {claim: claimWith("a", 0, AnnotationOwner, "n/a/x"), want: "x"},
		"it was copied to another name":        {claim: claimWith("a", 0, AnnotationOwner, "n/b/x"), want: "uid of a"},
		"it was copied to another namespace":   {claim: claimWith("a", 0, AnnotationOwner, "m/a/x"), want: "uid of a"},
		"nonsense":                             {claim: claimWith("a", 0, AnnotationOwner, "n/a/"), want: "uid of a"},
		"more nonsense":                        {claim: claimWith("a", 0, AnnotationOwner, "x"), want: "uid of a"},
		"its IPAddress knows":                  {claim: claimWith("a", 0), address: address(AnnotationOwner, "n/a/x"), want: "x"},
		"its IPAddress was copied":             {claim: claimWith("a", 0), address: address(AnnotationOwner, "n/b/x"), want: "uid of a"},
		"both know":                            {claim: claimWith("a", 0, AnnotationOwner, "n/a/x"), address: address(AnnotationOwner, "n/a/y"), want: "x"},
		"of a former version":                  {claim: claimWith("a", 0, AnnotationClaimUID, "x"), want: "x"},
		"its IPAddress is of one":              {claim: claimWith("a", 0), address: address(AnnotationClaimUID, "x"), want: "x"},
		"copied, of a former version":          {claim: claimWith("a", 0, AnnotationOwner, "n/b/x", AnnotationClaimUID, "x"), want: "uid of a"},
		"the UID of another claim":             {claim: claimWith("a", 9, AnnotationOwner, "n/a/uid of b"), others: []*v1beta2.IPAddressClaim{claimWith("b", 0)}, want: "uid of a"},
		"an older claim says the same":         {claim: claimWith("a", 0, AnnotationOwner, "n/a/x"), others: []*v1beta2.IPAddressClaim{claimWith("b", 9, AnnotationOwner, "n/b/x")}, want: "uid of a"},
		"a younger claim says the same":        {claim: claimWith("a", 9, AnnotationOwner, "n/a/x"), others: []*v1beta2.IPAddressClaim{claimWith("b", 0, AnnotationOwner, "n/b/x")}, want: "x"},
		"an older one of a former version":     {claim: claimWith("a", 0, AnnotationOwner, "n/a/x"), others: []*v1beta2.IPAddressClaim{claimWith("b", 9, AnnotationClaimUID, "x")}, want: "uid of a"},
		"its own UID, which an older one says": {claim: claimWith("a", 0, AnnotationOwner, "n/a/uid of a"), others: []*v1beta2.IPAddressClaim{claimWith("b", 9, AnnotationOwner, "n/b/uid of a")}, want: "uid of a"},
	} {
		t.Run(name, func(t *testing.T) {
			term := &runner.Term{Queue: noQueue{}}
			c := New(Config{Term: term, Provider: nobody{}})
			for _, o := range append(tc.others, tc.claim) {
				contracttest.Show(term, runner.IPAddressClaims, o)
			}
			if got := c.Token(tc.claim, tc.address); got != tc.want {
				t.Errorf("the token is %q, want %q", got, tc.want)
			}
		})
	}
}
