package chart

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"helm.sh/helm/v4/pkg/chart/v2/loader"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// audited is every request of the chart's service accounts.
const audited = `userGroups: ["system:serviceaccounts:` + namespace + `"]`

// The program does all of its work with what the chart renders and nothing else: the account and its permissions, arguments,
// environment and probes are read from what Helm stored in the API server.
func TestProgramRunsAsRendered(t *testing.T) {
	tests := map[string]struct {
		set   string
		lease string
	}{
		"with defaults":        {set: "defaults", lease: "node-ipam-controller"},
		"with everything on":   {set: "everything-on", lease: "123"},
		"without any election": {set: "everything-off"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			audit, auditLog, err := controlplane.Audit(dir, audited)
			if err != nil {
				t.Fatal(err)
			}
			c := startCluster(t, controlplane.Options{APIServerArgs: audit})
			values := valueSets(t)[tc.set]
			service := map[string]any{"port": freePort(t)}
			if tc.set == "everything-on" {
				service["securePort"] = freePort(t)
			}
			// There is no Prometheus Operator here, and without somebody else's CRD and account there is nothing to see.
			values = loader.MergeMaps(values, map[string]any{"service": service, "installCRDs": true,
				"serviceMonitor": map[string]any{"enabled": false}, "prometheusRule": map[string]any{"enabled": false}, "serviceAccount": map[string]any{"create": true}})
			kubeconfigServer := c.AdminConfig().Host
			if tc.set == "everything-off" {
				// Only the value leads to the API server, by the Pod's variable.
				values["apiServer"] = strings.Replace(kubeconfigServer, "127.0.0.1", "$(HOST_IP)", 1)
				kubeconfigServer = "https://127.0.0.1:1"
			}
			c.install(t, loadChart(t), releaseName, values)

			pod := c.startPod(t, kubeconfigServer)
			pod.eventuallyOK(t, pod.container.LivenessProbe)
			pod.eventuallyOK(t, pod.container.ReadinessProbe)
			if tc.set == "everything-on" {
				c.disableFromFlag(t)
			}
			c.serveNode(t)
			if tc.lease != "" {
				lease, err := c.kube.CoordinationV1().Leases(namespace).Get(t.Context(), tc.lease, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if holder := *orZero(lease.Spec.HolderIdentity); !strings.HasPrefix(holder, podName+"_") {
					t.Errorf("the holder of the Lease is %q, want the Pod", holder)
				}
			}
			if tc.set == "everything-on" {
				c.fenced(t)
				c.metricsForTheirReadersOnly(t, service["securePort"].(int))
			}
			if err := pod.process.Stop(); err != nil {
				t.Error(err)
			}
			pod.nothingForbidden(t, auditLog)
		})
	}
}

// podName is what the Deployment's Pod would be called.
const podName = fullname + "-5b7d9"

// pod is the program, started as a kubelet would.
type pod struct {
	process   *controlplane.Process
	container corev1.Container
}

