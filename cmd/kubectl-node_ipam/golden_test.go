package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/cluster"
	"github.com/multicidr/controller-manager/controllers/build"
)

// now is the time at which every command of the scripts runs.
var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// The scripts in testdata show what users see. Each begins with the objects of a cluster, some of which the user may not read.
// `go test ./cmd/kubectl-node_ipam -run Golden -rewrite` writes the output anew; review it as a diff.
func TestGolden(t *testing.T) {
	t.Setenv("LC_ALL", "C.UTF-8")
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := world{t: t}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "objects":
				return w.set(d.Input)
			case "forbidden":
				w.forbidden = strings.Fields(d.Input)
				return ""
			case "file":
				return w.write(d.CmdArgs[0].Key, d.Input)
			case "run":
				return w.run(d.Input)
			}
			t.Fatalf("there is no command %s", d.Cmd)
			return ""
		})
	})
}

// world is the cluster and the files of a script.
type world struct {
	t         *testing.T
	builtIn   []runtime.Object
	custom    []runtime.Object
	forbidden []string // resources
	dir       string
}

// set reads objects from YAML. Those without a UID get their name, and Nodes without a time were created one after the other.
func (w *world) set(text string) string {
	w.builtIn, w.custom, w.forbidden = nil, nil, nil
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for i := 0; ; i++ {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(u); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err.Error()
		}
		u.SetUID(cmp.Or(u.GetUID(), types.UID(u.GetName())))
		if created := u.GetCreationTimestamp(); created.IsZero() {
			u.SetCreationTimestamp(metav1.NewTime(now.Add(time.Duration(i-1000) * time.Minute)))
		}
		if u.GroupVersionKind().Group == networkingv1.GroupName {
			w.custom = append(w.custom, u)
			continue
		}
		object, err := scheme.Scheme.New(u.GroupVersionKind())
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, object)
		}
		if err != nil {
			return err.Error()
		}
		w.builtIn = append(w.builtIn, object)
	}
	return fmt.Sprintf("%d objects", len(w.builtIn)+len(w.custom))
}

func (w *world) write(name, text string) string {
	if w.dir == "" {
		w.dir = w.t.TempDir()
	}
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text+"\n"), 0o600); err != nil {
		return err.Error()
	}
	return ""
}

// run runs a command line, and returns all that the user sees.
func (w *world) run(line string) string {
	var out, errOut bytes.Buffer
	p := &program{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}, now: func() time.Time { return now }}
	p.connect = func() (*cluster.Reader, error) { return w.reader(), nil }
	args := strings.Fields(line)
	for i, arg := range args {
		if i > 0 && args[i-1] == "-f" {
			args[i] = filepath.Join(w.dir, arg)
		}
	}
	text := ""
	if code := p.run(w.t.Context(), args); code != 0 {
		text = fmt.Sprintf("[exit code %d]\n", code)
	}
	text = out.String() + errOut.String() + text
	text = strings.ReplaceAll(text, "/"+build.Get().GitVersion+"/", "/VERSION/")
	if w.dir != "" {
		text = strings.ReplaceAll(text, w.dir+"/", "")
	}
	return text
}

func (w *world) reader() *cluster.Reader {
	kube := fake.NewClientset(w.builtIn...)
	resource := networkingv1.SchemeGroupVersion.WithResource("clustercidrs")
	custom := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{resource: "ClusterCIDRList"}, w.custom...)
	for _, name := range w.forbidden {
		deny := func(action clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", nil)
		}
		kube.PrependReactor("list", name, deny)
		custom.PrependReactor("list", name, deny)
	}
	kube.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
		asked := review.Spec.ResourceAttributes
		review.Status.Allowed = !slices.Contains(w.forbidden, asked.Resource+"/"+asked.Subresource)
		return true, review, nil
	})
	return &cluster.Reader{Kube: kube, Dynamic: custom}
}
