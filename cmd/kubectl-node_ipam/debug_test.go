package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"      //nolint:staticcheck // See package tunnel.
	"k8s.io/apimachinery/pkg/util/httpstream/spdy" //nolint:staticcheck // See package tunnel.
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/cluster"
)

// forwarder is an API server that can only forward ports of Pods.
type forwarder struct {
	to        map[string]string // namespace/pod:port -> address
	forbidden bool
}

var portForward = regexp.MustCompile(`^/api/v1/namespaces/([^/]+)/pods/([^/]+)/portforward$`)

func (f forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	match := portForward.FindStringSubmatch(r.URL.Path)
	switch {
	case match == nil:
		http.NotFound(w, r)
		return
	case f.forbidden:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`)
		return
	case r.Method == http.MethodGet: // The client then takes the older protocol.
		http.Error(w, "no WebSockets", http.StatusBadRequest)
		return
	}
	w.Header().Set(httpstream.HeaderProtocolVersion, "portforward.k8s.io")
	problems := map[string]httpstream.Stream{}
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
		id := s.Headers().Get(corev1.PortForwardRequestIDHeader)
		if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
			problems[id] = s
			return nil
		}
		go carry(s, problems[id], f.to[fmt.Sprintf("%s/%s:%s", match[1], match[2], s.Headers().Get(corev1.PortHeader))])
		return nil
	})
	if conn != nil {
		<-conn.CloseChan()
	}
}

func carry(data, problem httpstream.Stream, address string) {
	defer data.Close()
	defer problem.Close()
	c, err := net.Dial("tcp", address)
	if err != nil {
		fmt.Fprint(problem, "connection refused")
		return
	}
	defer c.Close()
	go io.Copy(c, data)
	_, _ = io.Copy(data, c)
}

const theLease = `
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: kube-controller-manager, namespace: kube-system}
spec: {holderIdentity: cp1_uid, renewTime: "2026-11-23T11:59:58.000000Z", leaseDurationSeconds: 15}
`

const thePod = `
---
apiVersion: v1
kind: Pod
metadata: {name: kube-controller-manager-cp1, namespace: kube-system}
spec: {hostNetwork: true, nodeName: cp1, containers: [{name: kube-controller-manager, command: [kube-controller-manager]}]}
`

// The controller leads as a program of its own, in a Pod without the host's network.
const alone = `
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: node-ipam-controller, namespace: ipam}
spec: {holderIdentity: nic-x_uid, renewTime: "2026-11-23T11:59:58.000000Z", leaseDurationSeconds: 15}
---
apiVersion: v1
kind: Pod
metadata: {name: nic-x, namespace: ipam}
spec: {containers: [{name: node-ipam-controller, args: [--secure-port=8443]}]}
`

// The controller leads in a cloud-controller-manager of some provider, which has a port of its own for it.
const inCloud = `
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: node-ipam-controller
  namespace: kube-system
  labels: {networking.x-k8s.io/node-ipam-term: "0"}
