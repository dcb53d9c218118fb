// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bufio"
	"context"
	"slices"
	"strconv"
	"strings"

	"steelyard/internal/dpclient"
	"steelyard/internal/model"
	"steelyard/internal/store"
)

// trafficMetrics are the counters of services, servers and SNAT rules, in the order of trafficValues.
var trafficMetrics = [...]struct{ name, kind, help string }{
	{"_receive_packets_total", "counter", "Packets from clients."},
	{"_receive_bytes_total", "counter", "Bytes of IP packets from clients."},
	{"_transmit_packets_total", "counter", "Packets to clients."},
	{"_transmit_bytes_total", "counter", "Bytes of IP packets to clients."},
	{"_sessions_total", "counter", "Sessions created."},
	{"_sessions", "gauge", "Number of sessions."},
}

func trafficValues(t *dpclient.Traffic) [len(trafficMetrics)]uint64 {
	return [...]uint64{t.GetPacketsIn(), t.GetBytesIn(), t.GetPacketsOut(), t.GetBytesOut(), t.GetSessionsCreated(),
		t.GetSessionsActive()}
}

// defenceMetrics are those of services with a SYN defence, in the order of defenceValues. A service
// whose defence is automatic has them once it was switched on.
var defenceMetrics = [...]struct{ name, kind, help string }{
	{"service_syn_defence_answered_total", "counter", "SYNs that the SYN defence answered by a cookie or a challenge."},
	{"service_syn_defence_returned_total", "counter", "Packets of clients that returned the SYN defence's answer."},
	{"service_syn_defence_wrong_total", "counter",
		"ACKs and resets of no session that did not return an answer of the SYN defence."},
	{"service_syn_defence_on", "gauge", "1 while the SYN defence answers SYNs."},
	{"service_syn_defence_switched_on_total", "counter", "How often syn_defence: auto was switched on."},
	{"service_half_open_sessions", "gauge", "Sessions of the service whose handshake is not complete."},
}

func defenceValues(d *dpclient.DefenceStats) [len(defenceMetrics)]uint64 {
	on := uint64(0)
	if d.GetOn() {
		on = 1
	}
	return [...]uint64{d.GetAnswered(), d.GetReturned(), d.GetWrong(), on, d.GetSwitchedOn(), d.GetHalfOpen()}
}

// defenceWasOn reports whether a SYN defence is on or has been.
func defenceWasOn(d *dpclient.DefenceStats) bool {
	return d.GetOn() || d.GetSwitchedOn() > 0 || d.GetAnswered() > 0
}

// stateMetrics are the agent's states of servers, in the order of stateValues.
var stateMetrics = [...]struct{ name, kind, help string }{
	{"server_up", "gauge", "1 unless the server is down by its health checks."},
	{"server_drained", "gauge", "1 while the server is drained."},
	{"server_killed", "gauge", "1 while the server's sessions are ended, by command or a drain's deadline."},
	{"server_weight", "gauge", "Share of new sessions."},
}

func stateValues(snapshot *store.Snapshot, ref model.ServerRef, wanted model.Server) [len(stateMetrics)]uint64 {
	flag := func(v bool) uint64 {
		if v {
			return 1
		}
		return 0
	}
	spec := snapshot.States[ref]
	return [...]uint64{flag(spec.State != model.Down), flag(snapshot.IsDrained(ref, wanted) && spec.State != model.Kill),
		flag(spec.State == model.Kill), uint64(spec.Weight)}
}

// series are the labels of one service or server, as text, and its values.
type series[V any] struct {
	labels string
	values V
}

// serviceSeries are all series of services, servers, limits and shaping.
type serviceSeries struct {
	services, servers []series[[len(trafficMetrics)]uint64]
	refused, clients  []series[uint64]
	drops             []series[uint64] // by reason, those with any
	unavailable       []series[uint64] // by answer, of services with any
	defence           []series[[len(defenceMetrics)]uint64]
	states            []series[[len(stateMetrics)]uint64]
	limits            []series[limitValues]
	limitClients      []series[uint64]
	shaping           []series[shapingValues]
	delays            []series[delayValues]
	named             bool // the request names services
}

// readStates reads the agent's state of the servers of the selected services.
func (a *serviceSeries) readStates(s *store.Store, q query) {
	if !q.servers() {
		return
	}
	snapshot := s.Snapshot()
	if snapshot.Config == nil {
		return
	}
	for i := range snapshot.Config.Services {
		service := &snapshot.Config.Services[i]
		if !q.wants(service.Name) {
			continue
		}
		for _, wanted := range service.Servers {
			ref := model.ServerRef{Service: service.Key, Address: wanted.Address}
			a.states = append(a.states, series[[len(stateMetrics)]uint64]{
				serverLabels(service.Name, model.ServerText(wanted.Address)), stateValues(&snapshot, ref, wanted)})
		}
	}
}

