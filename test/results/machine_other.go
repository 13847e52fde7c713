//go:build !linux

package results

import "runtime"

func machine() Machine {
	return Machine{Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH}
}