spec: {holderIdentity: cp1_uid, renewTime: "2026-11-23T11:59:58.000000Z", leaseDurationSeconds: 15}
---
apiVersion: v1
kind: Pod
metadata: {name: acme-ccm-cp1, namespace: kube-system}
spec: {hostNetwork: true, nodeName: cp1, containers: [{name: acme, command: [/acme], args: ["--controllers=*,multicidrnodeipam", --secure-port=10258]}]}
`

func TestDebug(t *testing.T) {
	leader := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == debugPath {
			fmt.Fprintf(w, "page for %q, query %q", r.Header.Get("Authorization"), r.URL.RawQuery)
		}
	}))
	defer leader.Close()
	standby := httptest.NewTLSServer(http.NotFoundHandler())
	defer standby.Close()
	nobody := "127.0.0.1:1"
	for what, tc := range map[string]struct {
		objects   string
		args      string
		at        map[string]string // nil: cp1 is the leader
		forbidden bool
		noLeases  bool // may be listed
		want      string
	}{
		"a static Pod":            {objects: theLease + thePod, args: "--token=t", want: `page for "Bearer t", query "format=json"`},
		"the leader is node-ipam": {objects: theLease + thePod + "---" + alone, at: map[string]string{"ipam/nic-x:8443": leader.Listener.Addr().String()}, want: `page for "", query "format=json"`},
		"in a cloud-controller-manager": {objects: theLease + thePod + "---" + inCloud, at: map[string]string{"kube-system/acme-ccm-cp1:10262": leader.Listener.Addr().String()},
			want: `page for "", query "format=json"`},
		"in a cloud-controller-manager without that port": {objects: strings.ReplaceAll(inCloud, "--secure-port=10258", "--node-ipam-secure-port=0"),
			want: "the leader, Pod kube-system/acme-ccm-cp1, has --node-ipam-secure-port=0, and so no debug page"},
		"in a cloud-controller-manager in no Pod": {objects: strings.ReplaceAll(inCloud, "multicidrnodeipam", "-multicidrnodeipam"),
			want: "ssh -NL 10257:127.0.0.1:10257 cp1 (or the port of its --secure-port or, in a cloud-controller-manager, its --node-ipam-secure-port)"},
		"a token for anybody's Pod":  {objects: alone, args: "--token=t", want: "which is sent to Pods of kube-system only"},
		"an address":                 {args: "--address=" + leader.Listener.Addr().String(), want: `page for "", query "format=json"`},
		"a token for another host":   {args: "--token=t --address=192.0.2.1:10257", want: "which is sent to addresses of this machine only"},
		"nobody listens":             {objects: theLease + thePod, at: map[string]string{"kube-system/kube-controller-manager-cp1:10257": nobody}, want: "does not answer: connection refused"},
		"no such page":               {objects: theLease + thePod, at: map[string]string{"kube-system/kube-controller-manager-cp1:10257": standby.Listener.Addr().String()}, want: "it does not run the controller, or is not the leader"},
		"ports may not be forwarded": {objects: theLease + thePod, forbidden: true, want: "ask for permission to create and get pods/portforward in kube-system. Or open a tunnel"},
		"no Pod":                     {objects: theLease, want: "the leader cp1 runs in no Pod of kube-system: open a tunnel"},
		"no HTTPS port":              {objects: strings.ReplaceAll(alone, "--secure-port=8443", ""), want: "set service.securePort of the Helm chart"},
		"Leases may not be listed":   {objects: theLease + thePod, noLeases: true, want: "error: without Leases the leader cannot be found: say with --address where it is"},
		"as another user":            {args: "--as=somebody --address=" + leader.Listener.Addr().String(), want: "warning: the debug page is shown to you and not to the user of --as"},
		"no leader":                  {objects: strings.ReplaceAll(theLease, "11:59:58", "11:00:00"), want: "no process holds a Lease of the controller"},
	} {
		t.Run(what, func(t *testing.T) {
			if tc.at == nil {
				tc.at = map[string]string{"kube-system/kube-controller-manager-cp1:10257": leader.Listener.Addr().String()}
			}
			server := httptest.NewTLSServer(forwarder{tc.at, tc.forbidden})
			defer server.Close()
			var forbidden []string
			if tc.forbidden {
				forbidden = append(forbidden, "pods/portforward")
			}
			if tc.noLeases {
				forbidden = append(forbidden, "leases")
			}
			got := debug(t, tc.objects, forbidden, "debug -o json --insecure-skip-tls-verify --server="+server.URL+" "+tc.args)
			if !strings.Contains(got, tc.want) {
				t.Errorf("it says %q, want %q", got, tc.want)
			}
		})
	}
}

// debug runs a command line and returns all that it writes.
func debug(t *testing.T, objects string, forbidden []string, line string) string {
	w := world{t: t}
	w.set(objects)
	w.forbidden = forbidden // set forgets what was
	var out bytes.Buffer
	p := &program{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}, now: func() time.Time { return now }}
	p.connect = func() (*cluster.Reader, error) { return w.reader(), nil }
	p.run(t.Context(), strings.Fields(line))
	return out.String()
}
