package controlplane

import "syscall"

// childAttributes ties a child to us: it is killed when we die, and gets no Ctrl-C of the terminal,
// because we stop the components in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
