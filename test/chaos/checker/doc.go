// Package checker says whether an allocator of podCIDRs kept its word, from etcd's own history: every revision of every Node and
// ClusterCIDR in the order in which it was committed, not what a cache happened to show.
//
// It knows nothing of the controller: what a ClusterCIDR may give, and what is free, is worked out again here, by counting.
//
// A Node that has podCIDRs in its first revision was created with them, by somebody else; any other Node with podCIDRs was
// served. Only what was served can be a violation.
//
// Most rules need no clock: two live Nodes overlap at a revision or they do not. Some decisions were right when they were made and
// late when they were committed: a retry carries the same blocks, and the ClusterCIDR may have been disabled meanwhile. For those,
// and only for those, Options.Slack says how long before its revision a decision may have been made, and the summary how much of it was
// needed.
package checker
