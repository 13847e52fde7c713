// Package faultproxy is a proxy between one manager and the API server that does to its requests what a bad network and a
// troubled server would: it loses the answer of a write that was carried out, delays, refuses, cuts watches, closes
// connections, and parts the two for a while. All of it can be switched while requests are on their way.
//
// It terminates TLS, so a client certificate does not pass. A request with the certificate of the manager goes on with the
// same certificate, one with a bearer token goes on with nothing but the token, and any other is anonymous upstream as well.
//
// A write is forwarded whole and its answer awaited even when the client has gone meanwhile: once bytes are on the network,
// nobody takes them back.
package faultproxy
