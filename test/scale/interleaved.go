package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// groups are the contestants that run together: each by itself, or if they are interleaved all that have no limit of their own.
func (s *scale) groups(order []contestant) (groups [][]contestant) {
	var together []contestant
	for _, c := range order {
		if s.interleaved && c.qps == 0 {
			together = append(together, c)
		} else {
			groups = append(groups, []contestant{c})
		}
	}
	if len(together) > 0 {
		groups = append(groups, together)
	}
	return groups
}

// run measures the contestants of a group. Each has a control plane of its own, but only one of them has anything to do at a time: where it
// meets the others, the next one goes on, in one order and then in the other.
func (s *scale) run(ctx context.Context, what scenario, group []contestant, nodes int) ([]sample, error) {
	got, errs := make([]sample, len(group)), make([]error, len(group))
	var (
		proceed []func() (struct{}, bool) // to where it meets the others again; false once it has ended
		stops   []func()
	)
	for i, c := range group {
		next, stop := iter.Pull(func(yield func(struct{}) bool) {
			own := *s
			if len(group) > 1 {
				own.meet = func() error {
					if !yield(struct{}{}) {
						return errors.New("another one has failed")
					}
					return nil
				}
			}
			if got[i], errs[i] = what.run(&own, ctx, c, nodes); errs[i] != nil {
				errs[i] = fmt.Errorf("%s, %s, %d %s: %w", what.name, c.name, nodes, what.what(), errs[i])
			}
		})
		defer stop() // also where this panics
		stops = append(stops, stop)
		proceed = append(proceed, next)
	}
	busy := make([]int, len(group))
	for i := range busy {
		busy[i] = i
	}
	for len(busy) > 0 {
		for _, i := range slices.Clone(busy) {
			if _, more := proceed[i](); more {
				continue
			}
			if errs[i] != nil {
				for _, stop := range stops {
					stop()
				}
				return nil, errors.Join(errs...) // of all, for each says where its logs are
			}
			busy = slices.DeleteFunc(busy, func(other int) bool { return other == i })
		}
		slices.Reverse(busy)
	}
	return got, nil
}

// meetOthers lets the others have their turn, if there are any.
func (s *scale) meetOthers() error {
	if s.meet == nil {
		return nil
	}
	return s.meet()
}

func names(group []contestant) string {
	var all []string
	for _, c := range group {
		all = append(all, c.name)
	}
	return strings.Join(all, " and ")
}