// startPod starts the program on this machine as the Pod that is in the API server says.
func (c *cluster) startPod(t *testing.T, kubeconfigServer string) *pod {
	t.Helper()
	deployment, err := c.kube.AppsV1().Deployments(namespace).Get(t.Context(), fullname, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spec := deployment.Spec.Template.Spec
	p := &pod{container: spec.Containers[0]}
	if len(p.container.Command) > 0 {
		t.Fatalf("the container has the command %q; this test knows only the image's own", p.container.Command)
	}

	fields := map[string]string{"metadata.name": podName, "metadata.namespace": namespace, "status.hostIP": "127.0.0.1"}
	// env starts what comes after the variables in its own place, so the process is the program.
	var command []string
	var replace []string
	for _, env := range p.container.Env {
		if ref := env.ValueFrom.ResourceFieldRef; ref != nil {
			if ref.Resource != "limits.memory" || ref.ContainerName != "" {
				t.Fatalf("variable %s is %s, which this test does not know", env.Name, ref)
			}
			command = append(command, fmt.Sprintf("%s=%d", env.Name, p.container.Resources.Limits.Memory().Value()))
			continue
		}
		value, ok := fields[env.ValueFrom.FieldRef.FieldPath]
		if !ok {
			t.Fatalf("variable %s is %s, which this test does not know", env.Name, env.ValueFrom.FieldRef.FieldPath)
		}
		command = append(command, env.Name+"="+value)
		replace = append(replace, "$("+env.Name+")", value)
	}
	// A Pod would find these at fixed places of its file system; through a variable the rendered arguments stay as they are.
	command = append(command, "IPAM_KUBECONFIG="+c.accountKubeconfig(t, spec.ServiceAccountName, kubeconfigServer), program(t))
	for _, arg := range p.container.Args {
		command = append(command, strings.NewReplacer(replace...).Replace(arg))
	}
	env, err := exec.LookPath("env")
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(c.LogDir(), "node-ipam-controller.log")
	if p.process, err = controlplane.StartProcess("node-ipam-controller", log, env, command...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.process.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			log, err := p.process.Log()
			t.Logf("log of the program (%v):\n%s", err, log)
		}
	})
	return p
}

// accountKubeconfig writes a kubeconfig with a token for a ServiceAccount, as a kubelet asks for one.
func (c *cluster) accountKubeconfig(t *testing.T, account, server string) string {
	t.Helper()
	config := c.as(t, account)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"local": {Server: server, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{account: {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"local": {Cluster: "local", AuthInfo: account}},
		CurrentContext: "local",
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// as is a client configuration with a token for a ServiceAccount.
func (c *cluster) as(t *testing.T, account string) *rest.Config {
	t.Helper()
	request, err := c.kube.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(c.AdminConfig())
	config.BearerToken = request.Status.Token
	return config
}

// eventuallyOK asks as a kubelet would, until the answer is good.
func (p *pod) eventuallyOK(t *testing.T, probe *corev1.Probe) {
	t.Helper()
	get := probe.HTTPGet
	port := get.Port
	for _, p := range p.container.Ports {
		if p.Name == port.StrVal {
			port = intstr.FromInt32(p.ContainerPort)
		}
	}
	// Without a host it asks the Pod's address; here that may be any of this machine's.
	url := fmt.Sprintf("http://%s:%d%s", cmp.Or(get.Host, "127.0.0.1"), port.IntValue(), get.Path)
	eventually(t, func(ctx context.Context) error {
		return ask(ctx, http.DefaultClient, url)
	})
}

// ask returns an error unless the answer is 200.
func ask(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %.200s", url, answer.Status, body)
	}
	return err
}

// disableFromFlag waits for the ClusterCIDR that the program makes of --cluster-cidr, and takes it out of the way.
func (c *cluster) disableFromFlag(t *testing.T) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		all, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().List(ctx, metav1.ListOptions{LabelSelector: networkingv1.LabelCreatedFromFlags})
		if err == nil && len(all.Items) != 1 {
			err = fmt.Errorf("there are %d ClusterCIDRs of flags", len(all.Items))
		}
		if err == nil {
			_, err = c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Patch(ctx, all.Items[0].Name, types.MergePatchType, []byte(`{"spec":{"allocation":"Disabled"}}`), metav1.PatchOptions{})
		}
		return err
	})
}

// serveNode sees the controller do what it needs permissions for: serve a Node, guard a ClusterCIDR and write its status, write an event.
func (c *cluster) serveNode(t *testing.T) {
	t.Helper()
	ctx, name := t.Context(), "one-block"
	c.create(t, &networkingv1.ClusterCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/24", PerNodeHostBits: 8},
	})
	for _, node := range []string{"served", "waiting"} {
		if _, err := c.kube.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if node == "served" {
			c.waitServed(t, node)
		}
	}
	eventually(t, func(ctx context.Context) error {
		cc, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Get(ctx, name, metav1.GetOptions{})
		if err == nil && (len(cc.Finalizers) != 1 || cc.Status.IPv4 == nil) {
			err = fmt.Errorf("ClusterCIDR %s has finalizers %q and status %+v", name, cc.Finalizers, cc.Status)
		}
		return err
	})
	eventually(t, func(ctx context.Context) error {
		events, err := c.kube.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=waiting,reason=CIDRNotAvailable"})
		if err == nil && len(events.Items) == 0 {
			err = fmt.Errorf("no event says that Node waiting waits")
		}
		return err
	})
}

