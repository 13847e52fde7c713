package parity

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// surface is what can be seen of a kube-controller-manager: aspect, then name, then how it looks.
type surface map[string]map[string]string

func (s surface) add(aspect, name, value string) {
	if s[aspect] == nil {
		s[aspect] = map[string]string{}
	}
	s[aspect][name] = value
}

// plus is the surface with additions, which win over what is there.
func (s surface) plus(additions surface) surface {
	result := surface{}
	for _, part := range []surface{s, additions} {
		for aspect, entries := range part {
			for name, value := range entries {
				result.add(aspect, name, value)
			}
		}
	}
	return result
}

// drift says how ours differs from upstream's with the additions; an addition that is not there is a difference too.
func drift(upstream, ours, additions surface) string {
	return cmp.Diff(upstream.plus(additions), ours)
}

// The aspects that a running process has.
const (
	healthChecks    = "health checks"
	configz         = "/configz"
	flagz           = "/flagz"
	statusz         = "/statusz"
	metrics         = "metrics"
	statusCodes     = "status codes"
	leases          = "leases"
	candidates      = "lease candidates"
	serviceAccounts = "service accounts"
	clients         = "clients"
)

// observe looks at a running manager from all sides.
func observe(ctx context.Context, s *site, m *controlplane.Manager) (surface, error) {
	result := surface{}
	for _, look := range []func(context.Context, *site, *controlplane.Manager, surface) error{
		observeHealth, observePages, observeMetrics, observeStatusCodes, observeObjects, observeClients,
	} {
		if err := look(ctx, s, m, result); err != nil {
			return nil, err
		}
	}
	return result, nil
}

func observeHealth(ctx context.Context, _ *site, m *controlplane.Manager, result surface) error {
	body, err := page(ctx, m, "/healthz?verbose")
	for line := range strings.Lines(body) {
		line = strings.TrimSuffix(line, "\n")
		if check := healthLine.FindStringSubmatch(line); check != nil {
			result.add(healthChecks, check[1], check[2])
		} else if line != "healthz check passed" {
			result.add(healthChecks, "another line", line)
		}
	}
	return err
}

var healthLine = regexp.MustCompile(`^\[[+-]](\S+) (.*)$`)

// notThere is all that a page has that does not exist.
const notThere = "not there"

// observePages reads the pages that are objects. As plain text, flagz and statusz use another separator in each process, lest
// somebody parse them.
func observePages(ctx context.Context, s *site, m *controlplane.Manager, result surface) error {
	client, err := rest.HTTPClientFor(s.AdminConfig())
	if err != nil {
		return err
	}
	for path, accept := range map[string]string{
		configz: "application/json",
		flagz:   "application/json;g=config.k8s.io;v=v1beta1;as=Flagz",
		statusz: "application/json;g=config.k8s.io;v=v1beta1;as=Statusz",
	} {
		code, body, err := get(ctx, client, m.URL()+path, accept)
		if err != nil {
			return err
		}
		if code == http.StatusNotFound { // v1.35 has flagz and statusz behind feature gates.
			result.add(path, notThere, "")
			continue
		}
		var object any
		if err := json.Unmarshal([]byte(s.anonymize(body)), &object); err != nil {
			return fmt.Errorf("read %s: %d %s: %w", path, code, body, err)
		}
		flatten(result, path, "", object)
	}
	// These differ from process to process.
	delete(result[flagz], ".flags.secure-port")
	delete(result[statusz], ".startTime")
	delete(result[statusz], ".uptimeSeconds")
	return nil
}

// flatten makes one entry of each leaf, so that a difference shows where it is. A list of objects is a set: upstream makes one of
// them from a map.
func flatten(result surface, aspect, path string, value any) {
	switch value := value.(type) {
	case nil: // As if it were not there.
	case map[string]any:
		for key, inner := range value {
			flatten(result, aspect, path+"."+key, inner)
		}
	case []any:
		if !slices.ContainsFunc(value, isObject) {
			result.add(aspect, path, compact(value))
			return
		}
		for _, inner := range value {
			result.add(aspect, path+" has "+compact(inner), "")
		}
	default:
		result.add(aspect, path, compact(value))
	}
}

func isObject(value any) bool {
	_, ok := value.(map[string]any)
	return ok
}

func compact(value any) string {
	text, _ := json.Marshal(value) // It came from JSON.
	return string(text)
}

func observeMetrics(ctx context.Context, _ *site, m *controlplane.Manager, result surface) error {
	for _, path := range []string{"/metrics", "/metrics/slis"} {
		families, err := m.Metrics(ctx, path)
		if err != nil {
			return err
		}
		for name, family := range families {
			if byChance.MatchString(name) {
				continue
			}
			result.add(metrics, path+" "+name, describe(family))
		}
	}
	return nil
}

