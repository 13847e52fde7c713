//go:build !linux

package results

import "runtime"

// ThisMachine is the one this program runs on.
func ThisMachine() Machine {
	return Machine{Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH}
}
