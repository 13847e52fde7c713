package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/multicidr/controller-manager/test/chaos/checker"
)

// carelessEnv turns the test's program into a careless manager.
const carelessEnv = "CHAOS_TEST_CARELESS"

func TestMain(m *testing.M) {
	if os.Getenv(carelessEnv) != "" {
		if err := manageCarelessly(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// manageCarelessly is a manager that leads as others do and gives every Node the same block.
func manageCarelessly(arguments []string) error {
	flags := flag.NewFlagSet("careless", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "")
	for _, argument := range arguments { // the flags of a kube-controller-manager
		if name, _, _ := strings.Cut(strings.TrimPrefix(argument, "--"), "="); name != "kubeconfig" {
			if strings.Contains(argument, "=") {
				flags.String(name, "", "")
			} else {
				flags.Bool(name, false, "")
			}
		}
	}
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: leaseName},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: fmt.Sprint(os.Getpid())},
	}
	leaderelection.RunOrDie(context.Background(), leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 400 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				for sleep(ctx, 50*time.Millisecond) {
					serveTheSame(ctx, client)
				}
			},
			OnStoppedLeading: func() { os.Exit(1) },
		},
	})
	return nil
}

func serveTheSame(ctx context.Context, client kubernetes.Interface) {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	patch := []byte(`{"spec":{"podCIDR":"10.128.0.0/24","podCIDRs":["10.128.0.0/24"]}}`)
	for _, node := range nodes.Items {
		if len(node.Spec.PodCIDRs) == 0 {
			_, _ = client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}) // or the next time
		}
	}
}

// The whole command finds out about a manager that gives the same block to everybody.
func TestCarelessManagerIsCaught(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(carelessEnv, "1")
	s, err := parse([]string{"--seed=1", "--duration=5s", "--interval=1s", "--lease=3s", "--fence=false"})
	if err != nil {
		t.Fatal(err)
	}
	s.Command, s.Nodes, s.ClusterCIDRs = []string{self}, 20, 0
	report, err := chaos(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	rules := map[checker.Rule]bool{}
	for _, v := range report.Violations {
		rules[v.Rule] = true
		if v.Rule == checker.Overlap && !strings.Contains(strings.Join(v.History, "\n"), "served [10.128.0.0/24]") {
			t.Errorf("the history does not tell what happened: %v", v)
		}
	}
	// Nodes that are held by their finalizer while others get the same block may be among them.
	delete(rules, checker.EarlyReuse)
	if diff := cmp.Diff(map[checker.Rule]bool{checker.Overlap: true, checker.NoSource: true}, rules); diff != "" {
		t.Errorf("rules that were broken (-want +got):\n%s", diff)
	}
	if report.Recovery == 0 || report.Operations == 0 || report.Summary.Leaders == 0 {
		t.Errorf("the run did not come to rest, or did nothing: %+v", report)
	}

	var shown strings.Builder
	report.print(&shown)
	for _, want := range []string{"seed ", "violations ", "overlap ", "10.128.0.0/24"} {
		if !strings.Contains(shown.String(), want) {
			t.Errorf("the report does not say %q:\n%s", want, shown.String())
		}
	}
}

// What churn creates can be read, has something to give, and stays where it should.
func TestRandomPools(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 1000 {
		cc := randomPool(rng, poolNameOf(i))
		for cidr, space := range map[string]netip.Prefix{cc.Spec.IPv4: space4, cc.Spec.IPv6: space6} {
			if cidr == "" {
				continue
			}
			prefix, err := netip.ParsePrefix(cidr)
			if err != nil || !space.Contains(prefix.Addr()) || prefix.Bits() < space.Bits() || prefix != prefix.Masked() {
				t.Fatalf("range %q, want one of %v: %v", cidr, space, err)
			}
		}
		c := checker.New(checker.Options{})
		c.Observe(checker.Event{Revision: 1, ClusterCIDR: cc})
		if free, ok := c.Free(cc.Name); !ok || free < 4 || free > 4096 {
			t.Fatalf("%d blocks in %+v, %t, want from 4 to 4096", free, cc.Spec, ok)
		}
	}
}

func TestLeader(t *testing.T) {
	a, b := &manager{name: "a"}, &manager{name: "b"}
	if m, ok := leader([]*manager{a, b}, time.Hour); ok {
		t.Errorf("%s leads, and nobody has the lease", m.name)
	}
	a.renewed.Store(time.Now().Add(-time.Minute).UnixNano())
	b.renewed.Store(time.Now().UnixNano())
	if m, ok := leader([]*manager{a, b}, time.Hour); !ok || m != b {
		t.Errorf("%s leads, %t, want b, who has renewed the lease last", m.name, ok)
	}
	if m, ok := leader([]*manager{a}, time.Second); ok {
		t.Errorf("%s leads, a minute after its lease", m.name)
	}
}
