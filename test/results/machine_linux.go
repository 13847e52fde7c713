package results

import (
	"runtime"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// ThisMachine is the one this program runs on.
func ThisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return m
	}
	if cpus, err := proc.CPUInfo(); err == nil && len(cpus) > 0 {
		m.CPU = cpus[0].ModelName
	}
	if memory, err := proc.Meminfo(); err == nil && memory.MemTotalBytes != nil {
		m.MemoryBytes = *memory.MemTotalBytes
	}
	if load, err := proc.LoadAvg(); err == nil {
		m.LoadAverage = load.Load1
	}
	return m
}
