package writes

import (
	"sync"

	"github.com/multicidr/controller-manager/controllers/lease"
)

// UnelectedIdentity identifies this process when there is no Lease.
var UnelectedIdentity = sync.OnceValue(func() string { return lease.Identity("") })