// readTraffic requests the counters of the wanted services from the forwarder: by key for each named
// service, else of all services.
func (a *serviceSeries) readTraffic(ctx context.Context, client *dpclient.Client, s *store.Store, q query) error {
	if !q.services() {
		return nil
	}
	a.named = len(q.names) > 0
	if !a.named {
		return client.EachService(ctx, nil, func(stats *dpclient.ServiceStats) error { return a.add(stats, q) })
	}
	for _, key := range s.KeysOf(q.names) {
		err := client.EachService(ctx, &key, func(stats *dpclient.ServiceStats) error { return a.add(stats, q) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *serviceSeries) add(stats *dpclient.ServiceStats, q query) error {
	key, err := dpclient.KeyFromWire(stats.GetService().GetKey())
	if err != nil {
		return err
	}
	name := stats.GetService().GetName()
	labels := `port="` + key.Ports() + `",protocol="` + key.Protocol.String() + `",service="` + escape(name) +
		`",vip="` + key.VIP.String() + `"`
	a.services = append(a.services, series[[len(trafficMetrics)]uint64]{labels, trafficValues(stats.GetTraffic())})
	a.refused = append(a.refused, series[uint64]{labels, stats.GetRefusedPackets()})
	for _, drop := range stats.GetDrops() {
		a.drops = append(a.drops, series[uint64]{labels + `,reason="` + escape(drop.GetName()) + `"`, drop.GetPackets()})
	}
	if sent := stats.GetUnavailable(); sent != nil {
		a.unavailable = append(a.unavailable, series[uint64]{labels + `,answer="reset"`, sent.GetResets()},
			series[uint64]{labels + `,answer="icmp"`, sent.GetIcmp()})
	}
	if refused := stats.GetRefusedByClientLimits(); refused > 0 || stats.GetService().GetClientLimits() != nil {
		a.clients = append(a.clients, series[uint64]{labels, refused})
	}
	if defence := stats.GetSynDefence(); defenceWasOn(defence) {
		a.defence = append(a.defence, series[[len(defenceMetrics)]uint64]{labels, defenceValues(defence)})
	}
	if !q.servers() {
		return nil
	}
	for _, one := range stats.GetServers() {
		address, err := dpclient.ServerAddressFromWire(one.GetServer())
		if err != nil {
			return err
		}
		a.servers = append(a.servers, series[[len(trafficMetrics)]uint64]{
			serverLabels(name, model.ServerText(address)), trafficValues(one.GetTraffic())})
		if delay := one.GetDelay(); delay != nil {
			a.delays = append(a.delays, series[delayValues]{serverLabels(name, model.ServerText(address)), delayValuesOf(delay)})
		}
	}
	return nil
}

func serverLabels(service, server string) string {
	return `server="` + server + `",service="` + escape(service) + `"`
}

var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func escape(label string) string {
	if !strings.ContainsAny(label, "\\\"\n") {
		return label
	}
	return escaper.Replace(label)
}

// write writes all series in the text format, metric by metric, until ctx ends. It reports whether it
// wrote all of them.
func (a *serviceSeries) write(ctx context.Context, w *bufio.Writer) bool {
	complete := true
	for i, m := range trafficMetrics {
		complete = complete && writeMetric(ctx, w, "service"+m.name, m.kind, m.help, a.services, i, trafficValue) &&
			writeMetric(ctx, w, "server"+m.name, m.kind, m.help, a.servers, i, trafficValue)
	}
	for i, m := range stateMetrics {
		complete = complete && writeMetric(ctx, w, m.name, m.kind, m.help, a.states, i, stateValue)
	}
	for i, m := range defenceMetrics {
		complete = complete && writeMetric(ctx, w, m.name, m.kind, m.help, a.defence, i, defenceValue)
	}
	return complete && a.writeDelays(ctx, w, a.named) && a.writeLimits(ctx, w) && a.writeShaping(ctx, w) && writeMetric(ctx, w, "service_refused_packets_total", "counter",
		"Packets to the service that could not create a session and were dropped; also counted in steelyard_drops_packets_total.",
		a.refused, 0, oneValue) &&
		writeMetric(ctx, w, "service_drops_packets_total", "counter",
			"Dropped packets of the service, by reason, those that had any; also counted in steelyard_drops_packets_total.", a.drops, 0, oneValue) &&
		writeMetric(ctx, w, "service_unavailable_answers_total", "counter",
			"Resets and ICMP errors to clients while no server accepted their sessions; their packets are also counted as dropped.", a.unavailable, 0, oneValue) &&
		writeMetric(ctx, w, "service_client_limits_refused_total", "counter",
			"Sessions that client_limits of the service have refused.", a.clients, 0, oneValue)
}

func oneValue(value *uint64, _ int) uint64 { return *value }

func trafficValue(values *[len(trafficMetrics)]uint64, i int) uint64 { return values[i] }
func defenceValue(values *[len(defenceMetrics)]uint64, i int) uint64 { return values[i] }
func stateValue(values *[len(stateMetrics)]uint64, i int) uint64     { return values[i] }

// piece is the number of series written between two checks of the time.
const piece = 4096

func writeMetric[V any](ctx context.Context, w *bufio.Writer, name, kind, help string, all []series[V], i int,
	value func(*V, int) uint64) bool {
	if len(all) == 0 {
		return true
	}
	name = "steelyard_" + name
	writeHead(w, name, kind, help)
	var number [20]byte
	for part := range slices.Chunk(all, piece) {
		if ctx.Err() != nil {
			return false
		}
		for n := range part {
			w.WriteString(name)
			w.WriteByte('{')
			w.WriteString(part[n].labels)
			w.WriteString("} ")
			w.Write(strconv.AppendUint(number[:0], value(&part[n].values, i), 10))
			w.WriteByte('\n')
		}
	}
	return true
}

func writeHead(w *bufio.Writer, name, kind, help string) {
	for _, text := range []string{"# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n"} {
		w.WriteString(text)
	}
}
