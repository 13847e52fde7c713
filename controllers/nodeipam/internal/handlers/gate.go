// Package handlers ends handlers of shared informers, so that no event changes anything of a controller that has ended.
package handlers

import "k8s.io/client-go/tools/cache"

// Gate lets the events of one handler through until it ends. Safe for concurrent use.
type Gate struct {
	// one is a lock that tests can wait for, unlike a mutex (testing/synctest).
	one   chan struct{}
	ended bool
}

// NewGate returns a Gate that lets events through.
func NewGate() *Gate { return &Gate{one: make(chan struct{}, 1)} }

func (g *Gate) lock() (unlock func()) {
	g.one <- struct{}{}
	return func() { <-g.one }
}

// Pass handles an event.
func (g *Gate) Pass(handle func()) {
	defer g.lock()()
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
	defer g.lock()()
	g.ended = true
	return nil
}
