// SPDX-License-Identifier: Apache-2.0

// Package metrics shows the agent and its forwarder to Prometheus. It reads the forwarder's counters on
// each scrape. Objects of which there are few go through the client library (this file); services and
// servers, of which there may be 20 000 and more, are written directly (services.go).
package metrics

import (
	"context"
	"strconv"
	"time"

	"steelyard/internal/config"
	"steelyard/internal/dpclient"
	"steelyard/internal/reconcile"
	"steelyard/internal/store"
	"steelyard/internal/version"

	"github.com/prometheus/client_golang/prometheus"
)

// Sources are where a Handler reads its data.
type Sources struct {
	Dial      func(ctx context.Context) (*dpclient.Client, error)
	Store     *store.Store
	Forwarder func() reconcile.Status
	File      func() config.Status
}

// collector implements prometheus.Collector for one scrape: everything except services and servers.
type collector struct {
	sources  Sources
	ctx      context.Context
	client   *dpclient.Client // nil: the forwarder is not reachable
	complete map[string]bool  // requested parts of the forwarder: true if read completely
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("steelyard_"+name, help, labels, nil)
}

var (
	buildInfo          = desc("build_info", "1, with the version of the agent.", "version")
	forwarderBuildInfo = desc("forwarder_build_info", "1, with the version of the forwarder.", "version")

	forwarderUp        = desc("forwarder_up", "1 while the agent is connected to the forwarder.")
	forwarderStart     = desc("forwarder_start_time_seconds", "Start time of the forwarder, Unix time.")
	forwarderRevision  = desc("forwarder_config_revision", "Transactions that the forwarder has accepted.")
	forwarderSessions  = desc("forwarder_sessions", "Number of sessions.")
	forwarderCapacity  = desc("forwarder_session_capacity", "Capacity of the session tables.")
	forwarderEmbryonic = desc("forwarder_embryonic_sessions", "TCP sessions whose handshake is not complete, and UDP sessions with nothing from the client since the server's first reply.")
	forwarderUnproven  = desc("forwarder_unproven_sessions", "Deprecated: steelyard_forwarder_embryonic_sessions.")
	forwarderMapped    = desc("forwarder_session_memory_bytes", "Memory mapped for session tables.")

	forwarderWarnings = desc("forwarder_warnings", "Number of warnings; `steelyard get status` shows them with their remedies.")
	kernelRestored    = desc("kernel_restored_total", "Kernel objects of the forwarder that another program had removed and that the forwarder has restored.")
	kernelProblems    = desc("kernel_problems", "Settings of this host that keep the forwarder from working; `steelyard get status` shows them with their remedies.")
	unknownPorts      = desc("unknown_port_answers_total", "Resets and ICMP errors for packets to ports of VIPs without a service.", "answer")

	adopted      = desc("adopted_sessions", "Sessions of an earlier forwarder found at the start, by the result of their adoption. The label verdict is deprecated: result.", "result", "verdict")
	adoptionTime = desc("adoption_seconds", "Duration of the adoption.")
	adoptionAway = desc("adoption_away_seconds", "Time without a forwarder before this one.")

	configGeneration = desc("config_generation", "Configurations that the agent has loaded since its start.")
	configApplied    = desc("config_applied_generation", "Generation of the configuration that the forwarder has.")
	configGood       = desc("config_last_reload_successful", "1 if the last attempt to load the file succeeded and the forwarder did not refuse it.")
	configAttempted  = desc("config_last_reload_timestamp_seconds", "Time of the last attempt to load the file, Unix time.")
	configLoaded     = desc("config_last_reload_success_timestamp_seconds", "Time of the last successful load, Unix time.")

	snat = trafficDescs("snat", []string{"rule"}) // its clients are the inside hosts

	attackActive      = desc("attack_active", "1 while an attack of this kind is under way, 0 for a while after it; see `steelyard get attacks`.", "kind", "service")
	attackPackets     = desc("attack_packets_total", "Packets of listed attacks of this kind.", "kind", "service")
	eventPackets      = desc("event_device_packets_total", "Packets that the event device of limits took, or refused because it was full.", "device", "model", "result")
	eventWaiting      = desc("event_device_packets", "Packets in the event device of limits.", "device", "model")
	accessSetPrefixes = desc("access_set_prefixes", "Prefixes of this access set in the forwarder.", "set", "family")
	accessMatches     = desc("access_rule_matches_total", "Packets of new sessions that matched this rule of an access list: by its name, or its position if it has none.", "list", "rule")
	accessEarly       = desc("access_dropped_early_total", "SYNs that XDP programs dropped for the access list of all services: they are in no rule's matches.")
	accessEnded       = desc("access_ended_sessions_total", "Existing sessions that this access list no longer allowed and has ended; of lists with existing: end.", "list")

	drops = desc("drops_packets_total", "Packets dropped, by reason.", "reason")

	portUp       = desc("port_up", "1 while the link is up.", "port")
	portProblem  = desc("port_problem", "1 while the port has a problem; `steelyard get ports` shows it.", "port")
	portRxPacket = desc("port_receive_packets_total", "Packets received.", "port")
	portRxBytes  = desc("port_receive_bytes_total", "Bytes received.", "port")
	portTxPacket = desc("port_transmit_packets_total", "Packets sent.", "port")
	portTxBytes  = desc("port_transmit_bytes_total", "Bytes sent.", "port")
	portMissed   = desc("port_receive_missed_packets_total", "Packets lost because receive buffers were missing.", "port")
	portFailed   = desc("port_transmit_failed_packets_total", "Packets that could not be sent.", "port")
	portDirector = desc("port_director_packets_total", "Packets by the result of the flow director. The label verdict is deprecated: result.", "port", "result", "verdict")

	workerRx         = desc("worker_receive_packets_total", "Packets that the worker received from ports.", "worker")
	workerTx         = desc("worker_transmit_packets_total", "Packets that the worker sent to ports.", "worker")
	workerSteeredOut = desc("worker_steered_out_packets_total", "Packets steered to their owners, other workers.", "worker")
	workerSteeredIn  = desc("worker_steered_in_packets_total", "Packets that other workers steered to this worker.", "worker")
	workerHandedOut  = desc("worker_handed_out_packets_total", "Deprecated: steelyard_worker_steered_out_packets_total.", "worker")
	workerHandedIn   = desc("worker_handed_in_packets_total", "Deprecated: steelyard_worker_steered_in_packets_total.", "worker")
	workerRemote     = desc("worker_remote_packets_total", "Packets of other workers' sessions forwarded without steering them to their owner.", "worker")
	workerForeign    = desc("worker_foreign_packets_total", "Deprecated: steelyard_worker_remote_packets_total.", "worker")
	workerBusy       = desc("worker_busy_cycles_total", "Clock cycles spent on packets.", "worker")
	workerIdle       = desc("worker_idle_cycles_total", "Clock cycles spent without packets.", "worker")
	workerSleeps     = desc("worker_sleeps_total", "Times the worker went to sleep.", "worker")
	workerSessions   = desc("worker_sessions", "Sessions of the worker's slots.", "worker")
	workerSlots      = desc("worker_slots", "Slots that the worker owns.", "worker")
)

