package controlplane

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Stop leaves no process, port or file. The other tests of the project show the rest of a life.
func TestStop(t *testing.T) {
	cp, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	pids := []int{cp.Etcd().PID(), cp.APIServer().PID()}
	if err := cp.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d: %v, want ESRCH", pid, err)
		}
	}
	for _, port := range append(cp.etcdPorts[:], cp.serverPort) {
		listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Errorf("port %d is not free: %v", port, err)
			continue
		}
		listener.Close()
	}
	if _, err := os.Stat(cp.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat %s: %v, want not to exist", cp.Dir(), err)
	}
}

func TestStartFailure(t *testing.T) {
	tests := map[string]struct {
		opts func(dir string) Options
		want []string
	}{
		"a missing binary is named with what builds it": {
			opts: func(dir string) Options { return Options{Dir: dir, BinDir: filepath.Join(dir, "nowhere")} },
			want: []string{"nowhere/etcd", "`make tools` builds it"},
		},
		"a server that ends at once shows the end of its log": {
			opts: func(dir string) Options {
				return Options{Dir: dir, APIServerArgs: []string{"--service-cluster-ip-range=nonsense"}}
			},
			want: []string{"kube-apiserver ended with exit status 1", "service-cluster-ip-range[0]", "logs kept in"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cp, err := Start(t.Context(), tc.opts(t.TempDir()))
			if err == nil {
				cp.Stop()
				t.Fatal("started, want an error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error does not say %q:\n%v", want, err)
				}
			}
		})
	}
}

// dieEnv makes TestMain start a child and die, for TestChildrenDieWithUs.
const dieEnv = "CONTROLPLANE_TEST_DIE"

func TestMain(m *testing.M) {
	if log := os.Getenv(dieEnv); log != "" {
		child, err := StartProcess("sleep", log, "/bin/sleep", "1000")
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(child.PID())
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	os.Exit(m.Run())
}
