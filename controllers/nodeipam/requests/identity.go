package requests

import (
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/util/uuid"
)

// UnelectedIdentity is who this process is without a Lease. A controller that is built anew after a panic is the same process.
var UnelectedIdentity = sync.OnceValue(newIdentity)

func newIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "_" + string(uuid.NewUUID())
}
