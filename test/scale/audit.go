package main

import "github.com/multicidr/controller-manager/test/controlplane"

// auditPolicy makes the API server note what contestants ask, our controller, upstream's and the process that they are part of.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["` + controlplane.AloneUser + `", "system:serviceaccount:kube-system:node-controller", "system:kube-controller-manager"]
- level: None
`
