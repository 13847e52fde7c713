// Package show writes answers: tables and bars for people, JSON, YAML and names for programs.
package show

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// Format is a value of --output.
type Format string

const (
	Table Format = "table"
	Wide  Format = "wide"
	JSON  Format = "json"
	YAML  Format = "yaml"
	Name  Format = "name"
)

// Writer writes to a terminal or to anything else.
type Writer struct {
	Out io.Writer
	// Color is whether colors are shown, Unicode whether bars have Unicode characters, and Wide whether tables have all columns.
	Color, Unicode, Wide bool
}

// Printf writes a line.
func (w *Writer) Printf(format string, args ...any) { fmt.Fprintf(w.Out, format+"\n", args...) }

// Encode writes a value as JSON or YAML.
func (w *Writer) Encode(format Format, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err == nil && format == YAML {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w.Out, strings.TrimRight(string(text), "\n"))
	return err
}

// Color is the foreground color of a text; the zero value is the terminal's own.
type Color int

const (
	Red    Color = 31
	Green  Color = 32
	Yellow Color = 33
	Gray   Color = 90
)

// In colors a text, if colors are shown.
func (w *Writer) In(c Color, text string) string {
	if !w.Color || c == 0 || text == "" {
		return text
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", c, text)
}

// Rows are a table. Columns whose title begins with "+" are for --output=wide.
type Rows struct {
	titles []string
	rows   [][]cell
}

type cell struct {
	text  string
	color Color
}

// NewRows returns a table with these columns.
func NewRows(titles ...string) *Rows { return &Rows{titles: titles} }

// Add adds a row. Values are formatted with %v; a Colored one has a color. An empty one is shown as a dash. The last one can be a text that has its
// colors already, since nothing is aligned after it.
func (t *Rows) Add(values ...any) {
	row := make([]cell, len(values))
	for i, value := range values {
		if colored, ok := value.(Colored); ok {
			row[i] = cell{fmt.Sprint(colored.Value), colored.Color}
		} else {
			row[i] = cell{text: fmt.Sprint(value)}
		}
		if row[i].text == "" {
			row[i].text = "-"
		}
	}
	t.rows = append(t.rows, row)
}

// Colored is a value with a color.
type Colored struct {
	Value any
	Color Color
}

// Rows writes a table as kubectl does: three spaces between columns.
func (w *Writer) Rows(t *Rows) {
	lines := [][]cell{nil}
	var columns []int
	for i, title := range t.titles {
		name, wide := strings.CutPrefix(title, "+")
		if !wide || w.Wide {
			columns = append(columns, i)
			lines[0] = append(lines[0], cell{text: name})
		}
	}
	for _, row := range t.rows {
		var line []cell
		for _, i := range columns {
			line = append(line, row[i])
		}
		lines = append(lines, line)
	}
	widths := make([]int, len(columns))
	for _, line := range lines {
		for i, c := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	for _, line := range lines {
		var text strings.Builder
		for i, c := range line {
			text.WriteString(w.In(c.color, c.text))
			if i < len(line)-1 {
				text.WriteString(Padding(c.text, widths[i]+3))
			}
		}
		w.Printf("%s", text.String())
	}
}

// barWidth is the number of characters of a bar.
const barWidth = 20

// Bar draws parts of a total side by side, and then how much is left. A part that is not empty has at least one character.
func (w *Writer) Bar(total int64, parts ...int64) string {
	symbols := []rune("#+x.")
	if w.Unicode {
		symbols = []rune("█▓▒░")
	}
	if total <= 0 {
		return ""
	}
	var text strings.Builder
	width, most, left := 0, barWidth, total
	for _, part := range parts {
		left -= part
	}
	if left > 0 {
		most-- // what is left is seen, too
	}
	for i, part := range parts {
		n := int(float64(part)/float64(total)*barWidth + 0.5)
		if n == 0 && part > 0 {
			n = 1
		}
		n = min(n, most-width)
		width += n
		text.WriteString(strings.Repeat(string(symbols[i]), n))
	}
	if left == 0 && width < barWidth { // rounded down
		return text.String() + strings.Repeat(string(symbols[0]), barWidth-width)
	}
	return text.String() + strings.Repeat(string(symbols[len(symbols)-1]), barWidth-width)
}

// Few joins the first texts, and says how many more there are.
func Few(texts []string, most int) string {
	if len(texts) <= most {
		return strings.Join(texts, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(slices.Clone(texts[:most]), ", "), len(texts)-most)
}

// Padding returns the spaces that fill a text up to a width.
func Padding(text string, width int) string {
	return strings.Repeat(" ", max(width-utf8.RuneCountInString(text), 0))
}
