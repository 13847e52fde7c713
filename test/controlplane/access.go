package controlplane

import (
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// AdminConfig is a client configuration that may do everything, without client-side rate limit.
func (cp *ControlPlane) AdminConfig() *rest.Config { return rest.CopyConfig(cp.admin) }

// Config is a client configuration with a certificate for the user.
func (cp *ControlPlane) Config(user string, groups ...string) (*rest.Config, error) {
	certificate, key, err := cp.ca.issue(client(user, groups...))
	if err != nil {
		return nil, fmt.Errorf("issue a client certificate for %s: %w", user, err)
	}
	return &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", cp.serverPort),
		QPS:  -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: pemBlock("CERTIFICATE", cp.ca.cert.Raw), CertData: certificate, KeyData: key,
		},
	}, nil
}

// Kubeconfig writes a kubeconfig with a certificate for the user and returns its path.
// A user called "admin" in group "system:masters" may do everything.
func (cp *ControlPlane) Kubeconfig(user string, groups ...string) (string, error) {
	config, err := cp.Config(user, groups...)
	if err != nil {
		return "", err
	}
	return cp.WriteKubeconfig(user, config)
}

// WriteKubeconfig writes a configuration with a client certificate as a kubeconfig, for instance one whose Host is a
// proxy, and returns its path. name is for the file and for messages.
func (cp *ControlPlane) WriteKubeconfig(name string, config *rest.Config) (string, error) {
	path, err := os.CreateTemp(cp.path("kubeconfig"), name+"-*.yaml")
	if err != nil {
		return "", err
	}
	if err := path.Close(); err != nil {
		return "", err
	}
	const cluster = "local"
	return path.Name(), clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{cluster: {
			Server: config.Host, CertificateAuthorityData: config.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
		}},
		Contexts:       map[string]*clientcmdapi.Context{cluster: {Cluster: cluster, AuthInfo: name}},
		CurrentContext: cluster,
	}, path.Name())
}

// ServingCertificate issues a certificate for a server on loopback that the control plane's clients shall trust, such as
// a proxy in front of the API server. Both are PEM.
func (cp *ControlPlane) ServingCertificate(commonName string) (certificate, key []byte, err error) {
	return cp.ca.issue(serving(commonName))
}
