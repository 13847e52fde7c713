// Package preflight checks whether a cluster is ready for the controller, and for more than one Pod range. It changes nothing.
//
// read.go reads the cluster, package files reads files, package program tells which programs run in Pods, and commandline.go parses their flags. The
// other files evaluate the result and use no client.
package preflight

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"k8s.io/client-go/rest"
)

// Options are what to check.
type Options struct {
	files  []string
	given  flags
	form   string
	before string
}

// Add adds the flags of a check, except those of the connection.
func (o *Options) Add(fs *pflag.FlagSet) {
	fs.StringSliceVarP(&o.files, "filename", "f", nil, "files or directories, with all in them, that have ClusterCIDRs which you are going to apply, in lists or not. Other objects in them are ignored")
	fs.StringVar(&o.form, "form", "", fmt.Sprintf("the form of the controller that you use or are going to use: %s, %s or %s. Without it the one that is seen in the cluster, else the first", manager, peer, cloud))
	fs.StringVar(&o.before, "before", "", "a step that you are going to take, for which there is more to check: "+strings.Join(Steps, ", "))
	o.given.add(fs)
}

// Check returns an error if a value of a flag is wrong.
func (o *Options) Check() error {
	if !slices.Contains([]string{"", manager, peer, cloud}, o.form) {
		return fmt.Errorf("--form=%s: there is no such form. Use %s, %s or %s", o.form, manager, peer, cloud)
	}
	switch form := formBefore[o.before]; {
	case o.before != "" && !slices.Contains(Steps, o.before):
		return fmt.Errorf("--before=%s: there is no such step. Use one of %s", o.before, strings.Join(Steps, ", "))
	case form != "" && o.form != "" && form != o.form:
		return fmt.Errorf("--before=%s is about --form=%s: leave out --form", o.before, form)
	}
	return nil
}

// Run reads a cluster and returns what it finds.
func (o *Options) Run(ctx context.Context, config *rest.Config) ([]Finding, error) {
	s, err := read(ctx, config, o.files, o.given)
	if err != nil {
		return nil, err
	}
	s.form, s.before = cmp.Or(o.form, formBefore[o.before]), o.before
	return check(ctx, s), nil
}

// Worst returns the highest level of findings, which is the exit code.
func Worst(found []Finding) Level {
	worst := OK
	for _, f := range found {
		worst = max(worst, f.Level)
	}
	return worst
}
