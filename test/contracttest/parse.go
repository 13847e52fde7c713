package contracttest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
)

// Parsed decodes JSON. A field that T does not have fails the test.
func Parsed[T any](t *testing.T, text string) *T {
	t.Helper()
	o := new(T)
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(o); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return o
}

// Changes returns what a patch changes, without its preconditions.
func Changes(t *testing.T, patch runner.Patch) map[string]any {
	t.Helper()
	all := *Parsed[map[string]any](t, string(patch.Body))
	metadata := all["metadata"].(map[string]any)
	delete(metadata, "uid")
	delete(metadata, "resourceVersion")
	if len(metadata) == 0 {
		delete(all, "metadata")
	}
	return all
}
