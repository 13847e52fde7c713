package nodeipam

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// What can happen in the simulated world. A move is a line of words, so that a history of moves can be printed, cut shorter and
// played again without the dice that made it; a move that is not possible where it comes does nothing.

type move []string

func (m move) String() string { return strings.Join(m, " ") }

// moveKind is one thing that can happen.
type moveKind struct {
	weight int
	// pick returns the words after the name of a move that is possible now, nil if there is none.
	pick func(w *world, d *rand.Rand) []string
	// do makes it happen. It reports whether it was possible.
	do func(w *world, args []string) bool
}

const nothing = "-" // where a word stands for no value

var moves = func() map[string]moveKind {
	all := maps.Clone(userMoves)
	maps.Copy(all, processMoves)
	maps.Copy(all, panicMoves)
	maps.Copy(all, gapMoves)
	maps.Copy(all, crdMoves)
	return all
}()

func oneIfAny[T any](d *rand.Rand, of []T) (one T, ok bool) {
	if len(of) == 0 {
		return one, false
	}
	return of[d.IntN(len(of))], true
}

func oneOf[T any](d *rand.Rand, of []T) T { return of[d.IntN(len(of))] }

func wordToInt(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

var moveNames = sortedNames(moves)

// temper draws how often each move comes in one history: what is rare on the average is frequent in some, or missing altogether.
func temper(d *rand.Rand) (weights []int, total int) {
	for _, name := range moveNames {
		weight := moves[name].weight
		if weight < frequent {
			weight = weight * oneOf(d, []int{0, 1, 1, 2, 6}) / 2
		}
		weights, total = append(weights, weight), total+weight
	}
	return weights, total
}

// frequent is the weight from which on a move keeps the world going.
const frequent = 100

// roll picks a possible move.
func (w *world) roll(d *rand.Rand, weights []int, total int) move {
	for {
		n := d.IntN(total)
		for i, name := range moveNames {
			if n -= weights[i]; n >= 0 {
				continue
			}
			if args := moves[name].pick(w, d); args != nil {
				return append(move{name}, args...)
			}
			break
		}
	}
}

// make carries a move out.
func (w *world) make(m move) {
	defer w.survive()
	w.note("%v", m)
	if (!w.server.crdGone || !strings.HasSuffix(m[0], "-cc") && !slices.Contains(onClusterCIDRs, m[0])) && moves[m[0]].do(w, m[1:]) {
		w.cover("move: " + m[0])
	} else {
		w.trace[len(w.trace)-1] += " (not possible)"
	}
}
