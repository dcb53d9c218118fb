// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
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
	if l.OfHost > 0 {
		warnings = append(warnings, fmt.Sprintf("%d of the last %d health checks failed by a fault of this host, so servers keep their states: %s: %s",
			l.OfHost, l.Checks, l.HostError, health.Remedy(l.HostError)))
	}
	if l.OfStall > 0 {
		pressure := health.CPUPressure()
		if pressure != "" {
			pressure = "; programs waited for a processor in " + pressure + " of the last 10 s"
		}
		warnings = append(warnings, fmt.Sprintf("%d of the last %d health checks decided nothing, because this host did not run meanwhile%s: "+
			"give it more processors, or reserve them", l.OfStall, l.Checks, pressure))
	}
	return warnings
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
