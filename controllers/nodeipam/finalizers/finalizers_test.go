package finalizers

import (
	"testing"
	"time"

	"github.com/multicidr/controller-manager/controllers/queues"
)

// TestTries: Nodes wait for a finalizer that is added for so long, whatever becomes of it, and it is added again, but not at each event.
func TestTries(t *testing.T) {
	const soon = time.Second
	type event struct {
		at   time.Duration
		what string
	}
	for name, tc := range map[string]struct {
		history []event
		at      time.Duration // since the first event
		want    Verdict
		pause   time.Duration
	}{
		"nothing was tried":                     {nil, time.Hour, Awaited, 0},
		"it was added a moment ago":             {[]event{{0, "stored"}}, Patience - 1, Awaited, 0},
		"and it does not come":                  {[]event{{0, "stored"}}, Patience, NotKept, queues.RetryMax - Patience},
		"it was added again":                    {[]event{{0, "stored"}, {Patience, "stored"}}, Patience + soon, NotKept, queues.RetryMax - soon},
		"again, and the time counts from first": {[]event{{0, "stored"}, {soon, "stored"}}, Patience, NotKept, queues.RetryMax + soon - Patience},
		"no attempt is confirmed":               {[]event{{0, "answered"}, {soon, "answered"}}, Patience, NeverStored, 0},
		"the second is confirmed":               {[]event{{0, "answered"}, {soon, "stored"}}, Patience, NotKept, queues.RetryMax + soon - Patience},
		"it comes, and stays":                   {[]event{{0, "stored"}, {soon, "shows"}, {soon + queues.RetryMax, "shows"}}, time.Hour, Awaited, 0},
		"it goes after a long time":             {[]event{{0, "stored"}, {soon, "shows"}, {soon + queues.RetryMax, "lacks"}}, time.Hour, Awaited, 0},
		"it goes soon":                          {[]event{{0, "stored"}, {soon, "shows"}, {2 * soon, "lacks"}}, 2 * soon, Awaited, queues.ClosedRetry - 2*soon},
		"it goes soon, for good":                {[]event{{0, "stored"}, {soon, "shows"}, {2 * soon, "lacks"}}, Patience, NotKept, queues.RetryMax - Patience},
		"it goes soon after it has come late":   {[]event{{0, "stored"}, {time.Minute, "shows"}, {time.Minute + soon, "lacks"}}, time.Minute + soon, NotKept, queues.RetryMax - time.Minute - soon},
		"it shows without having been added":    {[]event{{0, "shows"}, {soon, "lacks"}}, time.Hour, Awaited, 0},
	} {
		t.Run(name, func(t *testing.T) {
			start, tries := time.Unix(1000, 0), Tries{}
			for _, e := range tc.history {
				switch now := start.Add(e.at); e.what {
				case "stored", "answered":
					tries.Answered("a", e.what == "stored", now)
				default:
					tries.Saw("a", e.what == "shows", now)
				}
			}
			if got, pause := tries.Judge("a", start.Add(tc.at)); got != tc.want || pause != tc.pause {
				t.Errorf("got %v and a pause of %v, want %v and %v", got, pause, tc.want, tc.pause)
			}
			if got, pause := tries.Judge("b", start.Add(tc.at)); got != Awaited || pause != 0 {
				t.Errorf("another ClusterCIDR: %v and a pause of %v", got, pause)
			}
		})
	}
}
