// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"steelyard/internal/api"
	"steelyard/internal/routes"

	"github.com/prometheus/client_golang/prometheus"
)

// newRoutes returns the manager that announces addresses by what the service finds about this host.
func (a *Agent) newRoutes(service *api.Server) *routes.Manager {
	return routes.New(routes.Options{Config: a.store.Config, Drained: a.store.IsNodeDrained, Assess: service.AssessRoutes, Log: a.options.Log})
}

// routeMetrics are the announced addresses.
type routeMetrics struct{ agent *Agent }

var (
	routeAnnouncedDesc = prometheus.NewDesc("steelyard_route_announced", "1 while the address is announced to routers, 0 while it is withdrawn.",
		[]string{"prefix", "kind"}, nil)
	routeWithdrawalsDesc = prometheus.NewDesc("steelyard_route_withdrawals_total", "Withdrawals of addresses since the agent's start.", nil, nil)
	routeErrorDesc       = prometheus.NewDesc("steelyard_route_error", "1 while routes are not announced as decided: `steelyard get routes` has the reason.", nil, nil)
	neighborUpDesc       = prometheus.NewDesc("steelyard_bgp_neighbor_up", "1 while the BGP session is established.", []string{"neighbor"}, nil)
	nodeDrainedDesc      = prometheus.NewDesc("steelyard_node_drained", "1 while this node is drained by command.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m routeMetrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

func flag(set bool) float64 {
	if set {
		return 1
	}
	return 0
}

// Collect implements prometheus.Collector.
func (m routeMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(nodeDrainedDesc, flag(m.agent.store.IsNodeDrained()))
	config := m.agent.store.Config()
	if config == nil || !config.Routes.Enabled() || m.agent.routes == nil {
		return
	}
	status := m.agent.routes.Status()
	for i := range status.States {
		state := &status.States[i]
		gauge(routeAnnouncedDesc, flag(state.Announced()), state.Prefix.String(), api.RouteKindWord(state.Kind))
	}
	ch <- prometheus.MustNewConstMetric(routeWithdrawalsDesc, prometheus.CounterValue, float64(status.Withdrawn))
	for i := range status.Neighbors {
		gauge(neighborUpDesc, flag(status.Neighbors[i].Established()), status.Neighbors[i].Address.String())
	}
	gauge(routeErrorDesc, flag(status.Err != nil))
}
