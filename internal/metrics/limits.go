// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bufio"
	"context"

	"steelyard/internal/dpclient"
)

// Limits, of which there may be as many as services, are written like these. No label is a client's.

// limitMetrics are the counters of a limit, in the order of limitSeries' values.
var limitMetrics = [...]struct{ name, help string }{
	{"limit_packets_total", "Packets that met the limit, or new sessions if it limits those: passed, above it, or, of limits by clients, unlimited, as no bucket was free."},
	{"limit_bytes_total", "Bytes of IP packets that met the limit."},
}

type limitValues [len(limitMetrics)]uint64

// readLimits requests the counters of all limits. A request that names services excludes them.
func (a *serviceSeries) readLimits(ctx context.Context, client *dpclient.Client, q query) error {
	if !q.services() || len(q.names) > 0 {
		return nil
	}
	return client.EachLimit(ctx, "", 0, func(stats *dpclient.LimitStats) error {
		limit := stats.GetLimit()
		add := func(result string, counts *dpclient.LimitCounts) {
			labels := `limit="` + escape(limit.GetName()) + `",result="` + result + `",tenant="` + escape(limit.GetTenant()) + `"`
			a.limits = append(a.limits, series[limitValues]{labels, limitValues{counts.GetPackets(), counts.GetBytes()}})
		}
		add("passed", stats.GetPassed())
		add("above", stats.GetAbove())
		if limit.GetClients() != nil {
			add("unlimited", stats.GetUnlimited())
			a.limitClients = append(a.limitClients, series[uint64]{`limit="` + escape(limit.GetName()) + `"`, uint64(stats.GetClients())})
		}
		return nil
	})
}

// writeLimits is write for limits.
func (a *serviceSeries) writeLimits(ctx context.Context, w *bufio.Writer) bool {
	complete := true
	for i, m := range limitMetrics {
		complete = complete && writeMetric(ctx, w, m.name, "counter", m.help, a.limits, i,
			func(values *limitValues, i int) uint64 { return values[i] })
	}
	return complete && writeMetric(ctx, w, "limit_clients", "gauge", "Clients that have a bucket of the limit.", a.limitClients, 0,
		func(value *uint64, _ int) uint64 { return *value })
}
