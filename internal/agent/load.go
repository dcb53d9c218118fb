// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"steelyard/internal/egress"
	"steelyard/internal/health"
	"steelyard/internal/load"
	"steelyard/internal/model"
	"steelyard/internal/store"

	"github.com/prometheus/client_golang/prometheus"
)

// loads reads the load of the servers of the running configuration.
type loads struct {
	*load.Sources
	store   *store.Store
	author  func(service string) egress.Author
	changed chan struct{} // signals that the servers may have changed
}

func newLoads(policy *egress.Policy, author func(string) egress.Author) *loads {
	return &loads{Sources: load.New(load.Options{Egress: policy}), author: author, changed: make(chan struct{}, 1)}
}

// wrapChecks wraps the store's checks: changes of the running configuration are also signalled to loads. The configuration also changes when the forwarder
// refuses a new one.
func (l *loads) wrapChecks(checks store.Checks) store.Checks { return watched{checks, l.changed} }

type watched struct {
	store.Checks
	changed chan struct{}
}

// Watch implements store.Checks. The store is locked.
func (w watched) Watch(targets []store.Target) {
	w.Checks.Watch(targets)
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (l *loads) follow(ctx context.Context) {
	for {
		select {
		case <-l.changed:
			if config := l.store.Config(); config != nil {
				l.Watch(load.Targets(config, l.author))
			}
		case <-ctx.Done():
			return
		}
	}
}

// answered handles the response to a health check, which may report the server's load.
func (a *Agent) answered(server health.Server, response *http.Response) {
	if a.loads.Wants(server.Ref) {
		a.loads.Answered(server.Ref, response.Header, io.Reader(response.Body))
	}
}

// oldLoad is the age at which a load counts as missing, for warnings and for shares.
const oldLoad = time.Minute

// warnings names one server whose load is unknown, and the number of such servers.
func (l *loads) warnings() []string {
	var one string
	missing := 0
	readings := l.Readings()
	for ref, r := range readings {
		if r.Err == "" || !r.At.IsZero() && time.Since(r.At) < oldLoad {
			continue
		}
		text := fmt.Sprintf("%s of %s: %s", model.ServerText(ref.Address), l.store.ServiceName(ref.Service), r.Err)
		if missing++; one == "" || text < one { // always the same server
			one = text
		}
	}
	if missing == 0 {
		return nil
	}
	return []string{fmt.Sprintf("the load of %d of %d servers is unknown; %s", missing, len(readings), one)}
}

var (
	loadDesc = prometheus.NewDesc("steelyard_server_load", "Utilization of the server, 0 to 1, as last reported by its source.",
		[]string{"service", "server"}, nil)
	loadAgeDesc = prometheus.NewDesc("steelyard_server_load_age_seconds", "Age of the server's load, since its source reported it.",
		[]string{"service", "server"}, nil)
	loadFailedDesc = prometheus.NewDesc("steelyard_server_load_failures", "Failed attempts to read the server's load since the last successful one.",
		[]string{"service", "server"}, nil)
)

// Describe implements prometheus.Collector.
func (l *loads) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(l, ch) }

// Collect implements prometheus.Collector. Returns series only with `metrics.detail: servers`.
func (l *loads) Collect(ch chan<- prometheus.Metric) {
	config := l.store.Config()
	if config == nil || config.Metrics.Detail != model.DetailServers {
		return
	}
	readings := l.Readings()
	for i := range config.Services {
		service := &config.Services[i]
		for _, server := range service.Servers {
			r, known := readings[model.ServerRef{Service: service.Key, Address: server.Address}]
			if !known {
				continue
			}
			labels := []string{service.Name, model.ServerText(server.Address)}
			ch <- prometheus.MustNewConstMetric(loadFailedDesc, prometheus.GaugeValue, float64(r.Failed), labels...)
			if !r.At.IsZero() {
				ch <- prometheus.MustNewConstMetric(loadDesc, prometheus.GaugeValue, r.CPU, labels...)
				ch <- prometheus.MustNewConstMetric(loadAgeDesc, prometheus.GaugeValue, time.Since(r.At).Seconds(), labels...)
			}
		}
	}
}