func trafficDescs(of string, labels []string) [len(trafficMetrics)]*prometheus.Desc {
	var descs [len(trafficMetrics)]*prometheus.Desc
	for i, metric := range trafficMetrics {
		descs[i] = desc(of+metric.name, metric.help, labels...)
	}
	return descs
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	// Metrics that depend on the forwarder come and go with it, so only this one is certain.
	ch <- forwarderUp
}

// scrape sends metrics to a channel.
type scrape chan<- prometheus.Metric

func (s scrape) counter(d *prometheus.Desc, v uint64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (s scrape) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s scrape) flag(d *prometheus.Desc, v bool, labels ...string) {
	number := 0.0
	if v {
		number = 1
	}
	s.gauge(d, number, labels...)
}

func (s scrape) time(d *prometheus.Desc, t time.Time) {
	if !t.IsZero() {
		s.gauge(d, float64(t.UnixMilli())/1000)
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := scrape(ch)
	c.collectAgent(s)
	s.flag(forwarderUp, c.client != nil && c.sources.Forwarder().Connected)
	if c.client == nil {
		return
	}
	// Parts that cannot be read are left out, and scrape_complete reports it.
	for part, collect := range map[string]func(context.Context, scrape, *dpclient.Client) error{
		"status": collectStatus, "snat": collectSNAT, "access": collectAccess,
		"drops": collectDrops, "attacks": collectAttacks, "ports": collectPorts, "workers": collectWorkers, "peers": collectPeers,
	} {
		c.complete[part] = collect(c.ctx, s, c.client) == nil
	}
}

func (c *collector) collectAgent(s scrape) {
	s.gauge(buildInfo, 1, version.Build)
	file, forwarder := c.sources.File(), c.sources.Forwarder()
	s.gauge(configGeneration, float64(file.Generation))
	s.gauge(configApplied, float64(forwarder.Generation))
	s.flag(configGood, file.Err == nil && file.Generation > 0 && forwarder.Refused == 0)
	s.time(configAttempted, file.Attempted)
	s.time(configLoaded, file.Loaded)
}

func collectStatus(ctx context.Context, s scrape, client *dpclient.Client) error {
	status, err := client.Status(ctx)
	if err != nil {
		return err
	}
	s.gauge(forwarderBuildInfo, 1, status.GetBuild())
	s.gauge(forwarderStart, float64(status.GetStartedUnixS()))
	s.gauge(forwarderRevision, float64(status.GetRevision()))
	s.gauge(forwarderSessions, float64(status.GetSessions()))
	s.gauge(forwarderCapacity, float64(status.GetSessionCapacity()))
	s.gauge(forwarderEmbryonic, float64(status.GetSessionsEmbryonic()))
	s.gauge(forwarderUnproven, float64(status.GetSessionsEmbryonic()))
	s.gauge(forwarderWarnings, float64(len(status.GetWarnings())))
	s.counter(kernelRestored, status.GetKernelRestored())
	if sent := status.GetUnknownPorts(); sent != nil {
		s.counter(unknownPorts, sent.GetResets(), "reset")
		s.counter(unknownPorts, sent.GetIcmp(), "icmp")
	}
	s.gauge(kernelProblems, float64(status.GetKernelProblems()))
	s.gauge(forwarderMapped, float64(status.GetSessionBytesMapped()))
	if device := status.GetEventDevice(); device != nil {
		s.counter(eventPackets, device.GetPackets(), device.GetName(), device.GetModel(), "taken")
		s.counter(eventPackets, device.GetRefused(), device.GetName(), device.GetModel(), "refused")
		s.gauge(eventWaiting, float64(device.GetWaiting()), device.GetName(), device.GetModel())
	}
	if adoption := status.GetAdoption(); adoption != nil {
		s.gauge(adoptionTime, float64(adoption.GetDurationNs())/1e9)
		s.gauge(adoptionAway, float64(adoption.GetAwayNs())/1e9)
		for _, result := range adoption.GetResults() {
			s.gauge(adopted, float64(result.GetSessions()), result.GetName(), result.GetName())
		}
	}
	return nil
}

func collectSNAT(ctx context.Context, s scrape, client *dpclient.Client) error {
	rules, err := client.SNAT(ctx)
	if err != nil {
		return err
	}
	for _, rule := range rules {
		for i, value := range trafficValues(rule.GetTraffic()) {
			if trafficMetrics[i].kind == "counter" {
				s.counter(snat[i], value, rule.GetRule().GetName())
			} else {
				s.gauge(snat[i], float64(value), rule.GetRule().GetName())
			}
		}
	}
	return nil
}

func collectAccess(ctx context.Context, s scrape, client *dpclient.Client) error {
	access, err := client.Access(ctx)
	if err != nil {
		return err
	}
	for _, set := range access.GetSets() {
		s.gauge(accessSetPrefixes, float64(set.GetPrefixes4()), set.GetName(), "4")
		s.gauge(accessSetPrefixes, float64(set.GetPrefixes6()), set.GetName(), "6")
	}
	for _, list := range access.GetLists() {
		used := map[string]bool{} // not by the agent's configuration, but the forwarder does not refuse it
		for i, matches := range list.GetMatches() {
			label := strconv.Itoa(i + 1)
			if rules := list.GetList().GetRules(); i < len(rules) && rules[i].GetName() != "" && !used[rules[i].GetName()] {
				label = rules[i].GetName()
				used[label] = true
			}
			s.counter(accessMatches, matches, list.GetList().GetName(), label)
		}
		s.counter(accessMatches, list.GetOtherwise(), list.GetList().GetName(), "otherwise")
		if list.GetList().GetExisting() == dpclient.EndsExisting || list.GetEnded() > 0 {
			s.counter(accessEnded, list.GetEnded(), list.GetList().GetName())
		}
	}
	s.counter(accessEarly, access.GetDroppedEarly())
	return nil
}

func collectDrops(ctx context.Context, s scrape, client *dpclient.Client) error {
	list, err := client.Drops(ctx)
	if err != nil {
		return err
	}
	for _, drop := range list {
		s.counter(drops, drop.GetPackets(), drop.GetName())
	}
	return nil
}

// collectAttacks has no label that a client chooses.
func collectAttacks(ctx context.Context, s scrape, client *dpclient.Client) error {
	list, _, err := client.Attacks(ctx)
	if err != nil {
		return err
	}
	type place struct{ kind, service string }
	active, packets := map[place]bool{}, map[place]uint64{}
	for _, attack := range list {
		at := place{attack.GetKind(), attack.GetServiceName()}
		active[at] = active[at] || attack.GetEndedUnixMs() == 0
		packets[at] += attack.GetPackets()
	}
	for at, sum := range packets {
		s.flag(attackActive, active[at], at.kind, at.service)
		s.counter(attackPackets, sum, at.kind, at.service)
	}
	return nil
}

func collectPorts(ctx context.Context, s scrape, client *dpclient.Client) error {
	list, err := client.Ports(ctx)
	if err != nil {
		return err
	}
	for _, port := range list {
		name := port.GetName()
		s.flag(portUp, port.GetUp(), name)
		s.flag(portProblem, port.GetProblem() != "", name)
		s.counter(portRxPacket, port.GetRxPackets(), name)
		s.counter(portRxBytes, port.GetRxBytes(), name)
		s.counter(portTxPacket, port.GetTxPackets(), name)
		s.counter(portTxBytes, port.GetTxBytes(), name)
		s.counter(portMissed, port.GetRxMissed(), name)
		s.counter(portFailed, port.GetTxFailed(), name)
		s.counter(portDirector, port.GetDirectorSteered(), name, "steered", "steered")
		s.counter(portDirector, port.GetDirectorPassed(), name, "passed", "passed")
		s.counter(portDirector, port.GetDirectorDropped(), name, "dropped", "dropped")
	}
	return nil
}

func collectWorkers(ctx context.Context, s scrape, client *dpclient.Client) error {
	list, err := client.Workers(ctx)
	if err != nil {
		return err
	}
	for _, worker := range list {
		id := strconv.Itoa(int(worker.GetId()))
		s.counter(workerRx, worker.GetRxPackets(), id)
		s.counter(workerTx, worker.GetTxPackets(), id)
		s.counter(workerSteeredOut, worker.GetSteeredOut(), id)
		s.counter(workerSteeredIn, worker.GetSteeredIn(), id)
		s.counter(workerHandedOut, worker.GetSteeredOut(), id)
		s.counter(workerHandedIn, worker.GetSteeredIn(), id)
		s.counter(workerRemote, worker.GetRemote(), id)
		s.counter(workerForeign, worker.GetRemote(), id)
		s.counter(workerBusy, worker.GetBusyCycles(), id)
		s.counter(workerIdle, worker.GetIdleCycles(), id)
		s.counter(workerSleeps, worker.GetSleeps(), id)
		s.gauge(workerSessions, float64(worker.GetSessions()), id)
		s.gauge(workerSlots, float64(worker.GetSlots()), id)
	}
	return nil
}
