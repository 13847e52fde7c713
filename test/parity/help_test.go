package parity

import (
	"regexp"
	"strings"
)

// The aspects of the help text.
const (
	help           = "help"
	flagSections   = "flag sections"
	flags          = "flags"
	controllers    = "controllers"
	offByDefault   = "controllers off by default"
	noControllers  = "All controllers: ... Disabled-by-default controllers: ..."
	sectionsSuffix = " flags:"
)

var (
	flagLine        = regexp.MustCompile(`^ {2,6}(?:-\w, )?(--[\w-]+)(.*)$`)
	controllerLists = regexp.MustCompile(`All controllers: (.*?) Disabled-by-default controllers: ([^(]*?) ?\(default`)
)

// parseHelp reads the output of --help. The lists of controllers inside the text of --controllers become aspects of their own.
func parseHelp(text string) surface {
	result := surface{}
	section, name := "", ""
	preamble, texts := []string{}, map[string][]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		flag := flagLine.FindStringSubmatch(line)
		switch {
		case strings.HasSuffix(line, sectionsSuffix) && !strings.HasPrefix(line, " "):
			section, name = strings.TrimSuffix(line, sectionsSuffix), ""
			result.add(flagSections, section, "")
		case section == "":
			preamble = append(preamble, line)
		case flag != nil:
			name = section + " " + flag[1]
			texts[name] = strings.Fields(flag[2])
		case name != "":
			texts[name] = append(texts[name], strings.Fields(line)...)
		}
	}
	result.add(help, "before the flags", strings.Join(preamble, "\n"))
	for name, words := range texts {
		value := strings.Join(words, " ")
		if lists := controllerLists.FindStringSubmatch(value); lists != nil {
			value = strings.Replace(value, strings.TrimSuffix(lists[0], " (default"), noControllers, 1)
			for c := range strings.SplitSeq(lists[1], ", ") {
				result.add(controllers, c, "")
			}
			for c := range strings.SplitSeq(lists[2], ", ") {
				result.add(offByDefault, c, "")
			}
		}
		result.add(flags, name, value)
	}
	return result
}
