package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

const (
	// Ports are chosen below 32768, where Linux takes ports for outgoing connections and for listeners on
	// port 0. So a server that restarts finds its port free, although nobody held it in between.
	firstPort, lastPort = 20000, 32767
	// portAttempts is how often a start is tried again: between looking at a port and the server's bind
	// somebody else may take it.
	portAttempts = 5
)

// errPortTaken is why a start is worth another try on other ports.
var errPortTaken = errors.New("the port was taken by another process")

// FreePort is a loopback port that nobody listened on a moment ago.
func FreePort() (int, error) {
	var err error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		var listener net.Listener
		if listener, err = net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("no free port on 127.0.0.1 between %d and %d: %w", firstPort, lastPort, err)
}

// retryTakenPorts calls start, which chooses its ports itself, until it does not fail for a taken port.
func retryTakenPorts(start func() error) error {
	var err error
	for range portAttempts {
		if err = start(); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return fmt.Errorf("gave up after %d attempts: %w", portAttempts, err)
}
