// Package testapi provides an API server and a fence for tests that only check what was sent.
package testapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	applyv1 "github.com/multicidr/controller-manager/apis/generated/applyconfiguration/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/lease"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Gate is a Fence that counts the writes inside it.
type Gate struct {
	Closed   bool
	Inside   int
	entered  int
	Deadline time.Duration
}

func (g *Gate) Enter(ctx context.Context, atMost time.Duration) (context.Context, func(), error) {
	if g.Closed {
		return nil, nil, fmt.Errorf("%w: closed by the test", lease.ErrClosed)
	}
	g.entered++
	g.Inside++
	ctx, cancel := context.WithTimeout(ctx, g.Deadline)
	return ctx, func() { g.Inside--; cancel() }, nil
}

func (g *Gate) Holder() string { return "me" }

func (g *Gate) Unanswered() time.Duration { return 0 }

// Server records the requests that arrive, and whether they passed the gate.
type Server struct {
	*Gate
	Arrived []string
}

func (s *Server) note(ctx context.Context, write string) error {
	_, bounded := ctx.Deadline()
	s.Arrived = append(s.Arrived, fmt.Sprintf("%s fenced=%t bounded=%t", write, s.Inside == 1, bounded))
	return nil
}

func (s *Server) GetNode(context.Context, string) (*v1.Node, error) {
	return nil, errors.ErrUnsupported
}

func (s *Server) PatchNode(ctx context.Context, _ string, _ []byte) error {
	return s.note(ctx, "patchNode")
}

func (s *Server) CreateClusterCIDR(ctx context.Context, cc *networkingv1.ClusterCIDR) (*networkingv1.ClusterCIDR, error) {
	return cc, s.note(ctx, "createClusterCIDR")
}

func (s *Server) PatchClusterCIDR(ctx context.Context, _ string, _ []byte) error {
	return s.note(ctx, "patchClusterCIDR")
}

func (s *Server) DeleteClusterCIDR(ctx context.Context, _ string, _ types.UID, _ string) error {
	return s.note(ctx, "deleteClusterCIDR")
}

func (s *Server) ApplyStatus(ctx context.Context, patch *applyv1.ClusterCIDRApplyConfiguration) (networkingv1.ClusterCIDRStatus, error) {
	return Applied(patch), s.note(ctx, "applyStatus")
}

func (s *Server) PatchStatus(ctx context.Context, _ string, _ []byte) error {
	return s.note(ctx, "patchStatus")
}

func (s *Server) CreateEvent(ctx context.Context, _ *v1.Event) error {
	return s.note(ctx, "createEvent")
}

func (s *Server) PatchEvent(ctx context.Context, _, _ string, _ []byte) (*v1.Event, error) {
	return &v1.Event{}, s.note(ctx, "patchEvent")
}

// Applied returns a ClusterCIDR that has only what was applied.
func Applied(patch *applyv1.ClusterCIDRApplyConfiguration) networkingv1.ClusterCIDRStatus {
	cc := &networkingv1.ClusterCIDR{}
	if text, err := json.Marshal(patch); err != nil || json.Unmarshal(text, cc) != nil {
		panic(err)
	}
	return cc.Status
}
