// Command reference writes the pages of docs/reference from what they are about: CustomResourceDefinitions, flags, metrics, alerts, values of charts, and
// the names of events, conditions, labels and annotations. make generate runs it.
//
// usage: reference ROOT
//
// ROOT is the tree whose files are read and whose pages are written. Flags are those of the programs that this one is built with.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// dir is where the pages are.
const dir = "docs/reference"

// page is one file of the reference.
type page struct {
	file, title, description string
	write                    func(t tree, w *markdown) error
}

// pages are in the order in which the site lists them.
var pages = []page{
	{"clustercidr.md", "ClusterCIDR", "Every field of a ClusterCIDR, and the rules that the API server checks.", writeClusterCIDR},
	{"events-and-conditions.md", "Events and conditions", "Every reason of an event or a condition: what it means, and what to do.", writeEvents},
	{"labels-and-annotations.md", "Labels, annotations and finalizers", "Every name that the controllers read or write in the metadata of objects.", writeLabels},
	{"alerts.md", "Alerts", "Every alert: what it means, and what to do.", writeAlerts},
	{"metrics.md", "Metrics", "Every metric, its labels and its meaning.", writeMetrics},
	{"kubectl-node-ipam.md", "kubectl node-ipam", "Every command of the plugin for kubectl, with its flags.", writePlugin},
	{"flags-kube-controller-manager.md", "Flags of kube-controller-manager", "Every flag that this project adds.", writeManagerFlags},
	{"flags-node-ipam-controller.md", "Flags of node-ipam-controller", "Every flag and environment variable.", writeNodeIPAMFlags},
	{"flags-cloud-controller-manager.md", "Flags of a cloud-controller-manager", "Every flag that the controller adds.", writeCloudFlags},
	{"flags-cluster-ipam-controller.md", "Flags of cluster-ipam-controller", "Every flag and environment variable.", writeClusterIPAMFlags},
	{"chart-values.md", "Chart values", "Every value of the Helm charts.", writeValues},
	{"cluster-ipam-kinds.md", "Kinds of Cluster IPAM", "Every field of the kinds of Cluster IPAM, and the rules that the API server checks.", writeClusterIPAM},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: reference ROOT")
		os.Exit(2)
	}
	if err := run(tree(os.Args[1])); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

// run writes all pages and the index, and removes pages that were generated once. Pages that a person wrote are in the index, too.
func run(t tree) error {
	kept := []string{"README.md"}
	index := &markdown{}
	index.front("Reference", "Every field, flag, metric, alert and name.", 90)
	index.heading(1, "Reference")
	index.paragraph("Most of these pages are generated from the code and the manifests, so they are complete.")
	for i, p := range pages {
		w := &markdown{}
		w.front(p.title, p.description, 10*(i+1))
		w.heading(1, p.title)
		if err := p.write(t, w); err != nil {
			return fmt.Errorf("%s: %w", p.file, err)
		}
		if err := t.save(p.file, w); err != nil {
			return err
		}
		kept = append(kept, p.file)
		index.item(fmt.Sprintf("[%s](%s): %s", p.title, p.file, strings.ToLower(p.description[:1])+p.description[1:]))
	}
	if err := t.removeOthers(kept, index); err != nil {
		return err
	}
	return t.save("README.md", index)
}

// tree is the path of a checkout.
type tree string

func (t tree) path(name string) string { return filepath.Join(string(t), name) }

func (t tree) save(file string, w *markdown) error {
	text, err := w.text()
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := os.MkdirAll(t.path(dir), 0o755); err != nil {
		return err
	}
	return os.WriteFile(t.path(filepath.Join(dir, file)), []byte(text), 0o644)
}

var frontMatter = regexp.MustCompile(`(?m)^(title|description): *["']?(.*?)["']?$`)

// removeOthers removes generated pages that are not kept, and adds the others to the index.
func (t tree) removeOthers(kept []string, index *markdown) error {
	files, err := filepath.Glob(t.path(dir + "/*.md"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if slices.Contains(kept, filepath.Base(file)) {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if strings.Contains(string(content), generated) {
			if err := os.Remove(file); err != nil {
				return err
			}
			continue
		}
		of := map[string]string{}
		for _, m := range frontMatter.FindAllStringSubmatch(string(content), -1) {
			of[m[1]] = m[2]
		}
		index.item(fmt.Sprintf("[%s](%s): %s", of["title"], filepath.Base(file), of["description"]))
	}
	return nil
}
