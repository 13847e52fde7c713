package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// machines are how many IPAddressClaims an infrastructure provider would create in the pools of examples/cluster-ipam. The second pool has
// fewer addresses.
var machines = []struct {
	pool  string
	count int
}{{"edge-addresses", 5}, {"inline-ipam", 4}}

// clusterIPAM shows how claims are bound, ClusterDeployments get their pools, and machines their addresses. It ends when all that can be done
// is done.
func clusterIPAM(ctx context.Context, timeout time.Duration) (err error) {
	root, err := controlplane.ModuleRoot()
	if err != nil {
		return err
	}
	fmt.Println("starting etcd and kube-apiserver")
	cp, err := controlplane.Start(ctx, controlplane.Options{})
	if err != nil {
		return err
	}
	defer func() {
		stop := cp.Stop
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "logs are kept in %s\n", cp.LogDir())
			stop = cp.StopKeepingLogs
		}
		err = errors.Join(err, stop())
	}()
	manager, err := startClusterIPAM(ctx, cp, root)
	if err != nil {
		return err
	}
	fmt.Println("creating IPAddressClaims, as an infrastructure provider does for its machines")
	for _, of := range machines {
		for i := range of.count {
			if err := cp.ApplyObjects(ctx, machineClaim(of.pool, i)); err != nil {
				return err
			}
		}
	}
	running, stop := untilEnded(ctx, map[string]*controlplane.Process{"etcd": cp.Etcd(), "kube-apiserver": cp.APIServer(), "kube-controller-manager": manager.Process})
	defer stop()
	return showAddresses(running, dynamic.NewForConfigOrDie(cp.AdminConfig()), timeout)
}

// startClusterIPAM applies the manifests, starts the controllers and applies the examples.
func startClusterIPAM(ctx context.Context, cp *controlplane.ControlPlane, root string) (*controlplane.Manager, error) {
	fmt.Println("applying manifests/clusteripam/")
	if err := cp.Apply(ctx, filepath.Join(root, "manifests/clusteripam/crds"), filepath.Join(root, "manifests/clusteripam/rbac")); err != nil {
		return nil, err
	}
	fmt.Println("starting kube-controller-manager")
	manager, err := cp.StartManager(ctx, controlplane.ManagerOptions{Args: []string{
		"--leader-elect=true", "--controllers=*," + strings.Join(clusteripam.Names(), ","),
	}})
	if err != nil {
		return nil, err
	}
	if err := manager.WaitLeading(ctx); err != nil {
		return nil, err
	}
	examples := []string{"01-references.yaml", "02-inline.yaml", "03-pool.yaml"} // There is no Infoblox here.
	fmt.Printf("applying examples/cluster-ipam/: %s\n", strings.Join(examples, ", "))
	for _, file := range examples {
		if err := cp.Apply(ctx, filepath.Join(root, "examples/cluster-ipam", file)); err != nil {
			return nil, err
		}
	}
	return manager, nil
}

func machineClaim(pool string, i int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1beta2.GroupVersion.String(), "kind": v1beta2.KindIPAddressClaim,
		"metadata": map[string]any{"name": fmt.Sprintf("%s-%d", pool, i+1), "namespace": metav1.NamespaceDefault},
		"spec": map[string]any{"poolRef": map[string]any{
			"apiGroup": v1alpha2.GroupName, "kind": v1alpha2.KindInClusterIPPool, "name": pool,
		}},
	}}
}

// addressesView is what a person sees at one moment.
type addressesView struct{ deployments, claims, pools, requests []unstructured.Unstructured }

