package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// certificateLifetime outlasts anybody's session with the control plane.
const certificateLifetime = 365 * 24 * time.Hour

// authority is the CA that every server and client of the control plane trusts.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newPKI writes a new CA, the servers' certificates, the API server's client certificate for etcd and
// the service accounts' key pair into dir. Elliptic keys, because eight RSA keys take seconds.
func newPKI(dir string) (*authority, error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, fmt.Errorf("make a CA: %w", err)
	}
	caKey, err := keyutil.MarshalPrivateKeyToPEM(ca.key)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"ca.crt": pemBlock(cert.CertificateBlockType, ca.cert.Raw), "ca.key": caKey}

	for name, template := range map[string]*x509.Certificate{
		"etcd":        serving("etcd"),
		"apiserver":   serving("kube-apiserver", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"),
		"manager":     serving("kube-controller-manager"),
		"etcd-client": client("kube-apiserver-etcd-client"),
	} {
		if files[name+".crt"], files[name+".key"], err = ca.issue(template); err != nil {
			return nil, fmt.Errorf("issue %s.crt: %w", name, err)
		}
	}

	serviceAccountKey, err := newKey()
	if err != nil {
		return nil, err
	}
	if files["sa.key"], err = keyutil.MarshalPrivateKeyToPEM(serviceAccountKey); err != nil {
		return nil, err
	}
	publicKey, err := x509.MarshalPKIXPublicKey(serviceAccountKey.Public())
	if err != nil {
		return nil, err
	}
	files["sa.pub"] = pemBlock(keyutil.PublicKeyBlockType, publicKey)

	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, err
		}
	}
	return ca, nil
}

func newAuthority() (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "local-control-plane"}, key)
	if err != nil {
		return nil, err
	}
	return &authority{cert: certificate, key: key}, nil
}

// serving is the template of a server on loopback.
func serving(commonName string, dnsNames ...string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: commonName},
		DNSNames:    append(dnsNames, "localhost"),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
}

// client is the template of a client: to Kubernetes the common name is the user.
func client(user string, groups ...string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// issue signs a certificate for a new key and returns both as PEM.
func (ca *authority) issue(template *x509.Certificate) (certPEM, keyPEM []byte, err error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, nil, err
	}
	template.NotBefore = ca.cert.NotBefore
	template.NotAfter = time.Now().Add(certificateLifetime)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key)
	return pemBlock(cert.CertificateBlockType, der), keyPEM, err
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func pemBlock(blockType string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der})
}
