package text

import (
	"slices"
	"strings"
	"testing"
)

func TestCut(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		most int
		want string
	}{
		"short":                        {"a text", 6, "a text"},
		"too long":                     {"a long text", 10, "a long ..."},
		"in the middle of a character": {"aaäää", 7, "aa ..."},
		"not UTF-8":                    {"a\xffb", 8, "a\uFFFDb"},
	} {
		if got := Cut(tc.text, tc.most); got != tc.want || len(got) > tc.most {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestListsSayHowManyMore: whatever is cut off from a list is counted.
func TestListsSayHowManyMore(t *testing.T) {
	long := slices.Repeat([]string{strings.Repeat("ü", 100)}, 12)
	if got, want := Listed(long), strings.Join(append(slices.Clone(long[:3]), "9 more"), "; "); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := ListedFew([]string{"b", "a"}), "a; b"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := ListedFew(long); !strings.HasSuffix(got, "; and more") {
		t.Errorf("got %q", got)
	}
	if got := Listed([]string{strings.Repeat("x", 2000)}); len(got) != MaxListed {
		t.Errorf("one text has %d bytes", len(got))
	}
}
