package clusteripam

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// held returns the addresses of the namespace by the name of their IPAddress.
func (c *cluster) held(ctx context.Context) (map[string]string, error) {
	list, err := c.of(addresses).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for i := range list.Items {
		all[list.Items[i].GetName()] = strings.Trim(at(&list.Items[i], "spec.address"), `"`)
	}
	return all, nil
}

// usage is the status of a pool of addresses.
func usage(total, used, free, outOfRange int) map[string]string {
	return map[string]string{"status.ipAddresses": fmt.Sprintf(`{"free":%d,"outOfRange":%d,"total":%d,"used":%d}`, free, outOfRange, total, used)}
}

// TestPools: 253 claims at once get all addresses of a /24 without the network, the gateway and the broadcast address, each once, although the controller is
// killed halfway. One more claim waits. What else claims of pools meet is in test/conformance, with the same program.
func TestPools(t *testing.T) {
	inBothPrograms(t, func(c *cluster) {
		c.create(pools, "p", `{spec: {addresses: [192.168.1.0/24], prefix: 24, gateway: 192.168.1.1}}`)
		c.until(pools, "p", usage(253, 0, 253, 0))
		var creators sync.WaitGroup
		for i := range 11 {
			creators.Go(func() {
				for j := range 23 {
					c.create(requests, fmt.Sprintf("c%d", 23*i+j), claimOf("InClusterIPPool", "p"))
				}
			})
		}
		var all map[string]string
		atLeast := func(n int) {
			c.t.Helper()
			c.eventually(func(ctx context.Context) (err error) {
				if all, err = c.held(ctx); err == nil && len(all) < n {
					err = fmt.Errorf("there are %d IPAddresses, want %d", len(all), n)
				}
				return err
			})
		}
		atLeast(100)
		c.kill()
		creators.Wait()
		c.start(c.args...)
		atLeast(253)
		holders := map[string]string{}
		for name, address := range all {
			a := netip.MustParseAddr(address)
			if holders[address] != "" || address == "192.168.1.0" || address == "192.168.1.1" || address == "192.168.1.255" || !netip.MustParsePrefix("192.168.1.0/24").Contains(a) {
				c.t.Errorf("%s has the address %s, which belongs to %q, too, or to nobody", name, address, holders[address])
			}
			holders[address] = name
		}
		c.create(requests, "one-more", claimOf("InClusterIPPool", "p"))
		c.until(requests, "one-more", ready("False", "PoolExhausted"))
		c.until(pools, "p", usage(253, 253, 0, 0))
	})
}
