// Package results is the shape of what make bench and make scale write to docs/data: where and when it was measured, the figures, and
// the marks that they are held against.
package results

import (
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// File is one run. Programs embed it if they have more to say.
type File struct {
	Header
	Results []Result `json:"results"`
	Marks   []Mark   `json:"marks,omitempty"`
}

// Header says where, when and of what the results are.
type Header struct {
	Machine   Machine   `json:"machine"`
	GoVersion string    `json:"goVersion"`
	Commit    string    `json:"commit"` // ends in -dirty if the working tree was not that commit's
	Date      time.Time `json:"date"`
	Command   string    `json:"command"` // what to type to measure again
}

// Machine is what the figures depend on. What cannot be found out is left empty.
type Machine struct {
	CPU         string  `json:"cpu"`
	Cores       int     `json:"cores"`
	MemoryBytes uint64  `json:"memoryBytes"`
	Kernel      string  `json:"kernel"`
	OS          string  `json:"os"` // and architecture, as Go calls them
	LoadAverage float64 `json:"loadAverage1m"`
}

// Result is what was measured in one situation. A zero says that a number does not describe it.
type Result struct {
	Name         string             `json:"name"`
	Nodes        int                `json:"nodes,omitempty"`
	ClusterCIDRs int                `json:"clusterCIDRs,omitempty"`
	Values       map[string]float64 `json:"values"` // by a metric with its unit at the end of its name, for instance choose-p99-ns
}

// Mark is a figure that was promised.
type Mark struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Limit float64 `json:"limit"`
	Got   float64 `json:"got"`
	Held  bool    `json:"held"`
}

// AtMost holds got against an upper limit.
func AtMost(name, unit string, limit, got float64) Mark {
	return Mark{Name: name, Unit: unit, Limit: limit, Got: got, Held: got <= limit}
}

// AtLeast holds got against a lower limit.
func AtLeast(name, unit string, limit, got float64) Mark {
	return Mark{Name: name, Unit: unit, Limit: limit, Got: got, Held: got >= limit}
}

// Collect returns the header of results measured from now on, in the current directory's working tree. The load average is that of before,
// so it shows whether the machine was quiet.
func Collect(command string) Header {
	return Header{
		Machine:   ThisMachine(),
		GoVersion: runtime.Version(),
		Commit:    commit(),
		Date:      time.Now().UTC().Truncate(time.Second),
		Command:   command,
	}
}

// commit asks git, because go run and go test do not stamp what they build. It is empty where there is no git.
func commit() string {
	out, _ := exec.Command("git", "describe", "--always", "--abbrev=40", "--dirty").Output()
	return strings.TrimSpace(string(out))
}

// Write writes v, a File or what embeds one, as JSON for people and diffs.
func Write(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Read reads what Write has written of a File.
func Read(path string) (file File, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return file, err
	}
	return file, json.Unmarshal(text, &file)
}
