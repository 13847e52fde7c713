package faultproxy

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// upstream stands for the API server.
type upstream struct {
	*httptest.Server
	config *rest.Config // with the manager's certificate

	arrived chan string // method and body of each request for which a test waits
	hits    atomic.Int32
	ended   chan error // why the context of a watch ended
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{arrived: make(chan string, 100), ended: make(chan error, 100)}
	u.Server = httptest.NewUnstartedServer(u)
	u.EnableHTTP2 = true
	u.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	u.StartTLS()
	t.Cleanup(u.Close)
	certificate, key := keyPair(t, "manager")
	u.config = &rest.Config{Host: u.URL, TLSClientConfig: rest.TLSClientConfig{
		CAData:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: u.Certificate().Raw}),
		CertData: certificate, KeyData: key,
	}}
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if isWatch(r) {
		fmt.Fprintln(w, "event")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		u.ended <- r.Context().Err()
		return
	}
	body, err := io.ReadAll(r.Body)
	u.hits.Add(1)
	u.arrived <- fmt.Sprintf("%s %s %v", r.Method, body, err)
}

func keyPair(t *testing.T, host string) (certificate, key []byte) {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

// newProxy starts a proxy before u, and returns it with the configuration of a manager behind it.
func newProxy(t *testing.T, u *upstream, observe func(Exchange)) (*Proxy, *rest.Config) {
	t.Helper()
	return startProxy(t, u, Config{Observe: observe})
}

func startProxy(t *testing.T, u *upstream, cfg Config) (*Proxy, *rest.Config) {
	t.Helper()
	cfg.Upstream, cfg.Seed = u.config, 1
	cfg.Certificate, cfg.Key = keyPair(t, "127.0.0.1")
	p, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	config := rest.CopyConfig(u.config)
	config.Host, config.CAData = p.URL(), cfg.Certificate
	return p, config
}

func httpClient(t *testing.T, config *rest.Config) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// do sends a request and returns the answer's status and body.
func do(ctx context.Context, client *http.Client, method, url string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader("payload"))
	if err != nil {
		return 0, "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.ProtoMajor != 2 {
		err = fmt.Errorf("answered with %s, want HTTP/2", response.Proto)
	}
	return response.StatusCode, string(body), err
}

// receive waits for a value.
func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(30 * time.Second):
		t.Fatalf("%s did not happen", what)
		panic("unreachable")
	}
}

func TestFaultsOfRequests(t *testing.T) {
	const requests = 20
	type outcome struct{ answered, refused, failed bool } // of at least one request
	tests := map[string]struct {
		faults   Faults
		wantHits int32
		want     outcome
	}{
		"nothing is wrong":                 {wantHits: requests, want: outcome{answered: true}},
		"an answer is lost after the work": {faults: Faults{LoseAnswers: 1}, wantHits: requests, want: outcome{refused: true, failed: true}},
		"a late answer is an answer":       {faults: Faults{DelayAnswers: 1, MaxDelay: time.Millisecond}, wantHits: requests, want: outcome{answered: true}},
		"a refused request does not pass":  {faults: Faults{Refuse: 1}, want: outcome{refused: true}},
		"a dropped request does not pass":  {faults: Faults{Drop: 1}, want: outcome{failed: true}},
	}
	for sentence, tc := range tests {
		t.Run(sentence, func(t *testing.T) {
			u := newUpstream(t)
			p, config := newProxy(t, u, nil)
			client := httpClient(t, config)
			p.Set(tc.faults)
			var got outcome
			for range requests {
				status, body, err := do(t.Context(), client, "PATCH", p.URL())
				switch {
				case err != nil:
					got.failed = true
				case status == http.StatusOK:
					got.answered = true
				case !strings.Contains(body, `"kind":"Status"`):
					t.Errorf("%d with body %s, want a Status", status, body)
				default:
					got.refused = true
				}
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(outcome{})); diff != "" {
				t.Errorf("what the client saw (-want +got):\n%s", diff)
			}
			if hits := u.hits.Load(); hits != tc.wantHits {
				t.Errorf("%d of %d requests reached the server, want %d", hits, requests, tc.wantHits)
			}
			counted := 0
			for fault, n := range p.Counts() {
				if (fault == None) != (tc.faults == Faults{}) && n > 0 {
					t.Errorf("%d requests counted as %q", n, fault)
				}
				counted += n
			}
			if counted != requests {
				t.Errorf("%d requests counted, want %d", counted, requests)
			}
		})
	}
}

// anyTime is for what is expected at any time.
var anyTime = cmpopts.IgnoreFields(Exchange{}, "Received")

