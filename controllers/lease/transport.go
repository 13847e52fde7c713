package lease

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

// pass is the permission for one write.
type pass struct {
	clocks  Clocks
	entered reading
	timeout time.Duration
	transit time.Duration // the longest delay on the way to the API server
	over    time.Duration // by the monotonic clock: from then on the API server cannot carry out the write
}

type passKey struct{}

// left returns how much time the write has left. It is less than the remaining validity of the lease.
func (p *pass) left(now reading) time.Duration { return p.timeout - p.entered.until(now) }

// Transport checks the clocks again when a write that entered a Fence is sent to the API server, and tells the server how long the write
// may take. Other requests pass unchanged. Use it with rest.Config.Wrap.
//
// The check is needed because time passes between Enter and sending: a client-side rate limit, the wait before a retry, a new token for the
// service account. And the deadline of a context does not notice that the process was stopped or the machine suspended. The clocks are checked
// once more when the body of the request is read, behind the wait for a connection.
func Transport(next http.RoundTripper) http.RoundTripper { return &transport{next} }

type transport struct{ next http.RoundTripper }

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	p, ok := req.Context().Value(passKey{}).(*pass)
	if !ok {
		return t.next.RoundTrip(req)
	}
	now := p.clocks.now()
	left := p.left(now)
	if left <= 0 {
		if req.Body != nil {
			req.Body.Close() // A RoundTripper must close it.
		}
		return nil, fmt.Errorf("%w: this write had to be sent within %v, but %v have passed", ErrClosed, p.timeout, p.timeout-left)
	}
	req = req.Clone(req.Context())
	query := req.URL.Query()
	query.Set("timeout", left.String())
	req.URL.RawQuery = query.Encode()
	// When a connection breaks, net/http itself repeats a request, with the same timeout for the server, unless it cannot get the body
	// again. Without GetBody, client-go or its caller repeats the request, and the repetition passes through here.
	req.GetBody = nil
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = &lateBody{req.Body, p, now}
	}
	return t.next.RoundTrip(req)
}

// lateBody is the body of a write. Without its body the API server does not carry out a write. If getting a connection took more than half of
// the time that a write can be delayed on its way, the body is not sent.
type lateBody struct {
	io.ReadCloser
	pass *pass
	sent reading
}

func (b *lateBody) Read(p []byte) (int, error) {
	if took := b.sent.until(b.pass.clocks.now()); took > b.pass.transit/2 {
		return 0, fmt.Errorf("%w: it took %v to send this write, and it may take %v", ErrClosed, took, b.pass.transit/2)
	}
	return b.ReadCloser.Read(p)
}

// WrappedRoundTripper lets client-go reach the RoundTripper inside.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }
