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
	// Code and Text are what WAPI says about the error. They are empty if the answer is not from WAPI, for example from a proxy.
	Code, Text string
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

// fromWAPI reports whether WAPI itself has answered, and not a proxy in front of it.
func (e *Error) fromWAPI() bool { return e.Code != "" || e.Text != "" }

// Answered reports whether the outcome of a request is known: it was carried out, never sent, or refused.
func Answered(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if err == nil || !ok { // Not an error of a request: nothing was sent.
		return true
	}
	return e.notSent || e.Status >= 400 && e.Status < 500 && e.Status != http.StatusRequestTimeout
}

// InFlight reports whether a write may still be carried out. If its outcome is unknown but it is not in flight, a read tells the outcome.
func InFlight(err error) bool {
	e, _ := errors.AsType[*Error](err)
	return !Answered(err) && (e.Status < 500 || !e.fromWAPI())
}

// IsNotFound reports whether WAPI says that the object of a reference does not exist.
func IsNotFound(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == http.StatusNotFound && e.fromWAPI()
}

// IsUnauthorized reports whether the credentials are wrong or lack a permission.
func IsUnauthorized(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden)
}

// IsDuplicate reports whether a write was refused because such an object exists.
func IsDuplicate(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == http.StatusBadRequest && (e.Code == "Client.Ibap.Data.Conflict" || strings.Contains(e.Text, "already exists"))
}

// IsFull reports whether a write was refused because its network has no free address. WAPI has no code of its own for that.
func IsFull(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == http.StatusBadRequest && strings.Contains(e.Text, "Cannot find") && strings.Contains(e.Text, "available IP address")
}
