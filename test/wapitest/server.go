// Package wapitest is an Infoblox for tests: as much of WAPI over TLS as host records need, and faults that can be switched on.
//
// TestVendorsClient shows with the vendor's own client that it speaks WAPI.
package wapitest

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Fault is what goes wrong with a request.
type Fault int

const (
	// DropBefore closes the connection, and the request is not carried out.
	DropBefore Fault = iota + 1
	// DropAfter carries the request out and closes the connection without an answer.
	DropAfter
	// Fails answers with an error of WAPI, and the request is not carried out.
	Fails
	// FailsAfter carries the request out and answers with an error of WAPI.
	FailsAfter
	// Unavailable answers as a proxy does whose server is down.
	Unavailable
	// Unauthorized answers as if the credentials were wrong.
	Unauthorized
	// Hangs carries the request out and answers only when the fault ends.
	Hangs
)

// Request is a request that arrived.
type Request struct {
	Method, Path string
	Query        url.Values
	Body         string
	User         string
}

// Server is a Grid behind HTTPS.
type Server struct {
	*httptest.Server
	// CAFile has the certificate that the server's comes from.
	CAFile string
	// Username and Password are the user's, who may show any client certificate instead.
	Username, Password string

	mu       sync.Mutex
	grid     *Grid
	requests []Request
	faults   []*fault
}

type fault struct {
	method, kind string
	what         Fault
	times        int // how often it still happens; negative: always
	end          chan struct{}
}

// New starts a server, which ends with the test.
func New(t testing.TB, grid *Grid) *Server {
	s := &Server{grid: grid, Username: "admin", Password: "infoblox"}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // It says of clients that do not trust the server that they do not.
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	s.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(s.CAFile, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// Address returns the host and the port of the server.
func (s *Server) Address() (host, port string) {
	u, _ := url.Parse(s.URL)
	return u.Hostname(), u.Port()
}

// Grid calls f while no request is carried out.
func (s *Server) Grid(f func(g *Grid)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.grid)
}

// Requests returns what has arrived since the last call.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.requests
	s.requests = nil
	return all
}

// Fail lets the next requests of a method for a kind of object fail, so many times, or always if times is negative. Empty means any. The
// fault ends when end is called, at the latest.
func (s *Server) Fail(method, kind string, what Fault, times int) (end func()) {
	f := &fault{method, kind, what, times, make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, f)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		f.times = 0
		close(f.end)
	})
}

// faultOf returns the fault that this request meets.
func (s *Server) faultOf(method, kind string) (Fault, chan struct{}) {
	for _, f := range s.faults {
		if f.times != 0 && (f.method == "" || f.method == method) && (f.kind == "" || f.kind == kind) {
			f.times--
			return f.what, f.end
		}
	}
	return 0, nil
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/wapi/v"), "/")
	path, _ = url.PathUnescape(path)
	what, end, status, answer := s.do(r, path, body)
	switch what {
	case DropBefore, DropAfter:
		panic(http.ErrAbortHandler)
	case Hangs:
		select {
		case <-end:
		case <-r.Context().Done():
		case <-time.After(time.Minute):
		}
	}
	if answer == nil { // An answer of the web server in front of WAPI is no JSON.
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "<html><head><title>"+http.StatusText(status)+"</title></head></html>")
		return
	}
	http.SetCookie(w, &http.Cookie{Name: "ibapauth", Value: "session", Path: "/", Secure: true, HttpOnly: true})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

// do carries a request out, unless it meets a fault that prevents that.
func (s *Server) do(r *http.Request, path string, body []byte) (what Fault, end chan struct{}, status int, answer any) {
	user, password, _ := r.BasicAuth()
	kind, _, _ := strings.Cut(path, "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, Request{r.Method, path, r.URL.Query(), string(body), user})
	what, end = s.faultOf(r.Method, kind)
	switch {
	case !strings.HasPrefix(r.URL.Path, "/wapi/v"):
		status = http.StatusNotFound
	case what == Unauthorized, len(r.TLS.PeerCertificates) == 0 && (user != s.Username || password != s.Password):
		status = http.StatusUnauthorized
	case what == Fails:
		status, answer = http.StatusInternalServerError, refuse(http.StatusInternalServerError, "AdmConProtoError", "Server.Ibap", "database is not available")
	case what == Unavailable:
		status = http.StatusServiceUnavailable
	case what != DropBefore:
		status, answer = s.grid.Do(r.Method, path, r.URL.Query(), body)
	}
	if what == FailsAfter {
		status, answer = http.StatusInternalServerError, refuse(http.StatusInternalServerError, "AdmConProtoError", "Server.Ibap", "the answer got lost")
	}
	return what, end, status, answer
}
