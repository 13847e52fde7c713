package integration

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

func served(c *cluster, args []string) error {
	o, args, err := parseOptions(args, 2)
	if err != nil {
		return err
	}
	want, by := args[1:], ""
	if i := slices.Index(want, "by"); i >= 0 && i == len(want)-2 {
		want, by = want[:i], want[i+1]
	}
	node, err := c.waitServed(args[0], o.within)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(want, node.Spec.PodCIDRs); diff != "" {
		return fmt.Errorf("podCIDRs of Node %s (-want +got):\n%s", node.Name, diff)
	}
	if node.Spec.PodCIDR != want[0] {
		return fmt.Errorf("podCIDR of Node %s is %q, want the first of podCIDRs, %q", node.Name, node.Spec.PodCIDR, want[0])
	}
	if got := node.Annotations[networkingv1.AnnotationClusterCIDR]; by != "" && got != by {
		return fmt.Errorf("Node %s was served by %q, want %q", node.Name, got, by)
	}
	return nil
}

func waits(c *cluster, args []string) error {
	o, args, err := parseOptions(args, 1)
	if err != nil {
		return err
	}
	if err := expectEvent(c, "node", args[0], "CIDRNotAvailable", strings.Join(args[1:], " "), o); err != nil {
		return err
	}
	node, err := c.kube.CoreV1().Nodes().Get(context.Background(), args[0], metav1.GetOptions{})
	if err == nil && len(node.Spec.PodCIDRs) > 0 {
		err = fmt.Errorf("Node %s has podCIDRs %v, want none", node.Name, node.Spec.PodCIDRs)
	}
	return err
}

func event(c *cluster, args []string) error {
	o, args, err := parseOptions(args, 2)
	if err != nil {
		return err
	}
	return expectEvent(c, "node", args[0], args[1], strings.Join(args[2:], " "), o)
}

func clusterCIDREvent(c *cluster, args []string) error {
	o, args, err := parseOptions(args, 2)
	if err != nil {
		return err
	}
	return expectEvent(c, "cc", args[0], args[1], strings.Join(args[2:], " "), o)
}

// expectEvent waits for a warning about an object that has a text in it; with o.times there have to be exactly so many such events.
func expectEvent(c *cluster, kind, name, reason, text string, o options) error {
	uid, err := c.uidOf(kind, name)
	if err != nil {
		return err
	}
	return eventually(o.within, func(ctx context.Context) error {
		warnings, err := c.warnings(ctx, uid, reason)
		if err != nil {
			return err
		}
		said := messages(warnings)
		n := 0
		for _, message := range said {
			if strings.Contains(message, text) {
				n++
			}
		}
		if n == 0 || o.times > 0 && n != o.times {
			return fmt.Errorf("%d events %s of %s %s have %q in them; all of them say %q", n, reason, kind, name, text, said)
		}
		return nil
	})
}

// noEvent wants that there is no such event now.
func noEvent(c *cluster, args []string) error {
	if err := want(args, 3, "a kind, a name and a reason"); err != nil {
		return err
	}
	uid, err := c.uidOf(args[0], args[1])
	if err != nil {
		return err
	}
	warnings, err := c.warnings(context.Background(), uid, args[2])
	if err == nil && len(warnings) > 0 {
		err = fmt.Errorf("%s %s has events %s: %q", args[0], args[1], args[2], messages(warnings))
	}
	return err
}

func messages(events []corev1.Event) (messages []string) {
	for _, e := range events {
		messages = append(messages, e.Message)
	}
	return messages
}

func (c *cluster) uidOf(kind, name string) (types.UID, error) {
	o, err := c.object(kind, name)
	if err != nil {
		return "", err
	}
	got, err := o.get(context.Background())
	if err != nil {
		return "", err
	}
	return got.GetUID(), nil
}

func condition(c *cluster, args []string) error {
	o, args, err := parseOptions(args, 4)
	if err != nil {
		return err
	}
	name, conditionType, want, text := args[0], args[1], args[2]+" "+args[3], strings.Join(args[4:], " ")
	return eventually(o.within, func(ctx context.Context) error {
		cc, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		got := meta.FindStatusCondition(cc.Status.Conditions, conditionType)
		if got == nil {
			return fmt.Errorf("ClusterCIDR %s has no condition %s", name, conditionType)
		}
		if string(got.Status)+" "+got.Reason != want || !strings.Contains(got.Message, text) || got.ObservedGeneration != cc.Generation {
			return fmt.Errorf("ClusterCIDR %s is %s=%s %s: %q, of generation %d; want %s with %q of generation %d",
				name, conditionType, got.Status, got.Reason, got.Message, got.ObservedGeneration, want, text, cc.Generation)
		}
		return nil
	})
}

