package worlds

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// link is a process's way to the API servers, and its clocks. Its fields are guarded by the server's lock.
type link struct {
	*server
	process string
	lease   string // that it leads by; empty without leader election
	// dead: the process was killed. What it has sent may still arrive.
	dead bool
	// refusing and silent: until then connections are refused, or the API server's machine is off.
	refusing, silent time.Time
	// stopped: until then the process does not run (SIGSTOP).
	stopped time.Time
	// slow is how long the server takes for each request; nil: no time.
	slow func() time.Duration
	// fault is what happens to a request, also to one that opens a watch, which can be refused; nil: nothing.
	fault func(request) fault
	// sentLate: a PATCH of a Node is late.
	sentLate bool
	// ahead is how much the boot clock has gained on the monotonic one.
	ahead time.Duration
	shown map[string][]mark // the revisions that watches have shown, and when, by resource
	tries map[string]*try
}

// fault is what happens to a request. The zero value: it is carried out and answered.
type fault struct {
	// late is how long it takes to reach the server, which then takes slow.
	late, slow time.Duration
	// answerLate is how long the answer takes, after the request was carried out.
	answerLate time.Duration
	// lost: it never reaches the server.
	lost bool
	// silent: no answer comes back. reset: the connection breaks instead.
	silent, reset bool
	// twice: it is carried out twice.
	twice bool
	// refused is the code of an answer without effect, and answered that of an answer in spite of an effect; 0: none.
	refused, answered int
	// text is what a proxy says with refused, in place of the API server.
	text string
}

// look is how often what stands still looks whether it may go on, because a test may end that early.
const look = 100 * time.Millisecond

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

// sleep reports false if ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// clocks are those of the process's machine: the bubble's time, but for the boot clock.
func (l *link) clocks() (wall time.Time, boot, monotonic time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	monotonic = time.Since(l.judge.begin)
	return time.Now().Round(0), monotonic + l.ahead, monotonic
}

// paused keeps what a stopped process would send until it runs again. It is in front of the fence's last look at the clocks.
func (l *link) paused(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		l.waitRunning()
		return next.RoundTrip(r)
	})
}

func (l *link) waitRunning() {
	for {
		var d time.Duration
		l.do(func() { d = time.Until(l.stopped) })
		if d <= 0 {
			return
		}
		time.Sleep(min(d, look))
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// RoundTrip is the network.
func (l *link) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body.Close()
	}
	ctx := r.Context()
	if err := l.connect(ctx); err != nil {
		return nil, err
	}
	req := parse(r, body)
	switch {
	case req.resource == "":
		return answer(r, http.StatusOK, discovery(r.URL.Path)), nil
	case req.query.Get("watch") == "true" || req.query.Get("watch") == "1":
		return l.watch(r, req)
	}
	code, answered, err := l.exchange(ctx, req)
	if err != nil {
		return nil, err
	}
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") && code == http.StatusOK {
		answered = encode(object{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": decode[object](answered)["metadata"]})
	}
	return answer(r, code, answered), nil
}

// exchange sends a request and waits for the answer.
func (l *link) exchange(ctx context.Context, req request) (code int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 45*time.Second) // A connection that says nothing is given up: HTTP/2 pings it.
	defer cancel()
	w, f, t := l.send(req)
	defer func() { l.do(func() { l.tried(t, err == nil && code < 500) }) }()
	type result struct {
		code int
		body []byte
	}
	done := make(chan result, 1)
	if !f.lost {
		go func() {
			code, body := l.carry(req, w, f)
			time.Sleep(f.answerLate)
			done <- result{code, body}
		}()
	}
	switch {
	case f.reset:
		sleep(ctx, 2*time.Millisecond)
		return 0, nil, io.ErrUnexpectedEOF
	case f.silent, f.lost:
		<-ctx.Done()
		return 0, nil, ctx.Err()
	}
	select {
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	case got := <-done:
		l.waitRunning()
		if err := l.connect(ctx); err != nil {
			return 0, nil, io.EOF
		}
		return got.code, got.body, nil
	}
}

// send notes a request, and decides what happens to it.
func (l *link) send(req request) (w write, f fault, t *try) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t = &try{asOf: l.asOf()}
	if req.resource == nodes && req.method == http.MethodPatch {
		l.patches[req.name]++
		patch := decode[object](req.body)
		t.blocks = text(patch, "metadata", "uid") + string(encode(field(patch, "spec", "podCIDRs")))
		if before := l.tries[t.blocks]; before != nil {
			t = before
		}
		l.tries[t.blocks] = t
	}
	if l.fault != nil {
		f = l.fault(req)
		l.sentLate = l.sentLate || f.late > 0 && req.resource == nodes
	}
	if l.slow != nil {
		f.slow += l.slow()
	}
	if l.listsTake != nil && req.method == http.MethodGet && req.name == "" {
		f.slow += l.listsTake()
	}
	return write{l.process, t.asOf}, f, t
}

