package writes

import (
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/util/uuid"
)

// UnelectedIdentity identifies this process when there is no Lease.
var UnelectedIdentity = sync.OnceValue(newIdentity)

func newIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "_" + string(uuid.NewUUID())
}
