// Package wapi is a client of Infoblox' WAPI, as far as host records need it.
//
// It sends every request once. A write whose answer is lost may have been carried out, may still be carried out, or may never have arrived,
// and only the caller knows what to look at before the write is sent again. So every error says how much is known: see Error.
//
// The server is always verified, unless the user has turned that off. A CA file that cannot be read is an error and turns nothing off.
package wapi
