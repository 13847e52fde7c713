package integration

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// commands are those of the scripts; testdata/README.md explains them.
var commands = map[string]func(c *cluster, args []string) error{
	// What somebody does.
	"cc":          createClusterCIDR,
	"set":         set,
	"node":        createNode,
	"nodes":       createNodes,
	"label":       label,
	"touch":       touch,
	"assign":      assign,
	"servicecidr": createServiceCIDR,
	"delete":      deleteObjects,
	"recreate":    recreate,
	"strip":       strip,
	"manager":     manage,
	"apiserver":   apiServer,
	"etcd":        etcd,
	"count":       count,
	// What has to come of it.
	"served":      served,
	"waits":       waits,
	"event":       event,
	"ccevent":     clusterCIDREvent,
	"noevent":     noEvent,
	"condition":   condition,
	"counts":      counts,
	"shown":       shown,
	"ccs":         clusterCIDRs,
	"finalized":   finalized,
	"terminating": terminating,
	"gone":        gone,
	"writes":      writes,
	"healthy":     func(c *cluster, _ []string) error { return c.healthy() },
	"log":         logSays,
}

// TestScripts runs testdata/*.txt, each in an empty cluster. Every step is one line, and a sentence stands before it.
//
// Each step waits for what it says, so there is none that sleeps. That something does not happen is shown by a later
// step that the controller can only have done afterwards.
func TestScripts(t *testing.T) {
	runScripts(t, "testdata/*.txt")
}

// TestExamplesStandalone runs the examples of the ClusterCIDR semantics, whose names are a letter and a number, with
// node-ipam-controller in place of kube-controller-manager.
func TestExamplesStandalone(t *testing.T) { examplesIn(t, alone) }

// TestExamplesInCloudManager runs them with the cloud-controller-manager of examples.
func TestExamplesInCloudManager(t *testing.T) { examplesIn(t, inCloud) }

func examplesIn(t *testing.T, p program) {
	c := sharedCluster(t)
	c.runs(t, p)
	t.Run("it has the debug page", func(t *testing.T) {
		// A process leads before it has a controller to show.
		expect(t, eventually(patience, func(ctx context.Context) error {
			status, body, err := c.manager.Get(ctx, debugPath+"?format=json")
			if err == nil && (status != http.StatusOK || !json.Valid(body)) {
				err = fmt.Errorf("GET %s: %d %.200s", debugPath, status, body)
			}
			return err
		}))
	})
	runScripts(t, "testdata/[a-z][0-9]*.txt")
}

func runScripts(t *testing.T, pattern string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no script matches %s: %v", pattern, err)
	}
	params := testscript.Params{
		Files: files,
		Setup: func(env *testscript.Env) error {
			t := env.T().(serial).T
			env.Values[clusterKey{}] = sharedCluster(t)
			// Before the cluster is emptied.
			t.Cleanup(func() {
				expect(t, shared.overlaps(context.Background()))
			})
			return count(shared.cluster, nil)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){},
	}
	for name, run := range commands {
		params.Cmds[name] = func(ts *testscript.TestScript, negated bool, args []string) {
			if negated {
				ts.Fatalf("there is no ! for this command")
			}
			ts.Check(run(ts.Value(clusterKey{}).(*cluster), args))
		}
	}
	testscript.RunT(serial{t}, params)
}

type clusterKey struct{}

// serial makes the scripts run one after the other: they share a cluster.
type serial struct{ *testing.T }

func (s serial) Parallel()     {}
func (s serial) Verbose() bool { return testing.Verbose() }
func (s serial) Run(name string, run func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) { run(serial{t}) })
}

// TestReadmeExplainsCommands keeps the manual of the scripts complete.
func TestReadmeExplainsCommands(t *testing.T) {
	readme, err := os.ReadFile("testdata/README.md")
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]bool{}
	for line := range strings.Lines(string(readme)) {
		if rest, ok := strings.CutPrefix(line, "| `"); ok {
			command, _, _ := strings.Cut(rest, "`")
			name := strings.Fields(command)[0]
			explained[name] = true
			if commands[name] == nil {
				t.Errorf("testdata/README.md explains %q, which is no command", name)
			}
		}
	}
	for name := range commands {
		if !explained[name] {
			t.Errorf("testdata/README.md does not explain %q", name)
		}
	}
}

// options are the ones that commands have in common.
type options struct {
	within time.Duration
	times  int
}

// parseOptions reads -within D, which makes a time part of what is tested, and -times N; it wants at least so many words after them.
func parseOptions(args []string, atLeast int) (options, []string, error) {
	var o options
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.DurationVar(&o.within, "within", patience, "")
	flags.IntVar(&o.times, "times", 0, "")
	if err := flags.Parse(args); err != nil {
		return o, nil, err
	}
	if flags.NArg() < atLeast {
		return o, nil, fmt.Errorf("want at least %d words, not %q", atLeast, flags.Args())
	}
	return o, flags.Args(), nil
}

// want returns an error unless there are at least so many words.
func want(args []string, atLeast int, what string) error {
	if len(args) < atLeast || slices.Contains(args, "") {
		return fmt.Errorf("want %s, not %q", what, args)
	}
	return nil
}
