package lease

import (
	"fmt"
	"time"

	"k8s.io/client-go/tools/leaderelection"
)

// ValidateTimes returns what client-go's elector would panic about.
func ValidateTimes(leaseDuration, renewDeadline, retryPeriod time.Duration) []error {
	var errs []error
	if leaseDuration < time.Second {
		errs = append(errs, fmt.Errorf("--leader-elect-lease-duration=%v must be 1s or more, because a Lease counts whole seconds", leaseDuration))
	}
	if leaseDuration <= renewDeadline {
		errs = append(errs, fmt.Errorf("--leader-elect-lease-duration=%v must be longer than --leader-elect-renew-deadline=%v", leaseDuration, renewDeadline))
	}
	if retryPeriod <= 0 {
		errs = append(errs, fmt.Errorf("--leader-elect-retry-period=%v must be longer than 0", retryPeriod))
	}
	if float64(renewDeadline) <= leaderelection.JitterFactor*float64(retryPeriod) {
		errs = append(errs, fmt.Errorf("--leader-elect-renew-deadline=%v must be longer than %v times --leader-elect-retry-period=%v", renewDeadline, leaderelection.JitterFactor, retryPeriod))
	}
	return errs
}

// longestWrite is what callers ask for: writes.Timeout.
const longestWrite = 5 * time.Second

// checkTimes returns an error if, with these settings of the elector, a leader must stop its longest writes before every renewal.
func checkTimes(leaseDuration, retryPeriod time.Duration) error {
	good := leaseDuration.Truncate(time.Second)
	if writable := good - min(longestWrite, good/timeoutShare) - good/transitShare; retryPeriod >= writable {
		return fmt.Errorf("the lease is renewed every %v, but writes are possible only in the first %v of its %v: use a longer lease, or a shorter retry period", retryPeriod, writable, good)
	}
	return nil
}
