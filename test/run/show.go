package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	"github.com/multicidr/controller-manager/apis/generated/informers/externalversions"
)

// redrawInterval collects changes that come together into one picture.
const redrawInterval = 100 * time.Millisecond

// show draws the view whenever something changes, until ctx is done.
func show(ctx context.Context, config *rest.Config, hint string) error {
	fmt.Println(hint)
	_, _, live := screenSize()
	var before view
	return watch(ctx, config, func(v view) bool {
		switch {
		case !live:
			printChanges(v, before)
		case !reflect.DeepEqual(v, before):
			draw(v, hint)
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
	var tables bytes.Buffer
	last.write(&tables, math.MaxInt)
	fmt.Println(tables.String())
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
func draw(v view, hint string) {
	width, height, _ := screenSize()
	var picture bytes.Buffer
	around := len(v.clusterCIDRs) + 8 // headers, empty lines, hints
	v.write(&picture, max(1, height-around))
	fmt.Fprintf(&picture, "\n%s\nCtrl-C stops everything.", hint)

	const clear, clearLine = "\033[H\033[2J", "\033[K"
	lines := strings.Split(picture.String(), "\n")
	for i, line := range lines {
		// A line that wraps would push the first ones out of sight. The hint is to be copied whole.
		if runes := []rune(line); len(runes) > width && line != hint {
			lines[i] = string(runes[:width])
		}
	}
	fmt.Print(clear + strings.Join(lines, clearLine+"\n") + "\n")
}

// watch calls see with the view at first and after changes, until it returns true or ctx is done, which is an error.
func watch(ctx context.Context, config *rest.Config, see func(view) (done bool)) error {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	clusterCIDRClient, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	kubeInformers := informers.NewSharedInformerFactory(kube, 0)
	eventInformers := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.Set{"involvedObject.kind": "Node", "reason": reasonWaiting}.String()
	}))
	clusterCIDRInformers := externalversions.NewSharedInformerFactory(clusterCIDRClient, 0)
	nodes := kubeInformers.Core().V1().Nodes()
	events := eventInformers.Core().V1().Events()
	clusterCIDRs := clusterCIDRInformers.Networking().V1().ClusterCIDRs()

	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // The view that is due will show this change too.
		}
	}
	for _, informer := range []cache.SharedIndexInformer{nodes.Informer(), events.Informer(), clusterCIDRs.Informer()} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() },
		}); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	kubeInformers.Start(ctx.Done())
	eventInformers.Start(ctx.Done())
	clusterCIDRInformers.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), nodes.Informer().HasSynced, events.Informer().HasSynced, clusterCIDRs.Informer().HasSynced) {
		return context.Cause(ctx)
	}
	for {
		nodeList, err := nodes.Lister().List(labels.Everything())
		if err != nil {
			return err
		}
		clusterCIDRList, err := clusterCIDRs.Lister().List(labels.Everything())
		if err != nil {
			return err
		}
		eventList, err := events.Lister().List(labels.Everything())
		if err != nil {
			return err
		}
		if see(newView(nodeList, clusterCIDRList, eventList)) {
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
