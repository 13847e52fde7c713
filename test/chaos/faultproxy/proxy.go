package faultproxy

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
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// forwardTimeout bounds a forwarded write whose client is gone; the API server itself gives up after a minute.
const forwardTimeout = 2 * time.Minute

// Config of a proxy.
type Config struct {
	// Upstream is the API server with the client certificate of the manager.
	Upstream *rest.Config
	// Certificate and Key, in PEM, are what the proxy serves with on 127.0.0.1.
	Certificate, Key []byte
	// LoseAbandoned: a late write whose client has gone by then is lost, instead of arriving all the same.
	LoseAbandoned bool
	// Deadline, if not nil, returns until when the API server may carry out a write that is received now. A PATCH that is held up arrives so
	// early that it and its timeout= end before that; one without a timeout= is not held up.
	Deadline func() time.Time
	// MinWatch and MaxWatch: every watch is cut after a time between them. Watches last if MaxWatch is 0.
	MinWatch, MaxWatch time.Duration
	// Seed of the faults.
	Seed uint64
	// Observe, if not nil, is told of every request that has been answered or was lost, at once from several goroutines.
	Observe func(Exchange)
}

// Exchange is one request and what became of it.
type Exchange struct {
	Method, Path string
	// Received is when the proxy had the request.
	Received time.Time
	// Status is what the API server answered; 0 if the request did not reach it or was not answered.
	Status int
	Fault  Fault
}

// Proxy stands between one manager and the API server. Its methods may be called at once.
type Proxy struct {
	cfg      Config
	dice     *dice
	gate     gate
	listener *listener
	server   *http.Server
	// certified goes upstream with the manager's certificate, plain without any.
	certified, plain *httputil.ReverseProxy
	manager          *x509.Certificate

	mu      sync.Mutex
	faults  Faults
	watches map[*http.Request]context.CancelFunc
	counts  map[Fault]int
	passed  int
	held    *Held // nil: nothing is held up
}

// Start returns a proxy that serves and lets everything pass. Close ends it.
func Start(cfg Config) (*Proxy, error) {
	p := &Proxy{cfg: cfg, dice: newDice(cfg.Seed), watches: map[*http.Request]context.CancelFunc{}, counts: map[Fault]int{}}
	serving, err := tls.X509KeyPair(cfg.Certificate, cfg.Key)
	if err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	manager, err := tls.X509KeyPair(cfg.Upstream.CertData, cfg.Upstream.KeyData)
	if err != nil {
		return nil, fmt.Errorf("the manager's certificate: %w", err)
	}
	p.manager = manager.Leaf
	if p.certified, err = p.forwarder(cfg.Upstream); err != nil {
		return nil, err
	}
	if p.plain, err = p.forwarder(rest.AnonymousClientConfig(cfg.Upstream)); err != nil {
		return nil, err
	}
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p.listener = &listener{Listener: tcp, gate: &p.gate, conns: map[*conn]bool{}}
	p.server = &http.Server{
		Handler:     p,
		ConnContext: keepConn,
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{serving},
			// Not verified here: only whether it is the manager's own matters, and having its key the handshake proves.
			ClientAuth: tls.RequestClientCert,
		},
		ErrorLog: log.New(io.Discard, "", 0), // it is all about connections that we reset ourselves
	}
	go p.server.ServeTLS(p.listener, "", "") // ends with Close
	return p, nil
}

// forwarder sends requests to the API server, and answers back.
func (p *Proxy) forwarder(config *rest.Config) (*httputil.ReverseProxy, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Transport:      transport,
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval:  -1, // a watch has to pass event by event
		ModifyResponse: p.answered,
		ErrorHandler:   p.failed,
		ErrorLog:       log.New(io.Discard, "", 0),
	}, nil
}

// URL is what the manager takes for the API server.
func (p *Proxy) URL() string { return "https://" + p.listener.Addr().String() }

// Set replaces the faults that requests suffer from now on.
func (p *Proxy) Set(f Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = f
}

