// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"sync"
	"time"

	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/agentpb"
	"steelyard/internal/model"
	"steelyard/internal/routes"

	"connectrpc.com/connect"
)

// RouteKindWord returns the word of ListRoutes for a kind.
func RouteKindWord(kind model.RouteKind) string {
	return map[model.RouteKind]string{model.RouteVIP: "vip", model.RouteLocal: "local", model.RoutePool: "pool"}[kind]
}

// lacking caches the services without a healthy server, by the store's version.
type lacking struct {
	mu      sync.Mutex
	version uint64
	keys    map[model.ServiceKey]bool
}

// AssessRoutes evaluates this host like Health, but each service for itself. It waits for the forwarder no longer than patience.
func (s *Server) AssessRoutes(ctx context.Context, patience time.Duration) routes.Assessment {
	r := &report{answer: &pb.GetHealthResponse{}}
	s.judgeForwarder(ctx, r, patience)
	assessment := routes.Assessment{Silent: !r.answer.Forwarder}
	if !assessment.Silent && !s.synced.Load() {
		if status, _ := s.Reconciler.Status(); !status.Connected {
			return routes.Assessment{Pending: true}
		}
		s.synced.Store(true)
	}
	s.judgeConfig(r)
	for _, reason := range r.answer.Reasons {
		if reason.Level == failing {
			assessment.Fault = reason.Text
			return assessment
		}
	}
	if r.role == dpclient.RoleBackup {
		assessment.Fault = "this node is a backup"
	}
	assessment.Lacking = s.lackingServices()
	return assessment
}

// lackingServices returns the services that cannot serve: those without servers, and those whose servers are all down. Drained servers continue
// their sessions.
func (s *Server) lackingServices() map[model.ServiceKey]bool {
	s.lacking.mu.Lock()
	defer s.lacking.mu.Unlock()
	version := s.Store.Version()
	if s.lacking.keys != nil && s.lacking.version == version {
		return s.lacking.keys
	}
	keys := map[model.ServiceKey]bool{}
	running, drained := s.Store.Config(), s.Store.Drained()
	var states []model.State
	for i := range running.Services {
		service := &running.Services[i]
		states = s.Store.States(service, states[:0])
		if all, up := countHealthy(service, states, drained); len(service.Servers) == 0 || all > 0 && up == 0 {
			keys[service.Key] = true
		}
	}
	s.lacking.version, s.lacking.keys = version, keys
	return keys
}

// ListRoutes implements the service.
func (s *Server) ListRoutes(context.Context, *connect.Request[pb.ListRoutesRequest]) (*connect.Response[pb.ListRoutesResponse], error) {
	status := s.Routes.Status()
	response := &pb.ListRoutesResponse{Kernel: routes.KernelText(s.Store.Config()), Warnings: s.Routes.Warnings()}
	for i := range status.States {
		state := &status.States[i]
		response.Routes = append(response.Routes, &pb.Route{Prefix: state.Prefix.String(), Kind: RouteKindWord(state.Kind),
			Announced: state.Announced(), Reason: state.Reason, SinceUnixMs: unixMillis(state.Since)})
	}
	for i := range status.Neighbors {
		n := &status.Neighbors[i]
		one := &pb.BgpNeighbor{Address: n.Address.String(), As: n.AS, State: n.State, Error: n.Error, Bfd: n.BFD}
		if n.Established() {
			one.SinceUnixMs = unixMillis(n.Since)
		}
		response.Neighbors = append(response.Neighbors, one)
	}
	return connect.NewResponse(response), nil
}

// DrainNode implements the service.
func (s *Server) DrainNode(ctx context.Context, request *connect.Request[pb.DrainNodeRequest]) (*connect.Response[pb.DrainNodeResponse], error) {
	drain := request.Msg.GetDrain()
	changed, saveErr := s.Store.DrainNode(drain)
	response := &pb.DrainNodeResponse{Unchanged: !changed}
	if saveErr != nil {
		response.Warnings = append(response.Warnings, notSaved(saveErr))
	}
	if changed {
		text := "this node is no longer drained"
		if drain {
			text = "this node is drained"
		}
		s.Log.Info(text, "reason", "by command")
	}
	ctx, cancel := beforeDeadline(ctx)
	defer cancel()
	if err := s.Routes.Sync(ctx); err != nil {
		response.Warnings = append(response.Warnings, "the routes do not agree with this yet: "+errorText(err))
	}
	return connect.NewResponse(response), nil
}
