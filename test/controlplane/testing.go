package controlplane

import (
	"testing"
)

// StartForTest starts a control plane that ends with the test. The logs of a failed test stay.
func StartForTest(t testing.TB, opts Options) *ControlPlane {
	t.Helper()
	cp, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop := cp.Stop
		if t.Failed() {
			t.Logf("logs of the control plane are kept in %s", cp.LogDir())
			stop = cp.StopKeepingLogs
		}
		if err := stop(); err != nil {
			t.Errorf("stop control plane: %v", err)
		}
	})
	return cp
}

// StartManagerForTest starts a manager that ends with the control plane, or earlier by its own Stop.
func (cp *ControlPlane) StartManagerForTest(t testing.TB, opts ManagerOptions) *Manager {
	t.Helper()
	manager, err := cp.StartManager(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return manager
}
