package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// top and map in a terminal, with bin/kubectl-node_ipam and a real API server, as a user with the role for readers: what is drawn, that it follows
// changes, and that keys work.
func TestTerminal(t *testing.T) {
	cp := controlplane.StartForTest(t, controlplane.Options{ServiceRange: "198.51.100.0/24"})
	root, err := controlplane.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.Apply(t.Context(), filepath.Join(root, "manifests/crds"), filepath.Join(root, "manifests/rbac-viewer")); err != nil {
		t.Fatal(err)
	}
	kube := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	readers := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "node-ipam-viewer"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"}},
	}
	if _, err := kube.RbacV1().ClusterRoleBindings().Create(t.Context(), readers, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := cp.Kubeconfig("reader", "readers")
	if err != nil {
		t.Fatal(err)
	}
	clusterCIDRs := versioned.NewForConfigOrDie(cp.AdminConfig())
	for i := range 12 {
		cc := &networkingv1.ClusterCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("range-%02d", i), Finalizers: []string{networkingv1.Finalizer}},
			Spec:       networkingv1.ClusterCIDRSpec{IPv4: fmt.Sprintf("10.%d.0.0/24", i), PerNodeHostBits: 4},
		}
		if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			_, err := clusterCIDRs.NetworkingV1().ClusterCIDRs().Create(ctx, cc, metav1.CreateOptions{}) // not served for a moment
			return err == nil, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	term := newTerminal(t, fmt.Sprintf("env KUBECONFIG=%s LC_ALL=C.UTF-8 %s", kubeconfig, filepath.Join(root, "bin/kubectl-node_ipam")))

	term.run("top")
	term.shows(`0 since the start`)
	term.shows(`Leader: +none`)
	term.shows(`range-00 +10\.0\.0\.0/24 +/28 +░{20} +0 +0 +0 +16 +Available`)
	term.shows(`more lines below; q: end`)

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{PodCIDR: "10.0.0.0/28", PodCIDRs: []string{"10.0.0.0/28"}}}
	if _, err := kube.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	term.shows(`█.* per second, 1 since the start`)
	term.shows(`range-00 +10\.0\.0\.0/24 +/28 +█░{19} +1 +0 +0 +15 +Available`)

	term.keys("PageDown")
	term.shows(`range-11`)
	term.tmux("resize-window", "-t", "t", "-x", "100", "-y", "40")
	term.keys("Home")
	term.shows(`(?s)Leader:.*range-00.*range-11`)
	term.keys("q")
	term.shows(`ended with 0`)
	if seen := term.tmux("capture-pane", "-p", "-t", "t"); strings.Contains(seen, "may not") {
		t.Errorf("the role for readers lacks something: %s", seen)
	}

	term.run("map")
	term.shows(`10\.0\.0\.0/24 +ClusterCIDR range-00 /28 +██░{30}`)
	term.shows(`ended with 0`)
	if colored := term.tmux("capture-pane", "-p", "-e", "-t", "t"); !strings.Contains(colored, "\x1b[32m██") {
		t.Errorf("allocated blocks are not green: %q", colored)
	}
}

// terminal is a window of tmux.
type terminal struct {
	t       *testing.T
	socket  string
	program string
}

func newTerminal(t *testing.T, program string) *terminal {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Fatalf("%v: hack/ensure-tmux.sh installs it", err)
	}
	term := &terminal{t, filepath.Join(t.TempDir(), "tmux"), program}
	term.tmux("-f", "/dev/null", "new-session", "-d", "-s", "t", "-x", "120", "-y", "14", "sh")
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", term.socket, "kill-server").Run() })
	return term
}

func (term *terminal) tmux(args ...string) string {
	term.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", term.socket}, args...)...).CombinedOutput()
	if err != nil {
		term.t.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}

func (term *terminal) keys(keys ...string) {
	term.t.Helper()
	term.tmux(append([]string{"send-keys", "-t", "t"}, keys...)...)
}

// run types a command line. The quotes keep what is typed from being taken for what is shown.
func (term *terminal) run(command string) {
	term.t.Helper()
	term.keys("clear; "+term.program+" "+command+`; echo ended "with" $?`, "Enter")
}

// shows waits until the window shows what matches.
func (term *terminal) shows(pattern string) {
	term.t.Helper()
	wanted, seen := regexp.MustCompile(pattern), ""
	if err := wait.PollUntilContextTimeout(term.t.Context(), 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		seen = term.tmux("capture-pane", "-p", "-t", "t")
		return wanted.MatchString(seen), nil
	}); err != nil {
		term.t.Fatalf("the terminal does not show %s, but:\n%s", pattern, seen)
	}
}
