package infoblox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/internal/race"
	"github.com/multicidr/controller-manager/controllers/writes"
	"github.com/multicidr/controller-manager/test/contracttest"
	"github.com/multicidr/controller-manager/test/seeds"
	"github.com/multicidr/controller-manager/test/wapitest"
)

// TestSimulation: the controllers of two management clusters, with one Infoblox. Answers are lost or late on both sides, controllers are restarted at any time, and
// clusters are moved as clusterctl does it. The judge sees only what the API servers and Infoblox have.
func TestSimulation(t *testing.T) {
	covered := map[string]int{}
	histories := seeds.Each(t, race.Part(uint64(60)), func(t *testing.T, seed uint64) {
		var w *world
		synctest.Test(t, func(t *testing.T) {
			w = newWorld(t, seed)
			w.run(60)
		})
		w.report(t, seed)
		for what, n := range w.covered {
			covered[what] += n
		}
	})
	for _, what := range []string{"told", "released", "shared", "exhausted", "restart", "moved", "moved without an address", "own name", "record deleted by hand", "restored"} {
		if covered[what] == 0 && histories >= 60 && !t.Failed() {
			t.Errorf("in %d histories it never happened: %s", histories, what)
		}
	}
	t.Log(covered)
}

// report fails the test if anything was wrong, with the history.
func (w *world) report(t *testing.T, seed uint64) {
	if w.violation != "" {
		t.Error(w.violation)
	}
	seeds.Report(t, seed, w.trace)
}

// world is two API servers, their controllers, and an Infoblox.
type world struct {
	t         *testing.T
	servers   [2]*contracttest.Server
	leads     [2]*contracttest.Process
	ends      [2]context.CancelFunc
	faults    atomic.Int64 // how many of a hundred writes fail
	home      int          // the server that has the cluster
	claims    int
	began     time.Time
	restored  bool
	backup    []backedUp
	mu        sync.Mutex // guards what follows
	rand      *rand.Rand
	grid      *wapitest.Grid
	addresses [2]map[string]netip.Addr // of IPAddresses
	using     map[string]netip.Addr    // what machines use, by claim
	unknown   map[string]bool          // claims whose host record somebody has deleted, or that a backup does not have
	asked     int                      // requests that change nothing
	fence     writes.Fence             // of the controllers; may be nil
	// ignoresExclude: Infoblox chooses what it must not choose.
	ignoresExclude bool
	// away: no request arrives, and failed is how many did not.
	away   atomic.Bool
	denied atomic.Bool // host records may not be read
	failed atomic.Int64
	// slow is how long the answer to a write to Infoblox takes at least.
	slow      time.Duration
	violation string
	trace     []string
	covered   map[string]int
}

const (
	namespace = "a"
	// lateWrite is for how long an API server may still carry out a write that was not answered, and lateWAPI the same for Infoblox.
	lateWrite = 2 * time.Second
	lateWAPI  = 14 * time.Second
)

var read = []*runner.Kind{runner.Secrets, runner.InfobloxInstances, runner.Clusters, runner.InfobloxIPPools, runner.IPAddressClaims, runner.IPAddresses}

