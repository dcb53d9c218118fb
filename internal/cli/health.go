// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "steelyard/internal/gen/agentpb"

	"github.com/spf13/cobra"
)

// Exit codes of `health`.
const (
	exitDegraded = 1
	exitFailing  = 2
	exitUnknown  = 3
)

// errUnhealthy sets the exit code of `health`, which has printed the reasons.
var errUnhealthy = errors.New("not healthy")

// healthPatience is the default of --timeout for `health`: below the usual timeouts of track scripts and probes.
const healthPatience = 3 * time.Second

type healthView struct {
	Level            string             `json:"level"` // "ok", "degraded", "failing" or "unknown"
	Reasons          []healthReasonView `json:"reasons"`
	Forwarder        bool               `json:"forwarder"` // the forwarder answers
	Workers          uint32             `json:"workers"`
	WorkersAnswering uint32             `json:"workers_answering"`
	Ports            uint32             `json:"ports"`
	PortsUp          uint32             `json:"ports_up"`
	Services         uint32             `json:"services"`
	ServicesShort    uint32             `json:"services_short"`
	Servers          uint32             `json:"servers"` // except drained and killed ones
	ServersHealthy   uint32             `json:"servers_healthy"`
}

type healthReasonView struct {
	Level string `json:"level"`
	Text  string `json:"text"`
}

func healthLevel(level pb.HealthLevel) string {
	return map[pb.HealthLevel]string{pb.HealthLevel_HEALTH_LEVEL_OK: "ok", pb.HealthLevel_HEALTH_LEVEL_DEGRADED: "degraded",
		pb.HealthLevel_HEALTH_LEVEL_FAILING: "failing"}[level]
}

func viewHealth(h *pb.GetHealthResponse) *healthView {
	if h == nil { // an agent of an older version
		return nil
	}
	view := &healthView{healthLevel(h.GetLevel()), []healthReasonView{}, h.GetForwarder(), h.GetWorkers(), h.GetWorkersAnswering(), h.GetPorts(),
		h.GetPortsUp(), h.GetServices(), h.GetServicesShort(), h.GetServers(), h.GetServersHealthy()}
	for _, reason := range h.GetReasons() {
		view.Reasons = append(view.Reasons, healthReasonView{healthLevel(reason.GetLevel()), reason.GetText()})
	}
	return view
}

// text returns the level, and the reasons on separate lines.
func (h *healthView) text(a *app) string {
	color := map[string]string{"ok": green, "degraded": yellow}[h.Level]
	if h.Level != "ok" && h.Level != "degraded" {
		color = red
	}
	text := a.paint(cell{h.Level, color})
	for _, reason := range h.Reasons {
		text += "\n" + printable(reason.Level+": "+reason.Text)
	}
	return text
}

func (a *app) healthCommand() *cobra.Command {
	var failAt string
	var minServers, minServices uint32
	command := &cobra.Command{
		Use: "health", Short: "Report the health of this host as a load balancer, for VRRP, BGP and probes", Args: args(0, 0),
		Long: "Prints a level and its reasons. ok: no problem. degraded: the host serves, but a service has too few healthy servers, a port has a problem, a configuration is " +
			"refused, health checks are inconclusive, or a peer would not continue all sessions. failing: another host should take over the VIPs: the forwarder or one of its workers does not answer, a port is down, routing is " +
			"refused, there is no configuration, or too few services have enough healthy servers. Drained and killed servers do not count. A backup (`steelyard role`) is judged as a master. docs/health.md has examples.\n\n" +
			"Exit codes: 0 ok, or degraded; 1 degraded, with --fail-at degraded; 2 failing; 3 the agent does not answer, or the options are wrong.",
		RunE: func(c *cobra.Command, _ []string) error {
			if failAt != "degraded" && failAt != "failing" {
				return &exitError{exitUnknown, fmt.Errorf("--fail-at %s: use degraded or failing", failAt)}
			}
			if !c.Flags().Changed("timeout") {
				a.timeout = healthPatience
			}
			return a.judge(c.Context(), failAt, &pb.GetHealthRequest{MinServersPercent: &minServers, MinServicesPercent: &minServices})
		},
	}
	flags := command.Flags()
	flags.StringVar(&failAt, "fail-at", "failing", "the first `level` with an exit code above 0: degraded or failing")
	flags.Uint32Var(&minServers, "min-servers", 50, "minimum `percentage` of healthy servers of a service; with fewer, or none, this host is degraded")
	flags.Uint32Var(&minServices, "min-services", 50, "minimum `percentage` of services with enough healthy servers; with fewer, this host is failing")
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{exitUnknown, err} })
	a.outputFlag(command)
	return command
}

func (a *app) judge(ctx context.Context, failAt string, thresholds *pb.GetHealthRequest) error {
	response, err := call(ctx, a, a.client().GetHealth, thresholds)
	if err != nil {
		if a.output != "table" {
			_ = a.show(&healthView{Level: "unknown", Reasons: []healthReasonView{{"unknown", a.explain(err)}}}, nil)
		}
		return &exitError{exitUnknown, err}
	}
	view := viewHealth(response)
	if err := a.show(view, func() { fmt.Fprintln(a.out, view.text(a)) }); err != nil {
		return &exitError{exitUnknown, err}
	}
	switch {
	case view.Level == "failing":
		return &exitError{exitFailing, errUnhealthy}
	case view.Level == "degraded" && failAt == "degraded":
		return &exitError{exitDegraded, errUnhealthy}
	}
	return nil
}
