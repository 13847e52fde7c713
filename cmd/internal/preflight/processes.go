package preflight

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/multicidr/controller-manager/cmd/internal/program"
)

// process is a program that runs in the cluster.
type process struct {
	program.Program
	commandLine
	err       error  // why the command line cannot be parsed
	kind      string // Pod, or Deployment, DaemonSet or StatefulSet if no Pod of it is there
	namespace string
	name      string
	node      string
	workload  string // what runs it, as "Deployment net/x": the same for all its Pods
	account   string // the ServiceAccount
	// hosted reports that it is part of the control plane of another cluster.
	hosted bool
}

// called is the name for a reader: without the namespace if that is kube-system.
func (p process) called() string { return called(p.namespace, p.name) }

func (p process) String() string { return p.kind + " " + p.called() }

func called(namespace, name string) string {
	if namespace == "" || namespace == metav1.NamespaceSystem {
		return name
	}
	return namespace + "/" + name
}

// find finds all programs. That of a Deployment, DaemonSet or StatefulSet counts if none of its Pods is there.
func (s *state) find() {
	s.processes = nil
	running := map[string]bool{} // workloads
	for i := range s.pods {
		pod := &s.pods[i]
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			workload := workloadOf(pod)
			running[workload] = true
			s.add("Pod", workload, &pod.ObjectMeta, &pod.Spec)
		}
	}
	template := func(kind string, meta *metav1.ObjectMeta, replicas *int32, spec *corev1.PodSpec) {
		if workload := kind + " " + meta.Namespace + "/" + meta.Name; !running[workload] && ptr.Deref(replicas, 1) > 0 {
			s.add(kind, workload, meta, spec)
		}
	}
	for i := range s.deployments {
		d := &s.deployments[i]
		template("Deployment", &d.ObjectMeta, d.Spec.Replicas, &d.Spec.Template.Spec)
	}
	for i := range s.daemonSets {
		d := &s.daemonSets[i]
		template("DaemonSet", &d.ObjectMeta, nil, &d.Spec.Template.Spec)
	}
	for i := range s.statefulSets {
		d := &s.statefulSets[i]
		template("StatefulSet", &d.ObjectMeta, d.Spec.Replicas, &d.Spec.Template.Spec)
	}
	s.findHosted()
}

// findHosted marks the programs that are in a namespace with an API server: that of this cluster is in kube-system, or in a namespace of its own.
func (s *state) findHosted() {
	hosting := map[string]bool{}
	for _, p := range s.processes {
		hosting[p.namespace] = hosting[p.namespace] || p.Name == program.Server && p.namespace != metav1.NamespaceSystem
	}
	for i := range s.processes {
		s.processes[i].hosted = hosting[s.processes[i].namespace]
	}
}

// workloadOf names what runs a Pod. The Pods that a kubelet runs from the same file have their Nodes' names at the end.
func workloadOf(pod *corev1.Pod) string {
	kind, name := "Pod", strings.TrimSuffix(pod.Name, "-"+pod.Spec.NodeName)
	if owner := metav1.GetControllerOf(pod); owner != nil {
		switch owner.Kind {
		case "DaemonSet", "StatefulSet":
			kind, name = owner.Kind, owner.Name
		case "ReplicaSet":
			kind, name = "Deployment", owner.Name[:max(0, strings.LastIndex(owner.Name, "-"))]
		}
	}
	return kind + " " + pod.Namespace + "/" + name
}

func (s *state) add(kind, workload string, meta *metav1.ObjectMeta, spec *corev1.PodSpec) {
	for _, c := range spec.Containers {
		for _, p := range program.Of(c) {
			l, err := commandLineOf(p)
			s.processes = append(s.processes, process{
				Program: p, commandLine: l, err: err, workload: workload, kind: kind,
				namespace: cmp.Or(meta.Namespace, metav1.NamespaceSystem), name: meta.Name, node: spec.NodeName, account: cmp.Or(spec.ServiceAccountName, "default"),
			})
		}
	}
}

// that returns the processes whose command line can be parsed, and that match.
func (s *state) that(match func(process) bool) (all []process) {
	for _, p := range s.processes {
		if p.err == nil && match(p) {
			all = append(all, p)
		}
	}
	return all
}

// managers are the kube-controller-managers of this cluster.
func (s *state) managers() []process {
	return s.that(func(p process) bool { return p.Name == manager && !p.hosted })
}

// isPeer reports whether it is a node-ipam-controller, by its name or by that of its image.
func (p process) isPeer() bool { return p.Name == peer || strings.Contains(p.Image, peer) }

// isCloud reports whether the controller runs in another program than kube-controller-manager and node-ipam-controller.
func (p process) isCloud() bool { return p.Name != manager && !p.isPeer() && p.runsOurs() }

// ourTag is in the tags of this project's images, as hack/image-tag.sh makes them.
var ourTag = regexp.MustCompile(`:v[\d.]+-mc\d|/multicidr/`)

// isOurs reports whether a kube-controller-manager is this project's.
func (p process) isOurs() bool { return p.runsOurs() || ourTag.MatchString(p.Image) }

// foreign is what starts a program, if the image of this project does not have it; else empty. As upstream's, that of
// kube-controller-manager has /go-runner.
func (p process) foreign() string {
	if p.Wrapper != "" && (p.Wrapper != "/go-runner" || p.Name != manager) {
		return p.Wrapper
	}
	if slices.Contains([]string{"", p.Name, "/usr/local/bin/" + p.Name}, p.Path) {
		return ""
	}
	return p.Path
}

// checkStart reports a program that does not start in the image of this project.
func checkStart(fs *findings, about, when string, p process) {
	if p.foreign() != "" {
		fs.add(problem, about, "%s%v is started by %s, which this project's image does not have: the container cannot be created, and nothing runs in it. The image has /usr/local/bin/%s: let command begin with %s, and its flags follow",
			when, p, p.foreign(), p.Name, p.Name)
	}
}
