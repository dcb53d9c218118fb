// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"steelyard/internal/answers"
	"steelyard/internal/model"

	"github.com/prometheus/client_golang/prometheus"
)

// dialAnswers connects to count answers. A nil client must not become a non-nil Forwarder.
func (a *Agent) dialAnswers(ctx context.Context) (answers.Forwarder, error) {
	client, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	return client, nil
}

// answerMetrics are the metrics of servers that answer no SYN: their number, and a series for each.
type answerMetrics struct{ agent *Agent }

var (
	silentDesc     = prometheus.NewDesc("steelyard_servers_without_answers", "Servers that answered none of their SYNs in the last 10 s.", nil, nil)
	unansweredDesc = prometheus.NewDesc("steelyard_server_unanswered_syns", "SYNs of the last 10 s, of servers that answered none of them.", []string{"server", "service"}, nil)
)

// Describe implements prometheus.Collector.
func (m answerMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- silentDesc
	ch <- unansweredDesc
}

// Collect implements prometheus.Collector.
func (m answerMetrics) Collect(ch chan<- prometheus.Metric) {
	silent := m.agent.answers.Silent()
	ch <- prometheus.MustNewConstMetric(silentDesc, prometheus.GaugeValue, float64(len(silent)))
	if m.agent.detail() != model.DetailServers {
		return
	}
	for ref, syns := range silent {
		ch <- prometheus.MustNewConstMetric(unansweredDesc, prometheus.GaugeValue, float64(syns), model.ServerText(ref.Address), m.agent.store.ServiceName(ref.Service))
	}
}
