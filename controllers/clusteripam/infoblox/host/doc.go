// Package host decides about host records in Infoblox: which one belongs to a claim, which address in it, and what is to be written. It makes
// no calls.
//
// A name alone does not say whose a record is. Two namespaces, two clusters and a person at the console can all want a record called "web-1".
// So each record carries in its comment the UIDs of the claims that have addresses in it, from the write that makes it, and only such a
// record is used. A record without a claim's UID is somebody else's, and is neither used nor changed.
//
// Claims of one machine can share a record, for example one for IPv4 and one for IPv6: a name in the DNS has one record. Which address is
// whose is known because a claim joins a record only when every other claim in it has its IPAddress, or was told its address.
package host
