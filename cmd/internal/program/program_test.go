package program

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
)

// A program is found by what starts it. Commands are in brackets where a word has spaces.
func TestOf(t *testing.T) {
	const stock, flags = "registry.k8s.io/kube-controller-manager:v1.37.1", "--allocate-node-cidrs=true --cluster-cidr=10.244.0.0/16"
	env := func(pairs ...string) (all []corev1.EnvVar) {
		for _, p := range pairs {
			name, value, _ := strings.Cut(p, "=")
			all = append(all, corev1.EnvVar{Name: name, Value: value})
		}
		return append(all, corev1.EnvVar{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{}})
	}
	for description, tc := range map[string]struct {
		c    corev1.Container
		want string // name, wrapper and arguments of the programs that matter
	}{
		"by name, as kubeadm does":     {corev1.Container{Image: "any", Command: strings.Fields(Manager + " " + flags)}, Manager + " " + flags},
		"by path, as Gardener does":    {corev1.Container{Image: "any", Command: []string{"/usr/local/bin/" + Manager}, Args: strings.Fields(flags)}, Manager + " " + flags},
		"go-runner, as kOps does":      {corev1.Container{Command: strings.Fields("/go-runner --also-stdout --log-file=/var/log/kcm.log /usr/local/bin/" + Manager + " " + flags)}, Manager + " (/go-runner) " + flags},
		"tini":                         {corev1.Container{Command: strings.Fields("/sbin/tini -- " + Manager + " " + flags)}, Manager + " (/sbin/tini) " + flags},
		"hyperkube":                    {corev1.Container{Command: strings.Fields("/hyperkube " + Manager + " " + flags)}, Manager + " (/hyperkube) " + flags},
		"hyperkube's own name":         {corev1.Container{Command: []string{"hyperkube", "controller-manager"}, Args: strings.Fields(flags)}, Manager + " (hyperkube) " + flags},
		"the entry point of the image": {corev1.Container{Image: stock, Args: strings.Fields(flags)}, Manager + " " + flags},
		"an argument of it":            {corev1.Container{Image: stock, Args: strings.Fields(Manager + " " + flags)}, Manager + " (the entry point of its image) " + flags},
		"the image of an old platform": {corev1.Container{Image: "gcr.io/k8s/kube-controller-manager-amd64@sha256:0", Args: strings.Fields(flags)}, Manager + " " + flags},
		"the image of a mirror":        {corev1.Container{Image: "r.example.com:5000/k8s-kube-controller-manager:v1", Args: strings.Fields(flags)}, Manager + " " + flags},
		"an operator":                  {corev1.Container{Image: "example.com/cluster-kube-controller-manager-operator:v1", Args: []string{"operator", "--v=2"}}, "operator (the entry point of its image) --v=2"},
		"a shell":                      {corev1.Container{Command: []string{"/bin/sh", "-c", "exec " + Manager + " " + flags + " 2>&1 | tee -a /var/log/kcm.log"}}, Manager + " (/bin/sh) " + flags + " 2"},
		"a shell, as OpenShift does": {corev1.Container{Command: []string{"/bin/bash", "-euxo", "pipefail", "-c"}, Args: []string{`
			timeout 3m /bin/bash -c 'while [ -n "$(ss -Htanop)" ]; do sleep 1; done' # a comment; kube-proxy --no
			if [ -f /etc/ca ]; then
			  cp /etc/ca /etc/pki
			fi
			exec hyperkube kube-controller-manager --openshift-config=/etc/config.yaml \
			  --allocate-node-cidrs=false "--cluster-cidr"  '10.244.0.0/16' --name=$(hostname) -v=2 --root=` + "`pwd`" + ` --tls="a b"`}},
			Manager + " (/bin/bash) --openshift-config=/etc/config.yaml --allocate-node-cidrs=false --cluster-cidr 10.244.0.0/16 -v=2 --tls=a b, hidden name root"},
		"a shell behind another wrapper": {corev1.Container{Command: []string{"nsenter", "-t", "1", "--", "sh", "-ec", "F=\"" + flags + "\"; /bin/" + Manager + " $F"}}, Manager + " (nsenter) " + flags},
		"arguments of a script":          {corev1.Container{Command: []string{"sh", "-c", `exec ` + Manager + ` "$@"`, "--"}, Args: strings.Fields(flags)}, Manager + " (sh) " + flags},
		"variables":                      {corev1.Container{Command: []string{Manager, "--allocate-node-cidrs=$(YES)", "--cluster-cidr=$(CIDR)"}, Env: env("YES=true", "CIDR=10.244.0.0/16")}, Manager + " " + flags},
		"a variable of a shell":          {corev1.Container{Command: []string{"sh", "-c", Manager + " $FLAGS"}, Env: env("FLAGS=" + flags)}, Manager + " (sh) " + flags},
		"unknown variables":              {corev1.Container{Command: []string{Manager, "--allocate-node-cidrs=true", "--cluster-cidr", "$(SECRET)", "--v=2"}, Env: env()}, Manager + " --allocate-node-cidrs=true --v=2, hidden cluster-cidr"},
		"unknown flags":                  {corev1.Container{Command: []string{"sh", "-c", Manager + " --v=2 $FLAGS"}}, Manager + " (sh) --v=2, unread"},
		"a script in the image":          {corev1.Container{Image: stock, Command: []string{"/start.sh", "--fast"}}, Manager + " (/start.sh) --fast, unread"},
		"by the name of the container":   {corev1.Container{Name: Manager, Image: "example.com/all:v1", Command: []string{"/start"}}, Manager + " (/start) , unread"},
		"only mentioned":                 {corev1.Container{Command: []string{"sh", "-c", "while ! pgrep kube-controller-manager; do sleep 1; done; /bin/x --v=2"}}, "x (sh) --v=2"},
		"an unknown program":             {corev1.Container{Image: "example.com/x-cloud-controller-manager:v1", Command: []string{"/bin/x", "--allocate-node-cidrs"}}, "x --allocate-node-cidrs"},
		"nothing":                        {corev1.Container{Image: "pause"}, "pause "},
	} {
		t.Run(description, func(t *testing.T) {
			var got []string
			for _, p := range Of(tc.c) {
				text := p.Name + " "
				if p.Wrapper != "" {
					text += "(" + p.Wrapper + ") "
				}
				text += strings.Join(p.Args, " ")
				if len(p.Hidden) > 0 {
					text += ", hidden " + strings.Join(p.Hidden, " ")
				}
				if p.Unread {
					text += ", unread"
				}
				if name, _, _ := strings.Cut(tc.want, " "); p.Name == name {
					got = append(got, text)
				}
			}
			if diff := cmp.Diff([]string{tc.want}, got); diff != "" {
				t.Errorf("programs (-want +got):\n%s\nof %+v", diff, Of(tc.c))
			}
		})
	}
}
