// Package forge has the tools that a forge needs besides make: a check of its workflows, and a scanner for known vulnerabilities.
package forge

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The database is one of this test, and the package is a small one that uses pflag.
func TestVulncheck(t *testing.T) {
	for sentence, tc := range map[string]struct {
		database, says string
		code           int
	}{
		"no vulnerability":      {database(t, `[]`), "no known vulnerability", 0},
		"one that is reached":   {database(t, `[{"path": "github.com/spf13/pflag", "vulns": [{"id": "GO-2026-0001", "modified": "2026-11-20T00:00:00Z"}]}]`), "take the versions that repair them", 3},
		"a database without it": {database(t, `[{"path": "github.com/spf13/pflag", "vulns": [{"id": "GO-2026-0002", "modified": "2026-11-20T00:00:00Z"}]}]`), "NOT CHECKED: govulncheck ended with 1", 2},
		"an empty database":     {"file://" + t.TempDir(), "NOT CHECKED: the database", 2},
		"no database":           {"http://127.0.0.1:1", "NOT CHECKED: the database", 2},
	} {
		t.Run(sentence, func(t *testing.T) {
			check := exec.CommandContext(t.Context(), "../vulncheck.sh", "./controllers/build")
			check.Env = append(os.Environ(), "VULNDB="+tc.database)
			output, err := check.CombinedOutput()
			code := 0
			if exit := new(exec.ExitError); errors.As(err, &exit) {
				code = exit.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			if code != tc.code || !strings.Contains(string(output), tc.says) {
				t.Errorf("it ended with %d, want %d and %q; it said\n%s", code, tc.code, tc.says, output)
			}
		})
	}
}

// database writes one with the modules and one vulnerability, in the format of vuln.go.dev, and returns its URL.
func database(t *testing.T, modules string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"index/db.json":      `{"modified": "2026-11-20T00:00:00Z"}`,
		"index/modules.json": modules,
		"ID/GO-2026-0001.json": `{"schema_version": "1.3.1", "id": "GO-2026-0001", "modified": "2026-11-20T00:00:00Z", "published": "2026-11-20T00:00:00Z", "summary": "made up",
			"affected": [{"package": {"name": "github.com/spf13/pflag", "ecosystem": "Go"}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}],
				"ecosystem_specific": {"imports": [{"path": "github.com/spf13/pflag", "symbols": ["FlagSet.AddFlag"]}]}}],
			"database_specific": {"url": "https://pkg.go.dev/vuln/GO-2026-0001"}}`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return "file://" + dir
}
