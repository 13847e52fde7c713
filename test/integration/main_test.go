// Package integration drives the real kube-controller-manager and node-ipam-controller against a real etcd and kube-apiserver.
//
// The cases of the ClusterCIDR semantics are the scripts in testdata, one file each; script_test.go has their
// commands.
package integration

import (
	"fmt"
	"os"
	"testing"
)

// TestMain ends the control plane that the tests share, however they ended.
func TestMain(m *testing.M) {
	code := m.Run()
	if err := stopShared(code != 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
