// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"steelyard/internal/api"
	pb "steelyard/internal/gen/agentpb"
)

// handleHealth adds endpoints for probes beside /metrics:
//
//		/healthz   200: the agent runs
//		/readyz    200, or 503 while this host is failing; with fail_at=degraded, also while it is degraded.
//	           min_servers=PERCENT and min_services=PERCENT as of `steelyard health`
func (m *metricsServer) handleHealth(service *api.Server) {
	m.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	m.mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		thresholds, worst, err := thresholdsOf(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		health := service.Health(r.Context(), thresholds)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if health.GetLevel() >= worst {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, levelWord(health.GetLevel()))
		for _, reason := range health.GetReasons() {
			fmt.Fprintf(w, "%s: %s\n", levelWord(reason.GetLevel()), strings.ReplaceAll(reason.GetText(), "\n", " "))
		}
	})
}

func levelWord(level pb.HealthLevel) string {
	return strings.ToLower(strings.TrimPrefix(level.String(), "HEALTH_LEVEL_"))
}

// thresholdsOf parses the query of a probe, and the first level at which it fails.
func thresholdsOf(r *http.Request) (*pb.GetHealthRequest, pb.HealthLevel, error) {
	thresholds, worst := &pb.GetHealthRequest{}, pb.HealthLevel_HEALTH_LEVEL_FAILING
	for name, values := range r.URL.Query() {
		text := values[len(values)-1]
		switch name {
		case "fail_at":
			switch text {
			case "degraded":
				worst = pb.HealthLevel_HEALTH_LEVEL_DEGRADED
			case "failing":
			default:
				return nil, 0, fmt.Errorf("fail_at: use degraded or failing")
			}
		case "min_servers", "min_services":
			n, err := strconv.ParseUint(text, 10, 32)
			if err != nil || n > 100 {
				return nil, 0, fmt.Errorf("%s: use a percentage, 0 to 100", name)
			}
			percent := uint32(n)
			if name == "min_servers" {
				thresholds.MinServersPercent = &percent
			} else {
				thresholds.MinServicesPercent = &percent
			}
		default:
			return nil, 0, fmt.Errorf("unknown parameter: use fail_at, min_servers and min_services")
		}
	}
	return thresholds, worst, nil
}
