// Package incluster allocates addresses of InClusterIPPools and GlobalInClusterIPPools to IPAddressClaims, as Cluster API's contract for
// providers of addresses wants it. What it decides is in package book, which makes no calls. This package connects the book to a
// shell.Controller: events and answers go in, requests come out.
//
// One claim takes three writes: its finalizer, its IPAddress, and its status.
package incluster