func newObject(kind *runner.Kind) metav1.Object {
	return map[*runner.Kind]metav1.Object{
		runner.Secrets: &corev1.Secret{}, runner.InfobloxInstances: &v1alpha1.InfobloxInstance{}, runner.Clusters: &contract.Cluster{},
		runner.InfobloxIPPools: &v1alpha1.InfobloxIPPool{}, runner.IPAddressClaims: &v1beta2.IPAddressClaim{}, runner.IPAddresses: &v1beta2.IPAddress{},
	}[kind]
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, rand: rand.New(rand.NewPCG(seed, 1)), began: time.Now(), using: map[string]netip.Addr{}, unknown: map[string]bool{}, covered: map[string]int{}}
	w.grid = wapitest.NewGrid("10.0.0.0/28", "10.0.1.0/24", "fd00::/120")
	w.grid.Zones["default"] = []string{"example.com"}
	w.grid.Do("POST", "record:host", nil, []byte(`{"name": "c3", "configure_for_dns": false, "ipv4addrs": [{"ipv4addr": "10.0.0.9"}]}`)) // somebody's
	for i := range w.servers {
		s := contracttest.NewServer(fmt.Sprint("server", i))
		w.servers[i], w.addresses[i] = s, map[string]netip.Addr{}
		s.Stored = func(kind *runner.Kind, before, now *unstructured.Unstructured) { w.judgeStored(i, kind, before, now) }
		put(s, runner.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "s", Name: "s"}, Data: map[string][]byte{"username": []byte("u")}})
		put(s, runner.InfobloxInstances, &v1alpha1.InfobloxInstance{ObjectMeta: metav1.ObjectMeta{Name: "i"},
			Spec: v1alpha1.InfobloxInstanceSpec{Host: "infoblox", Port: "8443", CustomCAPath: "/ca", WAPIVersion: "2.12", CredentialsSecretRef: v1alpha1.SecretReference{Name: "s"}}})
	}
	home := w.servers[0]
	put(home, runner.Clusters, &contract.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c"}})
	for name, p := range map[string]v1alpha1.InfobloxIPPoolSpec{
		"small": {Subnets: []v1alpha1.Subnet{{CIDR: "10.0.0.0/28", Gateway: "10.0.0.1"}}},
		"v4":    {Subnets: []v1alpha1.Subnet{{CIDR: "10.0.1.0/24", Gateway: "10.0.1.1"}}, DNSZone: "example.com"},
		"v6":    {Subnets: []v1alpha1.Subnet{{CIDR: "fd00::/120", Gateway: "fd00::1"}}, DNSZone: "example.com"},
	} {
		p.InstanceRef.Name = "i"
		put(home, runner.InfobloxIPPools, &v1alpha1.InfobloxIPPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: p})
	}
	return w
}

func put(s *contracttest.Server, kind *runner.Kind, o metav1.Object) {
	if _, err := s.Create(kind, o); err != nil {
		panic(err)
	}
}

func in(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func (w *world) below(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.IntN(n)
}

// upTo returns a duration by chance.
func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.below(int(d))) }

// fault says what becomes of a request.
func (w *world) fault(write bool, late time.Duration) (f contracttest.Fault) {
	f.Before, f.After = w.upTo(30*time.Millisecond), w.upTo(30*time.Millisecond)
	if n := w.below(100); write && n < int(w.faults.Load()) {
		f.Unanswered, f.Lost, f.After = true, n%3 == 0, w.upTo(time.Second)
		if n%3 == 1 {
			f.Before = w.upTo(late)
		}
	}
	return f
}

// start starts the controller of a server. What the last one has sent to the API server is over by then, what it has sent to Infoblox is not.
func (w *world) start(i int) {
	ctx, cancel := context.WithCancel(context.Background())
	connect := func(c wapi.Config) (*wapi.Client, error) {
		if c.Port != "8443" || c.CAFile != "/ca" || c.Version != "2.12" || c.Username != "u" {
			return nil, fmt.Errorf("the InfobloxInstance and its Secret say something else than %+v", c)
		}
		return wapi.Over(line{w, i, ctx}), nil
	}
	p := contracttest.Start(w.t.Context(), w.servers[i], read, newObject, func(t *runner.Term) runner.Logic {
		return newLogic(t, Config{Config: runner.Config{Fence: w.fence}, SecretNamespace: "s"}, connect)
	},
		contracttest.Options{
			Workers: 6, Unanswered: lateWrite + time.Second, Lag: func() time.Duration { return w.upTo(20 * time.Millisecond) },
			Fault: func(verb string, _ *runner.Kind, _ string) contracttest.Fault {
				return w.fault(verb != "get", lateWrite)
			},
			Event: func(about metav1.Object, kind *runner.Kind, reason, message string) {
				w.note("server%d: event about the %v %s: %s: %s", i, kind, about.GetName(), reason, message)
			},
		})
	w.leads[i], w.ends[i] = p, cancel
}

