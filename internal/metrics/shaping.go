// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bufio"
	"context"

	"steelyard/internal/dpclient"
)

// shapingMetrics are those of a class of a service of a shaped port, in the order of shapingValues.
var shapingMetrics = [...]struct{ name, kind, help string }{
	{"shaping_sent_packets_total", "counter", "Packets that left by a shaped port."},
	{"shaping_sent_bytes_total", "counter", "Bytes of frames that left by a shaped port."},
	{"shaping_full_packets_total", "counter", "Packets that were dropped because their queue was full."},
	{"shaping_early_packets_total", "counter", "Packets that were dropped early, by the mean length of their queue."},
	{"shaping_waiting_packets", "gauge", "Packets that wait."},
}

type shapingValues [len(shapingMetrics)]uint64

// readShaping requests the counters of shaped ports. A request that names services excludes them.
func (a *serviceSeries) readShaping(ctx context.Context, client *dpclient.Client, q query) error {
	if !q.services() || len(q.names) > 0 {
		return nil
	}
	ports, err := client.Shaping(ctx)
	for _, port := range ports {
		shaping := port.GetShaping()
		for _, n := range port.GetCounts() {
			if int(n.GetTenant()) >= len(shaping.GetTenants()) || int(n.GetClass()) >= len(shaping.GetClasses()) {
				continue
			}
			tenant := shaping.GetTenants()[n.GetTenant()]
			if int(n.GetService()) >= len(tenant.GetServices()) {
				continue
			}
			labels := `class="` + escape(shaping.GetClasses()[n.GetClass()].GetName()) + `",port="` + escape(shaping.GetPort()) +
				`",service="` + escape(tenant.GetServices()[n.GetService()].GetName()) + `",tenant="` + escape(tenant.GetName()) + `"`
			a.shaping = append(a.shaping, series[shapingValues]{labels, shapingValues{n.GetSentPackets(), n.GetSentBytes(),
				n.GetDroppedFull(), n.GetDroppedEarly(), uint64(n.GetWaiting())}})
		}
	}
	return err
}

func (a *serviceSeries) writeShaping(ctx context.Context, w *bufio.Writer) bool {
	complete := true
	for i, m := range shapingMetrics {
		complete = complete && writeMetric(ctx, w, m.name, m.kind, m.help, a.shaping, i,
			func(values *shapingValues, i int) uint64 { return values[i] })
	}
	return complete
}
