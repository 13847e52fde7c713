package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// apiServer is an API server that has no objects. It is in the same bubble as its clients: a connection is a pipe.
type apiServer struct {
	connections chan net.Conn
	closed      chan struct{}

	mu sync.Mutex
	// refuses says that nobody listens.
	refuses bool
	open    []net.Conn
	answer  http.HandlerFunc
	// cut ends the watches that are open.
	cut  context.Context
	ends context.CancelFunc
}

func serveAPI(t *testing.T) *apiServer {
	s := &apiServer{connections: make(chan net.Conn), closed: make(chan struct{})}
	s.becomes(s.works)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		answer := s.answer
		s.mu.Unlock()
		answer(w, r)
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(s)
	}()
	t.Cleanup(func() {
		server.Close()
		<-ended
	})
	return s
}

func (s *apiServer) Accept() (net.Conn, error) {
	select {
	case conn := <-s.connections:
		return conn, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *apiServer) Close() error {
	close(s.closed)
	return nil
}

func (s *apiServer) Addr() net.Addr { return &net.UnixAddr{} }

func (s *apiServer) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	s.mu.Lock()
	refuses := s.refuses
	if !refuses {
		s.open = append(s.open, server)
	}
	s.mu.Unlock()
	if !refuses {
		select {
		case s.connections <- server:
			return client, nil
		case <-s.closed:
		}
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

// becomes ends the watches that are open, and answers otherwise from now on; nil: nobody listens.
func (s *apiServer) becomes(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends != nil {
		s.ends()
	}
	s.cut, s.ends = context.WithCancel(context.Background())
	s.refuses = answer == nil
	if answer != nil {
		s.answer = answer
		return
	}
	for _, conn := range s.open {
		conn.Close()
	}
	s.open = nil
}

// works answers lists and watches in which nothing happens.
func (s *apiServer) works(w http.ResponseWriter, r *http.Request) { s.watched(w, r, 0) }

// watched ends watches after some time; 0: when something else becomes of the server.
func (s *apiServer) watched(w http.ResponseWriter, r *http.Request, lasts time.Duration) {
	w.Header().Set("Content-Type", "application/json")
	apiVersion, kind := "v1", "Node"
	if strings.HasSuffix(r.URL.Path, "servicecidrs") {
		apiVersion, kind = "networking.k8s.io/v1", "ServiceCIDR"
	}
	if !watches(r) {
		fmt.Fprintf(w, `{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"5"},"items":[]}`, apiVersion, kind+"List")
		return
	}
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"5","annotations":{"k8s.io/initial-events-end":"true"}}}}`, apiVersion, kind)
	}
	s.hold(w, r, lasts)
}

// hold begins an answer and keeps it open.
func (s *apiServer) hold(w http.ResponseWriter, r *http.Request, lasts time.Duration) {
	s.mu.Lock()
	ctx := s.cut
	s.mu.Unlock()
	if lasts > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, lasts)
		defer cancel()
	}
	w.(http.Flusher).Flush()
	select {
	case <-ctx.Done():
	case <-r.Context().Done():
	}
}

func watches(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

// says is an answer of the API server itself.
func says(code int, reason, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","code":%d,"reason":%q,"message":%q}`, code, reason, message)
	}
}