func readAddresses(ctx context.Context, client dynamic.Interface, addresses map[string]string) (v addressesView, err error) {
	var allocated []unstructured.Unstructured
	for resource, into := range map[schema.GroupVersionResource]*[]unstructured.Unstructured{
		v1beta1.GroupVersion.WithResource("clusterdeployments"): &v.deployments,
		v1beta1.GroupVersion.WithResource("clusteripamclaims"):  &v.claims,
		v1alpha2.GroupVersion.WithResource("inclusterippools"):  &v.pools,
		v1beta2.GroupVersion.WithResource("ipaddressclaims"):    &v.requests,
		v1beta2.GroupVersion.WithResource("ipaddresses"):        &allocated,
	} {
		list, err := client.Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return v, err
		}
		*into = list.Items
	}
	for _, a := range allocated {
		addresses[a.GetName()], _, _ = unstructured.NestedString(a.Object, "spec", "address")
	}
	return v, nil
}

// done is whether every ClusterDeployment has its pool, and every machine its address or a reason why there is none.
func (v addressesView) done() bool {
	ready := func(kind string) func(unstructured.Unstructured) bool {
		return func(o unstructured.Unstructured) bool {
			return condition(o, kind, "status") == string(metav1.ConditionTrue)
		}
	}
	answered := func(o unstructured.Unstructured) bool {
		return ready(v1beta2.ConditionReady)(o) || condition(o, v1beta2.ConditionReady, "reason") == v1beta2.ReasonPoolExhausted
	}
	return len(v.deployments) > 0 && all(v.deployments, ready(v1beta1.ConditionIPAMReady)) && all(v.requests, answered)
}

func all(objects []unstructured.Unstructured, f func(unstructured.Unstructured) bool) bool {
	return !slices.ContainsFunc(objects, func(o unstructured.Unstructured) bool { return !f(o) })
}

// condition is a field of a condition of an object; empty if it has none.
func condition(o unstructured.Unstructured, kind, field string) string {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == kind {
			text, _ := c[field].(string)
			return text
		}
	}
	return ""
}

func showAddresses(ctx context.Context, client dynamic.Interface, timeout time.Duration) error {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not all claims are answered after %s", timeout))
	defer cancel()
	addresses := map[string]string{}
	for {
		v, err := readAddresses(ctx, client, addresses)
		switch {
		case ctx.Err() != nil:
			v.write(os.Stdout, addresses)
			return context.Cause(ctx)
		case err != nil:
			return err
		case v.done():
			v.write(os.Stdout, addresses)
			fmt.Printf("\nall is answered after %s\n", time.Since(began).Round(time.Millisecond))
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (v addressesView) write(w io.Writer, addresses map[string]string) {
	table := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	defer table.Flush()
	at := func(o unstructured.Unstructured, path ...string) string {
		value, found, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
		if !found {
			return "-"
		}
		return fmt.Sprint(value)
	}
	fmt.Fprintln(table, "\nCLUSTERDEPLOYMENT\tCLAIM\tIPAMREADY\tPOOL IN CONFIG")
	for _, d := range v.deployments {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", d.GetName(), at(d, "spec", "ipamClaim", "ref"), cmp.Or(condition(d, v1beta1.ConditionIPAMReady, "status"), "-"),
			at(d, "spec", "config", v1beta1.ProviderDataIPPool, "config", "name"))
	}
	fmt.Fprintln(table, "\nCLUSTERIPAMCLAIM\tPROVIDER\tCLUSTER\tBOUND")
	for _, c := range v.claims {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", c.GetName(), at(c, "spec", "provider"), at(c, "spec", "cluster"), at(c, "status", "bound"))
	}
	fmt.Fprintln(table, "\nINCLUSTERIPPOOL\tADDRESSES\tTOTAL\tUSED\tFREE")
	for _, p := range v.pools {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", p.GetName(), at(p, "spec", "addresses"),
			at(p, "status", "ipAddresses", "total"), at(p, "status", "ipAddresses", "used"), at(p, "status", "ipAddresses", "free"))
	}
	fmt.Fprintln(table, "\nIPADDRESSCLAIM\tPOOL\tADDRESS")
	for _, r := range v.requests {
		fmt.Fprintf(table, "%s\t%s\t%s\n", r.GetName(), at(r, "spec", "poolRef", "name"),
			cmp.Or(addresses[r.GetName()], condition(r, v1beta2.ConditionReady, "reason"), "-"))
	}
}
