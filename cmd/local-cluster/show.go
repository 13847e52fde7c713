package main

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	"github.com/multicidr/controller-manager/apis/generated/informers/externalversions"
	clustercidrlisters "github.com/multicidr/controller-manager/apis/generated/listers/networking/v1"
)

// redrawInterval collects changes that come together into one picture.
const redrawInterval = 100 * time.Millisecond

// show draws the view whenever something changes, until ctx is done.
func show(ctx context.Context, config *rest.Config, hints []string) error {
	fmt.Println(strings.Join(hints, "\n"))
	_, _, live := screenSize()
	var before view
	return watch(ctx, config, func(v view) bool {
		switch {
		case !live:
			printChanges(v, before)
		case !reflect.DeepEqual(v, before):
			draw(v, hints)
		}
		before = v
		return false
	})
}

// showUntilServed prints what changes until count Nodes are served or wait for a good reason, and then the view.
func showUntilServed(ctx context.Context, config *rest.Config, count int, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not every Node was served within %s", timeout))
	defer cancel()
	var last view
	err := watch(ctx, config, func(v view) bool {
		printChanges(v, last)
		last = v
		return len(v.nodes) >= count && len(v.missing()) == 0
	})
	fmt.Println()
	fmt.Println(strings.Join(last.lines(len(last.nodes)), "\n"))
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; %d of %d Nodes are registered, and these could be served: %s", err, len(last.nodes), count, names(last.missing()))
}

// names lists the first few.
func names(rows []nodeRow) string {
	const most = 10
	var texts []string
	for _, node := range rows[:min(len(rows), most)] {
		texts = append(texts, node.name)
	}
	if more := len(rows) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return cmp.Or(strings.Join(texts, ", "), "none")
}

func printChanges(v, before view) {
	for _, line := range v.changes(before) {
		fmt.Println(line)
	}
}

// draw fills the screen, so that the newest view is all there is to see.
func draw(v view, hints []string) {
	width, height, _ := screenSize()
	const clear, clearLine = "\033[H\033[2J", "\033[K"
	fmt.Print(clear + strings.Join(picture(v, hints, width, height), clearLine+"\n") + "\n")
}

// picture is the view and the hints in a screen's size, with as many Nodes as fit.
func picture(v view, hints []string, width, height int) (lines []string) {
	for maxNodes := len(v.nodes); ; {
		lines = nil
		for _, line := range v.lines(maxNodes) {
			lines = append(lines, wrapped(line, width)...)
		}
		rows := len(lines) + 2 // an empty line before the hints, and the cursor's after them
		for _, hint := range hints {
			rows += 1 + (len(hint)-1)/max(width, 1) // A hint is to be copied whole, so the terminal breaks it.
		}
		tooMany := rows - height
		if tooMany <= 0 || maxNodes <= 1 {
			return append(append(lines, ""), hints...)
		}
		maxNodes = max(1, maxNodes-tooMany)
	}
}

// wrapped breaks prose into lines. A table's row, which has runs of spaces, loses its end instead: breaking it would tear the table.
func wrapped(line string, width int) (lines []string) {
	if runes := []rune(line); len(runes) > width && strings.Contains(line, "  ") {
		return []string{string(runes[:max(width-1, 0)]) + "…"}
	}
	for word := range strings.SplitSeq(line, " ") {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+1+len(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

// watch calls see with the view at first and after changes, until it returns true or ctx is done, which is an error.
func watch(ctx context.Context, config *rest.Config, see func(view) (done bool)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	changed := make(chan struct{}, 1)
	c, err := startCaches(ctx, config, func() {
		select {
		case changed <- struct{}{}:
		default: // The view that is due will show this change too.
		}
	})
	if err != nil {
		return err
	}
	for {
		v, err := c.view()
		if err != nil {
			return err
		}
		if see(v) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case <-time.After(redrawInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// caches hold what a view is made of.
type caches struct {
	nodes        corelisters.NodeLister
	services     networkinglisters.ServiceCIDRLister
	events       corelisters.EventLister
	clusterCIDRs clustercidrlisters.ClusterCIDRLister
}

// startCaches fills the caches and calls notify after each change, until ctx is done.
func startCaches(ctx context.Context, config *rest.Config, notify func()) (caches, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return caches{}, err
	}
	clusterCIDRClient, err := versioned.NewForConfig(config)
	if err != nil {
		return caches{}, err
	}
	kubeInformers := informers.NewSharedInformerFactory(kube, 0)
	eventInformers := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.Set{"involvedObject.kind": "Node", "reason": reasonWaiting}.String()
	}))
	clusterCIDRInformers := externalversions.NewSharedInformerFactory(clusterCIDRClient, 0)
	nodes := kubeInformers.Core().V1().Nodes()
	services := kubeInformers.Networking().V1().ServiceCIDRs()
	events := eventInformers.Core().V1().Events()
	clusterCIDRs := clusterCIDRInformers.Networking().V1().ClusterCIDRs()

	var synced []cache.InformerSynced
	for _, informer := range []cache.SharedIndexInformer{nodes.Informer(), services.Informer(), events.Informer(), clusterCIDRs.Informer()} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() },
		}); err != nil {
			return caches{}, err
		}
		synced = append(synced, informer.HasSynced)
	}
	kubeInformers.Start(ctx.Done())
	eventInformers.Start(ctx.Done())
	clusterCIDRInformers.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return caches{}, context.Cause(ctx)
	}
	return caches{nodes.Lister(), services.Lister(), events.Lister(), clusterCIDRs.Lister()}, nil
}

// view shows what the caches hold now.
func (c caches) view() (view, error) {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return view{}, err
	}
	clusterCIDRs, err := c.clusterCIDRs.List(labels.Everything())
	if err != nil {
		return view{}, err
	}
	services, err := c.services.List(labels.Everything())
	if err != nil {
		return view{}, err
	}
	events, err := c.events.List(labels.Everything())
	if err != nil {
		return view{}, err
	}
	return newView(nodes, clusterCIDRs, services, events), nil
}
