package worlds

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// stream is an open watch.
type stream struct {
	*link
	resource string
	cut      chan struct{} // closed when its connection breaks
	cutOnce  sync.Once
	out      *io.PipeWriter
	at       int64 // the revision that it has shown
}

func (l *link) watch(r *http.Request, req request) (*http.Response, error) {
	ctx := r.Context()
	if !sleep(ctx, 2*time.Millisecond) {
		return nil, ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault != nil {
		if f := l.fault(req); f.refused != 0 {
			return answer(r, f.refused, encode(failed(f.refused, "refused"))), nil
		}
	}
	begins := req.query.Get("sendInitialEvents") == "true"
	from, _ := strconv.ParseInt(req.query.Get("resourceVersion"), 10, 64)
	switch {
	case begins && !l.watchLists:
		return answer(r, http.StatusUnprocessableEntity, encode(failed(http.StatusUnprocessableEntity, "sendInitialEvents is forbidden"))), nil
	case !begins && from < l.compacted:
		return answer(r, http.StatusGone, encode(failed(http.StatusGone, "too old resource version: %d", from))), nil
	}
	var first []byte
	if begins {
		revision := l.revision
		if from > 0 || req.query.Get("resourceVersion") == "0" {
			revision = max(from, l.visible(req.resource))
		}
		first, from = l.initial(req.resource, revision), revision
	}
	seconds, _ := strconv.Atoi(req.query.Get("timeoutSeconds"))
	lasts := time.Duration(max(seconds, 60)) * time.Second
	if l.watchesLast != nil {
		lasts = min(lasts, l.watchesLast())
	}
	in, out := io.Pipe()
	s := &stream{link: l, resource: req.resource, cut: make(chan struct{}), out: out, at: from}
	l.streams[s] = true
	if !begins {
		l.show(req.resource, from)
	}
	go s.run(ctx, first, lasts)
	response := answer(r, http.StatusOK, nil)
	response.Body, response.ContentLength = in, -1
	return response, nil
}

func line(event string, o []byte) []byte {
	return fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", event, o)
}

func bookmark(resource string, revision int64, annotations object) []byte {
	return line("BOOKMARK", encode(object{
		"kind": kinds[resource].Kind, "apiVersion": kinds[resource].GroupVersion().String(),
		"metadata": object{"resourceVersion": strconv.FormatInt(revision, 10), "annotations": annotations},
	}))
}

// initial is a list in the form of a watch.
func (s *server) initial(resource string, revision int64) []byte {
	var all bytes.Buffer
	for _, c := range s.at(resource, revision) {
		all.Write(line("ADDED", c.json))
	}
	all.Write(bookmark(resource, revision, object{"k8s.io/initial-events-end": "true"}))
	return all.Bytes()
}

// run writes events until the watch ends.
func (s *stream) run(ctx context.Context, first []byte, lasts time.Duration) {
	defer s.do(func() { delete(s.streams, s) })
	defer context.AfterFunc(ctx, func() { s.out.CloseWithError(ctx.Err()) })()
	end := time.NewTimer(lasts)
	defer end.Stop()
	every := s.bookmarks
	if every == 0 {
		every = 1000 * time.Hour
	}
	mark := time.NewTicker(every)
	defer mark.Stop()
	if len(first) > 0 {
		if !s.write(first) {
			return
		}
		s.showed(s.at)
	}
	for {
		events, upTo, changed, later := s.next()
		if len(events) > 0 {
			if !s.write(events) {
				return
			}
			s.showed(upTo)
			continue
		}
		timer := time.NewTimer(later)
		var ended bool
		select {
		case <-changed:
		case <-timer.C:
		case <-mark.C:
			ended = !s.write(bookmark(s.resource, upTo, nil))
			s.at = max(s.at, upTo)
		case <-end.C:
			ended = true
			s.out.Close()
		case <-s.cut:
			ended = true
			s.out.CloseWithError(io.ErrUnexpectedEOF)
		case <-ctx.Done():
			ended = true
		}
		timer.Stop()
		if ended {
			return
		}
	}
}

// write reports false if the watch ended instead. While the process or the API server's machine stands still, nothing is written.
func (s *stream) write(b []byte) bool {
	for {
		var still time.Duration
		s.do(func() { still = max(time.Until(s.stopped), time.Until(s.silent)) })
		if still <= 0 {
			_, err := s.out.Write(b)
			return err == nil
		}
		select {
		case <-time.After(min(still, look)):
		case <-s.cut:
			s.out.CloseWithError(io.ErrUnexpectedEOF)
			return false
		}
	}
}

func (s *stream) showed(revision int64) {
	s.do(func() {
		s.at = revision
		s.show(s.resource, revision)
	})
}

// next returns the events that are due, up to a revision. Otherwise the next one comes with the next change, or later.
func (s *stream) next() (events []byte, upTo int64, changed chan struct{}, later time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	upTo, later = max(s.at, s.visible(s.resource)), time.Hour
	for _, c := range s.log[s.resource][s.after(s.resource, s.at):] {
		if c.revision > upTo {
			later = max(s.lag[s.resource]-time.Since(c.at), 0) + time.Millisecond
			break
		}
		events = append(events, line(c.event, c.json)...)
	}
	return events, upTo, s.changed, later
}

// cutStreams breaks watches. The caller holds the lock.
func (s *server) cutStreams(match func(*stream) bool) {
	for w := range s.streams {
		if match(w) {
			w.cutOnce.Do(func() { close(w.cut) })
		}
	}
}
