// Package component reads Kubernetes' KubeControllerManagerConfiguration as values of flags.
//
// kube-controller-manager has that type, and shows it in /configz, but reads it from no file. Its flags are bound to the fields of the type. So
// what a field stands for is found by trying: the flags of a field are those whose value depends on it.
package component

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-controller-manager/config/v1alpha1"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	config "k8s.io/kubernetes/pkg/controller/apis/config"
	"k8s.io/kubernetes/pkg/controller/apis/config/scheme"

	"github.com/multicidr/controller-manager/controllers/configfile"
)

const kind = "KubeControllerManagerConfiguration"

var apiVersion = v1alpha1.SchemeGroupVersion.String()

// instead is what to do where there is no flag for a field.
var instead = map[string]string{
	"NodeIPAMController.SecondaryServiceCIDR": "Write both CIDRs into NodeIPAMController.ServiceCIDR, separated by a comma",
	"Generic.LeaderMigration":                 "Write it into a file of its own, and its name into the flag --leader-migration-config",
}

// Values returns what a file of that type says about flags. A field that is unknown, has a wrong type or stands for no flag is an error.
func Values(f *configfile.File) ([]configfile.Value, error) {
	if err := checkType(f); err != nil {
		return nil, err
	}
	leaves, err := leavesOf(f)
	if err != nil {
		return nil, err
	}
	flags, err := newFlags()
	if err != nil {
		return nil, err
	}
	var values []configfile.Value
	var errs []error
	for _, l := range leaves {
		found, err := flags.of(l)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 && !reflect.DeepEqual(l.value.Interface(), l.in(defaults()).Interface()) {
			how := "Remove it"
			for field, other := range instead {
				if l.name() == field || strings.HasPrefix(l.name(), field+".") {
					how = other
				}
			}
			errs = append(errs, f.At(l.line, fmt.Errorf("%s has no effect: kube-controller-manager has no flag for it. %s", l.name(), how)))
		}
		values = append(values, found...)
	}
	return values, errors.Join(errs...)
}

func checkType(f *configfile.File) error {
	for _, is := range []struct{ key, want string }{{"apiVersion", apiVersion}, {"kind", kind}} {
		value := valueAt(f.Root, is.key)
		if value == nil {
			return f.At(f.Root.Line, fmt.Errorf("%s is missing: write %s: %s", is.key, is.key, is.want))
		}
		if value.Value != is.want {
			return f.At(value.Line, fmt.Errorf("%s is %s, want %s", is.key, value.Value, is.want))
		}
	}
	return nil
}

func valueAt(n *yamlv3.Node, key string) *yamlv3.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// leaf is a field that is no struct, and its value in the file.
type leaf struct {
	path  []string // names in JSON
	value reflect.Value
	line  int
}

func (l leaf) name() string { return strings.Join(l.path, ".") }

// in returns the leaf's field of a configuration.
func (l leaf) in(c *v1alpha1.KubeControllerManagerConfiguration) reflect.Value {
	v := reflect.ValueOf(c).Elem()
	for _, name := range l.path {
		v = fields(v)[name]
	}
	return v
}

// fields are the fields of a struct, by their names in JSON.
func fields(v reflect.Value) map[string]reflect.Value {
	all := map[string]reflect.Value{}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name != "":
			all[name] = v.Field(i)
		case field.Anonymous:
			maps.Copy(all, fields(v.Field(i)))
		default:
			all[field.Name] = v.Field(i)
		}
	}
	return all
}

// isLeaf reports whether a field of that type has no fields of its own.
func isLeaf(t reflect.Type) bool {
	return t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// leavesOf returns everything that the file sets.
func leavesOf(f *configfile.File) ([]leaf, error) {
	var leaves []leaf
	var errs []error
	var visit func(n *yamlv3.Node, into reflect.Value, path []string)
	visit = func(n *yamlv3.Node, into reflect.Value, path []string) {
		known := fields(into)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			own := append(slices.Clone(path), key.Value)
			l := leaf{path: own, line: key.Line}
			field, ok := known[key.Value]
			switch {
			case len(own) == 1 && (key.Value == "apiVersion" || key.Value == "kind"):
			case !ok:
				errs = append(errs, f.At(key.Line, fmt.Errorf("there is no field %s%s", l.name(), suggestion(known, key.Value))))
			case value.Tag == "!!null":
				errs = append(errs, f.At(value.Line, fmt.Errorf("%s: the value is missing", l.name())))
			case !isLeaf(field.Type()) && value.Kind != yamlv3.MappingNode:
				errs = append(errs, f.At(value.Line, fmt.Errorf("%s: want keys and values", l.name())))
			case !isLeaf(field.Type()):
				visit(value, field, own)
			default:
				var err error
				if l.value, err = decode(value, field.Type()); err != nil {
					errs = append(errs, f.At(value.Line, fmt.Errorf("%s: %w", l.name(), err)))
					continue
				}
				leaves = append(leaves, l)
			}
		}
	}
	visit(f.Root, reflect.ValueOf(defaults()).Elem(), nil)
	return leaves, errors.Join(errs...)
}

// suggestion finds the field that was meant. /configz shows all names in upper case; some of them are lower case in the type.
func suggestion(known map[string]reflect.Value, key string) string {
	for name := range known {
		if strings.EqualFold(name, key) {
			return ": write " + name
		}
	}
	return " in " + apiVersion
}

