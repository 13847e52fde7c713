// Package tunnel connects to a port of a Pod through the API server, as kubectl port-forward does, but without a port on this machine.
package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream" //nolint:staticcheck // v1.36 moved it to k8s.io/streaming, which v1.35 does not have.
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// Tunnel is a connection to a Pod that carries connections to its ports.
type Tunnel struct {
	streams httpstream.Connection
	last    atomic.Int64 // number of the last connection
}

// Open opens a tunnel to a Pod.
func Open(config *rest.Config, namespace, pod string) (*Tunnel, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	path := kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	overWebSocket, err := portforward.NewSPDYOverWebsocketDialer(path, config)
	if err != nil {
		return nil, err
	}
	// API servers before v1.31, and some proxies, do not know the newer protocol. Their errors have another type in each minor version of client-go,
	// so the older protocol is tried after every error. What does not answer at all fails again.
	dialer := portforward.NewFallbackDialer(overWebSocket, spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, path), func(error) bool { return true })
	streams, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, err
	}
	return &Tunnel{streams: streams}, nil
}

// Close ends all connections.
func (t *Tunnel) Close() error { return t.streams.Close() }

// Dial connects to a port of the Pod. That nobody listens there is seen when the connection is read.
func (t *Tunnel) Dial(port int) (net.Conn, error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, fmt.Sprint(t.last.Add(1)))
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	problems, err := t.streams.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	_ = problems.Close() // This closes our side, on which nothing is written.
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := t.streams.CreateStream(headers)
	if err != nil {
		t.streams.RemoveStreams(problems)
		return nil, err
	}
	return &connection{Stream: data, problems: problems, tunnel: t}, nil
}

// connection is one connection to a port.
type connection struct {
	httpstream.Stream
	problems httpstream.Stream
	tunnel   *Tunnel
}

// Read reads what the Pod has written. At the end it returns why the connection failed, if it did.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Stream.Read(p)
	if n > 0 || !errors.Is(err, io.EOF) {
		return n, err
	}
	if message, _ := io.ReadAll(c.problems); len(message) > 0 { // Without a message it is an end as any other.
		return 0, errors.New(string(message))
	}
	return 0, err
}

func (c *connection) Close() error {
	err := c.Reset()
	c.tunnel.streams.RemoveStreams(c.Stream, c.problems)
	return err
}

// The rest of a net.Conn. Contexts bound requests, by closing the connection.

func (c *connection) LocalAddr() net.Addr              { return address{} }
func (c *connection) RemoteAddr() net.Addr             { return address{} }
func (c *connection) SetDeadline(time.Time) error      { return nil }
func (c *connection) SetReadDeadline(time.Time) error  { return nil }
func (c *connection) SetWriteDeadline(time.Time) error { return nil }

type address struct{}

func (address) Network() string { return "tunnel" }
func (address) String() string  { return "tunnel" }

// Client returns a client for HTTPS servers with the credentials of a configuration, that connects with dial. A manager's certificate is usually
// one that it has made for itself, so it is not verified.
func Client(config *rest.Config, dial func(ctx context.Context, network, address string) (net.Conn, error)) (*http.Client, error) {
	c := rest.AnonymousClientConfig(config)
	c.TLSClientConfig = rest.TLSClientConfig{
		Insecure: true,
		CertFile: config.CertFile, CertData: config.CertData, KeyFile: config.KeyFile, KeyData: config.KeyData,
	}
	c.BearerToken, c.BearerTokenFile, c.Username, c.Password = config.BearerToken, config.BearerTokenFile, config.Username, config.Password
	c.AuthProvider, c.AuthConfigPersister, c.ExecProvider = config.AuthProvider, config.AuthConfigPersister, config.ExecProvider
	c.Dial, c.Proxy = dial, func(*http.Request) (*url.URL, error) { return nil, nil }
	return rest.HTTPClientFor(c)
}
