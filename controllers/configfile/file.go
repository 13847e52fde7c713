// Package configfile sets the flags of a program from a file. There are two forms, and neither is a list that somebody has to keep: in the flat
// form every key is a flag's name in camel case; package component makes the other one, Kubernetes' KubeControllerManagerConfiguration, out of
// the flags of kube-controller-manager.
//
//	allocateNodeCIDRs: true
//	clusterCIDR: 10.244.0.0/16
//
// A flag of the command line wins over the file. What is wrong in a file is an error with its line.
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Flags of every program that reads a file.
const (
	flag      = "config"
	flagWrite = "write-config-to"
)

// File is a configuration file. The zero value is none.
type File struct {
	path, writeTo string
	Root          *yaml.Node     // a mapping; nil before Read and without a file
	lines         map[string]int // where a flag's value comes from
}

// AddFlags adds --config and --write-config-to.
func (f *File) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.path, flag, f.path,
		"A file with values of flags: a KubeControllerManagerConfiguration (kubecontrollermanager.config.k8s.io/v1alpha1), or keys that are names of flags in camel case. Flags on the command line win over the file.")
	fs.StringVar(&f.writeTo, flagWrite, f.writeTo, "If set, write the values of all flags to this file, in a form that --config reads, and exit.")
}

// Value is what a file says about a flag.
type Value struct {
	Flag string
	Text string
	List []string // not nil: of a flag that takes several values, in place of Text
	Line int
}

// Read reads the file, if --config names one. Everything that is wrong with it as YAML is an error.
func (f *File) Read() error {
	f.lines = map[string]int{}
	if f.path == "" {
		return nil
	}
	data, err := os.ReadFile(f.path)
	if err != nil {
		return fmt.Errorf("read --%s: %w", flag, err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s: the file is empty: write keys and values, or leave --%s out", f.path, flag)
	case err != nil:
		line, text := 1, strings.TrimPrefix(err.Error(), "yaml: ") // It says no line if that is the first.
		if _, scanErr := fmt.Sscanf(text, "line %d: ", &line); scanErr == nil {
			_, text, _ = strings.Cut(text, ": ")
		}
		return f.at(line, "%s", text)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: there is more than one document: leave only one", f.path)
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return f.at(root.Line, "want keys and values, such as clusterCIDR: 10.244.0.0/16")
	}
	f.Root = root
	return f.checkValues(root)
}

// Given reports whether --config names a file.
func (f *File) Given() bool { return f.path != "" }

// Component reports whether the file is a versioned object and not in the flat form.
func (f *File) Component() bool {
	for key := range f.entries(f.Root) {
		if key.Value == "apiVersion" || key.Value == "kind" {
			return true
		}
	}
	return false
}

// at returns an error at a line of the file.
func (f *File) at(line int, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", f.path, line, fmt.Errorf(format, args...))
}

// At is for errors that another package finds.
func (f *File) At(line int, err error) error { return f.at(line, "%w", err) }

// entries yields the keys and values of a mapping.
func (f *File) entries(n *yaml.Node) func(yield func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		if n == nil || n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i], n.Content[i+1]) {
				return
			}
		}
	}
}

// octal matches what is an octal number in YAML 1.1.
var octal = regexp.MustCompile(`^[-+]?0[0-9_]+$`)

// checkValues refuses what YAML parsers understand in different ways.
func (f *File) checkValues(n *yaml.Node) error {
	var errs []error
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		errs = append(errs, f.at(n.Line, "anchors and aliases are not supported: write the value itself"))
	}
	if n.Kind == yaml.ScalarNode && n.Style == 0 && octal.MatchString(n.Value) {
		errs = append(errs, f.at(n.Line, "%s is an octal number for some parsers, and not for others: write it without the first 0, or in quotes if it is a text", n.Value))
	}
	first := map[string]int{}
	for key := range f.entries(n) {
		if line, ok := first[key.Value]; ok {
			errs = append(errs, f.at(key.Line, "%s is here twice, first in line %d: remove one", key.Value, line))
			continue
		}
		first[key.Value] = key.Line
	}
	if n.Kind != yaml.AliasNode {
		for _, child := range n.Content {
			errs = append(errs, f.checkValues(child))
		}
	}
	return errors.Join(errs...)
}

// Set sets the flags that are not set yet. It returns the names of those that fs does not have.
func (f *File) Set(fs *pflag.FlagSet, values []Value) (unknown []string, err error) {
	var errs []error
	for _, v := range values {
		to := fs.Lookup(v.Flag)
		if to == nil {
			unknown = append(unknown, v.Flag)
			continue
		}
		if to.Changed {
			continue
		}
		if err := set(fs, to, v); err != nil {
			errs = append(errs, f.At(v.Line, fmt.Errorf("%s: %w", Key(v.Flag), unwrapSet(err))))
			continue
		}
		f.lines[v.Flag] = v.Line
	}
	return unknown, errors.Join(errs...)
}

func set(fs *pflag.FlagSet, to *pflag.Flag, v Value) error {
	list, isList := to.Value.(pflag.SliceValue)
	switch {
	case v.List == nil:
		return fs.Set(v.Flag, v.Text)
	case isList:
		to.Changed = true // as FlagSet.Set does
		return list.Replace(v.List)
	}
	for _, text := range v.List {
		if to.Value.Type() == "stringToString" && strings.Count(text, "=") > 1 {
			text = `"` + strings.ReplaceAll(text, `"`, `""`) + `"` // Only then it is read as CSV.
		}
		if err := fs.Set(v.Flag, text); err != nil {
			return err
		}
	}
	return nil
}

// unwrapSet drops what pflag says about a command line.
func unwrapSet(err error) error {
	if number, ok := errors.AsType[*strconv.NumError](err); ok {
		return fmt.Errorf("%q: %w", number.Num, number.Err)
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return fmt.Errorf("%q: %w", invalid.GetValue(), invalid.Unwrap())
	}
	return err
}

var flagName = regexp.MustCompile(`--[a-z0-9][-a-z0-9]*`)

// Explain adds to an error about flags where in the file they are set, as far as the error names them.
func (f *File) Explain(err error) error {
	if err == nil || f.path == "" {
		return err
	}
	var places []string
	seen := map[int]bool{}
	names := flagName.FindAllString(err.Error(), -1)
	for _, name := range names {
		if line, ok := f.lines[strings.TrimPrefix(name, "--")]; ok && !seen[line] {
			seen[line] = true
			places = append(places, fmt.Sprintf("%s is %s:%d", name, f.path, line))
		}
	}
	if len(names) == 0 && len(f.lines) > 0 {
		places = []string{"some flags are set in " + f.path}
	}
	if len(places) == 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(places, ", "))
}
