// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"steelyard/internal/feedback"
	"steelyard/internal/model"

	"github.com/prometheus/client_golang/prometheus"
)

// newShares returns the loop that updates shares of new sessions.
func (a *Agent) newShares() *feedback.Loop {
	return feedback.New(feedback.Options{
		Config: a.store.Config,
		States: a.store.States, Version: a.store.Version,
		Load: a.loads.Reading, Check: a.checker.State,
		Dial: a.dialShares, Log: a.options.Log,
	})
}

// dialShares connects for shares. A nil client must not become a non-nil Forwarder.
func (a *Agent) dialShares(ctx context.Context) (feedback.Forwarder, error) {
	client, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	return client, nil
}

// shareMetrics are the shares of services with feedback.
type shareMetrics struct{ agent *Agent }

func shareDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"service", "server"}, nil)
}

var (
	shareShareDesc   = shareDesc("steelyard_server_share", "Measured share of the service's new sessions, 0 to 1.")
	sharePhiDesc     = shareDesc("steelyard_server_network_offset", "Offset of the server's network capability from the mean, φ.")
	shareEtaDesc     = shareDesc("steelyard_server_compute_offset", "Offset of the server's compute capability from the mean, η.")
	linkCarriesDesc  = shareDesc("steelyard_server_link_bits_per_second", "Traffic of the server's link in the busier direction, only with `link_capacity`.")
	linkCapacityDesc = prometheus.NewDesc("steelyard_server_link_capacity_bits_per_second", "Capacity of the server's link: configured, or learned (absent until then).",
		[]string{"service", "server", "basis"}, nil)
	shareStateDesc = shareDesc("steelyard_server_share_basis",
		"Basis of the share: 0 all measurements of the policy (measured), 1 some of them (partly), 2 the weight only (blind), 3 reduced, because the server or its link is overloaded (set-aside), 4 no share, because the server is down or has weight 0 (out).")
)

// Describe implements prometheus.Collector.
func (m shareMetrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector. Returns series only with `metrics.detail: servers`.
func (m shareMetrics) Collect(ch chan<- prometheus.Metric) {
	config := m.agent.store.Config()
	if config == nil || config.Metrics.Detail != model.DetailServers {
		return
	}
	for i := range config.Services {
		service := &config.Services[i]
		if service.Feedback.Policy == model.FeedbackOff {
			continue
		}
		state, ok := m.agent.shares.State(service.Key)
		for _, server := range service.Servers {
			ref := model.ServerRef{Service: service.Key, Address: server.Address}
			one, known := state.Shares[ref]
			if !ok || !known {
				continue
			}
			if link, counts := state.Links[ref]; counts {
				collectLink(ch, link, service.Name, model.ServerText(server.Address))
			}
			for _, metric := range []struct {
				desc  *prometheus.Desc
				value float64
			}{{shareShareDesc, one.Share}, {sharePhiDesc, one.Phi}, {shareEtaDesc, one.Eta}, {shareStateDesc, float64(one.State)}} {
				ch <- prometheus.MustNewConstMetric(metric.desc, prometheus.GaugeValue, metric.value, service.Name, model.ServerText(server.Address))
			}
		}
	}
}

func collectLink(ch chan<- prometheus.Metric, link feedback.Link, service, server string) {
	ch <- prometheus.MustNewConstMetric(linkCarriesDesc, prometheus.GaugeValue, link.Carries, service, server)
	basis := "configured"
	if link.Learns {
		basis = "learned"
	}
	if link.Capacity > 0 {
		ch <- prometheus.MustNewConstMetric(linkCapacityDesc, prometheus.GaugeValue, link.Capacity, service, server, basis)
	}
}
