package main

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	sigsyaml "sigs.k8s.io/yaml"
)

const kubeadmAPI = "kubeadm.k8s.io/v1beta4"

var (
	//go:embed kubeadm.yaml
	defaultConfig []byte
	// kubeletConfig is for every kubelet, whatever the user's configuration says.
	//go:embed kubelet.yaml
	kubeletConfig []byte
)

func (m machine) kubeadmInit(ctx context.Context, opts upOptions) error {
	given := defaultConfig
	if opts.config != "" {
		var err error
		if given, err = os.ReadFile(opts.config); err != nil {
			return err
		}
	}
	documents, err := parse(given)
	if err != nil {
		return fmt.Errorf("read %s: %w", opts.config, err)
	}
	version, err := m.kubernetesVersion(ctx)
	if err != nil {
		return err
	}
	token, err := bootstraputil.GenerateBootstrapToken()
	if err != nil {
		return err
	}

	clusterConfig := documents.get(kubeadmAPI, "ClusterConfiguration")
	clusterConfig["kubernetesVersion"] = version
	clusterConfig["controlPlaneEndpoint"] = m.endpoint()
	// Services need kube-proxy and names need CoreDNS; the Pods here need neither, and an upgrade shall not install them either.
	clusterConfig.object("proxy")["disabled"] = true
	clusterConfig.object("dns")["disabled"] = true
	add(clusterConfig.object("apiServer"), "certSANs", "127.0.0.1")
	if opts.controlPlanes > 1 {
		// All members share the CPUs and the disk of one host. With etcd's defaults, 100 ms and 1 s, they could elect a new leader
		// whenever the host is busy, and nobody can write meanwhile.
		add(clusterConfig.object("etcd", "local"), "extraArgs",
			map[string]any{"name": "heartbeat-interval", "value": "300"}, map[string]any{"name": "election-timeout", "value": "3000"})
	}

	initConfig := documents.get(kubeadmAPI, "InitConfiguration")
	if err := m.register(initConfig, ""); err != nil {
		return err
	}
	number, err := m.number()
	if err != nil {
		return err
	}
	initConfig.object("localAPIEndpoint")["advertiseAddress"] = address4(number)
	initConfig["bootstrapTokens"] = []any{map[string]any{"token": token, "ttl": "0s"}}
	if err := m.setUpControlPlane(initConfig); err != nil {
		return err
	}

	ours, err := parse(kubeletConfig)
	if err != nil {
		return err
	}
	kubelet := documents.get("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration")
	maps.Copy(kubelet, ours[0])
	if err := os.WriteFile(filepath.Join(m.dir, "token"), []byte(token), 0o600); err != nil {
		return err
	}
	return m.kubeadm(ctx, "init", documents)
}

// patchesDir is where a control plane has kubeadm's patches for its static Pods.
const patchesDir = "/etc/kubernetes/patches"

// keepControlPlaneFiles keeps what every control plane is to have before kubeadm runs there, also those that join later.
func (c *cluster) keepControlPlaneFiles(opts upOptions) error {
	if err := os.Mkdir(c.controlPlaneFiles(""), 0o700); err != nil {
		return err
	}
	if opts.patches != "" {
		if err := os.CopyFS(c.controlPlaneFiles(patchesDir), os.DirFS(opts.patches)); err != nil {
			return err
		}
	}
	for there, file := range opts.files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		kept := c.controlPlaneFiles(there)
		if err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o700), os.WriteFile(kept, content, 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// controlPlaneFiles is where a file is kept that control planes have at the path.
func (c *cluster) controlPlaneFiles(path string) string {
	return filepath.Join(c.dir, "control-plane-files", path)
}

// setUpControlPlane gives the machine those files, and tells kubeadm of its patches.
func (m machine) setUpControlPlane(config document) error {
	if err := os.CopyFS(m.disk("/"), os.DirFS(m.controlPlaneFiles(""))); err != nil {
		return err
	}
	if _, err := os.Stat(m.disk(patchesDir)); err == nil {
		config.object("patches")["directory"] = patchesDir
	}
	return nil
}

// kubernetesVersion is that of bin; without it kubeadm would ask the internet for the newest.
func (c *cluster) kubernetesVersion(ctx context.Context) (string, error) {
	version, err := exec.CommandContext(ctx, filepath.Join(c.bin, "kubeadm"), "version", "--output=short").Output()
	return strings.TrimSpace(string(version)), err
}

type joinOptions struct {
	labels       string
	controlPlane bool
}

func (c *cluster) join(ctx context.Context, name string, opts joinOptions) error {
	token, err := os.ReadFile(filepath.Join(c.dir, "token"))
	if err != nil {
		return fmt.Errorf("there is no cluster in %s: start one with `cluster up`", c.dir)
	}
	// It becomes part of paths, and a name of its own in the cluster's cgroup.
	if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 || name == routerCommand {
		return fmt.Errorf("a machine cannot be called %q: use small letters, digits and -, and not %q", name, routerCommand)
	}
	// What kubeadm would otherwise have to be told by a token that it cannot trust yet: where the API server is and its CA.
	admin, err := c.adminConfig()
	if err != nil {
		return err
	}
	m := c.machine(name)
	c.say("boot %s", name)
	if err := m.create(ctx, opts.controlPlane); err != nil {
		return err
	}
	err = clientcmd.WriteToFile(clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{"": {
		Server: admin.Host, CertificateAuthorityData: admin.CAData,
	}}}, m.disk("etc/kubernetes/discovery.conf"))
	if err != nil {
		return err
	}
	var documents documents
	joinConfig := documents.get(kubeadmAPI, "JoinConfiguration")
	if err := m.register(joinConfig, opts.labels); err != nil {
		return err
	}
	joinConfig.object("discovery", "file")["kubeConfigPath"] = "/etc/kubernetes/discovery.conf"
	joinConfig.object("discovery")["tlsBootstrapToken"] = string(token)
	if opts.controlPlane {
		if err := m.joinAsControlPlane(ctx, joinConfig); err != nil {
			return err
		}
	}
	c.say("kubeadm join %s", name)
	return m.kubeadm(ctx, "join", documents)
}

