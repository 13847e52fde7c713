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
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func adminClient(t *testing.T, cp *ControlPlane) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestLifecycle(t *testing.T) {
	begin := time.Now()
	cp, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ready after %s", time.Since(begin).Round(time.Millisecond))
	defer cp.Stop() // For the paths below that end early; stopping twice is fine.
	client := adminClient(t, cp)

	t.Run("RBAC decides what a user may do", func(t *testing.T) {
		path, err := cp.Kubeconfig("somebody", "some-group")
		if err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "somebody"`) {
			t.Errorf("list Nodes as somebody: %v, want Forbidden for that user", err)
		}
	})

	t.Run("data outlives the API server and a killed etcd", func(t *testing.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
		if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := cp.RestartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := cp.Etcd().Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cp.StartEtcd(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().Nodes().Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
			t.Errorf("get the Node after the restarts: %v", err)
		}
	})

	t.Run("Stop leaves no process, port or file", func(t *testing.T) {
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
	})
}

func TestApply(t *testing.T) {
	cp := StartForTest(t, Options{})
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("README.md", "Not an object.\n")
	if err := os.Mkdir(filepath.Join(dir, "more"), 0o700); err != nil {
		t.Fatal(err)
	}
	write("more/other.yaml", "{apiVersion: example.com/v1, kind: Unknown, metadata: {name: below}}")
	write("1-crd.yaml", `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: parts.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Part, plural: parts}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
`)
	write("2-objects.yaml", `
# A document of comments only.
---
apiVersion: example.com/v1
kind: Part
metadata: {name: first}
---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {a: b}}
`)
	for range 2 { // The second time nothing is new, and that is no error.
		if err := cp.Apply(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
	node, err := adminClient(t, cp).CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a": "b"}, node.Labels); diff != "" {
		t.Errorf("labels of n1 (-want +got):\n%s", diff)
	}

	write("3-bad.yaml", "{apiVersion: v1, kind: Node, metadata: {name: 'no name'}}")
	if err := cp.Apply(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "apply Node no name") {
		t.Errorf("apply a bad object: %v, want an error that names it", err)
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
