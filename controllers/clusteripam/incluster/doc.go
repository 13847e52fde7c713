// Package incluster allocates the addresses and prefixes of pools in the cluster itself: InClusterIPPool, GlobalInClusterIPPool, InClusterPrefixPool and
// GlobalInClusterPrefixPool.
//
// What Cluster API's contract asks for is in package contract. Here is which block a claim gets:
//
//	claims, IPAddresses, pools ──► allocator ──► block of a claim, status of a pool
//
// A block is a single address, or a prefix. The allocator is pure, and knows who holds which block: every IPAddress, with or without a claim, and
// every claim that was given one or whose annotation says that it has one. Blocks are given to claims that wait in the order of their creation.
package incluster