// CutWatches ends every watch that is going on, in the middle of its stream.
func (p *Proxy) CutWatches() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.watches {
		p.cut(r)
	}
}

// cut ends a watch that is going on. p.mu is held.
func (p *Proxy) cut(r *http.Request) {
	if cancel, going := p.watches[r]; going {
		cancel()
		p.counts[CutWatch]++
		delete(p.watches, r)
	}
}

// CloseConnections resets every connection.
func (p *Proxy) CloseConnections() {
	n := p.listener.resetAll()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[Closed] += n
}

// Partition keeps everything from passing, in both directions, until Heal. Connections stay open, and what was sent into them
// arrives after Heal: also requests whose sender has given up.
func (p *Proxy) Partition() { p.gate.shut() }

// Sever is a partition in which connections, also new ones, are reset.
func (p *Proxy) Sever() {
	p.listener.setResetting(true)
	p.CloseConnections()
}

// Heal ends a Partition and a Sever.
func (p *Proxy) Heal() {
	p.listener.setResetting(false)
	p.gate.reopen()
}

// Counts is how many requests suffered each fault, and of None how many passed.
func (p *Proxy) Counts() map[Fault]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := maps.Clone(p.counts)
	counts[None] = p.passed
	return counts
}

// Close ends the proxy and all its connections. Writes that were being forwarded go on.
func (p *Proxy) Close() error {
	p.Heal()
	return p.server.Close()
}

type verdictKey struct{}

type receivedKey struct{}

// ServeHTTP is for the manager's requests.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	watch := isWatch(r)
	r = r.WithContext(context.WithValue(r.Context(), receivedKey{}, time.Now()))
	p.mu.Lock()
	faults, held := p.faults, p.held
	p.mu.Unlock()
	v := p.dice.drawFor(faults, r)

	// The request is read whole before anything else happens to it: what the client has sent is on its way.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // it ended in the middle of its request
	}
	held.pass(r)
	switch v.fault {
	case Refused:
		p.record(r, v.fault, 0)
		refuse(w, v.status)
		return
	case Dropped:
		p.record(r, v.fault, 0)
		drop(r)
	case Hanging:
		pause(forwardTimeout, r.Context().Done())
		p.record(r, v.fault, 0)
		panic(http.ErrAbortHandler) // What else goes on in the connection goes on.
	case HeldUp:
		if v.fault = p.hold(r, faults, v.share); v.fault == Dropped {
			p.record(r, v.fault, 0)
			panic(http.ErrAbortHandler)
		}
	case LateRequest:
		// A client that reads and has gone does not want to know any more; its write arrives all the same.
		gone := r.Context().Done()
		if !isRead(r) {
			gone = nil
		}
		pause(v.delay, gone)
		if p.cfg.LoseAbandoned && r.Context().Err() != nil {
			p.record(r, Dropped, 0)
			panic(http.ErrAbortHandler)
		}
	}

	ctx, cancel := p.forwarding(r, watch)
	defer cancel()
	out := r.WithContext(context.WithValue(ctx, verdictKey{}, v))
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if len(body) == 0 {
		out.Body = http.NoBody
	}
	if certificates := r.TLS.PeerCertificates; r.Header.Get("Authorization") == "" && len(certificates) > 0 && certificates[0].Equal(p.manager) {
		p.certified.ServeHTTP(w, out)
	} else {
		p.plain.ServeHTTP(w, out)
	}
}

// holdMargin is for what comes after a hold-up: the way from here to the API server.
const holdMargin = 200 * time.Millisecond

// hold returns when a PATCH was held up for its time. It returns None if it may not be held up at all, and Dropped if it comes too late now.
func (p *Proxy) hold(r *http.Request, f Faults, share float64) Fault {
	longest, latest := f.MaxHold, time.Time{}
	if p.cfg.Deadline != nil {
		timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
		if err != nil {
			return None
		}
		latest = p.cfg.Deadline().Add(-timeout - holdMargin)
		longest = min(longest, time.Until(latest))
	}
	if longest < f.MinHold {
		return None
	}
	pause(f.MinHold+time.Duration(share*float64(longest-f.MinHold)), nil)
	if !latest.IsZero() && time.Now().After(latest) {
		return Dropped // This machine is busy, and a network loses requests, too.
	}
	return HeldUp
}