// stop ends a process in the middle of everything.
func (w *world) stop(i int) {
	w.ends[i]()
	w.leads[i].Crash()
}

// line is the way of one process to Infoblox.
type line struct {
	w    *world
	from int
	ctx  context.Context // is done when the process has ended
}

// RoundTrip implements http.RoundTripper.
func (l line) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/wapi/v"), "/")
	path, _ = url.PathUnescape(path)
	f := l.w.fault(r.Method != http.MethodGet, lateWAPI)
	do := func() (int, any) { return l.w.carryOut(l.from, r.Method, path, r.URL.Query(), body) }
	switch {
	case l.ctx.Err() != nil:
		return nil, l.ctx.Err()
	case l.w.away.Load():
		time.Sleep(f.Before + time.Millisecond)
		return nil, fmt.Errorf("%w: %d", contracttest.ErrUnanswered, l.w.failed.Add(1))
	case l.w.denied.Load() && r.Method == http.MethodGet && path == "record:host":
		time.Sleep(f.Before + time.Millisecond)
		return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"text": "no permission"}`)), Request: r}, nil
	case f.Unanswered && !f.Lost:
		go func() {
			time.Sleep(f.Before)
			do()
		}()
		fallthrough
	case f.Unanswered:
		time.Sleep(f.After)
		return nil, contracttest.ErrUnanswered
	}
	time.Sleep(f.Before)
	status, answer := do()
	if r.Method != http.MethodGet {
		time.Sleep(l.w.slow)
	}
	if time.Sleep(f.After); l.ctx.Err() != nil {
		return nil, contracttest.ErrUnanswered
	}
	text, _ := json.Marshal(answer)
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(text)), Request: r}, nil
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, fmt.Sprintf("%8.2fs ", time.Since(w.began).Seconds())+fmt.Sprintf(format, args...))
}

func (w *world) cover(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.covered[what]++
}

// violate notes a violation. The caller holds the lock.
func (w *world) violate(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
	}
}

// carryOut lets Infoblox do what is asked for, and judges what it has then: every address that a machine uses.
func (w *world) carryOut(from int, method, path string, query url.Values, body []byte) (status int, answer any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := len(w.grid.Hosts())
	if w.ignoresExclude {
		body = bytes.ReplaceAll(body, []byte(`"exclude"`), []byte(`"ignored"`))
	}
	status, answer = w.grid.Do(method, path, query, body)
	if method == "GET" {
		w.asked++
		return status, answer
	}
	w.trace = append(w.trace, fmt.Sprintf("%8.2fs server%d: %s %s %s: %d", time.Since(w.began).Seconds(), from, method, path, body, status))
	reserved := map[netip.Addr]bool{}
	for _, h := range w.grid.Hosts() {
		for _, a := range h.Addresses {
			if reserved[a] {
				w.violate("two host records have the address %v", a)
			}
			reserved[a] = true
		}
		if len(h.Addresses) > 1 {
			w.covered["shared"]++
		}
		if strings.HasPrefix(h.Name, "c3.") {
			w.covered["own name"]++
		}
	}
	if len(w.grid.Hosts()) < before {
		w.covered["released"]++
	}
	for claim, a := range w.using {
		if !reserved[a] && !w.unknown[claim] {
			w.violate("%s %s: the machine of %s uses %v, and no host record has it", method, path, claim, a)
		}
	}
	return status, answer
}

// judgeStored looks at what a claim is told. A machine keeps what it was told first.
func (w *world) judgeStored(server int, kind *runner.Kind, before, now *unstructured.Unstructured) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case kind == runner.IPAddresses && now == nil:
		delete(w.addresses[server], before.GetName())
	case kind == runner.IPAddresses:
		w.addresses[server][now.GetName()] = addr(contracttest.To[v1beta2.IPAddress](now).Spec.Address)
	case kind == runner.IPAddressClaims && now != nil:
		claim := contracttest.To[v1beta2.IPAddressClaim](now)
		if a, ok := w.addresses[server][claim.Name]; ok && claim.Status.AddressRef.Name != "" && claim.DeletionTimestamp == nil {
			w.judgeTold(claim.Name, a)
		}
	}
}

// judgeTold judges that a claim was told an address. The caller holds the lock.
func (w *world) judgeTold(claim string, a netip.Addr) {
	was, told := w.using[claim]
	if told && was != a {
		w.violate("%s was told %v, and before %v", claim, a, was)
	}
	if told {
		return
	}
	w.covered["told"]++
	for other, b := range w.using {
		if a == b {
			w.violate("%s and %s were told %v", claim, other, a)
		}
	}
	if slices.Contains([]string{"10.0.0.1", "10.0.1.1", "fd00::1", "10.0.0.9"}, a.String()) {
		w.violate("%s was told %v", claim, a)
	}
	if !slices.ContainsFunc(w.grid.Hosts(), func(h wapitest.Host) bool { return slices.Contains(h.Addresses, a) }) {
		w.violate("%s was told %v, and no host record has it", claim, a)
	}
	w.using[claim] = a
}

// run is one history.
func (w *world) run(moves int) {
	w.start(0)
	w.start(1)
	w.faults.Store(int64(w.below(2) * 15))
	for range moves {
		time.Sleep(w.upTo(4 * time.Second))
		w.move()
		if w.violation != "" {
			break
		}
	}
	w.faults.Store(0)
	time.Sleep(10 * time.Minute)
	w.judgeRest()
	for _, claim := range contracttest.All[v1beta2.IPAddressClaim](w.servers[w.home], runner.IPAddressClaims) {
		w.deleteClaim(claim.Name)
	}
	time.Sleep(20 * time.Minute)
	w.judgeEnd()
	w.stop(0)
	w.stop(1)
}

func (w *world) move() {
	home := w.servers[w.home]
	claims := contracttest.All[v1beta2.IPAddressClaim](home, runner.IPAddressClaims)
	switch n := w.below(100); {
	case n < 50:
		w.claims++
		name := fmt.Sprint("c", w.claims)
		switch w.below(3) {
		case 0: // A machine with two addresses has one name.
			w.createClaim(name+"-4", "v4", map[string]string{v1alpha1.AnnotationHostname: name})
			w.createClaim(name+"-6", "v6", map[string]string{v1alpha1.AnnotationHostname: name})
		default:
			w.createClaim(name, "small", nil)
		}
	case n < 80 && len(claims) > 0:
		w.deleteClaim(claims[w.below(len(claims))].Name)
	case n < 92:
		i := w.below(2)
		w.note("restart of the controller of server%d", i)
		w.cover("restart")
		w.stop(i)
		time.Sleep(lateWrite)
		w.start(i)
	case n < 95:
		w.moveCluster()
	case n < 96 && !w.restored: // Together with a restore nobody could know.
		w.deleteRecord()
	case n < 98:
		w.note("backup")
		w.backup = nil
		for _, kind := range []*runner.Kind{runner.IPAddressClaims, runner.IPAddresses} {
			for _, o := range home.List(kind) {
				w.backup = append(w.backup, backedUp{kind, o})
			}
		}
	case n < 99 && w.backup != nil && len(w.unknown) == 0:
		w.restore()
	default:
		time.Sleep(30 * time.Second)
	}
}

func (w *world) createClaim(name, pool string, annotations map[string]string) {
	w.note("claim %s of the pool %s", name, pool)
	put(w.servers[w.home], runner.IPAddressClaims, &v1beta2.IPAddressClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations},
		Spec:       v1beta2.IPAddressClaimSpec{ClusterName: "c", PoolRef: v1beta2.IPPoolReference{APIGroup: runner.GroupIPAM, Kind: v1alpha1.KindInfobloxIPPool, Name: pool}},
	})
}

func (w *world) deleteClaim(name string) {
	w.note("claim %s is deleted", name)
	w.mu.Lock()
	delete(w.using, name)
	w.mu.Unlock()
	_ = w.servers[w.home].Delete(runner.IPAddressClaims, in(name), "")
}

// moveCluster moves the cluster with clusterctl. Requests that the controller has sent are over before anything is copied.
func (w *world) moveCluster() {
	from, to := w.servers[w.home], w.servers[1-w.home]
	w.note("move to server%d", 1-w.home)
	w.cover("moved")
	for _, claim := range contracttest.All[v1beta2.IPAddressClaim](from, runner.IPAddressClaims) {
		if from.Get(runner.IPAddresses, namespace, claim.Name) == nil {
			w.cover("moved without an address")
		}
		if claim.DeletionTimestamp != nil { // It lives again, and perhaps its host record does not.
			w.mu.Lock()
			w.unknown[claim.Name] = true
			w.mu.Unlock()
		}
	}
	first := true
	kinds := []*runner.Kind{runner.Clusters, runner.InfobloxIPPools, runner.IPAddressClaims, runner.IPAddresses}
	contracttest.Move(from, to, kinds, func(*runner.Kind, *unstructured.Unstructured) bool { return true }, func() {
		if first {
			time.Sleep(4 * time.Second)
		}
		first = false
		time.Sleep(w.upTo(300 * time.Millisecond))
	})
	w.home = 1 - w.home
}

// backedUp is an object in a backup.
type backedUp struct {
	kind   *runner.Kind
	object *unstructured.Unstructured
}

// deleteRecord deletes a host record in Infoblox while its machine runs. Infoblox then gives the address to others.
func (w *world) deleteRecord() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for claim, a := range w.using {
		if hosts := w.grid.Hosts(); claim == "c3" || w.unknown[claim] || !slices.ContainsFunc(hosts, func(h wapitest.Host) bool { return h.Name == claim && len(h.Addresses) == 1 }) {
			continue
		}
		_, found := w.grid.Do("GET", "record:host", url.Values{"name": {claim}}, nil)
		ref := found.([]map[string]any)[0]["_ref"].(string)
		w.grid.Do("DELETE", ref, nil, nil)
		w.unknown[claim] = true
		w.covered["record deleted by hand"]++
		w.trace = append(w.trace, fmt.Sprintf("somebody deletes the host record %s, whose machine uses %v", claim, a))
		return
	}
}

// restore puts back claims and IPAddresses from a backup, without status and with other UIDs, while the controller does not run. What is not in the backup is gone, but
// its machines still run. A claim that had no token yet is another claim by now.
func (w *world) restore() {
	w.note("restore")
	w.cover("restored")
	home := w.servers[w.home]
	w.stop(w.home)
	time.Sleep(lateWrite)
	known, token := map[string]bool{}, map[string]bool{}
	for _, b := range w.backup {
		name := b.object.GetName()
		known[name] = known[name] || b.kind == runner.IPAddressClaims && b.object.GetDeletionTimestamp() == nil
		token[name] = token[name] || b.object.GetAnnotations()[contract.AnnotationOwner] != ""
	}
	for _, kind := range []*runner.Kind{runner.IPAddresses, runner.IPAddressClaims} {
		for _, o := range home.List(kind) {
			home.Drop(kind, in(o.GetName()))
			w.mu.Lock()
			name := o.GetName()
			w.unknown[name] = w.unknown[name] || !known[name] || !token[name]
			if a, uses := w.using[name]; uses && !token[name] {
				w.using["former "+name] = a
				delete(w.using, name)
			}
			w.mu.Unlock()
		}
	}
	w.start(w.home)
	w.restored = true
	became := map[types.UID]types.UID{}
	for _, b := range w.backup {
		if known[b.object.GetName()] && b.object.GetDeletionTimestamp() == nil {
			time.Sleep(w.upTo(300 * time.Millisecond))
			contracttest.Restore(home, b.kind, b.object, became)
		}
	}
	w.backup = nil
}

// judgeRest judges what is there when nothing has happened for a while: every claim has an address, unless its pool is full.
func (w *world) judgeRest() {
	claims := contracttest.All[v1beta2.IPAddressClaim](w.servers[w.home], runner.IPAddressClaims)
	w.mu.Lock()
	defer w.mu.Unlock()
	used := map[netip.Addr]bool{} // Infoblox does not know of those whose host record somebody has deleted.
	for _, h := range w.grid.Hosts() {
		for _, a := range h.Addresses {
			used[a] = true
		}
	}
	for _, a := range w.using {
		used[a] = true
	}
	for _, claim := range claims { // It holds what it says, also if it lives again after its release.
		used[said(claim)] = true
	}
	full := true
	for a := addr("10.0.0.2"); a != addr("10.0.0.15"); a = a.Next() {
		full = full && used[a]
	}
	for _, claim := range claims {
		ready := contract.Find(claim.Status.Conditions, v1beta2.ConditionReady)
		switch {
		case claim.DeletionTimestamp != nil && w.stuck(claim):
		case claim.DeletionTimestamp != nil:
			w.violate("the claim %s, which is deleted, is still there: %+v", claim.Name, ready)
		case claim.Status.AddressRef.Name != "" && ready != nil && ready.Status == metav1.ConditionTrue:
		case ready != nil && ready.Reason == v1beta2.ReasonPoolExhausted && full:
			w.covered["exhausted"]++
		// Infoblox gave it, or the claim with which it shares a record, one that is held, right before a restart or a move.
		case len(w.unknown) > 0 && ready != nil && (strings.HasPrefix(ready.Message, "Nobody knows which address") || strings.HasPrefix(ready.Message, "Another IPAddressClaim shares")):
			w.covered["waits for somebody"]++
		case (w.restored || w.unknown[claim.Name]) && ready != nil && ready.Reason == v1beta2.ReasonAllocationFailed: // Its host record is gone, or it says what was given back since the backup.
			w.covered["waits for somebody"]++
		default:
			w.violate("the claim %s has no address: %+v, %v", claim.Name, ready, claim.Annotations)
		}
	}
}

// stuck reports whether the release of a claim may wait for somebody: it comes from a backup that was made before two claims of a host record had their addresses.
func (w *world) stuck(claim *v1beta2.IPAddressClaim) bool {
	ready := contract.Find(claim.Status.Conditions, v1beta2.ConditionReady)
	if !w.restored || ready == nil || ready.Reason != reasonReleaseFailed || !strings.Contains(ready.Message, "nobody knows whose they are") {
		return false
	}
	w.covered["released by somebody"]++
	w.unknown[claim.Name] = true
	return true
}

// judgeEnd judges what is left when all claims are deleted: nothing but what somebody else has made.
func (w *world) judgeEnd() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, s := range w.servers {
		for _, kind := range []*runner.Kind{runner.IPAddressClaims, runner.IPAddresses} {
			for _, o := range s.List(kind) {
				if kind == runner.IPAddresses || !w.stuck(contracttest.To[v1beta2.IPAddressClaim](o)) {
					w.violate("server%d still has the %v %s: %+v", i, kind, o.GetName(), o.Object["status"])
				}
			}
		}
	}
	for _, h := range w.grid.Hosts() {
		if name, _, _ := strings.Cut(h.Name, "."); h.Name != "c3" && !w.unknown[name] && !w.unknown[name+"-4"] && !w.unknown[name+"-6"] {
			w.violate("Infoblox still has %+v", h)
		}
	}
}
