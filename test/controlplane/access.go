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
	path, err := os.CreateTemp(cp.path("kubeconfig"), user+"-*.yaml")
	if err != nil {
		return "", err
	}
	if err := path.Close(); err != nil {
		return "", err
	}
	const name = "local"
	return path.Name(), clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: config.Host, CertificateAuthorityData: config.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{user: {
			ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: user}},
		CurrentContext: name,
	}, path.Name())
}
