package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// takeTerminal makes Ctrl-C ours alone, and returns what gives the terminal back. Below make it would go to make too,
// which then calls our orderly end a failure.
func takeTerminal() (restore func()) {
	tty := int(os.Stdin.Fd())
	foreground, err := unix.IoctlGetInt(tty, unix.TIOCGPGRP)
	if err != nil || foreground != unix.Getpgrp() || foreground == os.Getpid() {
		return func() {} // no terminal, not in front of it, or nobody before us in our group
	}
	// SIGTTOU: a group that is not in front may not change who is. SIGTSTP: only we would stop at a Ctrl-Z, and make
	// and the shell would wait for ever.
	signal.Ignore(syscall.SIGTTOU, syscall.SIGTSTP)
	if err := unix.Setpgid(0, 0); err != nil {
		return func() {}
	}
	_ = unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, os.Getpid())
	return func() { _ = unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, foreground) }
}

// screenSize is the size of the terminal on stdout; ok is false if there is none.
func screenSize() (width, height int, ok bool) {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	return width, height, err == nil
}
