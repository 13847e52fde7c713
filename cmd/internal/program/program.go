// Package program tells which program a container runs, whatever its Pod is called: behind wrappers and shells, and by its image.
package program

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Names of programs.
const (
	Manager = "kube-controller-manager"
	// Peer is the program of kubernetes-sigs, and this project's program of the same name.
	Peer  = "node-ipam-controller"
	Proxy = "kube-proxy"
	// Server is beside a kube-controller-manager in a control plane that is hosted for another cluster.
	Server = "kube-apiserver"
)

// Program is one program of a container.
type Program struct {
	Name  string   // of the executable, without its directory
	Path  string   // of the executable, as the command line has it; empty if the entry point of the image is started
	Image string   // of the container
	Args  []string // without those that have variables of unknown value
	Env   map[string]string
	// Wrapper is what the container starts in place of the program, such as /go-runner or /bin/sh; empty if it starts the program itself.
	Wrapper string
	// Hidden are the flags whose values are unknown.
	Hidden []string
	// Unread reports that the program may have any flag beside Args: from variables, or from a script in the image.
	Unread bool
}

// known are the programs that are found behind wrappers, and by the names of images and containers.
var known = []string{Manager, Peer, Proxy, Server, "cloud-controller-manager", "kube-router", "cilium-agent", "flanneld"}

var (
	// shells run the script behind -c.
	shells = []string{"sh", "bash", "ash", "dash", "pwsh", "pwsh.exe"}
	// keywords stand before a command in a script.
	keywords = []string{"exec", "export", "if", "then", "else", "do", "while", "until", "!", "{", "time", "nohup"}
	// hyperkube has its own names for the programs in it.
	hyperkube = map[string]string{"controller-manager": Manager, "proxy": Proxy}
)

var (
	ofContainer = regexp.MustCompile(`\$\(([\w.-]+)\)`)                   // a variable in the command of a container
	ofScript    = regexp.MustCompile(`\$\{?(\w+)\}?`)                     // a variable in a script
	assignment  = regexp.MustCompile(`(?s)^(\w+)=(.*)$`)                  // in a script
	platform    = regexp.MustCompile(`-(amd64|arm64|arm|ppc64le|s390x)$`) // at the end of the names of old images
	mirrored    = regexp.MustCompile(`^.+[-_](` + Manager + `|` + Proxy + `)$`)
)

// Of returns the programs that a container runs: several if a script starts several, and at least one.
func Of(c corev1.Container) []Program {
	r := reader{image: c.Image, env: map[string]string{}}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			r.env[e.Name] = e.Value
		}
	}
	words := slices.Concat(c.Command, c.Args)
	for i, word := range words {
		words[i] = r.expand(ofContainer, word)
	}
	byImage := imageName(c.Image)
	switch {
	case len(words) == 0 || len(c.Command) == 0 && strings.HasPrefix(words[0], "-"):
		p := Program{Name: byImage, Image: c.Image, Env: r.env}
		p.take(words)
		return []Program{p}
	case len(c.Command) == 0:
		r.wrapper = "the entry point of its image"
	}
	r.read(words)
	for _, name := range []string{byImage, c.Name} {
		if slices.Contains(known, name) && !slices.ContainsFunc(r.found, func(p Program) bool { return slices.Contains(known, p.Name) }) {
			// Something else in the image of a known program, such as a script: what it does with its arguments is unknown.
			p := Program{Name: name, Path: words[0], Wrapper: words[0], Image: c.Image, Env: r.env}
			p.take(words[1:])
			p.Unread = true
			r.found = append(r.found, p)
		}
	}
	return r.found
}

// imageName is the last part of the name of an image, without tag, digest, and what a mirror puts before the name of a program.
func imageName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	name, _, _ := strings.Cut(path.Base(image), ":")
	name = platform.ReplaceAllString(name, "")
	if match := mirrored.FindStringSubmatch(name); match != nil {
		return match[1]
	}
	return name
}