// decode returns a value of the type.
func decode(n *yamlv3.Node, t reflect.Type) (reflect.Value, error) {
	v := reflect.New(t)
	// The decoder below would make text of a number.
	if t.Kind() == reflect.String && n.Kind == yamlv3.ScalarNode && n.Tag != "!!str" {
		return v, configfile.IsNot(n, described(t))
	}
	data, err := yamlv3.Marshal(quoted(n))
	if err != nil {
		return v, err
	}
	if err := yaml.UnmarshalStrict(data, v.Interface()); err != nil {
		if n.Kind != yamlv3.ScalarNode {
			return v, fmt.Errorf("want %s", described(t))
		}
		return v, configfile.IsNot(n, described(t))
	}
	return v.Elem(), nil
}

// quoted returns a copy with all text in quotation marks. The decoder of Kubernetes' types knows YAML 1.1, in which yes and off are no text.
func quoted(n *yamlv3.Node) *yamlv3.Node {
	q := *n
	if q.Tag == "!!str" {
		q.Style = yamlv3.DoubleQuotedStyle
	}
	q.Content = nil
	for _, child := range n.Content {
		q.Content = append(q.Content, quoted(child))
	}
	return &q
}

func described(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[metav1.Duration]():
		return "a time such as 15s"
	case t.Kind() == reflect.Pointer:
		return described(t.Elem())
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "text: put it into quotation marks"
	case t.Kind() == reflect.Slice:
		return "a list"
	case t.Kind() == reflect.Int32:
		return "a whole number"
	default:
		return "a number"
	}
}

func defaults() *v1alpha1.KubeControllerManagerConfiguration {
	c := &v1alpha1.KubeControllerManagerConfiguration{}
	scheme.Scheme.Default(c)
	return c
}

// flags are the flags of kube-controller-manager, and the options that they are bound to.
type flags struct {
	opts *options.KubeControllerManagerOptions
	all  []*pflag.Flag
}

func newFlags() (*flags, error) {
	opts, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		return nil, err
	}
	f := &flags{opts: opts}
	sections := opts.Flags(nil, nil, nil)
	for _, name := range sections.Order {
		sections.FlagSets[name].VisitAll(func(of *pflag.Flag) { f.all = append(f.all, of) })
	}
	return f, nil
}

// of returns the flags that a field stands for, with the leaf's value.
func (f *flags) of(l leaf) ([]configfile.Value, error) {
	c := defaults()
	l.in(c).Set(another(l.value))
	if err := f.set(c); err != nil {
		return nil, err
	}
	with := map[string]string{}
	for _, flag := range f.all {
		with[flag.Name] = flag.Value.String()
	}
	c = defaults() // The flags of lists are bound to the list itself.
	l.in(c).Set(l.value)
	if err := f.set(c); err != nil {
		return nil, err
	}
	var values []configfile.Value
	for _, flag := range f.all {
		if flag.Value.String() == with[flag.Name] {
			continue
		}
		v := configfile.Value{Flag: flag.Name, Text: flag.Value.String(), Line: l.line}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			v.List = list.GetSlice()
		}
		values = append(values, v)
	}
	return values, nil
}

// another returns another value of the same type.
func another(v reflect.Value) reflect.Value {
	other := reflect.New(v.Type()).Elem()
	other.Set(v)
	switch {
	case v.Type() == reflect.TypeFor[metav1.Duration]():
		other.Set(reflect.ValueOf(metav1.Duration{Duration: v.Interface().(metav1.Duration).Duration + time.Second}))
	case v.Kind() == reflect.Pointer:
		other.Set(reflect.New(v.Type().Elem()))
		other.Elem().Set(another(v.Elem()))
	case v.Kind() == reflect.Bool:
		other.SetBool(!v.Bool())
	case v.CanInt():
		other.SetInt(v.Int() ^ 1)
	case v.CanFloat():
		other.SetFloat(-v.Float() - 1)
	case v.Kind() == reflect.String:
		other.SetString(v.String() + "x")
	case v.Kind() == reflect.Slice:
		other.Set(reflect.Append(v, another(reflect.Zero(v.Type().Elem()))))
	}
	return other
}

// set sets a configuration in the options. They point to its parts, and each part has a type of its own.
func (f *flags) set(c *v1alpha1.KubeControllerManagerConfiguration) error {
	internal := &config.KubeControllerManagerConfiguration{}
	if err := scheme.Scheme.Convert(c, internal, nil); err != nil {
		return err
	}
	parts := map[reflect.Type]reflect.Value{}
	collect(parts, reflect.ValueOf(internal).Elem())
	for _, option := range reflect.ValueOf(f.opts).Elem().Fields() {
		point(option, parts)
	}
	f.opts.Generic.LeaderMigration.Enabled = internal.Generic.LeaderMigrationEnabled // the one field of which the options have a copy
	return nil
}

func collect(parts map[reflect.Type]reflect.Value, v reflect.Value) {
	for _, part := range v.Fields() {
		if part.Kind() == reflect.Struct {
			parts[part.Type()] = part
			collect(parts, part)
		}
	}
}

// point sets what an option points to, and what it has pointers to.
func point(option reflect.Value, parts map[reflect.Type]reflect.Value) {
	if option.Kind() != reflect.Pointer || option.IsNil() || option.Elem().Kind() != reflect.Struct {
		return
	}
	if part, ok := parts[option.Type().Elem()]; ok {
		option.Elem().Set(part)
		return
	}
	for field, value := range option.Elem().Fields() {
		if field.IsExported() {
			point(value, parts)
		}
	}
}
