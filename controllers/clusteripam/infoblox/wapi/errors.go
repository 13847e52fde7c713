package wapi

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Error is a request that failed.
type Error struct {
	// Request is the method and the kind of object.
	Request string
	// Status is the HTTP status; 0 if there was no answer.
	Status int
	// Text is what WAPI says about the error. It is empty if the answer is not from WAPI, for example from a proxy.
	Text string
	// Err is why there was no answer, or why the answer cannot be read.
	Err error

	notSent bool
}

func (e *Error) Error() string {
	switch {
	case e.Text != "":
		return fmt.Sprintf("%s: %s (HTTP %d)", e.Request, e.Text, e.Status)
	case e.Err != nil:
		return fmt.Sprintf("%s: %v", e.Request, e.Err)
	default:
		return fmt.Sprintf("%s: HTTP %d %s", e.Request, e.Status, http.StatusText(e.Status))
	}
}

func (e *Error) Unwrap() error { return e.Err }

// Answered reports whether the outcome of a request is known: it was carried out, never sent, or refused. Otherwise a write may have been carried out, and may still be.
func Answered(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if err == nil || !ok { // Not an error of a request: nothing was sent.
		return true
	}
	return e.notSent || e.Status >= 400 && e.Status < 500 && e.Status != http.StatusRequestTimeout
}

// IsFull reports whether a write was refused because its network has no free address. WAPI has no code of its own for that.
func IsFull(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == http.StatusBadRequest && strings.Contains(e.Text, "Cannot find") && strings.Contains(e.Text, "available IP address")
}
