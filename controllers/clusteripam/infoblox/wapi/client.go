package wapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Config says where an Infoblox is and who asks.
type Config struct {
	// Host is a name or an address. An IPv6 address may have brackets.
	Host string
	// Port is 443 if it is empty.
	Port    string
	Version string

	// Username and Password, or a client certificate in PEM.
	Username, Password    string
	ClientCert, ClientKey []byte

	// CAFile has the certificates, in PEM, of the authorities that the server's certificate may come from; those of the system if it is empty.
	CAFile string
	// Insecure turns the verification of the server off.
	Insecure bool
}

// Client sends requests to one Infoblox. It is safe for concurrent use.
type Client struct {
	base     string
	username string
	password string
	http     http.Client
}

const (
	// timeout limits every request, beside its context.
	timeout = 5 * time.Second
	// maxAnswer limits how much of an answer is read.
	maxAnswer = 16 << 20
)

// New returns a client. It sends nothing.
func New(c Config) (*Client, error) {
	address, err := Address(c.Host, c.Port)
	if err != nil {
		return nil, err
	}
	version := strings.TrimPrefix(c.Version, "v")
	if version == "" || strings.Trim(version, "0123456789.") != "" {
		return nil, fmt.Errorf("the WAPI version %q is not a version like 2.12", c.Version)
	}
	tlsConfig, err := c.tls()
	if err != nil {
		return nil, err
	}
	client := Over(&http.Transport{
		TLSClientConfig:     tlsConfig, // With a configuration of its own a transport speaks HTTP/1.1, and repeats no write.
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     90 * time.Second,
	})
	client.base, client.username, client.password = "https://"+address+"/wapi/v"+version+"/", c.Username, c.Password
	return client, nil
}

// Over returns a client that sends its requests over a transport, without credentials and to no host: for tests with a fake Infoblox.
func Over(transport http.RoundTripper) *Client {
	jar, _ := cookiejar.New(nil) // for the session cookie, which spares the server the login. It has no error without options.
	return &Client{base: "https://infoblox/wapi/v2.12/", http: http.Client{
		Transport:     transport,
		Jar:           jar,
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // The password is for this host only.
	}}
}

// Address returns host and port of an Infoblox, in the same way however they are written.
func Address(host, port string) (string, error) {
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() {
		host = "[" + host + "]"
	}
	u, err := url.Parse("https://" + host)
	if err != nil || u.Hostname() == "" || u.Host != host || u.Port() != "" && port != "" && u.Port() != port {
		return "", fmt.Errorf("the host %q is neither a name nor an address. Write the port into port", host)
	}
	port = cmp.Or(u.Port(), port, "443")
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("the port %q is not a number from 1 to 65535", port)
	}
	name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if ip, err := netip.ParseAddr(name); err == nil {
		name = ip.String()
	}
	return net.JoinHostPort(name, port), nil
}

func (c Config) tls() (*tls.Config, error) {
	config := &tls.Config{InsecureSkipVerify: c.Insecure} //nolint:gosec // Only if the user has asked for it.
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the CA certificates: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("the CA file %s has no certificate in PEM", c.CAFile)
		}
	}
	switch {
	case len(c.ClientCert) > 0 || len(c.ClientKey) > 0:
		pair, err := tls.X509KeyPair(c.ClientCert, c.ClientKey)
		if err != nil {
			return nil, fmt.Errorf("the client certificate and its key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	case c.Username == "":
		return nil, errors.New("there are no credentials: neither a user name nor a client certificate")
	}
	return config, nil
}

// do sends one request, and decodes the answer into the value that answer points to.
func (c *Client) do(ctx context.Context, method, object string, query url.Values, body, answer any) error {
	kind, _, _ := strings.Cut(object, "/")
	failed := &Error{Request: "WAPI: " + method + " " + kind}
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	request, err := http.NewRequestWithContext(ctx, method, c.base+object, content)
	if err != nil {
		return err
	}
	request.URL.RawQuery = query.Encode()
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.username != "" {
		request.SetBasicAuth(c.username, c.password)
	}
	response, err := c.http.Do(request)
	if err != nil {
		failed.Err, failed.notSent = withoutURL(err), !connected.Load()
		return failed
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusCreated {
		failed.Status, failed.Text = response.StatusCode, said(text)
		return failed
	}
	if err == nil {
		err = json.Unmarshal(text, answer)
	}
	if err != nil {
		failed.Err = fmt.Errorf("the answer cannot be read: %w", err)
		return failed
	}
	return nil
}

// withoutURL leaves out of an error the URL, which is long and in every message of a failing server the same.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// said returns what WAPI says about an error.
func said(body []byte) string {
	var e struct {
		Error string `json:"Error"`
		Text  string `json:"text"`
	}
	_ = json.Unmarshal(body, &e) // A proxy answers something else.
	return cmp.Or(e.Text, e.Error)
}
