package parity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/multicidr/controller-manager/test/controlplane"
)

const allAndOurs = "--controllers=*,multi-cidr-node-ipam-controller"

// releasesLease is the feature gate with which a leader that ends releases its lease. v1.35 does not know it: its leaders always keep theirs.
const releasesLease = "ControllerManagerReleaseLeaderElectionLockOnExit"

func knowsRelease(t *testing.T) bool {
	t.Helper()
	return strings.Contains(runToEnd(t, upstreamBinary, "--help").Stdout, releasesLease)
}

// endOfLeader is the exit code after SIGTERM with that gate. v1.35 does not handle the signal, so it ends at once.
func endOfLeader(t *testing.T) int {
	t.Helper()
	if knowsRelease(t) {
		return 0
	}
	return -1
}

// releasing turns it on, where it is known.
func releasing(t *testing.T) (flags []string) {
	t.Helper()
	if knowsRelease(t) {
		flags = append(flags, "--feature-gates="+releasesLease+"=true")
	}
	return flags
}

// A leader that is told to stop gives the lease up. The lease lasts longer than this test may, so nothing but that lets the second lead.
func TestHandoverOnShutdown(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	long := append(releasing(t), allAndOurs, "--leader-elect-lease-duration=10m", "--leader-elect-renew-deadline=9m", "--leader-elect-retry-period=1s")
	first := startLeading(t, s, "first", long...)
	second := s.StartManagerForTest(t, controlplane.ManagerOptions{Name: "second", Args: long})

	wantExitCode(t, first, endOfLeader(t))
	if !knowsRelease(t) {
		wantLeaseHeld(t, s, true)
		return
	}
	if err := second.WaitLeading(deadline(t)); err != nil {
		t.Fatal(err)
	}
	wantWork(t, s, "after-a-shutdown")
	wantExitCode(t, second, 0)
}

// Writes of a controller that is still ending must not meet those of a successor.
func TestLeaseIsKeptUntilControllersEnded(t *testing.T) {
	t.Setenv(runAsManager, "1")
	s := newSite(t, false)
	m := startLeading(t, s, self(t), append(releasing(t), "--controllers=*,lingering", "--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s",
		"--leader-elect-retry-period=500ms")...)
	eventually(t, func(ctx context.Context) error { return wantHealth(ctx, m, "lingering", http.StatusOK, "ok") })
	wantExitCode(t, m, endOfLeader(t))
	if !knowsRelease(t) { // The controllers end with the process.
		wantLeaseHeld(t, s, true)
		return
	}

	outcome, err := clientOf(t, s).CoreV1().ConfigMaps("default").Get(t.Context(), "lingering", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := outcome.Data["lease"]; got != "renewed" {
		t.Errorf("the lease while a controller was ending: %s, want renewed", got)
	}
	wantLeaseHeld(t, s, false)
}

// wantLeaseHeld looks at the lease after the end of its leader.
func wantLeaseHeld(t *testing.T, s *site, want bool) {
	t.Helper()
	lease, err := clientOf(t, s).CoordinationV1().Leases("kube-system").Get(t.Context(), "kube-controller-manager", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); (holder != "") != want {
		t.Errorf("after the end of its leader %q holds the lease; want that it is held: %t", holder, want)
	}
}

func TestBadConstructorsDoNotHurtTheOthers(t *testing.T) {
	t.Setenv(runAsManager, "1")
	s := newSite(t, false)
	m := startLeading(t, s, self(t), "--controllers=*,failing,blocking")
	for name, reason := range map[string]string{
		"failing":  "cannot be built: no permission",
		"blocking": "not built yet",
	} {
		eventually(t, func(ctx context.Context) error {
			return wantHealth(ctx, m, name, http.StatusInternalServerError, reason)
		})
	}
	wantWork(t, s, "beside-bad-constructors")

	body, err := page(t.Context(), m, "/healthz?verbose") // 200, or it is an error.
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"[+]namespace-controller ok\n", "[+]failing excluded: ok\n", "warn: failing failed and was excluded: see /healthz/failing\n",
	} {
		if !strings.Contains(body, line) {
			t.Errorf("/healthz?verbose lacks %q:\n%s", line, body)
		}
	}
}

