package manager

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/component-base/metrics/prometheus/slis"
	controllerhealthz "k8s.io/controller-manager/pkg/healthz"
)

// The checks of an upstream controller (theirs) and of two added ones (ours, other).
func TestHealth(t *testing.T) {
	type answer struct {
		Code int
		Body string
	}
	healthy := func(*http.Request) error { return nil }
	fails := func(*http.Request) error { return errors.New("no ClusterCIDR") }
	cases := map[string]struct {
		ours   func(*http.Request) error
		theirs func(*http.Request) error
		path   string
		want   answer
	}{
		"all is well": {
			ours: healthy, theirs: healthy, path: "/healthz",
			want: answer{200, "ok"},
		},
		"all is well, verbose: ours is listed like any other": {
			ours: healthy, theirs: healthy, path: "/healthz?verbose",
			want: answer{200, "[+]theirs ok\n[+]ours ok\n[+]other ok\nhealthz check passed\n"},
		},
		"ours fails: the whole does not": {
			ours: fails, theirs: healthy, path: "/healthz",
			want: answer{200, "ok"},
		},
		"ours fails, verbose: it is seen, without the reason, which is not for everybody": {
			ours: fails, theirs: healthy, path: "/healthz?verbose",
			want: answer{200, "[+]theirs ok\n[+]ours excluded: ok\n[+]other ok\nhealthz check passed\n" +
				"warn: ours failed and was excluded: see /healthz/ours\n"},
		},
		"ours fails and the caller excludes it": {
			ours: fails, theirs: healthy, path: "/healthz?verbose&exclude=theirs&exclude=ours",
			want: answer{200, "[+]theirs excluded: ok\n[+]ours excluded: ok\n[+]other ok\nhealthz check passed\n" +
				"warn: ours failed and was excluded: see /healthz/ours\n"},
		},
		"an upstream controller fails: the whole does": {
			ours: healthy, theirs: fails, path: "/healthz",
			want: answer{500, "[-]theirs failed: reason withheld\n[+]ours ok\n[+]other ok\nhealthz check failed\n"},
		},
		"both fail: the whole does": {
			ours: fails, theirs: fails, path: "/healthz",
			want: answer{500, "[-]theirs failed: reason withheld\n[+]ours excluded: ok\n[+]other ok\nhealthz check failed\n"},
		},
	}
	for sentence, tc := range cases {
		t.Run(sentence, func(t *testing.T) {
			h := newHealth()
			h.AddHealthChecker(healthz.NamedCheck("theirs", tc.theirs))
			h.addAdvisory("ours", tc.ours)
			h.addAdvisory("other", healthy)

			w := get(h, tc.path)
			if diff := cmp.Diff(tc.want, answer{w.Code, w.Body.String()}); diff != "" {
				t.Errorf("GET %s (-want +got):\n%s", tc.path, diff)
			}
		})
	}
}

// A check that passes when the whole is judged and fails a moment later must not fail the whole.
func TestHealthIsJudgedOnce(t *testing.T) {
	h := newHealth()
	h.AddHealthChecker(controllerhealthz.NamedPingChecker("theirs"))
	asked := 0
	h.addAdvisory("ours", func(*http.Request) error {
		asked++
		if asked > 1 {
			return errors.New("no longer")
		}
		return nil
	})

	w := get(h, "/healthz")
	if w.Code != http.StatusOK || asked != 1 {
		t.Errorf("got %d %q after asking %d times, want 200 after one", w.Code, w.Body, asked)
	}
}

func TestHealthMetricTellsTheTruth(t *testing.T) {
	m := mux.NewPathRecorderMux("test")
	slis.SLIMetricsWithReset{}.Install(m)
	h := newHealth()
	m.Handle("/healthz", h)
	var failure error
	h.addAdvisory("ours", func(*http.Request) error { return failure })

	for _, tc := range []struct {
		failure error
		want    string
	}{
		{failure: nil, want: `kubernetes_healthcheck{name="ours",type="healthz"} 1`},
		{failure: errors.New("no ClusterCIDR"), want: `kubernetes_healthcheck{name="ours",type="healthz"} 0`},
	} {
		failure = tc.failure
		get(m, "/healthz")
		if got := get(m, "/metrics/slis").Body.String(); !strings.Contains(got, tc.want+"\n") {
			t.Errorf("with failure %v the metrics lack %s:\n%s", tc.failure, tc.want, got)
		}
	}
}
