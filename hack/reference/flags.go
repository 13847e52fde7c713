package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	upstream "k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/multicidr/controller-manager/controllers/cloudmanager"
	"github.com/multicidr/controller-manager/controllers/manager"
	"github.com/multicidr/controller-manager/controllers/standalone"
	cloud "k8s.io/cloud-provider/app"
)

func writeFlags(_ tree, w *markdown) error {
	w.paragraph("Every program also has the flags `--help` and `--version`. A flag with a `[$NAME]` can also be set by that environment variable; the flag wins.")

	w.heading(2, "kube-controller-manager")
	w.paragraph("These flags are added to those of [Kubernetes](https://kubernetes.io/docs/reference/command-line-tools-reference/kube-controller-manager/).")
	stock := upstream.NewControllerManagerCommand().Flags()
	flags(w, "kube-controller-manager", manager.NewCommand(append(manager.ClusterIPAM(), manager.NodeIPAM())...).Flags(), stock)

	w.heading(2, "node-ipam-controller")
	flags(w, "node-ipam-controller", standalone.NewCommand().Flags(), nil)

	w.heading(2, "cluster-ipam-controller")
	flags(w, "cluster-ipam-controller", standalone.NewClusterIPAMCommand().Flags(), nil)

	w.heading(2, "cloud-controller-manager")
	w.paragraph("A cloud-controller-manager with the controller has these flags, unless it has one of that name already.")
	sections := cliflag.NamedFlagSets{}
	cloudmanager.Register(map[string]cloud.ControllerInitFuncConstructor{}, nil, &sections)
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, section := range sections.FlagSets {
		all.AddFlagSet(section)
	}
	flags(w, "cloud-controller-manager", all, nil)
	return nil
}

// flags writes all flags but those that another program has, too.
func flags(w *markdown, program string, all, without *pflag.FlagSet) {
	all.VisitAll(func(f *pflag.Flag) {
		if without != nil && without.Lookup(f.Name) != nil || f.Name == "help" || f.Name == "version" || f.Hidden {
			return
		}
		w.heading(3, program+" --"+f.Name)
		kind := "Type: " + f.Value.Type()
		if f.DefValue != "" && f.DefValue != "[]" {
			kind += ", default `" + f.DefValue + "`"
		}
		w.item(kind)
		if f.Deprecated != "" {
			w.item("Deprecated: " + f.Deprecated)
		}
		w.paragraph(ended(plain(f.Usage)))
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
