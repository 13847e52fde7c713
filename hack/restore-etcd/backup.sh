#!/usr/bin/env bash
# Backs etcd up, on a control-plane node of kubeadm.
set -euo pipefail
: "${BACKUP:=/root/etcd-backup.db}"
export ETCDCTL_ENDPOINTS="${ETCDCTL_ENDPOINTS:-https://127.0.0.1:2379}" ETCDCTL_CACERT="${ETCDCTL_CACERT:-/etc/kubernetes/pki/etcd/ca.crt}"
export ETCDCTL_CERT="${ETCDCTL_CERT:-/etc/kubernetes/pki/etcd/server.crt}" ETCDCTL_KEY="${ETCDCTL_KEY:-/etc/kubernetes/pki/etcd/server.key}"
etcdctl snapshot save "$BACKUP"
