package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/multicidr/controller-manager/test/controlplane"
)

const debugPath = "/debug/controllers/multi-cidr-node-ipam-controller"

// TestDebug looks at the ledger of a running controller as a script does, as others do, and in a real browser.
func TestDebug(t *testing.T) {
	const nodes = 30
	c := sharedCluster(t)
	for _, args := range [][]string{
		{"dual", "sel(pool=dual)", "10.0.0.0/19", "fd00:1::/48", "hb8", "v6hb64"},
		{"wide", "10.64.0.0/10", "hb4"},
		{"small", "sel(pool=small)", "priority=1", "10.1.0.0/24", "hb8"},
	} {
		if err := createClusterCIDR(c, args); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string][]string{} // podCIDRs by Node
	for i := range nodes {
		name := fmt.Sprintf("n%02d", i)
		if err := createNode(c, []string{name, "pool=dual"}); err != nil {
			t.Fatal(err)
		}
		node, err := c.waitServed(name, patience)
		if err != nil {
			t.Fatal(err)
		}
		want[name] = node.Spec.PodCIDRs
	}
	if err := createNode(c, []string{"foreign", "10.0.2.0/24"}); err != nil {
		t.Fatal(err)
	}
	if err := event(c, []string{"foreign", "CIDRConflict", "n02"}); err != nil {
		t.Fatal(err)
	}
	want["foreign"] = []string{"10.0.2.0/24"}

	t.Run("JSON says what the Nodes show", func(t *testing.T) { debugJSON(t, c, want) })
	t.Run("who may see it", func(t *testing.T) { debugOfOthers(t, c) })
	t.Run("the page works in a browser", func(t *testing.T) { debugInBrowser(t, c) })
}

