package main

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/show"
	"github.com/multicidr/controller-manager/controllers/nodeipam/inspect"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
)

// owners is the answer of who.
type owners struct {
	inspect.Owners
	Pods []string `json:"pods,omitempty"` // as namespace/name
}

// maxUses is how many rows a table of uses has; JSON has all.
const maxUses = 25

func (p *program) whoCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "who ADDRESS|CIDR",
		Short: "Say who has an address: a Node, a service range, or nobody",
		Long:  "Says what an address or a CIDR is: in the podCIDRs of a Node, a Node's own address, in a service range, excluded by a ClusterCIDR, or free: also if a pending Node gets it next. It ends with 1 if nobody uses it. For the address of a Pod it names the Pod and its Node.",
		Example: "  # Which Node is this Pod on, whose address is in the log of a firewall?\n  kubectl node-ipam who 10.244.3.17\n\n" +
			"  # Is this range used?\n  kubectl node-ipam who 10.250.0.0/20",
		Args: exactly(1, "one address or CIDR"),
		RunE: func(c *cobra.Command, args []string) error { return p.who(c, args[0]) },
	}
	p.addOutput(c, show.Table, show.Wide, show.JSON, show.YAML, show.Name)
	return c
}

func (p *program) who(c *cobra.Command, query string) error {
	cidr, err := parse(query)
	if err != nil {
		return err
	}
	r, objects, err := p.read(c.Context())
	if err != nil {
		return err
	}
	answer := owners{Owners: inspect.New(objects.Objects).Who(cidr)}
	if cidr.IsSingleIP() {
		pods, missing, err := r.PodsWith(c.Context(), cidr.Addr(), answer.Nodes())
		if err != nil {
			return err
		}
		p.warn(missing)
		answer.Pods = pods
	}
	var names []string
	if answer.Node != "" {
		names = append(names, "node/"+answer.Node)
	}
	if err := p.write(answer, names, func(w *show.Writer) { writeOwners(w, answer) }); err != nil {
		return err
	}
	if answer.Nobody() && len(answer.Pods) == 0 {
		return exit{code: exitAct}
	}
	return nil
}

// parse reads an address or a CIDR.
func parse(query string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(query); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	cidr, err := pool.ParseCIDR(query)
	if err != nil {
		return cidr, usage("%q is neither an address nor a CIDR: write for example 10.244.3.17 or 10.244.0.0/16", query)
	}
	return cidr, nil
}

func writeOwners(w *show.Writer, o owners) {
	w.Printf("%s", o.Answer)
	for _, pod := range o.Pods {
		w.Printf("Pod %s has this address.", pod)
	}
	if len(o.Uses) == 0 {
		return
	}
	w.Printf("")
	rows := show.NewRows("KIND", "NAME", "CIDR", "NOTE")
	for _, use := range o.Uses[:min(len(o.Uses), maxUses)] {
		rows.Add(use.Kind, use.Name, use.CIDR, use.Note)
	}
	w.Rows(rows)
	if more := len(o.Uses) - maxUses; more > 0 {
		w.Printf("%s", w.In(show.Gray, fmt.Sprintf("and %d more: -o json has all", more)))
	}
}
