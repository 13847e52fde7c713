package parity

import (
	"strings"
	"testing"
)

// The comparison is only worth something if it sees what it is there for.
func TestDriftIsSeen(t *testing.T) {
	const text = `The manager.

Usage:
  manager [flags]

Generic flags:

      --controllers strings   A list.
                              All controllers: node, token
                              Disabled-by-default controllers: token (default [*])
      --qps float32           QPS. (default 20)
  -v, --v Level               verbosity

Node flags:

      --mask int32            Mask size. (default 24)
`
	additions := surface{
		controllers:  {"ours": ""},
		offByDefault: {"ours": ""},
		flagSections: {"Ours": ""},
		flags:        {"Ours --syncs": "int (default 30)"},
	}
	withOurs := strings.NewReplacer("node, token", "node, ours, token", "controllers: token (", "controllers: ours, token (").Replace(text) +
		"\nOurs flags:\n\n      --syncs int   (default 30)\n"

	cases := map[string]struct {
		ours string
		want string // part of what is said; empty: no drift
	}{
		"exactly the additions":                {ours: withOurs},
		"other columns":                        {ours: strings.ReplaceAll(withOurs, "strings   ", "strings          ")},
		"a flag is gone":                       {ours: strings.Replace(withOurs, "      --qps float32           QPS. (default 20)\n", "", 1), want: "--qps"},
		"a default changed":                    {ours: strings.Replace(withOurs, "default 24", "default 25", 1), want: "default 25"},
		"a text changed":                       {ours: strings.Replace(withOurs, "QPS.", "Queries.", 1), want: "Queries."},
		"a flag moved to another section":      {ours: strings.Replace(withOurs, "Node flags:", "Nodes flags:", 1), want: "Nodes --mask"},
		"a flag that is not listed":            {ours: withOurs + "      --more int   More.\n", want: "Ours --more"},
		"a listed flag that is not there":      {ours: strings.Replace(withOurs, "--syncs int", "--threads int", 1), want: "Ours --syncs"},
		"a controller is gone":                 {ours: strings.Replace(withOurs, "All controllers: node, ", "All controllers: ", 1), want: `"node"`},
		"a controller that is not listed":      {ours: strings.Replace(withOurs, "All controllers: ", "All controllers: more, ", 1), want: `"more"`},
		"a controller is off by default":       {ours: strings.Replace(withOurs, "controllers: ours, token (", "controllers: node, ours, token (", 1), want: `"node"`},
		"ours is on by default":                {ours: strings.Replace(withOurs, "controllers: ours, token (", "controllers: token (", 1), want: `"ours"`},
		"the text before the flags changed":    {ours: strings.Replace(withOurs, "The manager.", "A manager.", 1), want: "A manager."},
		"the default of --controllers changed": {ours: strings.Replace(withOurs, "default [*]", "default [*,ours]", 1), want: ",ours"},
		"nothing of ours":                      {ours: text, want: `"ours"`},
	}
	for sentence, tc := range cases {
		t.Run(sentence, func(t *testing.T) {
			got := drift(parseHelp(text), parseHelp(tc.ours), additions)
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("want a difference that shows %q, got:\n%s", tc.want, got)
			}
		})
	}
}
