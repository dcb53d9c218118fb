// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"slices"
	"time"

	"steelyard/internal/health"
	"steelyard/internal/model"
)

// lateChecks warns if this host cannot keep up with its health checks.
func lateChecks(l health.Lateness) []string {
	if l.Late*100 <= l.Checks { // up to 1 % late checks is normal for a busy machine
		return nil
	}
	return []string{fmt.Sprintf("%d of the last %d health checks began late, by up to %s, which delays the detection of failed servers: "+
		"set a longer `interval` for the checks, or give this host more processors", l.Late, l.Checks, l.Worst.Round(10*time.Millisecond))}
}

// undecidedChecks warns if this host's own faults keep health checks from deciding about servers.
func undecidedChecks(l health.Lateness) []string {
	var warnings []string
	if l.HostFault > 0 {
		warnings = append(warnings, fmt.Sprintf("%d of the last %d health checks failed because of this host, so servers keep their states: %s: %s",
			l.HostFault, l.Checks, l.HostError, health.Remedy(l.HostError)))
	}
	if l.HostStalled > 0 {
		pressure := health.CPUPressure()
		if pressure != "" {
			pressure = "; programs waited for a processor in " + pressure + " of the last 10 s"
		}
		warnings = append(warnings, fmt.Sprintf("%d of the last %d health checks were inconclusive, because this host was stalled%s: "+
			"add processors, or reserve them", l.HostStalled, l.Checks, pressure))
	}
	return warnings
}

// maxSilent bounds the servers that a warning names.
const maxSilent = 10

// silent returns the servers that have answered no SYN recently.
func (s *Server) silent() map[model.ServerRef]uint64 {
	if s.Silent == nil {
		return nil
	}
	return s.Silent()
}

// silentServers warns of servers that pass their checks but answer no SYN.
func (s *Server) silentServers() []string {
	var warnings []string
	silent := s.silent()
	for ref, syns := range silent {
		warnings = append(warnings, fmt.Sprintf("server %s of %s: %d SYNs unanswered in 10 s, 0 answered, although its checks may pass: %s", model.ServerText(ref.Address), s.Store.ServiceName(ref.Service), syns, s.wayBack(ref.Service)))
	}
	slices.Sort(warnings)
	if len(warnings) > maxSilent {
		warnings = append(warnings[:maxSilent], fmt.Sprintf("%d more servers answer no SYN: see `steelyard get servers`", len(silent)-maxSilent))
	}
	return warnings
}

// wayBack describes the path of answers of a service's servers, which checks do not cover.
func (s *Server) wayBack(key model.ServiceKey) string {
	const byHost = "its answers to %s must return through this host: check its routes and filters"
	running := s.Store.Config()
	for i := range running.Services {
		if running.Services[i].Key != key {
			continue
		}
		switch running.Services[i].Mode {
		case model.NAT:
			return fmt.Sprintf(byHost, "clients") + "; its gateway must be this host"
		case model.DR, model.IPIP:
			return "no client has acknowledged an answer: its answers must reach clients with the VIP as source address"
		}
	}
	return fmt.Sprintf(byHost, "local addresses")
}

// checkedServices returns the services whose servers have health checks.
func checkedServices(running *model.Config) map[model.ServiceKey]bool {
	checked := map[model.ServiceKey]bool{}
	if running != nil {
		for _, service := range running.Services {
			checked[service.Key] = service.Health.Type != model.HealthNone
		}
	}
	return checked
}