// take sets the arguments. Those with variables, and the flags that have them as values, are left out.
func (p *Program) take(words []string) {
	for _, word := range words {
		last := len(p.Args) - 1
		switch flag, _, valued := strings.Cut(word, "="); {
		case !strings.Contains(word, "$"):
			p.Args = append(p.Args, word)
		case valued && strings.HasPrefix(word, "-") && !strings.Contains(flag, "$"):
			p.Hidden = append(p.Hidden, strings.TrimLeft(flag, "-"))
		case last >= 0 && strings.HasPrefix(p.Args[last], "--") && !strings.Contains(p.Args[last], "="):
			p.Hidden = append(p.Hidden, strings.TrimLeft(p.Args[last], "-"))
			p.Args = p.Args[:last]
		default:
			p.Unread = true
		}
	}
}

// Flag is the value of a flag, or values with commas if it is there more than once; "true" if it has none, and empty if it is not there.
func (p Program) Flag(name string) string {
	var values []string
	for i, arg := range p.Args {
		flag, value, valued := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch {
		case !strings.HasPrefix(arg, "-") || strings.ReplaceAll(flag, "_", "-") != name:
		case valued:
			values = append(values, value)
		case i+1 < len(p.Args) && !strings.HasPrefix(p.Args[i+1], "-"):
			values = append(values, p.Args[i+1])
		default:
			values = append(values, "true")
		}
	}
	return strings.Join(values, ",")
}

// reader collects the programs of a container.
type reader struct {
	image   string
	env     map[string]string
	wrapper string // what the container starts, if that is not the program
	found   []Program
}

// read reads a command.
func (r *reader) read(words []string) {
	if len(words) == 0 {
		return
	}
	if script, arguments := scriptIn(words); script != "" {
		r.wrapper = cmp.Or(r.wrapper, words[0])
		for _, command := range split(script) {
			r.read(r.command(command, arguments))
		}
		return
	}
	if full := ""; path.Base(words[0]) == "hyperkube" && len(words) > 1 {
		if full = hyperkube[words[1]]; full != "" {
			words = slices.Concat(words[:1], []string{full}, words[2:])
		}
	}
	at := max(0, slices.IndexFunc(words, func(word string) bool { return slices.Contains(known, path.Base(word)) }))
	// A known name that has no flags behind it is only mentioned, as in `pgrep kube-proxy`.
	if at+1 >= len(words) || !strings.HasPrefix(words[at+1], "-") && !strings.HasPrefix(words[at+1], "$") {
		at = 0
	}
	p := Program{Name: path.Base(words[at]), Path: words[at], Image: r.image, Env: r.env, Wrapper: r.wrapper}
	p.take(words[at+1:])
	if at > 0 {
		p.Wrapper = cmp.Or(r.wrapper, words[0])
	}
	r.found = append(r.found, p)
}

// scriptIn returns the script that a shell in a command runs, and the shell's arguments: $0, $1 and so on.
func scriptIn(words []string) (script string, arguments []string) {
	shell := slices.IndexFunc(words, func(word string) bool { return slices.Contains(shells, path.Base(word)) })
	if shell < 0 {
		return "", nil
	}
	for i := shell + 1; i+1 < len(words) && strings.HasPrefix(words[i], "-"); i++ {
		switch options := words[i]; {
		case strings.HasPrefix(options, "--"):
		case strings.Contains(options, "c"):
			if strings.HasSuffix(options, "o") {
				i++ // The value of -o comes first.
			}
			return strings.Join(words[min(i+1, len(words)-1):][:1], ""), words[min(i+2, len(words)):]
		case strings.HasSuffix(options, "o"):
			i++
		}
	}
	return "", nil
}

// command is a command of a script without keywords, with the values of variables that are known. It learns those of assignments.
func (r *reader) command(words, arguments []string) []string {
	var all []string
	for _, word := range words {
		set := assignment.FindStringSubmatch(word)
		value := r.expand(ofScript, word)
		switch {
		case len(all) == 0 && set != nil:
			r.env[set[1]] = r.expand(ofScript, set[2])
		case len(all) == 0 && slices.Contains(keywords, word):
		case word == "$@" || word == "$*":
			all = append(all, arguments[min(1, len(arguments)):]...)
		case value != word && ofScript.FindString(word) == word:
			all = append(all, strings.Fields(value)...)
		default:
			all = append(all, value)
		}
	}
	return all
}

// expand replaces variables of known values.
func (r *reader) expand(variable *regexp.Regexp, word string) string {
	return variable.ReplaceAllStringFunc(word, func(match string) string {
		if value, ok := r.env[variable.FindStringSubmatch(match)[1]]; ok {
			return value
		}
		return match
	})
}
