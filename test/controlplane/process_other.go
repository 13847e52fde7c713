//go:build unix && !linux

package controlplane

import "syscall"

// childAttributes keeps the terminal's Ctrl-C from a child, because we stop the components in order.
// Only Linux can also kill it when we die without having stopped it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
