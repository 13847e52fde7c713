// Package crds is the CustomResourceDefinition of ClusterCIDR, for programs.
package crds

import _ "embed"

// ClusterCIDRs is the CustomResourceDefinition as YAML.
//
//go:embed networking.x-k8s.io_clustercidrs.yaml
var ClusterCIDRs []byte