// errorEvent is a watch that begins with an error.
func errorEvent(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"type":"ERROR","object":{"apiVersion":"v1","kind":"Status","status":"Failure","code":%d,"reason":%q,"message":"why"}}`, code, reason)
}

// watching runs a test with informers whose reads are noted, beside an API server that works.
func watching(t *testing.T, test func(t *testing.T, s *apiServer, check *Health, stop func())) {
	// They sleep by the time of the last error in the process, which is not that of the bubble.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	defer func() { utilruntime.ErrorHandlers = handlers }()
	synctest.Test(t, func(t *testing.T) {
		s := serveAPI(t)
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api.test", Dial: s.dial, QPS: -1})
		if err != nil {
			t.Fatal(err)
		}
		factory := informers.NewSharedInformerFactory(client, 0)
		check := &Health{Watches: &Watches{}}
		check.Watches.Nodes(factory)
		check.Watches.ServiceCIDRs(factory)
		ctx, cancel := context.WithCancel(t.Context())
		defer func() {
			cancel()
			factory.Shutdown()
		}()
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		time.Sleep(3 * time.Minute) // then a reflector has no failures on its mind
		test(t, s, check, cancel)
	})
}

// Changes are not seen for as long as the API server does not answer reads as it should, and the health check says so for as long.
func TestWatchesThatFail(t *testing.T) {
	const (
		permission = "the API server does not let this process watch them: " + ApplyRBAC
		absent     = "the API server does not have them"
		fails      = "the API server fails, or a proxy before it"
		turnsAway  = "the API server turns requests away"
		endsAtOnce = "watches end as soon as they begin"
		unreached  = "the API server cannot be reached or understood"
	)
	for name, tc := range map[string]struct {
		answer func(s *apiServer) http.HandlerFunc
		want   string
		within time.Duration // 0: half a minute
	}{
		"403": {func(*apiServer) http.HandlerFunc { return says(403, "Forbidden", "no") }, permission, 0},
		"401": {func(*apiServer) http.HandlerFunc { return says(401, "Unauthorized", "no") }, permission, 0},
		"404": {func(*apiServer) http.HandlerFunc { return says(404, "NotFound", "no") }, absent, 0},
		"500": {func(*apiServer) http.HandlerFunc { return says(500, "InternalError", "unable to transform key") }, fails, 0},
		"503": {func(*apiServer) http.HandlerFunc { return says(503, "ServiceUnavailable", "down") }, fails, 0},
		"502 of a proxy": {func(*apiServer) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "<html>Bad Gateway</html>", http.StatusBadGateway)
			}
		}, fails, 0},
		"429": {func(*apiServer) http.HandlerFunc { return says(429, "TooManyRequests", "no") }, turnsAway, 0},
		"429 that asks for a pause, which the client keeps by itself": {func(*apiServer) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Retry-After", "1")
				says(429, "TooManyRequests", "no")(w, r)
			}
		}, turnsAway, 0},
		"no connection": {func(*apiServer) http.HandlerFunc { return nil }, unreached, 0},
		"connections break": {func(*apiServer) http.HandlerFunc {
			return func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
		}, "", 0},
		"answers are not of this API": {func(*apiServer) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>welcome</html>") }
		}, unreached, 0},
		"watches end, and lists get 429": {func(s *apiServer) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if !watches(r) {
					says(429, "TooManyRequests", "no")(w, r)
				}
			}
		}, turnsAway, 0},
		"watches end at once, and lists work": {func(s *apiServer) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if !watches(r) {
					s.works(w, r)
				}
			}
		}, endsAtOnce, 0},
		"watches begin with an error, and lists work": {func(s *apiServer) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if !watches(r) {
					s.works(w, r)
					return
				}
				errorEvent(w, 500, "InternalError")
			}
		}, fails, 0},
		"watches are refused, and lists work": {func(s *apiServer) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if !watches(r) {
					s.works(w, r)
					return
				}
				says(503, "ServiceUnavailable", "down")(w, r)
			}
		}, fails, 0},
		"there is no answer": {func(s *apiServer) http.HandlerFunc {
			return func(_ http.ResponseWriter, r *http.Request) {
				s.mu.Lock()
				ctx := s.cut
				s.mu.Unlock()
				select {
				case <-ctx.Done():
				case <-r.Context().Done():
				}
				panic(http.ErrAbortHandler)
			}
		}, unreached, unanswered + 10*time.Second},
		"a watch instead of a list does not come to its end": {func(s *apiServer) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				switch {
				case !watches(r):
					s.works(w, r)
				case r.URL.Query().Get("sendInitialEvents") == "true":
					w.Header().Set("Content-Type", "application/json")
					s.hold(w, r, 0)
				default:
					errorEvent(w, 410, "Expired")
				}
			}
		}, unreached, unanswered + 10*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			watching(t, func(t *testing.T, s *apiServer, check *Health, _ func()) {
				told := func() string {
					synctest.Wait()
					if err := check.Check(nil); err != nil {
						return err.Error()
					}
					return ""
				}
				if got := told(); got != "" {
					t.Fatalf("before anything fails, the health check says %s", got)
				}
				for range 2 {
					began := time.Now()
					s.becomes(tc.answer(s))
					time.Sleep(unseenFor - time.Second)
					if got := told(); got != "" {
						t.Errorf("after %v the health check says %s", time.Since(began), got)
					}
					time.Sleep(max(tc.within, 30*time.Second) - time.Since(began))
					for range 2 {
						got := told()
						for _, kind := range []string{"Nodes", "ServiceCIDRs"} {
							want := "changes of " + kind + " are not seen: " + tc.want
							since := ", since " + began.UTC().Format("2006-01-02T15:04:")
							if !strings.Contains(got, want) || strings.Count(got, since) != 2 {
								t.Errorf("after %v the health check says %s, want %q and %q", time.Since(began), got, want, since)
							}
						}
						time.Sleep(10 * time.Minute)
					}
					s.becomes(s.works)
					time.Sleep(61*time.Second + open) // the longest back-off of a reflector
					if got := told(); got != "" {
						t.Errorf("%v after it works again, the health check says %s", 61*time.Second, got)
					}
					time.Sleep(3 * time.Minute)
				}
			})
		})
	}
}

// What is part of a normal life is not told at any time.
func TestWatchesThatDoNotFail(t *testing.T) {
	for name, happens := range map[string]func(s *apiServer, stop func()){
		"nothing happens": func(*apiServer, func()) {},
		"watches end after a time, all of them": func(s *apiServer, _ func()) {
			s.becomes(func(w http.ResponseWriter, r *http.Request) { s.watched(w, r, 5*time.Minute) })
		},
		"watches are short": func(s *apiServer, _ func()) {
			s.becomes(func(w http.ResponseWriter, r *http.Request) { s.watched(w, r, 2*time.Second) })
		},
		"all watches are cut, many times": func(s *apiServer, _ func()) {
			for range 100 {
				s.becomes(s.works)
				time.Sleep(300 * time.Millisecond)
			}
		},
		"the API server restarts": func(s *apiServer, _ func()) {
			for range 5 {
				s.becomes(nil)
				time.Sleep(unseenFor - time.Second)
				s.becomes(s.works)
				time.Sleep(time.Minute)
			}
		},
		"the API server restarts, and does not know anybody for some seconds": func(s *apiServer, _ func()) {
			s.becomes(nil)
			time.Sleep(5 * time.Second)
			s.becomes(says(403, "Forbidden", "no"))
			time.Sleep(4 * time.Second)
			s.becomes(s.works)
		},
		"a version has expired": func(s *apiServer, _ func()) {
			var mu sync.Mutex
			expired := map[string]bool{}
			s.becomes(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				first := watches(r) && !expired[r.URL.Path]
				expired[r.URL.Path] = expired[r.URL.Path] || first
				mu.Unlock()
				if first {
					errorEvent(w, 410, "Expired")
					return
				}
				s.works(w, r)
			})
		},
		"a watch cannot do what a list does": func(s *apiServer, _ func()) {
			s.becomes(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("sendInitialEvents") == "true" {
					says(422, "Invalid", "no")(w, r)
					return
				}
				s.watched(w, r, time.Minute)
			})
		},
		"lists take long": func(s *apiServer, _ func()) {
			s.becomes(func(w http.ResponseWriter, r *http.Request) {
				if !watches(r) {
					time.Sleep(30 * time.Second)
				} else if r.URL.Query().Get("sendInitialEvents") == "true" {
					says(422, "Invalid", "no")(w, r)
					return
				}
				s.works(w, r)
			})
		},
		"the process ends": func(s *apiServer, stop func()) {
			s.becomes(says(500, "InternalError", "no"))
			time.Sleep(unseenFor / 2)
			stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			watching(t, func(t *testing.T, s *apiServer, check *Health, stop func()) {
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					happens(s, stop)
				}()
				for began := time.Now(); time.Since(began) < time.Hour; time.Sleep(100 * time.Millisecond) {
					if err := check.Check(nil); err != nil {
						t.Fatalf("after %v the health check says %v", time.Since(began), err)
					}
				}
				<-ended
			})
		})
	}
}

// No request is made that an informer would not make by itself: one at the start, and none as long as its watch runs, which it asks for five minutes of or more.
func TestWatchesAskForNothing(t *testing.T) {
	var mu sync.Mutex
	requests := 0
	watching(t, func(t *testing.T, s *apiServer, check *Health, _ func()) {
		s.becomes(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			requests++
			mu.Unlock()
			s.works(w, r)
		})
		time.Sleep(2 * time.Minute)
		for range 1000 {
			_ = check.Check(nil)
		}
		time.Sleep(2 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if requests != 2 {
			t.Errorf("the informers of two kinds made %d requests to watch, want 2", requests)
		}
	})
}

// An informer of its own is told of each read that fails, however it fails, and when a watch works again.
func TestChanges(t *testing.T) {
	broken := apierrors.NewInternalError(errors.New("unable to transform key"))
	invalid := apierrors.NewInvalid(schema.GroupKind{}, "", nil)
	type begin = func(context.Context, metav1.ListOptions) (watch.Interface, error)
	refuses := func(err error) begin {
		return func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, err }
	}
	sends := func(events ...watch.Event) begin {
		return func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			w := watch.NewFakeWithChanSize(len(events), false)
			for _, e := range events {
				w.Action(e.Type, e.Object)
			}
			return w, nil
		}
	}
	ends := func(context.Context, metav1.ListOptions) (watch.Interface, error) {
		w := watch.NewFake()
		w.Stop()
		return w, nil
	}
	for name, tc := range map[string]struct {
		begin begin
		lists bool
		want  []error // of the notes
	}{
		"works":                    {begin: sends(), want: []error{nil}},
		"shows an object":          {begin: sends(watch.Event{Type: watch.Added, Object: &v1.Node{}}), want: []error{nil}},
		"has not listed all":       {begin: sends(watch.Event{Type: watch.Added, Object: &v1.Node{}}), lists: true, want: []error{errUnanswered}},
		"has listed all":           {begin: sends(watch.Event{Type: watch.Bookmark, Object: &v1.Node{}}), lists: true, want: []error{nil}},
		"cannot list":              {begin: refuses(invalid), lists: true},
		"is refused":               {begin: refuses(invalid), want: []error{invalid}},
		"ends as soon as it began": {begin: ends, want: []error{errEnded}},
		"ends with an error":       {begin: sends(watch.Event{Type: watch.Error, Object: &broken.ErrStatus}), want: []error{broken}},
		"gets no answer": {want: []error{errUnanswered}, begin: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var notes []error
				c := NewChanges("ClusterCIDRs", func(_ context.Context, err error) {
					mu.Lock()
					defer mu.Unlock()
					notes = append(notes, err)
				})
				lasts := int64(300)
				w, err := c.Watched(t.Context(), metav1.ListOptions{SendInitialEvents: &tc.lists, TimeoutSeconds: &lasts}, tc.begin)
				if err == nil {
					go func() {
						for range w.ResultChan() {
						}
					}()
					time.Sleep(2 * unanswered)
				}
				mu.Lock()
				defer mu.Unlock()
				if fmt.Sprint(notes) != fmt.Sprint(tc.want) {
					t.Errorf("noted %v, want %v", notes, tc.want)
				}
				if w != nil {
					w.Stop()
				}
			})
		})
	}
}

// lists are what a controller hears of lists.
type lists struct{ heard []string }

func (l *lists) ListBegins()           { l.heard = append(l.heard, "begins") }
func (l *lists) ListEnds()             { l.heard = append(l.heard, "ends") }
func (l *lists) ListLacks(node string) { l.heard = append(l.heard, "-"+node) }
func (l *lists) ListHas(nodes ...*v1.Node) {
	for _, n := range nodes {
		l.heard = append(l.heard, n.Name)
	}
}

// listing answers lists and watches of Nodes.
type listing struct {
	pages []*v1.NodeList
	watch *watch.FakeWatcher
}

func (l *listing) List(context.Context, metav1.ListOptions) (page *v1.NodeList, err error) {
	if len(l.pages) == 0 {
		return nil, errors.New("no more")
	}
	page, l.pages = l.pages[0], l.pages[1:]
	return page, nil
}

func (l *listing) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return l.watch, nil
}

// TestTellLists: a controller hears of a list before the informer gets it, in pages or at the beginning of a watch, and of nothing else.
// An informer that somebody else has made is not monitored. One of another factory is.
func TestInformerOfSomebodyElse(t *testing.T) {
	theirs, own := informers.NewSharedInformerFactory(fake.NewClientset(), 0), informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	theirs.Core().V1().Nodes().Informer()
	w := &Watches{}
	if w.Nodes(theirs) || w.Of("Nodes") != nil {
		t.Error("an informer of somebody else counts as monitored")
	}
	for range 2 {
		if !w.Nodes(own) || w.Of("Nodes") == nil {
			t.Error("an informer that this has made does not count as monitored")
		}
	}
}

func TestTellLists(t *testing.T) {
	w, heard := &Watches{}, &lists{}
	stop := w.TellLists(heard)
	page := func(next string, names ...string) *v1.NodeList {
		l := &v1.NodeList{ListMeta: metav1.ListMeta{Continue: next}}
		for _, name := range names {
			l.Items = append(l.Items, v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		return l
	}
	want := func(what, heardOf string) {
		t.Helper()
		if got := strings.Join(heard.heard, " "); got != heardOf {
			t.Errorf("%s: heard %q, want %q", what, got, heardOf)
		}
		heard.heard = nil
	}
	l := &listing{pages: []*v1.NodeList{page("2", "a", "b"), page("", "c")}, watch: watch.NewFake()}
	from := toldNodes{l, w}
	for _, token := range []string{"", "2"} {
		if _, err := from.List(t.Context(), metav1.ListOptions{Continue: token}); err != nil {
			t.Fatal(err)
		}
	}
	want("two pages", "begins a b c ends")
	if _, err := from.List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Fatal("no error")
	}
	want("a list that fails", "")

	node := func(name string) *v1.Node { return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	end := &v1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
	events := func(opts metav1.ListOptions) {
		t.Helper()
		l.watch = watch.NewFake()
		got, err := from.Watch(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Stop()
		go func(w *watch.FakeWatcher) {
			w.Add(node("a"))
			w.Action(watch.Bookmark, node(""))
			w.Add(node("b"))
			w.Modify(node("a"))
			w.Delete(node("b"))
			w.Action(watch.Bookmark, end)
			w.Add(node("c"))
			w.Action(watch.Bookmark, node(""))
		}(l.watch)
		for range 8 {
			<-got.ResultChan()
		}
	}
	sends := true
	events(metav1.ListOptions{SendInitialEvents: &sends})
	want("a watch that begins with a list", "begins a b a -b ends")
	events(metav1.ListOptions{})
	want("another watch", "")

	if err := stop(); err != nil {
		t.Fatal(err)
	}
	l.pages = []*v1.NodeList{page("", "d")}
	if _, err := from.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	want("nobody listens", "")
}

// TestIdentify: from client-go v0.36 on, where stores also have versions, informers are named in metrics.
func TestIdentify(t *testing.T) {
	name := cache.NewStore(cache.MetaNamespaceKeyFunc)
	_, named := any(name).(interface{ LastStoreSyncResourceVersion() string })
	var options cache.SharedIndexInformerOptions
	identify(&options, informers.NewSharedInformerFactory(fake.NewClientset(), 0), networkingv1.SchemeGroupVersion.WithResource("servicecidrs"))
	if got := strings.Contains(fmt.Sprintf("%+v", options), "servicecidrs"); got != named {
		t.Errorf("the informer has a name: %t, want %t, in %+v", got, named, options)
	}
}
