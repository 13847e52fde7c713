package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	upstream "k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/multicidr/controller-manager/controllers/cloudmanager"
	"github.com/multicidr/controller-manager/controllers/manager"
	"github.com/multicidr/controller-manager/controllers/standalone"
	cloud "k8s.io/cloud-provider/app"
)

func writeManagerFlags(_ tree, w *markdown) error {
	w.paragraph("These flags are added to those of [Kubernetes](https://kubernetes.io/docs/reference/command-line-tools-reference/kube-controller-manager/).")
	stock := upstream.NewControllerManagerCommand().Flags()
	flags(w, manager.NewCommand(append(manager.ClusterIPAM(), manager.NodeIPAM())...).Flags(), stock)
	return nil
}

// environment says how a standalone program is configured.
const environment = "A flag on the command line wins over its environment variable, and a variable over the default. An empty variable counts as none."

// variable is how the help of a flag names one that stands for it.
var variable = regexp.MustCompile(` \[\$(\w+)\]`)

func writeNodeIPAMFlags(_ tree, w *markdown) error {
	w.paragraph(environment)
	flags(w, standalone.NewCommand().Flags(), nil)
	return nil
}

func writeClusterIPAMFlags(_ tree, w *markdown) error {
	w.paragraph(environment)
	flags(w, standalone.NewClusterIPAMCommand().Flags(), nil)
	return nil
}

func writeCloudFlags(_ tree, w *markdown) error {
	w.paragraph("A cloud-controller-manager with the controller has these flags, unless it has one of that name already.")
	sections := cliflag.NamedFlagSets{}
	cloudmanager.Register(map[string]cloud.ControllerInitFuncConstructor{}, nil, &sections)
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, section := range sections.FlagSets {
		all.AddFlagSet(section)
	}
	flags(w, all, nil)
	return nil
}

// flags writes all flags but those that another program has, too.
func flags(w *markdown, all, without *pflag.FlagSet) {
	all.VisitAll(func(f *pflag.Flag) {
		if without != nil && without.Lookup(f.Name) != nil || f.Name == "help" || f.Name == "version" || f.Hidden {
			return
		}
		w.heading(2, "--"+f.Name)
		kind := "Type: " + f.Value.Type()
		if f.DefValue != "" && f.DefValue != "[]" {
			kind += ", default `" + f.DefValue + "`"
		}
		w.item(kind)
		if f.Deprecated != "" {
			w.item("Deprecated: " + f.Deprecated)
		}
		usage := f.Usage
		if variables := variable.FindAllStringSubmatch(usage, -1); len(variables) > 0 {
			usage = variable.ReplaceAllString(usage, "")
			for _, v := range variables {
				w.item("Variable: `" + v[1] + "`")
			}
		}
		w.paragraph(ended(plain(usage)))
	})
}

// writePlugin runs the plugin: its help is what a user sees.
func writePlugin(_ tree, w *markdown) error {
	temporary, err := os.MkdirTemp("", "reference")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	plugin := filepath.Join(temporary, "kubectl-node_ipam")
	if out, err := exec.Command("go", "build", "-o", plugin, "github.com/multicidr/controller-manager/cmd/kubectl-node_ipam").CombinedOutput(); err != nil {
		return fmt.Errorf("build the plugin: %w: %s", err, out)
	}
	help := func(args ...string) (string, error) {
		command := exec.Command(plugin, args...)
		command.Env = []string{"HOME=/home/user", "NO_COLOR=1"} // Defaults of flags must not be those of this machine.
		out, err := command.Output()
		return string(out), err
	}
	listed, err := help("__complete", "")
	if err != nil {
		return fmt.Errorf("list the commands of the plugin: %w", err)
	}
	w.paragraph("The anchor of a command is its name.")
	commands := []string{}
	for line := range strings.Lines(listed) {
		if name, _, ok := strings.Cut(line, "\t"); ok && name != "help" {
			commands = append(commands, name)
		}
	}
	if len(commands) == 0 {
		return fmt.Errorf("the plugin lists no commands: %q", listed)
	}
	text, err := help("--help")
	if err != nil {
		return err
	}
	w.code("text", text)
	for _, name := range commands {
		text, err := help(name, "--help")
		if err != nil {
			return fmt.Errorf("%s --help: %w", name, err)
		}
		w.heading(2, name)
		own, _, _ := strings.Cut(text, "\nGlobal Flags:") // They are above.
		w.code("text", own)
	}
	return nil
}