// A request for an event gets no answer until its client gives up, and never arrives; others pass in the same connection meanwhile.
func TestEventsHang(t *testing.T) {
	u := newUpstream(t)
	ended := make(chan Exchange, 10)
	p, config := newProxy(t, u, func(e Exchange) { ended <- e })
	client := httpClient(t, config)
	p.Set(Faults{HangEvents: 1})
	ctx, cancel := context.WithCancel(t.Context())
	hung := make(chan error, 1)
	sent := make(chan struct{})
	go func() {
		_, _, err := do(written(ctx, sync.OnceFunc(func() { close(sent) })), client, "POST", p.URL()+"/api/v1/namespaces/default/events")
		hung <- err
	}()
	receive(t, sent, "the request for an event")
	for _, path := range []string{"/api/v1/nodes/n", "/api/v1/namespaces/default/pods/p"} {
		if status, _, err := do(t.Context(), client, "PATCH", p.URL()+path); err != nil || status != http.StatusOK {
			t.Errorf("PATCH %s while a request for an event hangs: %d, %v", path, status, err)
		}
		receive(t, ended, "the other request")
	}
	cancel()
	if err := receive(t, hung, "the end of the request for an event"); !errors.Is(err, context.Canceled) {
		t.Errorf("the request for an event ended with %v, want not before its client gave up", err)
	}
	if diff := cmp.Diff(Exchange{Method: "POST", Path: "/api/v1/namespaces/default/events", Fault: Hanging}, receive(t, ended, "its record"), anyTime); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if status, _, err := do(t.Context(), client, "PATCH", p.URL()+"/api/v1/nodes/n"); err != nil || status != http.StatusOK || u.hits.Load() != 3 {
		t.Errorf("afterwards: %d, %v, %d requests reached the server, want the 3 others", status, err, u.hits.Load())
	}
}

// A PATCH of a Node that is held up arrives after its client has given up, but not so late that its timeout would end after the deadline.
func TestPatchIsHeldUp(t *testing.T) {
	const node, hold = "/api/v1/nodes/n", 300 * time.Millisecond
	tests := map[string]struct {
		path     string
		deadline time.Duration // from the start; 0: none
		want     Fault
		latest   time.Duration // from the start to the arrival; 0: at any time
	}{
		"without a deadline":                {path: node, want: HeldUp},
		"with a deadline":                   {path: node + "?timeout=2s", deadline: 3 * time.Second, want: HeldUp, latest: time.Second},
		"a deadline that leaves no time":    {path: node + "?timeout=2s", deadline: 2 * time.Second, want: None, latest: hold},
		"nobody says how long it may take":  {path: node, deadline: time.Hour, want: None, latest: hold},
		"what is not a Node's own":          {path: node + "/status", want: None, latest: hold},
		"a deadline that has passed before": {path: node + "?timeout=2s", deadline: -time.Hour, want: None, latest: hold},
	}
	for sentence, tc := range tests {
		t.Run(sentence, func(t *testing.T) {
			ended := make(chan Exchange, 1)
			var start time.Time
			cfg := Config{LoseAbandoned: true, Observe: func(e Exchange) { ended <- e }}
			if tc.deadline != 0 {
				cfg.Deadline = func() time.Time { return start.Add(tc.deadline) }
			}
			p, config := startProxy(t, newUpstream(t), cfg)
			start = time.Now()
			p.Set(Faults{HoldPatches: 1, MinHold: hold, MaxHold: time.Second})
			ctx, cancel := context.WithCancel(t.Context())
			if tc.want == HeldUp {
				ctx = written(ctx, cancel) // its client gives up at once
			}
			if _, _, err := do(ctx, httpClient(t, config), "PATCH", p.URL()+tc.path); (err != nil) != (tc.want == HeldUp) {
				t.Fatalf("the client got %v", err)
			}
			e := receive(t, ended, "the PATCH")
			took := time.Since(start)
			if e.Fault != tc.want || e.Status != http.StatusOK {
				t.Errorf("it was %q and answered with %d, want %q and 200", e.Fault, e.Status, tc.want)
			}
			if tc.want == HeldUp && took < hold {
				t.Errorf("it arrived after %v, want %v or more", took, hold)
			}
			if tc.want == HeldUp && tc.latest > 0 && took > tc.latest {
				t.Errorf("it arrived after %v, want %v or less", took, tc.latest)
			}
			cancel()
		})
	}
}

// written returns a context that calls then as soon as the request is on its way.
func written(ctx context.Context, then func()) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { then() }})
}

func TestLateWriteArrivesWithoutItsClient(t *testing.T) {
	u := newUpstream(t)
	p, config := newProxy(t, u, nil)
	client := httpClient(t, config)
	late := Faults{DelayRequests: 1, MaxDelay: 2 * time.Second}
	wantDelay := newDice(1).draw(late, false).delay
	p.Set(late)
	begin := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	if _, _, err := do(written(ctx, cancel), client, "PATCH", p.URL()); !errors.Is(err, context.Canceled) {
		t.Fatalf("the client that gave up got %v", err)
	}
	if got := receive(t, u.arrived, "the write"); got != "PATCH payload <nil>" {
		t.Errorf("the server got %q", got)
	}
	if took := time.Since(begin); took < wantDelay {
		t.Errorf("it arrived after %s, want %s or more", took, wantDelay)
	}
}

