package manager

import (
	"context"

	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/multicidr/controller-manager/controllers/clusteripam"
)

// ClusterIPAM describes the controllers of Cluster IPAM. They share their flags, which the first one shows.
func ClusterIPAM() []Descriptor {
	options := clusteripam.NewOptions()
	var all []Descriptor
	for i, name := range clusteripam.Names() {
		d := Descriptor{
			Name: name,
			New: func(_ context.Context, c Context) (app.Controller, error) {
				config, err := c.NewClientConfig(name)
				if err != nil {
					return nil, err
				}
				return options.Build(name, config, c.Fence)
			},
		}
		if i == 0 {
			d.Flags = options
		}
		all = append(all, d)
	}
	return all
}