// byChance are the metrics that are only there once something went against the odds: a request had to be sent again, or a controller's
// cache was behind its own writes (the in-tree allocator then takes a second block for a Node, and releases it).
var byChance = regexp.MustCompile(`^rest_client_request_retries_total$|_stale_sync_skips_total$|^node_ipam_controller_cidrset_cidrs_releases_total$`)

// describe is the type and the label names of a metric. The labels' values come and go with what happens in the cluster.
func describe(family *dto.MetricFamily) string {
	labels := map[string]bool{}
	for _, metric := range family.Metric {
		for _, pair := range metric.Label {
			labels[pair.GetName()] = true
		}
	}
	return fmt.Sprintf("%s{%s}", strings.ToLower(family.GetType().String()), strings.Join(slices.Sorted(maps.Keys(labels)), ","))
}

// observeStatusCodes asks what an administrator and what a stranger gets.
func observeStatusCodes(ctx context.Context, s *site, m *controlplane.Manager, result surface) error {
	stranger, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(s.PKIDir(), "ca.crt")}})
	if err != nil {
		return err
	}
	defer stranger.CloseIdleConnections()
	for _, path := range []string{
		"/", "/healthz", "/healthz/leaderElection", "/healthz/node-ipam-controller", "/healthz/multi-cidr-node-ipam-controller",
		"/livez", "/readyz", "/metrics", "/metrics/slis", "/configz", "/flagz", "/statusz", "/version",
		"/debug/pprof/", "/debug/flags/v", "/debug/controllers/garbage-collector-controller/graph",
		"/debug/controllers/multi-cidr-node-ipam-controller",
	} {
		asAdmin, _, err := m.Get(ctx, path)
		if err != nil {
			return err
		}
		asStranger, _, err := get(ctx, stranger, m.URL()+path, "*/*")
		if err != nil {
			return err
		}
		result.add(statusCodes, path, fmt.Sprintf("administrator %d, stranger %d", asAdmin, asStranger))
	}
	return nil
}

// observeObjects reads what the manager writes for itself.
func observeObjects(ctx context.Context, s *site, _ *controlplane.Manager, result surface) error {
	config := s.AdminConfig()
	config.WarningHandler = rest.NoWarnings{} // LeaseCandidates are deprecated, and all there is.
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	leaseList, err := client.CoordinationV1().Leases("kube-system").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, lease := range leaseList.Items {
		if !strings.HasPrefix(lease.Name, "apiserver-") {
			result.add(leases, lease.Name, fmt.Sprintf("held %t, strategy %v", lease.Spec.HolderIdentity != nil, lease.Spec.Strategy != nil))
		}
	}
	if s.coordinated {
		candidateList, err := client.CoordinationV1beta1().LeaseCandidates("kube-system").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, candidate := range candidateList.Items {
			result.add(candidates, candidate.Spec.LeaseName, fmt.Sprintf("binary %s, emulates %s, strategy %s",
				candidate.Spec.BinaryVersion, candidate.Spec.EmulationVersion, candidate.Spec.Strategy))
		}
	}
	accounts, err := client.CoreV1().ServiceAccounts("kube-system").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, account := range accounts.Items {
		result.add(serviceAccounts, account.Name, "")
	}
	return nil
}

// observeClients reads from the API server's audit log who asked, under which user agent.
func observeClients(_ context.Context, s *site, _ *controlplane.Manager, result surface) error {
	events, err := controlplane.ReadAudit(s.auditLog, 0)
	for _, event := range events {
		if strings.HasPrefix(event.UserAgent, "kube-controller-manager/") {
			result.add(clients, event.User.Username+" "+agentVersion.ReplaceAllString(event.UserAgent, ""), "")
		}
	}
	return err
}

var (
	agentVersion = regexp.MustCompile(`/v[^/ ]* \([^)]*\) kubernetes/[^/ ]*`)
	localAddress = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	kubeconfig   = regexp.MustCompile(`(system:kube-controller-manager)-\d+(\.yaml)`)
)

// anonymize takes out what differs from one control plane to the next.
func (s *site) anonymize(text string) string {
	text = strings.ReplaceAll(text, s.Dir(), "DIR")
	text = localAddress.ReplaceAllString(text, "127.0.0.1:PORT")
	return kubeconfig.ReplaceAllString(text, "$1$2")
}

// page is what an administrator reads at a path of the manager.
func page(ctx context.Context, m *controlplane.Manager, path string) (string, error) {
	code, body, err := m.Get(ctx, path)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("GET %s: %d %s", path, code, body)
	}
	return string(body), err
}

// get is for what Manager.Get cannot ask: with other credentials, or for another form of the page.
func get(ctx context.Context, client *http.Client, url, accept string) (code int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Accept", accept)
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}
