package allocator

import (
	"fmt"
	"strings"
	"testing"

	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/text"
)

// Of a Node's addresses the first ones count, and are forgotten with it.
func TestAddressesAreBounded(t *testing.T) {
	b := New()
	cc := ClusterCIDR("a", Spec4("10.0.0.0/8", 8, nil))
	b.SetPool(clustercidr.Compile(cc))
	n := Node("large", ManyAddresses(1000))
	b.Observe(n, nil, clustercidr.AddressesOf(n))
	if got := len(b.addresses.Held(OwnerOf(n.UID))); got != clustercidr.MaxAddresses {
		t.Errorf("%d addresses are entered, want %d", got, clustercidr.MaxAddresses)
	}
	want := fmt.Sprintf("10.0.0.9/32 of large; %d more", clustercidr.MaxAddresses-text.MaxNamed)
	if message := b.Overlapping(b.pools["a"]).Message; !strings.Contains(message, want) {
		t.Errorf("it says %q, want %q", message, want)
	}
	b.NodeGone("large", "uid-large")
	if left := b.addresses.Overlapping(Pfx("0.0.0.0/0")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}
