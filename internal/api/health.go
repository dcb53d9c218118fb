// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/agentpb"
	"steelyard/internal/health"
	"steelyard/internal/model"
	"steelyard/internal/stall"
	"steelyard/internal/store"

	"connectrpc.com/connect"
)

const (
	// healthPatience bounds the forwarder's response time while this process runs: below the interval of track scripts and probes.
	healthPatience = 800 * time.Millisecond
	// workerPatience bounds the time without progress of a worker, likewise. Workers begin a poll iteration every 10 ms.
	workerPatience = time.Second
	// defaultPercent is the minimum share of healthy servers of a service, and of such services.
	defaultPercent = 50
	// maxReasons bounds the services that reasons name.
	maxReasons = 10
)

// beats are the cycle counts of each worker at the last look.
type beats struct {
	mu     sync.Mutex
	pid    uint32
	cycles []uint64
}

// GetHealth implements the service.
func (s *Server) GetHealth(ctx context.Context, request *connect.Request[pb.GetHealthRequest]) (*connect.Response[pb.GetHealthResponse], error) {
	for name, percent := range map[string]*uint32{"min_servers": request.Msg.MinServersPercent, "min_services": request.Msg.MinServicesPercent} {
		if percent != nil && *percent > 100 {
			return nil, invalid(fmt.Errorf("%s: %d %% is out of range: use 0 to 100", name, *percent))
		}
	}
	return connect.NewResponse(s.Health(ctx, request.Msg)), nil
}

// Health evaluates this host as a load balancer.
func (s *Server) Health(ctx context.Context, thresholds *pb.GetHealthRequest) *pb.GetHealthResponse {
	r := &report{answer: &pb.GetHealthResponse{}, minServers: defaultPercent, minServices: defaultPercent}
	if thresholds.MinServersPercent != nil {
		r.minServers = int(*thresholds.MinServersPercent)
	}
	if thresholds.MinServicesPercent != nil {
		r.minServices = int(*thresholds.MinServicesPercent)
	}
	s.judgeNode(r)
	s.judgeForwarder(ctx, r, healthPatience)
	s.judgeConfig(r)
	s.judgeServices(r)
	if l := s.Checker.Lateness(); l.HostFault > 0 {
		r.note(degraded, "health checks are inconclusive: %s: %s", l.HostError, health.Remedy(l.HostError))
	}
	if silent := s.silent(); len(silent) > 0 {
		r.note(degraded, "servers that answer no SYN: %d; `steelyard get servers` shows them", len(silent))
	}
	slices.SortStableFunc(r.answer.Reasons, func(a, b *pb.HealthReason) int { return cmp.Compare(b.Level, a.Level) })
	r.answer.Level = pb.HealthLevel_HEALTH_LEVEL_OK
	if len(r.answer.Reasons) > 0 {
		r.answer.Level = r.answer.Reasons[0].Level
	}
	return r.answer
}

// report is an answer under construction.
type report struct {
	answer                  *pb.GetHealthResponse
	minServers, minServices int    // percent
	served                  uint32 // services of the forwarder
	role                    dpclient.Role
}

const (
	degraded = pb.HealthLevel_HEALTH_LEVEL_DEGRADED
	failing  = pb.HealthLevel_HEALTH_LEVEL_FAILING
)

func (r *report) note(level pb.HealthLevel, format string, arguments ...any) {
	r.answer.Reasons = append(r.answer.Reasons, &pb.HealthReason{Level: level, Text: fmt.Sprintf(format, arguments...)})
}

// judgeForwarder evaluates the forwarder's own status, over one connection.
func (s *Server) judgeForwarder(ctx context.Context, r *report, patience time.Duration) {
	reading, cancel := stall.WithTimeout(ctx, patience)
	defer cancel()
	var status *dpclient.Status
	var ports []*dpclient.Port
	var workers []*dpclient.Worker
	var peers *dpclient.PeerList
	client, err := s.Dial(reading)
	if err == nil {
		defer client.Close()
		status, err = client.Status(reading)
	}
	if err == nil {
		ports, err = client.Ports(reading)
	}
	if err == nil {
		workers, err = client.Workers(reading)
	}
	if err == nil {
		peers, err = peersOf(reading, client)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded) || err != nil && reading.Err() != nil:
		r.note(failing, "the forwarder does not answer within %s", patience)
		return
	case err != nil:
		r.note(failing, "the forwarder is not connected: %s", errorText(err))
		return
	}
	r.answer.Forwarder, r.served = true, status.GetServices()
	if refused := status.GetRoutingRefused(); refused != "" {
		r.note(failing, "routing is refused: %s", refused)
	}
	for _, port := range ports {
		r.answer.Ports++
		switch {
		case !port.GetUp():
			r.note(failing, "port %s is down%s", port.GetName(), sayWhy(port.GetProblem()))
			continue
		case port.GetProblem() != "":
			r.note(degraded, "port %s: %s", port.GetName(), port.GetProblem())
		}
		r.answer.PortsUp++
	}
	r.role = peers.GetRole()
	r.judgePeers(peers)
	r.answer.Workers = uint32(len(workers))
	silent := s.silentWorkers(ctx, client, status.GetPid(), workers)
	r.answer.WorkersAnswering = r.answer.Workers - uint32(len(silent))
	for _, worker := range silent {
		r.note(failing, "worker %d of the forwarder has not run for %s", worker, workerPatience)
	}
}

