// Package component reads Kubernetes' KubeControllerManagerConfiguration as values of flags.
//
// kube-controller-manager has that type, and shows it in /configz, but reads it from no file. Its flags are bound to the fields of the type. So
// what a field stands for is found by trying: the field is set in options of kube-controller-manager, and the flags whose value has changed are
// those that it stands for.
package component

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	config "k8s.io/kubernetes/pkg/controller/apis/config"
	"k8s.io/kubernetes/pkg/controller/apis/config/scheme"

	"github.com/multicidr/controller-manager/controllers/configfile"
)

const (
	apiVersion = "kubecontrollermanager.config.k8s.io/v1alpha1"
	kind       = "KubeControllerManagerConfiguration"
)

var decoder = serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDecoder()

// Values returns what a file of that type says about flags. A field that is unknown, has a wrong type or stands for no flag is an error.
func Values(f *configfile.File) ([]configfile.Value, error) {
	fields := leaves(f.Root, nil)
	if err := check(f, fields); err != nil {
		return nil, err
	}
	// Without any field: what defaults of the type and of the options are.
	before, _, err := flagsOf(nil)
	if err != nil {
		return nil, err
	}
	var values []configfile.Value
	var errs []error
	for _, field := range fields {
		if field.name() == "apiVersion" || field.name() == "kind" {
			continue
		}
		after, same, err := flagsOf(&field)
		if err != nil {
			errs = append(errs, f.At(field.line, err))
			continue
		}
		found := false
		after.VisitAll(func(of *pflag.Flag) {
			if was := before.Lookup(of.Name); was == nil || was.Value.String() == of.Value.String() {
				return
			}
			v := configfile.Value{Flag: of.Name, Text: of.Value.String(), Line: field.line}
			if list, ok := of.Value.(pflag.SliceValue); ok {
				v.List = list.GetSlice()
			}
			found = true
			values = append(values, v)
		})
		if !found && !same {
			errs = append(errs, f.At(field.line, fmt.Errorf("%s has no effect: kube-controller-manager has no flag for it. Remove it", field.name())))
		}
	}
	return values, errors.Join(errs...)
}

// check decodes the whole object, strictly.
func check(f *configfile.File, fields []leaf) error {
	for key, want := range map[string]string{"apiVersion": apiVersion, "kind": kind} {
		i := slices.IndexFunc(fields, func(l leaf) bool { return l.name() == key })
		if i < 0 {
			return f.At(1, fmt.Errorf("%s is missing: write %s: %s", key, key, want))
		}
		if got := fields[i].value.Value; got != want {
			return f.At(fields[i].line, fmt.Errorf("%s is %s, want %s", key, got, want))
		}
	}
	data, err := yaml.Marshal(f.Root)
	if err != nil {
		return err
	}
	_, err = runtime.Decode(decoder, data)
	strict, ok := runtime.AsStrictDecodingError(err)
	if !ok {
		if err != nil {
			return f.At(lineOf(fields, err), err)
		}
		return nil
	}
	var errs []error
	for _, err := range strict.Errors() {
		errs = append(errs, f.At(lineOf(fields, err), err))
	}
	return errors.Join(errs...)
}

var quoted = regexp.MustCompile(`"([^"]+)"|of type|\.([A-Za-z0-9.]+)`)

// lineOf returns the line of the first field that an error names, or 1.
func lineOf(fields []leaf, err error) int {
	for _, match := range quoted.FindAllStringSubmatch(err.Error(), -1) {
		for _, name := range match[1:] {
			for _, l := range fields {
				if name != "" && (l.name() == name || strings.HasPrefix(l.name(), name+".") || strings.EqualFold(l.name(), name)) {
					return l.line
				}
			}
		}
	}
	return 1
}

// leaf is a value in the file that is not a mapping.
type leaf struct {
	path  []string
	value *yaml.Node
	line  int
}

func (l leaf) name() string { return strings.Join(l.path, ".") }

// object is the object with this value alone.
func (l leaf) object() *yaml.Node {
	n := l.value
	for _, key := range slices.Backward(l.path) {
		n = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: key}, n}}
	}
	return n
}

func leaves(n *yaml.Node, path []string) (all []leaf) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		own := append(slices.Clone(path), key.Value)
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 {
			all = append(all, leaves(value, own)...)
		} else {
			all = append(all, leaf{own, value, key.Line})
		}
	}
	return all
}

// flagsOf returns the flags of kube-controller-manager with one field set; with none if field is nil. same reports that the field has its
// default value.
func flagsOf(field *leaf) (_ *pflag.FlagSet, same bool, err error) {
	object := &yaml.Node{Kind: yaml.MappingNode}
	if field != nil {
		object = field.object()
	}
	for key, value := range map[string]string{"apiVersion": apiVersion, "kind": kind} {
		object.Content = append(object.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, &yaml.Node{Kind: yaml.ScalarNode, Value: value})
	}
	data, err := yaml.Marshal(object)
	if err != nil {
		return nil, false, err
	}
	decoded, err := runtime.Decode(decoder, data)
	if err != nil {
		return nil, false, err
	}
	set, ok := decoded.(*config.KubeControllerManagerConfiguration)
	if !ok {
		return nil, false, fmt.Errorf("decoded as %T", decoded)
	}
	opts, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		return nil, false, err
	}
	into(opts, set)
	if field != nil {
		empty, err := runtime.Decode(decoder, fmt.Appendf(nil, "apiVersion: %s\nkind: %s\n", apiVersion, kind))
		if err != nil {
			return nil, false, err
		}
		same = reflect.DeepEqual(empty, decoded)
	}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	sections := opts.Flags(nil, nil, nil)
	for _, section := range sections.FlagSets {
		fs.AddFlagSet(section)
	}
	return fs, same, nil
}

// into sets the parts of a configuration in the options, which point to them: each part has a type of its own.
func into(opts *options.KubeControllerManagerOptions, set *config.KubeControllerManagerConfiguration) {
	parts := map[reflect.Type]reflect.Value{}
	for _, part := range reflect.ValueOf(set).Elem().Fields() {
		parts[part.Type()] = part
	}
	for _, option := range reflect.ValueOf(opts).Elem().Fields() {
		if option.Kind() != reflect.Pointer || option.IsNil() || option.Elem().Kind() != reflect.Struct {
			continue
		}
		for i := range option.Elem().NumField() {
			pointer := option.Elem().Field(i)
			if pointer.Kind() != reflect.Pointer || pointer.IsNil() {
				continue
			}
			if part, ok := parts[pointer.Type().Elem()]; ok {
				pointer.Elem().Set(part)
			}
		}
	}
}
