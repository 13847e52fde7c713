// Command cluster runs a real Kubernetes cluster on one Linux host: kubeadm, kubelets, containerd and Pods, without a
// container engine, an image registry or systemd. kind does the same, but needs an engine, and an image of a Node from a registry. Once it is down, all that
// is left on the host is what others may use by now: `cluster down --help` lists it.
//
//	cluster up       control planes, and workers
//	cluster join     one more worker, or control plane
//	cluster install  replace kubeadm, kubectl or the kubelet of a machine by another version
//	cluster exec     run a command on a machine
//	cluster kill     pull a machine's plug
//	cluster cut      take a machine off the network
//	cluster mend     undo cut
//	cluster reboot   boot a machine from its disk, also one that was killed
//	cluster remove   end a machine for good
//	cluster down     end them all, whatever state they are in
//
// A machine is a set of namespaces with an init of its own (machine.sh). The host's root is its root, copy on write; /etc/kubernetes,
// /var/lib/kubelet and what else has to outlive a reboot is on its disk, a directory below --dir. So on a machine every path is where
// kubeadm's documentation says it is. The machines hang on a router, a network namespace with a bridge and a route for each Node's
// podCIDRs, as a cloud's network has them. In the router runs a haproxy, for the connections to the API servers (haproxy.cfg): machines find them at
// its address, the host at a port of the loopback address.
//
//	 host                    router                        machine "control-plane", "worker-1", ...
//	┌───────────────────┐   ┌────────────────────────┐    ┌──────────────────────────────┐
//	│ 127.0.0.1:port ───┼───┼─► haproxy :6443        │    │ init: machine.sh             │
//	│ kubeconfig, --dir │   │ bridge ◄─── veth ──────┼────┼─► eth0                       │
//	└───────────────────┘   │ podCIDRs via Node IP   │    │ containerd, kubelet, Pods    │
//	                        └────────────────────────┘    │ cni0: the Node's podCIDRs    │
//	                                                      └──────────────────────────────┘
//
// All processes are below one cgroup whose name follows from --dir. It is how down finds them, also after a crash of up. down removes --dir
// only if it has the file .made-by, which up writes first.
package main
