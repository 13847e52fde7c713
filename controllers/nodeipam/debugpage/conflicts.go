package debugpage

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/text"
)

// conflict is two owners that hold the same addresses. The inner prefix lies in the outer one.
type conflict struct{ Outer, Inner ipam.Holding }

// maxConflicts limits how many conflicts are shown. If all Nodes held the same block, there would be millions.
const maxConflicts = 1000

// company names some of the owners that a Node shares addresses with, and counts the others.
type company struct {
	names []string
	more  int
}

func (c *company) String() string {
	text := strings.Join(c.names, "; ")
	if c.more > 0 {
		text += fmt.Sprintf("; %d more", c.more)
	}
	return text
}

// conflictsIn returns at most maxConflicts conflicts of the whole address space, their total number, and the owners that each Node is in
// conflict with.
func conflictsIn(b *allocator.State) (some []conflict, total int, with map[types.UID]*company) {
	with = map[types.UID]*company{}
	note := func(about, other ipam.Holding) {
		if about.Owner.Kind != ipam.Node {
			return
		}
		uid := types.UID(about.Owner.ID)
		if with[uid] == nil {
			with[uid] = &company{}
		}
		if c := with[uid]; len(c.names) == text.MaxNamed {
			c.more++
		} else {
			c.names = append(c.names, fmt.Sprintf("%s (%v)", b.NameOf(other.Owner), other.Prefix))
		}
	}
	for _, all := range ipam.Everything {
		for outer, inner := range ipam.Nested(slices.Values(b.Holdings(all))) {
			if !ipam.Conflicting(outer, inner) {
				continue
			}
			if total++; total <= maxConflicts {
				some = append(some, conflict{outer, inner})
			}
			note(outer, inner)
			note(inner, outer)
		}
	}
	return some, total, with
}
