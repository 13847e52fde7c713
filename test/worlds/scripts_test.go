package worlds

import (
	"testing"
	"time"
)

func TestServes(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.pool("a", "10.0.0.0/22", 8)
		w.start()
		w.leader()
		w.settle(time.Minute)
		w.served(time.Second, w.node("n1"), w.node("n2"))
		w.settle(5 * time.Second)
		w.delete(nodes, "n1")
		w.delete(clusterCIDRs, "a")
		time.Sleep(5 * time.Second)
		w.delete(nodes, "n2")
		w.within(2*time.Second, "ClusterCIDR a goes", func() bool { return w.objects[clusterCIDRs]["a"] == nil })
		w.settle(5 * time.Second)
	})
}
