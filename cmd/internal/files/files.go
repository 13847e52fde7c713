// Package files reads ClusterCIDRs from files, and says whether the API server would store them.
package files

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// isClusterCIDR is the apiVersion and kind of a ClusterCIDR.
var isClusterCIDR = metav1.TypeMeta{Kind: "ClusterCIDR", APIVersion: networkingv1.SchemeGroupVersion.String()}

// Read reads the ClusterCIDRs from YAML or JSON files, and from those in directories. It ignores other objects, but a path that has
// nothing else is returned in fruitless. It returns an error for a ClusterCIDR that kubectl apply would refuse or not apply as written.
func Read(paths []string) (all []networkingv1.ClusterCIDR, fruitless []string, err error) {
	for _, path := range paths {
		var found objects
		err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || file != path && !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)) {
				return err
			}
			if err := found.readFile(file); err != nil {
				return fmt.Errorf("read %s: %w", file, err)
			}
			return nil
		})
		switch {
		case err != nil:
			return nil, nil, err
		case len(found.clusterCIDRs) > 0:
		case found.files == 0:
			fruitless = append(fruitless, fmt.Sprintf("%s has no file whose name ends with .yaml, .yml or .json", path))
		case len(found.others) == 0:
			fruitless = append(fruitless, path+" has no objects")
		default:
			slices.Sort(found.others)
			fruitless = append(fruitless, fmt.Sprintf("%s has no ClusterCIDR, only objects of other kinds (%s)", path, strings.Join(slices.Compact(found.others), ", ")))
		}
		all = append(all, found.clusterCIDRs...)
	}
	return all, fruitless, nil
}

// objects are the objects of one path.
type objects struct {
	clusterCIDRs []networkingv1.ClusterCIDR
	others       []string // kinds
	files        int
}

func (o *objects) readFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	o.files++
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(file)); ; {
		document, err := documents.Read()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := o.readDocument(document); err != nil {
			return err
		}
	}
}

func (o *objects) readDocument(document []byte) error {
	all, err := fromJSON(document)
	isYAML := err != nil
	if isYAML {
		object, err := yaml.YAMLToJSON(document)
		if err != nil {
			return err
		}
		if string(object) != "null" { // null: the document has only comments
			all = []json.RawMessage{object}
		}
	}
	before := len(o.clusterCIDRs)
	for _, object := range all {
		if err := o.readObject(object, metav1.TypeMeta{}); err != nil {
			return err
		}
	}
	if isYAML && len(o.clusterCIDRs) > before {
		// The JSON has a duplicate field only once, so check the YAML.
		_, err = yaml.YAMLToJSONStrict(document)
		return err
	}
	return nil
}

// fromJSON returns the consecutive objects of a JSON document.
func fromJSON(document []byte) (all []json.RawMessage, err error) {
	for decoder := json.NewDecoder(bytes.NewReader(document)); ; {
		var object json.RawMessage
		switch err := decoder.Decode(&object); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, object)
	}
}

// readObject reads an object, or those of a list. Items of a list of another kind than List may omit apiVersion and kind, which then follow
// from the list.
func (o *objects) readObject(object []byte, said metav1.TypeMeta) error {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Items           json.RawMessage `json:"items"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(object, &head); err != nil {
		return errors.New("there is something that is no object: an object has apiVersion and kind, which are texts")
	}
	is := metav1.TypeMeta{Kind: cmp.Or(head.Kind, said.Kind), APIVersion: cmp.Or(head.APIVersion, said.APIVersion)}
	if is.Kind == "" || is.APIVersion == "" {
		return fmt.Errorf("an object has apiVersion %q and kind %q: an object needs both", is.APIVersion, is.Kind)
	}
	var items []json.RawMessage
	of, list := strings.CutSuffix(is.Kind, "List")
	switch {
	case list && json.Unmarshal(head.Items, &items) == nil && items != nil:
		said = metav1.TypeMeta{Kind: of, APIVersion: is.APIVersion}
		if of == "" {
			said = metav1.TypeMeta{}
		}
		for _, item := range items {
			if err := o.readObject(item, said); err != nil {
				return err
			}
		}
	case is.Kind == "List":
		return errors.New("an object of kind List has no items: name its list of objects items")
	case strings.HasPrefix(is.APIVersion, networkingv1.GroupName+"/"), strings.EqualFold(is.Kind, isClusterCIDR.Kind):
		return o.readClusterCIDR(object, is)
	default:
		o.others = append(o.others, is.Kind)
	}
	return nil
}

// readClusterCIDR reads an object that is a ClusterCIDR or was meant to be one.
func (o *objects) readClusterCIDR(object []byte, is metav1.TypeMeta) error {
	if is != isClusterCIDR {
		return fmt.Errorf("an object has apiVersion %s and kind %s: write apiVersion: %s and kind: %s", is.APIVersion, is.Kind, isClusterCIDR.APIVersion, isClusterCIDR.Kind)
	}
	cc := networkingv1.ClusterCIDR{TypeMeta: is}
	unknown, err := kjson.UnmarshalStrict(object, &cc)
	if err != nil {
		unknown = append(unknown, err)
	}
	if len(unknown) > 0 {
		return fmt.Errorf("ClusterCIDR %q: %w: correct it; kubectl explain --api-version=%s --recursive clustercidrs lists all fields", cc.Name, utilerrors.NewAggregate(unknown), is.APIVersion)
	}
	if wrong := validation.NameIsDNSSubdomain(cc.Name, false); len(wrong) > 0 {
		return fmt.Errorf("ClusterCIDR %q: metadata.name: %s", cc.Name, strings.Join(wrong, "; "))
	}
	if cc.Annotations == nil {
		cc.Annotations = map[string]string{}
	}
	cc.Annotations[corev1.LastAppliedConfigAnnotation] = string(object) // as kubectl apply does: Apply must know which fields are there
	o.clusterCIDRs = append(o.clusterCIDRs, cc)
	return nil
}