func sayWhy(problem string) string {
	if problem == "" {
		return ""
	}
	return ": " + problem
}

// silentWorkers returns the workers without progress. Usually all have progressed since the last call; otherwise it waits for them.
func (s *Server) silentWorkers(ctx context.Context, client *dpclient.Client, pid uint32, workers []*dpclient.Worker) []uint32 {
	s.beats.mu.Lock()
	defer s.beats.mu.Unlock()
	before := s.beats.cycles
	known := s.beats.pid == pid && len(before) == len(workers)
	if !known {
		before = cyclesOf(workers)
	}
	s.beats.pid, s.beats.cycles = pid, cyclesOf(workers)
	waiting, cancel := stall.WithTimeout(ctx, workerPatience)
	defer cancel()
	for {
		var silent []uint32
		for i, now := range s.beats.cycles {
			if i < len(before) && now == before[i] {
				silent = append(silent, uint32(i))
			}
		}
		if len(silent) == 0 {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-waiting.Done():
			return silent
		}
		again, err := client.Workers(ctx)
		if err != nil {
			return silent
		}
		s.beats.cycles = cyclesOf(again)
	}
}

func cyclesOf(workers []*dpclient.Worker) []uint64 {
	cycles := make([]uint64, len(workers))
	for i, worker := range workers {
		cycles[i] = worker.GetBusyCycles() + worker.GetIdleCycles()
	}
	return cycles
}

// judgeConfig evaluates whether the forwarder has the agent's configuration.
func (s *Server) judgeConfig(r *report) {
	running, forwarder := s.Store.Config(), s.Reconciler
	status, _ := forwarder.Status()
	switch {
	case running == nil:
		r.note(failing, "the agent has no configuration%s", sayWhy(errorText(s.File.Status().Err)))
		return
	case r.answer.Forwarder && r.served == 0 && len(running.Services) > 0:
		r.note(failing, "the forwarder has no services%s", sayWhy(s.refusalInStatus(status.Err)))
	case status.Refused != 0:
		r.note(degraded, "the forwarder refuses the configuration%s", sayWhy(s.refusalInStatus(status.Err)))
	}
	if err := s.File.Status().Err; err != nil {
		r.note(degraded, "the configuration file is refused: %s", errorText(err))
	}
}

// judgeNode evaluates the commands about this host.
func (s *Server) judgeNode(r *report) {
	if s.Store.IsNodeDrained() {
		r.note(failing, "this node is drained: `steelyard undrain node` ends that")
	}
}

// countHealthy counts the servers of a service that are not drained, and those of them that are up.
func countHealthy(service *model.Service, states []model.State, drained map[model.ServerRef]store.Drain) (all, up int) {
	for i, state := range states {
		server := &service.Servers[i]
		if _, ordered := drained[model.ServerRef{Service: service.Key, Address: server.Address}]; ordered || server.Drain {
			continue // it may be down too
		}
		all++
		if state == model.Up {
			up++
		}
	}
	return all, up
}

// judgeServices counts healthy servers. It ignores servers that are drained or killed by order: they are no fault.
func (s *Server) judgeServices(r *report) {
	running := s.Store.Config()
	if running == nil {
		return
	}
	drained := s.Store.Drained()
	var states []model.State
	var short []string
	for i := range running.Services {
		service := &running.Services[i]
		states = s.Store.States(service, states[:0])
		all, up := countHealthy(service, states, drained)
		r.answer.Services++
		r.answer.Servers += uint32(all)
		r.answer.ServersHealthy += uint32(up)
		if all > 0 && (up*100 < r.minServers*all || up == 0 && r.minServers > 0) {
			short = append(short, fmt.Sprintf("service %s: %d of %d servers healthy, below %d %%", service.Name, up, all, r.minServers))
		}
	}
	r.answer.ServicesShort = uint32(len(short))
	if good := len(running.Services) - len(short); len(short) > 0 && good*100 < r.minServices*len(running.Services) {
		r.note(failing, "%d of %d services have enough healthy servers, below %d %%", good, len(running.Services), r.minServices)
	}
	for i, text := range short {
		if i == maxReasons {
			r.note(degraded, "%d more services: see `steelyard get services`", len(short)-maxReasons)
			break
		}
		r.note(degraded, "%s", text)
	}
}