// joinAsControlPlane lets another control plane upload its certificates, as `kubeadm init --upload-certs` does, and tells the machine of
// them. They are there for two hours only, and so they are made again for each one.
func (m machine) joinAsControlPlane(ctx context.Context, config document) error {
	number, err := m.number()
	if err != nil {
		return err
	}
	key := make([]byte, 32)
	rand.Read(key)
	if err := m.uploadCertificates(ctx, hex.EncodeToString(key)); err != nil {
		return err
	}
	config.object("controlPlane")["certificateKey"] = hex.EncodeToString(key)
	config.object("controlPlane", "localAPIEndpoint")["advertiseAddress"] = address4(number)
	return m.setUpControlPlane(config)
}

// uploadCertificates has the first other control plane do it that can.
func (m machine) uploadCertificates(ctx context.Context, key string) error {
	err := errors.New("no other control plane runs")
	for _, other := range m.controlPlanes() {
		if other.name == m.name {
			continue
		}
		if _, err = other.run(ctx, nil, "kubeadm", "init", "phase", "upload-certs", "--upload-certs", "--certificate-key="+key); err == nil {
			return nil
		}
	}
	return fmt.Errorf("upload the certificates that %s needs: %w", m.name, err)
}

// register fills in what init and join say of the machine.
func (m machine) register(config document, labels string) error {
	number, err := m.number()
	if err != nil {
		return err
	}
	registration := config.object("nodeRegistration")
	registration["name"] = m.name
	// All images are there, and there is nowhere to pull from.
	registration["imagePullPolicy"] = "Never"
	add(registration, "ignorePreflightErrors", "all")
	add(registration, "kubeletExtraArgs", map[string]any{"name": "node-ip", "value": address4(number) + "," + address6(number)})
	if labels != "" {
		add(registration, "kubeletExtraArgs", map[string]any{"name": "node-labels", "value": labels})
	}
	return nil
}

// kubeadm runs init or join with the configuration, of which it leaves a copy and its output on the machine.
func (m machine) kubeadm(ctx context.Context, verb string, config documents) error {
	content, err := config.marshal()
	if err != nil {
		return err
	}
	path := "/etc/kubernetes/kubeadm-" + verb + ".yaml"
	if err := os.WriteFile(m.disk(path), content, 0o600); err != nil {
		return err
	}
	output, err := m.run(ctx, nil, "kubeadm", verb, "--config="+path)
	return errors.Join(err, os.WriteFile(m.disk("var/log/kubeadm-"+verb+".log"), []byte(output), 0o644))
}

// documents are the parts of a configuration file.
type documents []document

type document map[string]any

func parse(content []byte) (documents, error) {
	var all documents
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
		var d document
		switch err := decoder.Decode(&d); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		case len(d) > 0:
			all = append(all, d)
		}
	}
}

// get is the document of a kind, which may be a new one.
func (all *documents) get(apiVersion, kind string) document {
	for _, d := range *all {
		if d["kind"] == kind {
			return d
		}
	}
	d := document{"apiVersion": apiVersion, "kind": kind}
	*all = append(*all, d)
	return d
}

func (all documents) marshal() ([]byte, error) {
	var content [][]byte
	for _, d := range all {
		one, err := sigsyaml.Marshal(d)
		if err != nil {
			return nil, err
		}
		content = append(content, one)
	}
	return bytes.Join(content, []byte("---\n")), nil
}

// object is the object at the path, which may be a new one; what is there and no object, such as null, is replaced.
func (d document) object(path ...string) map[string]any {
	object := map[string]any(d)
	for _, field := range path {
		child, ok := object[field].(map[string]any)
		if !ok {
			child = map[string]any{}
			object[field] = child
		}
		object = child
	}
	return object
}

// add appends to a list of an object.
func add(object map[string]any, field string, values ...any) {
	list, _ := object[field].([]any)
	object[field] = slices.Concat(list, values)
}
