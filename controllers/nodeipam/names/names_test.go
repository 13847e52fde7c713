package names

import (
	"fmt"
	"slices"
	"testing"
)

func TestSet(t *testing.T) {
	var s Set
	for _, n := range []int{0, 1, 2, maxFew, maxFew + 1, 50, 3} { // and once it had many, few again
		var want []string
		for i := range n {
			name := fmt.Sprintf("%02d", i)
			want = append(want, name)
			s.Add(fmt.Sprintf("%02d", n-1-i))
			s.Add(name)
			s.Add("gone")
			s.Remove("gone")
		}
		if got := s.Take(); !slices.Equal(got, want) {
			t.Errorf("%d names: got %v", n, got)
		}
		if got := s.Take(); len(got) > 0 {
			t.Errorf("%d names: left are %v", n, got)
		}
	}
}
