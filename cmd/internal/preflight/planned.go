package preflight

import (
	"context"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/cmd/internal/files"
)

// checkPlanned reports ClusterCIDRs in files that kubectl apply would not store, or not as they are written.
func checkPlanned(ctx context.Context, fs *findings, s *state) {
	const about = "files"
	if len(s.planned) == 0 {
		return
	}
	r, err := files.ReadRules()
	if err != nil {
		fs.add(problem, about, "the rules for ClusterCIDRs cannot be read: %v: this is a defect, report it", err)
		return
	}
	exist := map[string]*networkingv1.ClusterCIDR{}
	for i := range s.clusterCIDRs {
		exist[s.clusterCIDRs[i].Name] = &s.clusterCIDRs[i]
	}
	seen := map[string]bool{}
	for i := range s.planned {
		cc := &s.planned[i]
		if seen[cc.Name] {
			fs.add(problem, about, "ClusterCIDR %s is there more than once, and only the last one would stay: give each its own name", cc.Name)
		}
		seen[cc.Name] = true
		refusals, err := r.Refusals(ctx, cc, exist[cc.Name])
		if err != nil {
			fs.add(problem, about, "ClusterCIDR %s cannot be checked: %v", cc.Name, err)
		}
		for _, refusal := range refusals {
			fs.add(problem, about, "ClusterCIDR %s would be refused: %v", cc.Name, refusal)
		}
	}
	fs.well(about, "the %d ClusterCIDRs in them would be stored", len(s.planned))
}