// forwarding returns the context of the forwarded request.
func (p *Proxy) forwarding(r *http.Request, watch bool) (context.Context, context.CancelFunc) {
	switch {
	case watch:
		return p.watch(r)
	case isRead(r):
		return r.Context(), func() {}
	default:
		// It can be cancelled by its timeout only. Without any, ReverseProxy would end it with the client's connection.
		return context.WithTimeout(context.WithoutCancel(r.Context()), forwardTimeout)
	}
}

// watch returns the context of a forwarded watch, which is cut in its time.
func (p *Proxy) watch(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watches[r] = cancel
	if p.cfg.MaxWatch > 0 {
		life := p.cfg.MinWatch + time.Duration(p.dice.float()*float64(p.cfg.MaxWatch-p.cfg.MinWatch))
		time.AfterFunc(life, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.cut(r)
		})
	}
	return ctx, func() {
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watches, r)
	}
}

// errLost makes a ReverseProxy forget an answer.
var errLost = errors.New("the answer is lost")

// answered sees the API server's answer before the manager does.
func (p *Proxy) answered(response *http.Response) error {
	r := response.Request
	v := r.Context().Value(verdictKey{}).(verdict)
	p.record(r, v.fault, response.StatusCode)
	switch v.fault {
	case LostAnswer:
		return errLost // and its body is closed
	case LateAnswer:
		pause(v.delay, nil)
	}
	return nil
}

// failed is for a request without an answer: because we lost it, or because the API server gave none.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	v := r.Context().Value(verdictKey{}).(verdict)
	if !errors.Is(err, errLost) {
		p.record(r, v.fault, 0)
		drop(r)
	}
	if v.status == 0 {
		drop(r)
	}
	refuse(w, v.status)
}

func (p *Proxy) record(r *http.Request, fault Fault, status int) {
	p.mu.Lock()
	if fault == None {
		p.passed++
	} else {
		p.counts[fault]++
	}
	p.mu.Unlock()
	if p.cfg.Observe != nil {
		received, _ := r.Context().Value(receivedKey{}).(time.Time)
		p.cfg.Observe(Exchange{Method: r.Method, Path: r.URL.Path, Received: received, Status: status, Fault: fault})
	}
}

// drop resets the connection that a request came on, and with HTTP/2 whatever else was going on in it.
func drop(r *http.Request) {
	connOf(r).reset()
	panic(http.ErrAbortHandler)
}

// refuse answers as an API server in trouble would.
func refuse(w http.ResponseWriter, code int) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure,
		Reason:   cmp.Or(reasons[code], metav1.StatusReasonInternalError),
		Message:  "injected by faultproxy",
		Code:     int32(code),
	}
	body, err := json.Marshal(status)
	if err != nil {
		panic(err) // numbers and strings only
	}
	w.Header().Set("Content-Type", "application/json")
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1") // as priority and fairness does
	}
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client may be gone
}

var reasons = map[int]metav1.StatusReason{
	http.StatusTooManyRequests:    metav1.StatusReasonTooManyRequests,
	http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:     metav1.StatusReasonTimeout,
}

// pause returns after the time, or when done is closed.
func pause(d time.Duration, done <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-done:
	}
}

func isRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

var (
	eventsPath = regexp.MustCompile(`^/api(s/events\.k8s\.io)?/v1/namespaces/[^/]+/events(/|$)`)
	nodePath   = regexp.MustCompile(`^/api/v1/nodes/[^/]+$`)
)

func isEventWrite(r *http.Request) bool { return !isRead(r) && eventsPath.MatchString(r.URL.Path) }

func isNodePatch(r *http.Request) bool {
	return r.Method == http.MethodPatch && nodePath.MatchString(r.URL.Path)
}

func isWatch(r *http.Request) bool {
	watch := r.URL.Query().Get("watch")
	return watch == "true" || watch == "1"
}