func debugJSON(t *testing.T, c *cluster, want map[string][]string) {
	var got map[string][]string
	err := eventually(patience, func(ctx context.Context) error {
		status, body, err := c.manager.Get(ctx, debugPath+"?format=json")
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("status %d: %s (%w)", status, body, err)
		}
		var ledger struct {
			Nodes []struct {
				Name, State string
				Blocks      []string
			}
		}
		if err := json.Unmarshal(body, &ledger); err != nil {
			return err
		}
		got = map[string][]string{}
		for _, n := range ledger.Nodes {
			if n.State != "Assigned" {
				return fmt.Errorf("Node %s is %s", n.Name, n.State) // the watch shows it in a moment
			}
			got[n.Name] = n.Blocks
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("blocks by Node (-want +got):\n%s", diff)
	}
}

// debugOfOthers asks without credentials, with a permission as docs/operators/debugging.md gives it, and a manager that does not lead.
func debugOfOthers(t *testing.T, c *cluster) {
	ctx := t.Context()
	const name = "see-node-ipam-ledger"
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{debugPath}, Verbs: []string{"get"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "auditor"}},
	}
	if _, err := c.kube.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.kube.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		if err := errors.Join(c.kube.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{}), c.kube.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
			t.Error(err)
		}
	})
	auditor, err := c.cp.Config("auditor")
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := c.cp.Config("stranger")
	if err != nil {
		t.Fatal(err)
	}
	standby, err := c.cp.StartManager(ctx, controlplane.ManagerOptions{Name: "standby", Args: ours})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})

	for name, tc := range map[string]struct {
		config  *rest.Config
		manager *controlplane.Manager
		want    int
	}{
		"nobody":                       {rest.AnonymousClientConfig(c.cp.AdminConfig()), c.manager, http.StatusForbidden},
		"somebody without permission":  {stranger, c.manager, http.StatusForbidden},
		"somebody with the permission": {auditor, c.manager, http.StatusOK},
		"a manager that does not lead": {c.cp.AdminConfig(), standby, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := rest.HTTPClientFor(tc.config)
			if err != nil {
				t.Fatal(err)
			}
			// A permission that was given a moment ago is not known everywhere yet.
			err = eventually(patience, func(context.Context) error {
				response, err := client.Get(tc.manager.URL() + debugPath)
				if err != nil {
					return err
				}
				if response.StatusCode != tc.want {
					err = fmt.Errorf("status %d, want %d", response.StatusCode, tc.want)
				}
				return errors.Join(err, response.Body.Close())
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func debugInBrowser(t *testing.T, c *cluster) {
	ctx := browser(t)
	console := chromedp.Console(ctx)
	page := throughProxy(t, c) + debugPath

	do := func(what string, steps ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		if err := chromedp.Do(ctx, steps...); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	evaluate := func(script string) string {
		t.Helper()
		result, err := chromedp.Run(ctx, chromedp.Evaluate[string](script))
		if err != nil {
			t.Fatalf("%v in %s", err, script)
		}
		return result
	}
	// hovered is the title of what is seen at the middle of the first element that the selector finds.
	hovered := func(selector string) string {
		t.Helper()
		return evaluate(fmt.Sprintf(`(() => {
			const e = document.querySelector(%q);
			e.scrollIntoView({block: "center"});
			const r = e.getBoundingClientRect();
			return document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2).title;
		})()`, selector))
	}
	seen := func(selector chromedp.CSS) string {
		t.Helper()
		text, err := chromedp.Run(ctx, chromedp.Text(selector))
		if err != nil {
			t.Fatalf("see %s: %v", selector, err)
		}
		return text
	}
	says := func(got, want string) {
		t.Helper()
		if !strings.Contains(got, want) {
			t.Errorf("it says %q, want %q in it", got, want)
		}
	}

	do("open the page", chromedp.Navigate(page), chromedp.WaitVisible(chromedp.CSS("table")))
	says(seen("body"), "31 Nodes: 31 assigned")
	for selector, want := range map[string]string{
		`[data-view="10.0.0.0/19"] .a:not(.x)`:                    "10.0.0.0/24: Node n00",
		`[data-view="10.0.0.0/19"] .x`:                            "10.0.2.0/24: CONFLICT Node foreign, Node n02",
		`[data-view="10.1.0.0/24"] .f`:                            "10.1.0.0/24: free",
		`[data-view="fd00:1::/48"] .m`:                            "fd00:1::/56: 30 allocated, 0 unavailable, 226 free: Node n00, Node n01, Node n02, 27 more",
		`[data-view="10.64.0.0/10"] .line:last-child :last-child`: "10.127.192.0/18: free",
	} {
		if got := hovered(selector); got != want {
			t.Errorf("over %s the browser shows %q, want %q", selector, got, want)
		}
	}

	// States have colours of their own, in the light and in the dark.
	var all []string
	for _, scheme := range []string{"light", "dark"} {
		media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
		if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, media); err != nil {
			t.Fatal(err)
		}
		for _, selector := range []string{"body", ".legend .a", ".legend .r", ".legend .u", ".legend .f"} {
			all = append(all, evaluate(fmt.Sprintf(`getComputedStyle(document.querySelector(%q)).backgroundColor`, selector)))
		}
	}
	if sorted := slices.Compact(slices.Sorted(slices.Values(all))); len(sorted) != len(all) {
		t.Errorf("colours %q, want all different", all)
	}

	// A cell of many blocks leads into it, and one of them to its Node.
	do("zoom in", chromedp.Click(chromedp.CSS(`[data-view="fd00:1::/48"] .m`)), chromedp.WaitVisible(chromedp.CSS(`[data-view="fd00:1::/56"]`)))
	if got, want := hovered(`[data-view="fd00:1::/56"] .a`), "fd00:1::/64: Node n00"; got != want {
		t.Errorf("over the first block the browser shows %q, want %q", got, want)
	}
	do("follow the block", chromedp.Click(chromedp.CSS(`[data-view="fd00:1::/56"] .a`)), chromedp.WaitVisible(chromedp.CSS("h3")))
	says(seen("tbody"), "Node n00")

	search := func(text string) string {
		t.Helper()
		const field = chromedp.CSS("input[name=find]")
		evaluate(`document.querySelector("input[name=find]").value = ""`)
		do("search for "+text, chromedp.SendKeys(field, text+"\r"), chromedp.WaitVisible(fmt.Sprintf(`//h2[.=%q]`, text)))
		now, err := chromedp.Run(ctx, chromedp.Location())
		if err != nil {
			t.Fatal(err)
		}
		if want := page + "?find=" + url.QueryEscape(text); now != want {
			t.Errorf("the search led to %s, want %s", now, want)
		}
		return seen("body")
	}
	says(search("10.0.3.7"), "10.0.3.0/24	Node n03	assigned")
	says(search("fd00:1:0:4::1"), "fd00:1:0:4::/64	Node n04	assigned")
	says(search("n05"), "10.0.5.0/24\nfd00:1:0:5::/64")
	says(search("10.2.100.1"), "10.2.100.1 is in no ClusterCIDR.")

	// What waits now is told too.
	if err := createNode(c, []string{"in-small", "pool=small"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.waitServed("in-small", patience); err != nil {
		t.Fatal(err)
	}
	for _, cc := range []string{"dual", "wide"} {
		if err := deleteObjects(c, []string{"cc", cc}); err != nil {
			t.Fatal(err)
		}
	}
	if err := gone(c, []string{"cc", "wide"}); err != nil { // nobody belongs to it
		t.Fatal(err)
	}
	if err := createNode(c, []string{"late", "pool=small"}); err != nil {
		t.Fatal(err)
	}
	if err := waits(c, []string{"late", "small is full (IPv4)"}); err != nil {
		t.Fatal(err)
	}
	do("open the page again", chromedp.Navigate(page), chromedp.WaitVisible(chromedp.CSS("#waiting")))
	says(seen("#waiting + div"), "small is full (IPv4)")
	says(seen("#waiting + div"), "late")

	// Up to this word the console has nothing to say.
	const lastWord = "the test ends here"
	evaluate(fmt.Sprintf(`console.log(%q), ""`, lastWord))
	for message, err := range console {
		if err != nil {
			t.Fatal(err)
		}
		if message.Text == lastWord {
			break
		}
		t.Errorf("the browser complains: %v", message)
	}
}

// browser starts a headless browser that ends with the test, and returns the context of its one tab.
func browser(t *testing.T) context.Context {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Fatal("there is no browser: hack/ensure-chromium.sh installs one")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()),
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.WindowSize(1280, 900), chromedp.WSURLReadTimeout(patience),
	}
	// It asks nobody but the page.
	for _, flag := range []string{"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "disable-extensions", "disable-dev-shm-usage"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	return ctx
}

// throughProxy returns the URL of a proxy to the manager which adds an administrator's certificate.
func throughProxy(t *testing.T, c *cluster) string {
	t.Helper()
	target, err := url.Parse(c.manager.URL())
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(c.cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport,
	})
	t.Cleanup(proxy.Close)
	return proxy.URL
}
