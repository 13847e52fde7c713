package configfile

import (
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// initialisms are words that Kubernetes' APIs do not write as other words in camel case.
var initialisms = map[string]string{
	"api": "API", "ca": "CA", "cidr": "CIDR", "cidrs": "CIDRs", "gc": "GC", "hpa": "HPA", "id": "ID", "ip": "IP", "ipam": "IPAM", "ipv4": "IPv4", "ipv6": "IPv6",
	"kcm": "KCM", "pv": "PV", "qps": "QPS", "rc": "RC", "sa": "SA", "sni": "SNI", "tls": "TLS", "ttl": "TTL", "http": "HTTP", "http2": "HTTP2", "pvc": "PVC", "csr": "CSR",
}

// Key returns the key of a flag: node-cidr-mask-size-ipv4 is nodeCIDRMaskSizeIPv4.
func Key(flag string) string {
	words := strings.FieldsFunc(flag, func(r rune) bool { return r == '-' || r == '_' || r == '.' })
	for i, word := range words {
		if i == 0 {
			continue // also an initialism: apiVersion
		}
		if known, ok := initialisms[word]; ok {
			words[i] = known
		} else {
			words[i] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return strings.Join(words, "")
}

// excluded are flags that are no part of a configuration.
var excluded = []string{flag, flagWrite, "help", "version"}

// keys are the flags that a file can set, by key.
func keys(fs *pflag.FlagSet) map[string]*pflag.Flag {
	all := map[string]*pflag.Flag{}
	fs.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(excluded, f.Name) {
			all[Key(f.Name)] = f
		}
	})
	return all
}

// Flat returns what a file in the flat form says.
func (f *File) Flat(fs *pflag.FlagSet) ([]Value, error) {
	known := keys(fs)
	var values []Value
	var errs []error
	for key, value := range f.entries(f.Root) {
		of, ok := known[key.Value]
		if !ok {
			errs = append(errs, f.at(key.Line, "there is no key %s%s", key.Value, suggestion(known, key.Value)))
			continue
		}
		v, err := valueOf(of, value)
		if err != nil {
			errs = append(errs, f.at(value.Line, "%s: %w", key.Value, err))
			continue
		}
		v.Line = key.Line
		values = append(values, v)
	}
	return values, errors.Join(errs...)
}

// suggestion finds the key that was meant.
func suggestion(known map[string]*pflag.Flag, key string) string {
	plain := func(s string) string { return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(s)) }
	for _, k := range slices.Sorted(maps.Keys(known)) {
		if plain(k) == plain(key) {
			return ": write " + k
		}
	}
	return ": keys are the names of this program's flags in camel case, see --help"
}

// tags are the YAML types that a flag's type takes.
var tags = map[string]struct {
	tags []string
	want string
}{
	"bool":     {[]string{"!!bool"}, "true or false"},
	"int":      {[]string{"!!int"}, "a number"},
	"int32":    {[]string{"!!int"}, "a number"},
	"int64":    {[]string{"!!int"}, "a number"},
	"uint":     {[]string{"!!int"}, "a number"},
	"float32":  {[]string{"!!int", "!!float"}, "a number"},
	"float64":  {[]string{"!!int", "!!float"}, "a number"},
	"duration": {[]string{"!!str"}, aTime},
	"string":   {[]string{"!!str"}, "text: put it into quotation marks"},
}

// Types of flags that collect what they are set to. They have no way to say "nothing", and need none.
const repeated = "namedCertKey"

var pairs = []string{"stringToString", "colonSeparatedMultimapStringString", "mapStringBool", "mapStringString"}

// valueOf checks what YAML parsers tell apart and flags do not: a flag would take true as a name.
func valueOf(of *pflag.Flag, n *yaml.Node) (v Value, err error) {
	v.Flag = of.Name
	_, isList := of.Value.(pflag.SliceValue)
	switch {
	case n.Kind == yaml.SequenceNode && !isList && of.Value.Type() != repeated:
		err = errors.New("this is no list: write one value")
	case n.Kind == yaml.SequenceNode:
		v.List, err = items(n)
	case n.Kind == yaml.MappingNode && !slices.Contains(pairs, of.Value.Type()):
		err = errors.New("want one value, not keys and values")
	case n.Kind == yaml.MappingNode:
		v.List, err = pairsOf(n)
	default:
		v.Text, err = n.Value, checkPlain(of, n, isList)
		if isList {
			v.List = []string{n.Value} // one value is a list of it
		}
	}
	return v, err
}

