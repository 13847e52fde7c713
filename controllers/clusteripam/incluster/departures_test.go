package incluster

import (
	"testing"
	"time"

	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
)

// The pool of an IPAddress is its owner, too. So the garbage collector does not delete an IPAddress whose claim is gone, but removes the claim from its owners,
// perhaps before the controller looks.
func TestTheGarbageCollectorIsFaster(t *testing.T) {
	tell(t, func(s *story) {
		s.pool("p", "{addresses: [10.0.0.10-10.0.0.10], prefix: 24}")
		s.claim("a", "p")
		s.has("a=10.0.0.10")
		s.edit(runner.InClusterIPPools, of("p"), "metadata: {annotations: {cluster.x-k8s.io/paused: ''}}")
		s.Drop(runner.IPAddressClaims, of("a"))
		owners := s.Get(runner.IPAddresses, "n", "a").GetOwnerReferences()
		if _, err := s.Edit(runner.IPAddresses, of("a"), false, map[string]any{"metadata": map[string]any{"ownerReferences": []any{map[string]any{
			"apiVersion": owners[1].APIVersion, "kind": owners[1].Kind, "name": owners[1].Name, "uid": string(owners[1].UID)}}}}); err != nil {
			t.Fatal(err)
		}
		s.rest()
		s.has("a=10.0.0.10")
		s.edit(runner.InClusterIPPools, of("p"), "metadata: {annotations: {cluster.x-k8s.io/paused: null}}")
		s.claim("b", "p")
		time.Sleep(10 * time.Second) // It looks again by itself.
		s.has("b=10.0.0.10")
	})
}

// A claim that another instance works on, and one that is paused, end without anybody waiting for what nobody can change any more.
func TestDeparturesThatNobodyWaitsFor(t *testing.T) {
	tell(t, func(s *story) {
		s.process.Crash()
		s.filter = "mine"
		s.run()
		s.pool("p", "{addresses: [10.0.0.10-10.0.0.20], prefix: 24}")
		s.claim("other", "p", `, finalizers: [ipam.cluster.x-k8s.io/ReleaseAddress], annotations: {networking.x-k8s.io/infoblox-owner: n/other/x, networking.x-k8s.io/address: 10.0.0.10}`)
		s.Drop(runner.IPAddressClaims, of("other"))
		s.claim("other", "p", ", labels: {cluster.x-k8s.io/watch-filter: mine}")
		s.says("other", "Ready", "10.0.0.10")

		s.edit(runner.IPAddressClaims, of("other"), "metadata: {annotations: {cluster.x-k8s.io/paused: ''}}")
		s.Drop(runner.IPAddressClaims, of("other"))
		s.claim("other", "p", ", labels: {cluster.x-k8s.io/watch-filter: mine}")
		s.rest()
		s.says("other", "Ready", "10.0.0.1")
	})
}

// A move that was interrupted and repeated copies clusterctl's mark to the target. There the claim says what to do.
func TestMarkedInTheTarget(t *testing.T) {
	const mark, unmark = "metadata: {annotations: {clusterctl.cluster.x-k8s.io/delete-for-move: ''}}", "metadata: {annotations: {clusterctl.cluster.x-k8s.io/delete-for-move: null}}"
	for _, kind := range []*runner.Kind{runner.IPAddressClaims, runner.IPAddresses, runner.InClusterIPPools} {
		t.Run(kind.Name, func(t *testing.T) {
			tell(t, func(s *story) {
				s.pool("p", "{addresses: [10.0.0.10-10.0.0.20], prefix: 24}")
				s.claim("p", "p")
				s.says("p", "Ready", "10.0.0.10")
				s.edit(kind, of("p"), mark)
				s.says("p", contract.ReasonMoved, "remove the annotation")
				s.delete(runner.IPAddressClaims, "p")
				s.has("p=10.0.0.10")
				s.edit(kind, of("p"), unmark)
				s.has()
			})
		})
	}
}
