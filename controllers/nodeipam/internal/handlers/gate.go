// Package handlers ends handlers of shared informers, so that no event changes anything of a controller that has ended.
package handlers

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// Gate lets the events of one handler through until it ends. The zero value does. Safe for concurrent use.
type Gate struct {
	mu    sync.Mutex
	ended bool
}

// Pass handles an event.
func (g *Gate) Pass(handle func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		handle()
	}
}

// End removes the event handler, and returns when its last event has been handled. client-go before v0.37 cannot wait for that, and would
// still deliver what it has buffered: that is dropped. It must not be called by the handler.
func (g *Gate) End(informer cache.SharedIndexInformer, handler cache.ResourceEventHandlerRegistration) error {
	if err := informer.RemoveEventHandler(handler); err != nil {
		return err
	}
	if later, ok := handler.(interface{ ShutdownChan() <-chan struct{} }); ok {
		<-later.ShutdownChan()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	return nil
}