func checkPlain(of *pflag.Flag, n *yaml.Node, isList bool) error {
	accepts, checked := tags[of.Value.Type()]
	switch {
	case n.Tag == "!!null":
		return errors.New("the value is missing")
	case checked && !slices.Contains(accepts.tags, n.Tag):
		return IsNot(n, accepts.want)
	case isList && strings.Contains(n.Value, ","):
		return errors.New("a comma is part of the value here: write a list")
	}
	return nil
}

// aTime is what a duration is called in messages.
const aTime = "a time such as 15s"

// IsNot returns the error of a value that is not what it should be. In quotation marks a number looks like one, and is none.
func IsNot(n *yaml.Node, want string) error {
	plain := yaml.Node{Kind: yaml.ScalarNode, Value: n.Value}
	quoted := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0
	if quoted && want != aTime && slices.Contains([]string{"!!bool", "!!int", "!!float"}, plain.ShortTag()) {
		return fmt.Errorf("%q is text, not %s: write it without quotation marks", n.Value, want)
	}
	return fmt.Errorf("%s is not %s", n.Value, want)
}

func isPlain(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag != "!!null" }

// items returns the values of a list.
func items(n *yaml.Node) ([]string, error) {
	all := []string{}
	for _, item := range n.Content {
		if !isPlain(item) {
			return nil, errors.New("want a list of plain values")
		}
		all = append(all, item.Value)
	}
	return all, nil
}

// pairsOf returns keys and values as a flag takes them.
func pairsOf(n *yaml.Node) ([]string, error) {
	all := []string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if !isPlain(n.Content[i+1]) {
			return nil, errors.New("want keys and plain values")
		}
		all = append(all, n.Content[i].Value+"="+n.Content[i+1].Value)
	}
	return all, nil
}

// Write writes the values of all flags, if --write-config-to says where. done means that the program has nothing else to do.
func (f *File) Write(fs *pflag.FlagSet) (done bool, err error) {
	if f.writeTo == "" {
		return false, nil
	}
	data, err := yaml.Marshal(Values(fs))
	if err != nil {
		return true, err
	}
	if err := os.WriteFile(f.writeTo, data, 0o600); err != nil {
		return true, fmt.Errorf("write --%s: %w", flagWrite, err)
	}
	return true, nil
}

// Values returns the values of all flags, by key. Of the deprecated ones only those that are set: they have newer names.
func Values(fs *pflag.FlagSet) map[string]any {
	all := map[string]any{}
	for key, of := range keys(fs) {
		if of.Hidden && !of.Changed { // as deprecated flags are
			continue
		}
		all[key] = plain(of)
	}
	return all
}

// plain returns a flag's value such that it is the same in YAML and JSON.
func plain(of *pflag.Flag) any {
	text := of.Value.String()
	if list, ok := of.Value.(pflag.SliceValue); ok {
		return list.GetSlice()
	}
	switch kind := of.Value.Type(); kind {
	case "bool":
		return text == "true"
	case "int", "int32", "int64", "uint":
		if number, err := strconv.ParseInt(text, 10, 64); err == nil {
			return number
		}
	case "float32", "float64":
		if number, err := strconv.ParseFloat(text, 64); err == nil && !math.IsInf(number, 0) && !math.IsNaN(number) {
			return number
		}
	case repeated:
		return strings.FieldsFunc(inBrackets(text), func(r rune) bool { return r == ';' })
	case "stringToString":
		return pairsFrom(inBrackets(text))
	}
	return text
}

// pairsFrom reads name=value,name=value.
func pairsFrom(text string) map[string]string {
	values := map[string]string{}
	records, err := csv.NewReader(strings.NewReader(text)).Read()
	if err != nil {
		return values // empty
	}
	for _, record := range records {
		name, value, _ := strings.Cut(record, "=")
		values[name] = value
	}
	return values
}

func inBrackets(s string) string { return strings.TrimSuffix(strings.TrimPrefix(s, "["), "]") }
