package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/cluster"
	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/show"
	"github.com/multicidr/controller-manager/controllers/build"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
)

// Exit codes.
const (
	exitAct     = 1  // the answer is one to act on
	exitRefused = 2  // a planned object would be refused
	exitUnknown = 3  // the cluster or a file cannot be read
	exitMissing = 4  // there is no such object
	exitUsage   = 64 // the command line is wrong; EX_USAGE of sysexits.h
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	p := &program{
		IOStreams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		terminal:  term.IsTerminal(int(os.Stdout.Fd())), progress: term.IsTerminal(int(os.Stderr.Fd())),
		now: time.Now,
	}
	p.connect = p.reader
	code := p.run(ctx, arguments(os.Args))
	stop()
	os.Exit(code)
}

// arguments returns the arguments of the command. kubectl asks a program called kubectl_complete-node_ipam what an argument can be.
func arguments(args []string) []string {
	if filepath.Base(args[0]) == "kubectl_complete-node_ipam" {
		return append([]string{cobra.ShellCompRequestCmd}, args[1:]...)
	}
	return args[1:]
}

// program is what all commands share.
type program struct {
	genericiooptions.IOStreams
	config   *genericclioptions.ConfigFlags
	output   string
	color    string
	services string // --service-cluster-ip-range
	terminal bool   // Out is one
	progress bool   // ErrOut is one
	now      func() time.Time
	// connect returns a reader of the cluster.
	connect func() (*cluster.Reader, error)
}

// exit ends the program with a code, after a message if there is one.
type exit struct {
	code int
	err  error
}

func (e exit) Error() string {
	if e.err == nil {
		return fmt.Sprint("exit code ", e.code)
	}
	return e.err.Error()
}

func (e exit) Unwrap() error { return e.err }

// noSuch is the error about an object that does not exist.
func noSuch(kind, name, list string) error {
	return exit{exitMissing, fmt.Errorf("there is no %s %s: %s lists their names", kind, name, list)}
}

func usage(format string, args ...any) error { return exit{exitUsage, fmt.Errorf(format, args...)} }

const display = "kubectl node-ipam"

// run returns the exit code.
func (p *program) run(ctx context.Context, args []string) int {
	root := p.root()
	root.SetArgs(args)
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.ErrOut)
	err := root.ExecuteContext(ctx)
	var e exit
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &e):
		e = exit{exitUnknown, err}
	}
	if e.err != nil {
		fmt.Fprintf(p.ErrOut, "error: %v\n", e.err)
	}
	return e.code
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-node_ipam",
		Short: "Ask who has which podCIDRs, and why",
		Long: "Answers questions about podCIDRs and ClusterCIDRs from the objects of a cluster, with the code by which the controller decides. It changes nothing.\n\n" +
			"Exit codes: 0 if all is well, 1 if the answer is one to act on, 2 if the API server would refuse a planned object, 3 if something cannot be read, 4 if there is no object of that name, and 64 if the command line is wrong.",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: display},
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("there is no command %q: %s --help lists all", args[0], display)
			}
			return c.Help()
		},
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if build.Print(p.Out, c.Flag("version").Value.String()) {
				return exit{}
			}
			if !slices.Contains([]string{"auto", "always", "never"}, p.color) {
				return usage("--color=%s: it is auto, always or never", p.color)
			}
			return nil
		},
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage("%w: %s --help lists all flags", err, c.CommandPath())
	})
	if p.config == nil {
		p.config = genericclioptions.NewConfigFlags(true)
	}
	p.config.Namespace = nil // no kind has one
	p.config.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&p.color, "color", "auto", "auto: colors on a terminal, unless NO_COLOR is set; always; or never")
	root.PersistentFlags().StringVar(&p.services, "service-cluster-ip-range", "", "as of kube-apiserver, if it has no ServiceCIDRs (before v1.33): no Node gets these addresses")
	build.AddFlags(root.PersistentFlags())
	root.CompletionOptions.HiddenDefaultCmd = true // kubectl completes, by kubectl_complete-node_ipam
	root.AddCommand(p.explainCommand(), p.whoCommand(), p.statusCommand(), p.planCommand(), p.checkCommand(), p.mapCommand(), p.debugCommand())
	return root
}