func TestLateWriteIsLostWithItsClient(t *testing.T) {
	u := newUpstream(t)
	ended := make(chan Exchange, 1)
	p, config := startProxy(t, u, Config{LoseAbandoned: true, Observe: func(e Exchange) { ended <- e }})
	client := httpClient(t, config)
	late := Faults{DelayRequests: 1, MaxDelay: time.Second}
	p.Set(late)
	if status, _, err := do(t.Context(), client, "PATCH", p.URL()+"/awaited"); err != nil || status != http.StatusOK {
		t.Errorf("a late write that somebody waits for: %d, %v", status, err)
	}
	receive(t, ended, "the awaited write")
	ctx, cancel := context.WithCancel(t.Context())
	if _, _, err := do(written(ctx, cancel), client, "PATCH", p.URL()+"/abandoned"); !errors.Is(err, context.Canceled) {
		t.Fatalf("the client that gave up got %v", err)
	}
	want := Exchange{Method: "PATCH", Path: "/abandoned", Fault: Dropped}
	if diff := cmp.Diff(want, receive(t, ended, "the abandoned write"), anyTime); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if hits := u.hits.Load(); hits != 1 {
		t.Errorf("%d writes reached the server, want the awaited one", hits)
	}
}

// startWatch returns when the watch has shown its first event.
func startWatch(t *testing.T, client *http.Client, url string) (rest <-chan error) {
	t.Helper()
	response, err := client.Get(url + "/nodes?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len("event\n"))
	if _, err := io.ReadFull(response.Body, first); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		defer response.Body.Close()
		_, err := io.Copy(io.Discard, response.Body)
		ended <- err
	}()
	return ended
}

func TestInterruptions(t *testing.T) {
	tests := map[string]struct {
		interrupt func(*Proxy)
		want      Fault
	}{
		"watches are cut":        {interrupt: (*Proxy).CutWatches, want: CutWatch},
		"connections are closed": {interrupt: (*Proxy).CloseConnections, want: Closed},
		"a severed network":      {interrupt: func(p *Proxy) { p.Sever(); p.Heal() }, want: Closed},
	}
	for sentence, tc := range tests {
		t.Run(sentence, func(t *testing.T) {
			u := newUpstream(t)
			p, config := newProxy(t, u, nil)
			client := httpClient(t, config)
			ended := startWatch(t, client, p.URL())
			tc.interrupt(p)
			if err := receive(t, ended, "the end of the watch"); err == nil {
				t.Error("the watch ended as if nothing was wrong")
			}
			receive(t, u.ended, "the end of the watch upstream")
			if n := p.Counts()[tc.want]; n != 1 {
				t.Errorf("%d %s counted, want 1", n, tc.want)
			}
			if _, _, err := do(t.Context(), client, "GET", p.URL()); err != nil {
				t.Errorf("a request after it: %v", err)
			}
		})
	}
}

func TestWatchesDoNotLast(t *testing.T) {
	u := newUpstream(t)
	p, config := startProxy(t, u, Config{MinWatch: 500 * time.Millisecond, MaxWatch: 600 * time.Millisecond})
	client := httpClient(t, config)
	for range 2 {
		if err := receive(t, startWatch(t, client, p.URL()), "the end of the watch"); err == nil {
			t.Error("the watch ended as if nothing was wrong")
		}
		receive(t, u.ended, "the end of the watch upstream")
	}
	if n := p.Counts()[CutWatch]; n != 2 {
		t.Errorf("%d watches were cut, want 2", n)
	}
}

func TestPartitionHoldsWhatWasSent(t *testing.T) {
	u := newUpstream(t)
	p, config := newProxy(t, u, nil)
	client := httpClient(t, config)
	if _, _, err := do(t.Context(), client, "GET", p.URL()); err != nil { // there is a connection
		t.Fatal(err)
	}
	receive(t, u.arrived, "the first request")

	p.Partition()
	ctx, cancel := context.WithCancel(t.Context())
	if _, _, err := do(written(ctx, cancel), client, "PATCH", p.URL()); !errors.Is(err, context.Canceled) {
		t.Fatalf("the client that gave up got %v", err)
	}
	if hits := u.hits.Load(); hits != 1 {
		t.Errorf("%d requests passed the partition", hits-1)
	}
	p.Heal()
	if got := receive(t, u.arrived, "the write"); got != "PATCH payload <nil>" {
		t.Errorf("the server got %q after the partition", got)
	}
}
