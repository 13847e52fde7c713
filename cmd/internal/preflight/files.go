package preflight

import (
	"context"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/cmd/internal/files"
)

// checkFiles reports what is wrong with files of ClusterCIDRs.
func checkFiles(ctx context.Context, fs *findings, s *state) {
	const about = "files"
	for _, f := range s.fruitless {
		fs.add(warning, about, "%s: name those with the ClusterCIDRs that you are going to apply, or leave this one out", f)
	}
	var existing []*networkingv1.ClusterCIDR
	for i := range s.clusterCIDRs {
		existing = append(existing, &s.clusterCIDRs[i])
	}
	refusals, err := files.Refusals(ctx, s.planned, existing)
	if err != nil {
		fs.add(problem, about, "%v", err)
	}
	for _, r := range refusals {
		fs.add(problem, about, "ClusterCIDR %s would be refused: %s", r.ClusterCIDR, r.Message)
	}
	if len(s.planned) > 0 {
		fs.well(about, "the %d ClusterCIDRs in them would be stored", len(s.planned))
	}
}
