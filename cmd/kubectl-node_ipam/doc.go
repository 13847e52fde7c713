// Command kubectl-node_ipam is a plugin for kubectl: `kubectl node-ipam` answers questions about podCIDRs and ClusterCIDRs. It reads objects
// from the API server and changes none. docs/use/kubectl-node-ipam.md has all commands with their output.
//
// Exit codes: 0 if all is well; 1 if the answer is one to act on (status, explain: Nodes are pending or in conflict; who: nobody has the address;
// plan: Nodes would be pending); 2 if the API server would refuse a planned object; 3 if the cluster or a file cannot be read; 4 if there is no
// object of that name; and 64 if the command line is wrong.
//
// controllers/nodeipam/inspect decides what the answers are. internal/cluster reads, and internal/show writes.
package main