func TestTheInTreeControllerIsLeftOut(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	m := startLeading(t, s, "manager", "--controllers=*,multicidrnodeipam", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16")
	var checks surface
	eventually(t, func(ctx context.Context) error {
		checks = surface{}
		if err := observeHealth(ctx, s, m, checks); err != nil {
			return err
		}
		if _, ok := checks[healthChecks][ours]; !ok {
			return errors.New("ours does not run yet")
		}
		return nil
	})
	if _, ok := checks[healthChecks]["node-ipam-controller"]; ok {
		t.Error("the in-tree controller runs beside ours")
	}
	log, err := m.Log()
	if err != nil {
		t.Fatal(err)
	}
	const line = `"Leaving out a controller that another one replaces" controller="node-ipam-controller" replacedBy="multi-cidr-node-ipam-controller"`
	if n := strings.Count(log, line); n != 1 {
		t.Errorf("the log says %d times, want once: %s", n, line)
	}
}

// It ends before it asks anybody: there is no API server here.
func TestBothNamedEndsAtStart(t *testing.T) {
	got := runToEnd(t, ourBinary, "--master=http://127.0.0.1:1", "--controllers=*,nodeipam,multicidrnodeipam") // Nobody listens there: nothing is sent.
	if got.Code != 1 || !strings.Contains(got.Stderr, `remove \"node-ipam-controller\" to use \"multi-cidr-node-ipam-controller\"`) {
		t.Errorf("exit code %d, want 1 and what to remove:\n%s", got.Code, got.Stderr)
	}
}

// Leader migration knows our controller by its name, as any other: it can be given to another program. test/integration TestLeaderMigration gives it to ours.
func TestOurControllerMigratesAway(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "migration.yaml")
	content := "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: migration\ncontrollerLeaders:\n" +
		"- {name: " + ours + ", component: cloud-controller-manager}\n- {name: node-ipam-controller, component: cloud-controller-manager}\n- {name: ttl-controller, component: '*'}\n"
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newSite(t, false)
	m := startLeading(t, s, "manager", allAndOurs, "--enable-leader-migration", "--leader-migration-config="+config)
	eventually(t, func(ctx context.Context) error {
		checks := surface{}
		if err := observeHealth(ctx, s, m, checks); err != nil {
			return err
		}
		for _, name := range []string{"namespace-controller", "ttl-controller"} { // one of either set; a set adds its checks in one go, ours at the end of it
			if _, ok := checks[healthChecks][name]; !ok {
				return fmt.Errorf("%s does not run yet", name)
			}
		}
		if _, runs := checks[healthChecks][ours]; runs {
			t.Error("ours runs, and it is given to somebody else")
		}
		return nil
	})
}

// startLeading starts a manager, ours or at the given path, and waits until it leads.
func startLeading(t *testing.T, s *site, nameOrPath string, args ...string) *controlplane.Manager {
	t.Helper()
	opts := controlplane.ManagerOptions{Name: filepath.Base(nameOrPath), Args: args}
	if filepath.IsAbs(nameOrPath) {
		opts.Binary = nameOrPath
	}
	m := s.StartManagerForTest(t, opts)
	if err := m.WaitLeading(deadline(t)); err != nil {
		t.Fatal(err)
	}
	return m
}

// self is this test's own binary; see TestMain.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// wantWork makes a Namespace and waits for what several controllers put into it: then they work.
func wantWork(t *testing.T, s *site, namespace string) {
	t.Helper()
	client := clientOf(t, s)
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		_, account := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		_, ca := client.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return errors.Join(account, ca)
	})
}

func wantHealth(ctx context.Context, m *controlplane.Manager, name string, code int, part string) error {
	gotCode, body, err := m.Get(ctx, "/healthz/"+name)
	if err == nil && (gotCode != code || !strings.Contains(string(body), part)) {
		err = fmt.Errorf("/healthz/%s: got %d %q, want %d and %q", name, gotCode, body, code, part)
	}
	return err
}

func wantExitCode(t *testing.T, m *controlplane.Manager, want int) {
	t.Helper()
	if err := m.Stop(); err != nil {
		t.Fatal(err)
	}
	got, err := m.Wait(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		log, _ := m.Log()
		t.Fatalf("exit code %d after SIGTERM, want %d; its log:\n%s", got, want, log)
	}
}

func clientOf(t *testing.T, s *site) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// eventually waits until there is no error any more.
func eventually(t *testing.T, try func(context.Context) error) {
	t.Helper()
	if err := controlplane.Eventually(t.Context(), 90*time.Second, try); err != nil {
		t.Fatal(err)
	}
}