// waitServed waits until the Node has the only block there is.
func (c *cluster) waitServed(t *testing.T, node string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		got, err := c.kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err == nil && got.Spec.PodCIDR != "10.0.0.0/24" {
			err = fmt.Errorf("Node %s has podCIDR %q", node, got.Spec.PodCIDR)
		}
		return err
	})
}

// fenced: the policy looks at the Lease that the program holds, so it lets the program through and nobody else.
func (c *cluster) fenced(t *testing.T) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		// Dry run: the Node must stay as it is until the policy is in force, which is a moment after it was created.
		_, err := c.kube.CoreV1().Nodes().Patch(ctx, "waiting", types.StrategicMergePatchType, []byte(`{"spec":{"podCIDR":"10.9.0.0/24","podCIDRs":["10.9.0.0/24"]}}`),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "Lease "+namespace+"/123") {
			return fmt.Errorf("an administrator gives a Node podCIDRs: %v, want it forbidden for the Lease's sake", err)
		}
		return nil
	})
	if err := c.kube.CoreV1().Nodes().Delete(t.Context(), "served", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.waitServed(t, "waiting")
}

// metricsForTheirReadersOnly: whoever the API server lets, sees them. Asking it takes the chart's two further bindings.
func (c *cluster) metricsForTheirReadersOnly(t *testing.T, port int) {
	t.Helper()
	url := fmt.Sprintf("https://127.0.0.1:%d/metrics", port)
	client := func(config *rest.Config) *http.Client {
		config.TLSClientConfig = rest.TLSClientConfig{Insecure: true} // its certificate is its own, as for Prometheus
		httpClient, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		return httpClient
	}
	reader := "reader"
	if _, err := c.kube.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: reader}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	account := c.as(t, reader)
	if err := ask(t.Context(), client(rest.CopyConfig(account)), url); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("an account without permission: %v, want 403", err)
	}
	if err := c.Apply(t.Context(), "testdata/metrics-reader.yaml"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error { return ask(ctx, client(rest.CopyConfig(account)), url) })
}

// nothingForbidden: neither the program nor the API server says that a permission was missing, and the log is of this program.
func (p *pod) nothingForbidden(t *testing.T, auditLog string) {
	t.Helper()
	log, err := p.process.Log()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(log) {
		if strings.Contains(strings.ToLower(line), "forbidden") {
			t.Errorf("the log says %s", line)
		}
	}
	events, err := controlplane.ReadAudit(auditLog, 0)
	if err != nil {
		t.Fatal(err)
	}
	requests := 0
	for _, event := range events {
		if event.User.Username != "system:serviceaccount:"+namespace+":"+fullname && event.User.Username != "system:serviceaccount:"+namespace+":ipam-account" {
			continue
		}
		requests++
		if event.ResponseStatus != nil && event.ResponseStatus.Code == http.StatusForbidden {
			t.Errorf("the API server refused %s %s", event.Verb, event.RequestURI)
		}
	}
	if requests == 0 {
		t.Error("the audit log has no request of the program")
	}
}

// patience only shows on a failure.
const patience = time.Minute

// eventually waits until the condition has no error.
func eventually(t *testing.T, condition func(context.Context) error) {
	t.Helper()
	if err := controlplane.Eventually(t.Context(), patience, condition); err != nil {
		t.Fatal(err)
	}
}

// freePort is one that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}
