# Settings of all steps: change them here, or set variables of these names. The defaults are kubeadm's. docs/operate/restore-etcd.md comes first.
set -euo pipefail
: "${BACKUP:=/root/etcd-backup.db}"                   # the backup to restore
: "${WORK:=/root/restore-etcd}"                       # takes all files
: "${MANIFESTS:=/etc/kubernetes/manifests}"           # static Pods
: "${ETCD_DATA:=/var/lib/etcd}"
: "${ETCD_PORT:=2379}" "${API_PORT:=6443}" "${QUIET_PORT:=16443}" "${MANAGER_PORT:=10257}"
: "${LOGS:=/var/log/pods/kube-system_kube-controller-manager-*/*/*.log*}"   # also rotated ones; node-ipam-controller: /var/log/pods/*/node-ipam-controller/*.log*
: "${PLUGIN:=bridge}"                                  # what wrote the CNI configuration of the machines: bridge, or flannel
: "${MACHINES:=$WORK/machines}"                       # a file that you write: the Node name of every machine that may run, one on a line
: "${CLUSTERCIDRS:=$WORK/clustercidrs}"               # a directory with the manifests of your ClusterCIDRs, as they are now
: "${GONE:=$WORK/gone}"                               # a file that you write: the Node names of machines that certainly run no more
: "${ADDED:=$WORK/added}"                             # a file that you write: lines for step 5, NODE ["10.244.1.0/24"]
export KUBECONFIG="${KUBECONFIG:-/etc/kubernetes/admin.conf}"
mkdir -p "$WORK/held" "$CLUSTERCIDRS"
touch "$MACHINES" "$GONE" "$ADDED"

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
nodes() { kubectl get nodes --output=jsonpath='{range .items[*]}{.metadata.name} {.spec.podCIDRs}{"\n"}{end}' "$@"; }
names() { awk 'NF {print $1}' "$1"; }
quiet() { export KUBECONFIG="$WORK/quiet.conf"; }   # the API server of steps 4 to 6