func counts(c *cluster, args []string) error {
	o, args, err := parseOptions(args, 3)
	if err != nil {
		return err
	}
	want := map[string]string{}
	for _, arg := range args[2:] {
		key, value, _ := strings.Cut(arg, "=")
		want[key] = value
	}
	return eventually(o.within, func(ctx context.Context) error {
		cc, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Get(ctx, args[0], metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := map[string]*networkingv1.RangeStatus{"ipv4": cc.Status.IPv4, "ipv6": cc.Status.IPv6}[args[1]]
		if status == nil {
			return fmt.Errorf("the status of ClusterCIDR %s has no %s", cc.Name, args[1])
		}
		got := map[string]string{
			"total":       fmt.Sprint(status.Total),
			"allocated":   fmt.Sprint(status.Allocated),
			"unavailable": fmt.Sprint(status.Unavailable),
			"free":        fmt.Sprint(status.Free),
		}
		for key := range got {
			if _, asked := want[key]; !asked {
				delete(got, key)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("%s of ClusterCIDR %s (-want +got):\n%s", args[1], cc.Name, diff)
		}
		return nil
	})
}

func clusterCIDRs(c *cluster, args []string) error {
	o, args, err := parseOptions(args, 0)
	if err != nil {
		return err
	}
	return c.waitClusterCIDRs(o.within, args...)
}

// shown compares what a user sees with kubectl.
func shown(c *cluster, args []string) error {
	o, args, err := parseOptions(args, 2)
	if err != nil {
		return err
	}
	return eventually(o.within, func(ctx context.Context) error {
		output, err := kubectl(ctx, c.cp, "", "get", "clustercidrs", args[0], "--output=wide")
		if err != nil {
			return err
		}
		row := columnsOf(output)[0]
		for _, word := range args[1:] {
			column, want, _ := strings.Cut(word, "=")
			if got, ok := row[column]; !ok || got != want {
				return fmt.Errorf("column %s shows %q, want %q:\n%s", column, got, want, output)
			}
		}
		return nil
	})
}

// columnsOf returns the rows of a table that kubectl has printed, by the names of their columns. A cell can be blank.
func columnsOf(table string) (rows []map[string]string) {
	lines := strings.Split(strings.TrimSuffix(table, "\n"), "\n")
	columns := regexp.MustCompile(`\S+ *`).FindAllStringIndex(lines[0], -1)
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, c := range columns {
			start, end := min(c[0], len(line)), min(c[1], len(line))
			if i == len(columns)-1 {
				end = len(line)
			}
			row[strings.TrimSpace(lines[0][c[0]:c[1]])] = strings.TrimSpace(line[start:end])
		}
		rows = append(rows, row)
	}
	return rows
}

func finalized(c *cluster, args []string) error {
	if err := want(args, 1, "NAME"); err != nil {
		return err
	}
	return eventually(patience, func(ctx context.Context) error {
		cc, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Get(ctx, args[0], metav1.GetOptions{})
		if err == nil && !slices.Contains(cc.Finalizers, networkingv1.Finalizer) {
			err = fmt.Errorf("ClusterCIDR %s has no finalizer", cc.Name)
		}
		return err
	})
}

func terminating(c *cluster, args []string) error {
	if err := want(args, 1, "NAME"); err != nil {
		return err
	}
	cc, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Get(context.Background(), args[0], metav1.GetOptions{})
	switch {
	case err != nil:
		return err
	case cc.DeletionTimestamp == nil:
		return fmt.Errorf("ClusterCIDR %s is not being deleted", cc.Name)
	case !slices.Contains(cc.Finalizers, networkingv1.Finalizer):
		return fmt.Errorf("ClusterCIDR %s has finalizers %q, want %q", cc.Name, cc.Finalizers, networkingv1.Finalizer)
	}
	return nil
}

func gone(c *cluster, args []string) error {
	o, args, err := parseOptions(args, 2)
	if err != nil {
		return err
	}
	object, err := c.object(args[0], args[1])
	if err != nil {
		return err
	}
	return eventually(o.within, func(ctx context.Context) error {
		_, err := object.get(ctx)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return fmt.Errorf("%s %s is still there", args[0], args[1])
		}
		return err
	})
}

// writes waits until the manager has made so many writes, and wants no more of them.
func writes(c *cluster, args []string) error {
	if err := want(args, 2, "a number and a resource"); err != nil {
		return err
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	name := strings.Join(args[2:], "")
	return eventually(patience, func(context.Context) error {
		all, err := c.writes(c.counted)
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(w write) bool { return !about(w, args[1], name) })
		if len(all) != n {
			return fmt.Errorf("the manager wrote %d times, want %d:%s", len(all), n, describe(all))
		}
		return nil
	})
}

func logSays(c *cluster, args []string) error {
	o, args, err := parseOptions(args, 1)
	if err != nil {
		return err
	}
	text := strings.Join(args, " ")
	return eventually(o.within, func(context.Context) error {
		log, err := c.manager.Log()
		if n := strings.Count(log, text); err == nil && (n == 0 || o.times > 0 && n != o.times) {
			err = fmt.Errorf("the manager's log has %q %d times", text, n)
		}
		return err
	})
}
