package host

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

const (
	mark       = "Kubernetes IPAddressClaim "
	maxComment = 256
	// maxClaims is how many claims can have addresses in one host record: their UIDs have to fit in the comment.
	maxClaims = 6
)

var marked = regexp.MustCompile(`^` + mark + `([0-9a-f-]{36}(?:,[0-9a-f-]{36})*)(?: |$)`)

// Mark returns the comment of a host record in which these claims have addresses. Infoblox knows no UIDs, so the comment is what tells a
// record of ours from one that only has the same name. of is for people.
func Mark(claims []types.UID, of string) string {
	var uids []string
	for _, c := range claims {
		uids = append(uids, string(c))
	}
	comment := mark + strings.Join(uids, ",")
	if rest := maxComment - len(comment) - len(" ()"); of != "" && rest > 0 {
		comment += " (" + of[:min(rest, len(of))] + ")"
	}
	return comment
}

// For reports whether the comment of a host record says for people that it is of this claim.
func (r Record) For(of string) bool { return r.Comment == Mark(r.Claims(), of) }

// Claims returns the claims that have addresses in a host record, according to its comment; none if the record is not ours.
func (r Record) Claims() (claims []types.UID) {
	m := marked.FindStringSubmatch(r.Comment)
	if m == nil {
		return nil
	}
	for uid := range strings.SplitSeq(m[1], ",") {
		claims = append(claims, types.UID(uid))
	}
	return claims
}

// Of reports whether a claim has an address in a host record.
func (r Record) Of(claim types.UID) bool { return slices.Contains(r.Claims(), claim) }