// try is what a process has sent to give a Node blocks, once or, while there is no answer, again and again.
type try struct {
	blocks string // the UID and podCIDRs
	// asOf is what was shown before it was sent for the first time.
	asOf       time.Time
	unanswered bool
}

// tried notes how a try ended. What the API server has refused is decided again before it is sent again. The caller holds the lock.
func (l *link) tried(t *try, answered bool) {
	t.unanswered = t.unanswered || !answered
	if !t.unanswered {
		delete(l.tries, t.blocks)
	}
}

// connect returns an error if the process does not reach the API server.
func (l *link) connect(ctx context.Context) error {
	for silent := false; ; silent = true {
		var refuses bool
		var d time.Duration
		l.do(func() { refuses, d = l.dead || time.Now().Before(l.refusing), time.Until(l.silent) })
		switch {
		case d > 0:
			if !sleep(ctx, min(d, look)) {
				return ctx.Err()
			}
		case refuses || silent:
			sleep(ctx, 5*time.Millisecond)
			return errRefused
		default:
			return nil
		}
	}
}

// carry brings a request to the server, where it is carried out.
func (l *link) carry(req request, w write, f fault) (int, []byte) {
	time.Sleep(time.Millisecond + f.late)
	timeout := 30 * time.Second
	if d, err := time.ParseDuration(req.query.Get("timeout")); err == nil {
		timeout = d
	}
	if f.slow >= timeout {
		time.Sleep(timeout)
		return http.StatusGatewayTimeout, encode(failed(http.StatusGatewayTimeout, "Timeout: request did not complete within the allotted timeout"))
	}
	time.Sleep(f.slow)
	if f.refused != 0 {
		if f.text != "" {
			return f.refused, []byte(f.text)
		}
		return f.refused, encode(failed(f.refused, "refused"))
	}
	code, body := l.serve(req, w)
	if f.twice {
		time.Sleep(time.Millisecond)
		code, body = l.serve(req, w)
	}
	if f.answered != 0 {
		code, body = f.answered, encode(failed(f.answered, "carried out, perhaps"))
	}
	return code, body
}

// mark is a revision that a watch has shown.
type mark struct {
	at       time.Time
	revision int64
}

// digests is how long a process may take from what a watch shows to what its handlers know: in no time, but after others of its goroutines.
const digests = 100 * time.Millisecond

// show notes that a watch has shown a revision. The caller holds the lock.
func (l *link) show(resource string, revision int64) {
	marks := l.shown[resource]
	if n := len(marks); n == 0 || marks[n-1].revision < revision {
		l.shown[resource] = append(marks, mark{time.Now(), revision})
	}
}

// digested returns the revision that the process knows of. The caller holds the lock.
func (l *link) digested(resource string) (revision int64) {
	for _, m := range l.shown[resource] {
		if time.Since(m.at) >= digests {
			revision = m.revision
		}
	}
	return revision
}

// asOf returns until when the process has seen everything. The caller holds the lock.
func (l *link) asOf() time.Time {
	asOf := time.Now()
	for _, resource := range []string{nodes, clusterCIDRs, serviceCIDRs} {
		log := l.log[resource]
		if unseen := l.after(resource, l.digested(resource)); unseen < len(log) && log[unseen].at.Before(asOf) {
			asOf = log[unseen].at
		}
	}
	return asOf
}

// lateAtMost returns by how much a write that is sent now can be late: what is left of the lease. The caller holds the lock.
func (l *link) lateAtMost() time.Duration {
	if l.lease == "" {
		return 15*time.Second - 10*time.Millisecond
	}
	holder, left := l.holder(l.lease)
	if holder != l.process {
		return 0
	}
	return max(0, left-10*time.Millisecond)
}

func answer(r *http.Request, code int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

func discovery(path string) []byte {
	all := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: strings.TrimPrefix(path, "/apis/")}
	for resource, kind := range kinds {
		if kind.GroupVersion().String() == all.GroupVersion {
			all.APIResources = append(all.APIResources, metav1.APIResource{Name: resource, Kind: kind.Kind})
		}
	}
	return encode(all)
}
