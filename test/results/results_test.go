package results

import (
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhatIsWrittenCanBeRead(t *testing.T) {
	want := File{
		Header:  Collect("make bench"),
		Results: []Result{{Name: "choose", Nodes: 1000, ClusterCIDRs: 50, Values: map[string]float64{"choose-p99-ns": 1500}}},
		Marks:   []Mark{AtMost("p99", "ns", 2000, 1500), AtLeast("rate", "Nodes/s", 100, 99)},
	}
	if !want.Marks[0].Held || want.Marks[1].Held {
		t.Errorf("marks %+v, want the first held and the second not", want.Marks)
	}
	if m := want.Machine; m.Cores < 1 || runtime.GOOS == "linux" && (m.MemoryBytes == 0 || m.Kernel == "") {
		t.Errorf("machine %+v, want its cores, and on Linux memory and kernel", m)
	}
	path := filepath.Join(t.TempDir(), "file.json")
	if err := Write(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
}
