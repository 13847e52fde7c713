package controlplane

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

func TestManager(t *testing.T) {
	cp := StartForTest(t, Options{})
	manager := cp.StartManagerForTest(t, ManagerOptions{})
	if err := manager.WaitLeading(t.Context()); err != nil {
		t.Fatal(err)
	}

	// The root CA publisher runs under a service account of its own and reads --root-ca-file.
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := adminClient(t, cp).CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		t.Errorf("the controllers do not work: %v; see %s", err, manager.LogPath())
	}

	// Only an administrator may read this path: the certificate was accepted.
	if status, body, err := manager.Get(t.Context(), "/configz"); status != http.StatusOK || err != nil {
		t.Errorf("GET /configz: %d, %v: %s", status, err, body)
	}

	second := cp.StartManagerForTest(t, ManagerOptions{Name: "second"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := second.WaitLeading(ctx); err == nil {
		t.Error("two managers lead at once")
	}
	if err := second.Stop(); err != nil {
		t.Error(err)
	}
}

func TestManagerStartFailure(t *testing.T) {
	cp := StartForTest(t, Options{})
	_, err := cp.StartManager(t.Context(), ManagerOptions{Args: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("start with an unknown flag: %v, want the manager's own words", err)
	}
}
