#!/usr/bin/env bash
# A machine of the cluster. Runs as process 1 of its own PID, mount, network, UTS and IPC namespaces, gives itself a root
# file system and is then the machine's init: it starts containerd and the kubelet and reaps what they leave behind.
# It writes to nothing of the host; when it dies the kernel ends every process, mount and interface in here.
#
# usage: machine.sh NAME MACHINE_DIR
set -euo pipefail

name=$1 machine=$2 stage=${3:-outside}

# The host's root, copy on write, and on top of it the directories that a reboot must not lose.
make_root() {
	mount --make-rprivate /
	mount -t tmpfs scratch "$machine/scratch"
	mkdir "$machine"/scratch/{upper,work,root}
	local root=$machine/scratch/root directory
	mount -t overlay overlay -o "lowerdir=/,upperdir=$machine/scratch/upper,workdir=$machine/scratch/work" "$root"
	for directory in etc/kubernetes etc/cni/net.d etc/containerd var/lib/kubelet var/lib/containerd var/lib/etcd var/log; do
		mkdir -p "$machine/disk/$directory" "$root/$directory"
		mount --bind "$machine/disk/$directory" "$root/$directory"
	done
	mkdir -p "$root/opt/cluster"
	mount --bind -o ro "$machine/programs" "$root/opt/cluster"
	mount -t proc proc "$root/proc"
	mount -t sysfs sysfs "$root/sys"
	mount --rbind /dev "$root/dev"
	mount -t tmpfs tmpfs "$root/run"
	mount -t tmpfs tmpfs "$root/tmp"
	cd "$root"
	pivot_root . . # This puts the old root on top of the new one; it goes.
	umount --lazy .
	cd /
	# Volumes with mount propagation want a shared root; it is shared among the mounts of this machine only.
	mount --make-rshared /
}

# The host's hierarchies, of which the cgroup namespace shows the machine's part only.
mount_cgroups() {
	local controllers controller mountpoint
	if [[ -z $(cut -d: -f2 /proc/self/cgroup | tr -d '\n') ]]; then
		mount -t cgroup2 cgroup2 /sys/fs/cgroup
		# A cgroup with processes cannot hand controllers to its children.
		mkdir /sys/fs/cgroup/init
		echo 0 >/sys/fs/cgroup/init/cgroup.procs
		return
	fi
	mount -t tmpfs tmpfs /sys/fs/cgroup
	while IFS=: read -r _ controllers _; do
		if [[ -z $controllers ]]; then continue; fi
		mountpoint=/sys/fs/cgroup/${controllers#name=}
		mkdir "$mountpoint"
		mount -t cgroup -o "${controllers/#name=/none,name=}" cgroup "$mountpoint"
		for controller in ${controllers//,/ }; do # cpu,cpuacct is one hierarchy that is looked for under three names.
			[[ -e /sys/fs/cgroup/${controller#name=} ]] || ln -s "$mountpoint" "/sys/fs/cgroup/$controller"
		done
	done </proc/self/cgroup
}

# A kubelet and Cilium set these, but they belong to no namespace: let them set a copy.
hide_kernel_settings() {
	local setting
	for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes \
		kernel/timer_migration kernel/unprivileged_bpf_disabled; do
		mkdir -p "/run/kernel-settings/${setting%/*}"
		cat "/proc/sys/$setting" >"/run/kernel-settings/$setting"
		mount --bind "/run/kernel-settings/$setting" "/proc/sys/$setting"
	done
}

serve() {
	echo "$name" >/proc/sys/kernel/hostname
	ip link set lo up
	echo 1 >/proc/sys/net/ipv4/ip_forward
	echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
	# Nobody else is on these networks; without this an address is unusable for a second or two.
	echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
	echo 0 >/proc/sys/net/ipv6/conf/all/accept_dad
	containerd >>/var/log/containerd.log 2>&1 &
	# What systemd does with kubeadm's unit: start the kubelet once it has a configuration, and always again.
	until [[ -s /var/lib/kubelet/config.yaml && -s /var/lib/kubelet/kubeadm-flags.env ]]; do sleep 0.2; done
	while true; do
		KUBELET_KUBEADM_ARGS=
		source /var/lib/kubelet/kubeadm-flags.env
		# shellcheck disable=SC2086 # The flags are a list of words.
		kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf \
			--config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS >>/var/log/kubelet.log 2>&1 &
		echo $! >/run/kubelet.pid
		wait $! || true
		sleep 0.5
	done
}

if [[ $stage == outside ]]; then
	# Who started us puts us into the machine's cgroup first. A cgroup namespace begins where its first process is.
	read -r _
	exec unshare --cgroup bash "$0" "$name" "$machine" inside </dev/null
fi
make_root
mount_cgroups
hide_kernel_settings
serve
