package manager

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// configFile is the file of --config. It has values of flags, as YAML or JSON. A key is the name of a flag in camel case; upper and lower case
// make no difference, so there is no list of names to keep:
//
//	allocateNodeCIDRs: true
//	clusterCIDR: 10.244.0.0/16
//	controllers: ["*", multi-cidr-node-ipam-controller]
//
// A value is what the command line takes: a list stands for a flag that is repeated, keys and values for key=value. Flags of the command line
// win.
type configFile struct{ path string }

func (c *configFile) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.path, "config", "", "A YAML file with values of flags. A key is the name of a flag in camel case, such as clusterCIDR. Flags on the command line win over the file.")
}

// notInFile are flags that belong to one start of the program.
var notInFile = []string{"config", "help", "version"}

// set sets the flags that the command line does not set. It returns everything that is wrong with the file.
func (c *configFile) set(fs *pflag.FlagSet) error {
	if c.path == "" {
		return nil
	}
	values, err := c.read()
	if err != nil {
		return fmt.Errorf("read --config=%s: %w", c.path, err)
	}
	flags := map[string]*pflag.Flag{}
	fs.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(notInFile, f.Name) {
			flags[fold(f.Name)] = f
		}
	})
	var errs []error
	for pair := range slices.Chunk(values, 2) {
		key, value := pair[0], pair[1]
		f, ok := flags[strings.ToLower(key.Value)]
		delete(flags, strings.ToLower(key.Value))
		if !ok {
			err = errors.New("no flag has this key, or a line above sets it: a key is the name of a flag in camel case, see --help")
		} else {
			err = setFlag(fs, f, value)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--config=%s: line %d: %s: %w", c.path, key.Line, key.Value, err))
		}
	}
	return errors.Join(errs...)
}

// fold returns the key of a flag in lower case.
func fold(flag string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(flag))
}

// read returns the keys and values of the file.
func (c *configFile) read() ([]*yaml.Node, error) {
	data, err := os.ReadFile(c.path)
	if err != nil {
		return nil, err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(document.Content) == 0 || document.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("want keys and values, such as clusterCIDR: 10.244.0.0/16")
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one document: leave only one")
	}
	return document.Content[0].Content, nil
}

// setFlag sets a flag unless the command line has set it.
func setFlag(fs *pflag.FlagSet, f *pflag.Flag, value *yaml.Node) error {
	texts, err := textsOf(value)
	if err != nil || f.Changed {
		return err
	}
	for _, text := range texts {
		if err := fs.Set(f.Name, text); err != nil {
			return err
		}
	}
	return nil
}

// textsOf returns a value as the command line takes it. Each text is one use of the flag.
func textsOf(value *yaml.Node) (texts []string, err error) {
	plain := func(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag != "!!null" }
	if plain(value) {
		return []string{value.Value}, nil
	}
	for i, item := range value.Content {
		switch {
		case !plain(item):
			return nil, errors.New("want plain values in the list, or behind the keys")
		case value.Kind == yaml.SequenceNode:
			texts = append(texts, item.Value)
		case i%2 == 1: // of a mapping, whose keys and values alternate
			texts = append(texts, value.Content[i-1].Value+"="+item.Value)
		}
	}
	if len(texts) == 0 {
		return nil, errors.New("the value is missing")
	}
	return texts, nil
}
