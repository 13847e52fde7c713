package lease

import (
	"fmt"
	"net/http"
	"time"
)

// pass is the leave for one write.
type pass struct {
	clocks  func() reading
	entered reading
	timeout time.Duration
	transit time.Duration // what it may take on its way
	over    time.Duration // by the monotonic clock: the API server cannot carry it out from then on
}

type passKey struct{}

// left is what is left of the write's time. It is less than what is left of the lease.
func (p *pass) left() time.Duration { return p.timeout - p.entered.until(p.clocks()) }

// Transport looks at the clocks once more when a write that entered a Fence leaves for the API server, and tells the server how
// long it may take. Other requests pass unchanged.
//
// Between Enter and here lie a client-side rate limit, the wait before a retry, and a new token for the service account; and the
// deadline of a context does not see that the machine was suspended. It is for rest.Config.Wrap.
func Transport(next http.RoundTripper) http.RoundTripper { return &transport{next} }

type transport struct{ next http.RoundTripper }

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	p, ok := req.Context().Value(passKey{}).(*pass)
	if !ok {
		return t.next.RoundTrip(req)
	}
	left := p.left()
	if left <= 0 {
		if req.Body != nil {
			req.Body.Close() // A RoundTripper has to.
		}
		return nil, fmt.Errorf("%w: this write was to be sent within %v and took %v to get here", ErrClosed, p.timeout, p.timeout-left)
	}
	req = req.Clone(req.Context())
	query := req.URL.Query()
	query.Set("timeout", left.String())
	req.URL.RawQuery = query.Encode()
	// net/http repeats a request by itself when its connection breaks, with the same timeout for the server, unless it cannot have the
	// body again. Then client-go, or who has called it, repeats it through here.
	req.GetBody = nil
	return t.next.RoundTrip(req)
}

// WrappedRoundTripper lets client-go look at what is below.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }
