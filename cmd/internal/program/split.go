package program

import "strings"

// split splits a script into its commands, and each into words. It knows quotes, comments and the end of lines; of the rest of the language it knows only
// where a command ends.
func split(script string) [][]string {
	s := splitter{}
	for _, c := range strings.ReplaceAll(script, "\\\n", " ") {
		s.next(c)
	}
	s.endCommand()
	return s.commands
}

type splitter struct {
	commands [][]string
	words    []string
	word     strings.Builder
	started  bool // a word, which may be empty
	quote    rune // the one that is open: ', " or \, # in a comment, or ) and ` in what another command writes; 0 if none is
	inDouble bool // the backslash is inside "
}

func (s *splitter) next(c rune) {
	switch {
	case s.quote == '#':
		if c == '\n' {
			s.quote = 0
			s.endCommand()
		}
	case s.quote == '\\':
		s.add(c)
		s.quote = 0
		if s.inDouble {
			s.quote, s.inDouble = '"', false
		}
	case s.quote == '"' && c == '\\':
		s.quote, s.inDouble = '\\', true
	case s.quote != 0 && c == s.quote:
		if c == ')' {
			s.add(c)
		}
		s.quote = 0
	case s.quote != 0:
		s.add(c)
	default:
		s.unquoted(c)
	}
}

func (s *splitter) unquoted(c rune) {
	switch {
	case c == '#' && !s.started, c == '\'', c == '"', c == '\\':
		s.quote = c
		s.started = c != '#'
	case c == '`', c == '(' && strings.HasSuffix(s.word.String(), "$"):
		s.add('$')
		s.quote = map[rune]rune{'`': '`', '(': ')'}[c]
	case strings.ContainsRune("\n;&|()", c):
		s.endCommand()
	case strings.ContainsRune(" \t\r<>", c):
		s.endWord()
	default:
		s.add(c)
	}
}

func (s *splitter) add(c rune) {
	s.word.WriteRune(c)
	s.started = true
}

func (s *splitter) endWord() {
	if s.started {
		s.words = append(s.words, s.word.String())
	}
	s.word.Reset()
	s.started = false
}

func (s *splitter) endCommand() {
	s.endWord()
	if len(s.words) > 0 {
		s.commands = append(s.commands, s.words)
	}
	s.words = nil
}