// addOutput adds --output with the formats that a command has.
func (p *program) addOutput(c *cobra.Command, formats ...show.Format) {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = string(f)
	}
	c.Flags().StringVarP(&p.output, "output", "o", string(show.Table), "one of "+strings.Join(names, ", "))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)) // The flag exists.
	inner := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if !slices.Contains(names, p.output) {
			return usage("--output=%s: it is one of %s", p.output, strings.Join(names, ", "))
		}
		return inner(c, args)
	}
}

// arguments checks the number of arguments.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return usage("%s takes %s: %s --help shows examples", c.CommandPath(), what, c.CommandPath())
		}
		return nil
	}
}

func (p *program) writer() *show.Writer {
	return &show.Writer{
		Out: p.Out, Wide: p.output == string(show.Wide),
		Color:   p.color == "always" || p.color == "auto" && p.terminal && os.Getenv("NO_COLOR") == "",
		Unicode: unicode(),
	}
}

// unicode reports whether the locale has Unicode characters. Without a locale, as in most containers, it is assumed.
func unicode() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := strings.ToLower(os.Getenv(name)); value != "" {
			return strings.Contains(value, "utf-8") || strings.Contains(value, "utf8")
		}
	}
	return true
}

// write writes an answer in the format of --output. names are for -o name.
func (p *program) write(answer any, names []string, table func(*show.Writer)) error {
	w := p.writer()
	switch format := show.Format(p.output); format {
	case show.JSON, show.YAML:
		return w.Encode(format, answer)
	case show.Name:
		for _, name := range names {
			w.Printf("%s", name)
		}
	default:
		table(w)
	}
	return nil
}

func (p *program) reader() (*cluster.Reader, error) {
	config, err := p.config.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	return cluster.NewReader(config)
}

// serviceRanges are those of --service-cluster-ip-range.
func (p *program) serviceRanges() ([]netip.Prefix, error) {
	if p.services == "" {
		return nil, nil
	}
	ranges, err := fromflags.ParseCIDRs(fromflags.ServiceRanges, p.services)
	if err != nil {
		return nil, usage("%w", err)
	}
	return ranges, nil
}

// read reads the objects of the cluster, with progress on a terminal. Without Nodes and ClusterCIDRs nothing can be said. What else may not be
// read is named on the error output.
func (p *program) read(ctx context.Context) (*cluster.Reader, cluster.Objects, error) {
	services, err := p.serviceRanges()
	if err != nil {
		return nil, cluster.Objects{}, err
	}
	r, err := p.connect()
	if err != nil {
		return nil, cluster.Objects{}, err
	}
	if p.progress {
		r.Progress = func(kind string, n int) { fmt.Fprintf(p.ErrOut, "\r\x1b[Kreading %s: %d", kind, n) }
	}
	objects, err := r.Objects(ctx)
	if p.progress {
		fmt.Fprint(p.ErrOut, "\r\x1b[K")
	}
	if err != nil {
		return nil, objects, err
	}
	objects.ServiceRanges = services
	p.warn(objects.Missing)
	for _, kind := range []string{cluster.Nodes, cluster.ClusterCIDRs} {
		if objects.Lacks(kind) {
			return nil, objects, fmt.Errorf("this needs %s, which you may not list. An administrator can let you: kubectl apply -f %s", kind, build.Manifest("rbac-viewer/clusterrole.yaml"))
		}
	}
	return r, objects, nil
}

func (p *program) warn(missing []cluster.Missing) {
	for _, m := range missing {
		fmt.Fprintf(p.ErrOut, "warning: %v\n", m)
	}
}

// complete completes one argument with names of a kind.
func (p *program) complete(kind string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		r, err := p.connect()
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return r.Names(c.Context(), kind, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}
