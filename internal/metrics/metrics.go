// SPDX-License-Identifier: Apache-2.0

// Package metrics shows the agent and its forwarder to Prometheus. Counters are read from the
// forwarder when they are asked for.
package metrics

import (
	"context"
	"strconv"
	"time"

	"steelyard/internal/config"
	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/model"
	"steelyard/internal/reconcile"
	"steelyard/internal/store"

	"github.com/prometheus/client_golang/prometheus"
)

// Sources are where a Collector finds what it shows.
type Sources struct {
	Dial      func(ctx context.Context) (*dpclient.Client, error)
	Store     *store.Store
	Forwarder func() reconcile.Status
	File      func() config.Status
}

// scrapeTimeout stays below Prometheus' own default of ten seconds.
const scrapeTimeout = 8 * time.Second

// Collector implements prometheus.Collector.
type Collector struct {
	sources Sources
}

// NewCollector returns a collector to be registered.
func NewCollector(sources Sources) *Collector {
	return &Collector{sources: sources}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("steelyard_"+name, help, labels, nil)
}

var (
	serviceLabels = []string{"service", "protocol", "vip", "port"}
	serverLabels  = []string{"service", "server"}

	forwarderUp       = desc("forwarder_up", "1 while the agent is connected to the forwarder.")
	forwarderStart    = desc("forwarder_start_time_seconds", "When the forwarder was started, Unix time.")
	forwarderRevision = desc("forwarder_config_revision", "Transactions that the forwarder has accepted.")
	forwarderSessions = desc("forwarder_sessions", "Sessions now.")
	forwarderCapacity = desc("forwarder_session_capacity", "Sessions that fit.")
	forwarderMapped   = desc("forwarder_session_memory_bytes", "Memory mapped for session tables.")

	adopted      = desc("adopted_sessions", "Sessions that the forwarder found of its predecessor when it started, by what became of them.", "verdict")
	adoptionTime = desc("adoption_seconds", "How long it took the forwarder to adopt them.")
	adoptionAway = desc("adoption_away_seconds", "How long no forwarder ran before it.")

	configGeneration = desc("config_generation", "Configurations that the agent has loaded since its start.")
	configApplied    = desc("config_applied_generation", "The one that the forwarder has.")
	configGood       = desc("config_last_reload_successful", "1 if the last attempt to load the file was good, and the forwarder did not refuse it.")
	configAttempted  = desc("config_last_reload_timestamp_seconds", "When the file was last tried, Unix time.")
	configLoaded     = desc("config_last_reload_success_timestamp_seconds", "When a good file was last loaded, Unix time.")

	service = trafficDescs("service", serviceLabels)
	server  = trafficDescs("server", serverLabels)
	snat    = trafficDescs("snat", []string{"rule"}) // its clients are the hosts inside

	serverUp      = desc("server_up", "1 unless health checks found the server down.", serverLabels...)
	serverDrained = desc("server_drained", "1 while the server is drained.", serverLabels...)
	serverKilled  = desc("server_killed", "1 while the server's sessions are ended, by command or a drain's deadline.", serverLabels...)
	serverWeight  = desc("server_weight", "Share of new sessions.", serverLabels...)

	drops = desc("drops_packets_total", "Packets dropped, by reason.", "reason")

	portUp       = desc("port_up", "1 while the link is up.", "port")
	portRxPacket = desc("port_receive_packets_total", "Packets received.", "port")
	portRxBytes  = desc("port_receive_bytes_total", "Bytes received.", "port")
	portTxPacket = desc("port_transmit_packets_total", "Packets sent.", "port")
	portTxBytes  = desc("port_transmit_bytes_total", "Bytes sent.", "port")
	portMissed   = desc("port_receive_missed_packets_total", "Packets lost for want of receive buffers.", "port")
	portFailed   = desc("port_transmit_failed_packets_total", "Packets that could not be sent.", "port")
	portDirector = desc("port_director_packets_total", "Packets by what the flow director did with them.", "port", "verdict")

	workerRx       = desc("worker_receive_packets_total", "Packets that the worker took from ports.", "worker")
	workerTx       = desc("worker_transmit_packets_total", "Packets that the worker gave to ports.", "worker")
	workerOut      = desc("worker_handed_out_packets_total", "Packets handed to other workers.", "worker")
	workerIn       = desc("worker_handed_in_packets_total", "Packets taken from other workers.", "worker")
	workerForeign  = desc("worker_foreign_packets_total", "Packets of other workers' sessions forwarded without handing them over.", "worker")
	workerBusy     = desc("worker_busy_cycles_total", "Clock cycles spent on packets.", "worker")
	workerIdle     = desc("worker_idle_cycles_total", "Clock cycles spent without packets.", "worker")
	workerSleeps   = desc("worker_sleeps_total", "Times the worker went to sleep.", "worker")
	workerSessions = desc("worker_sessions", "Sessions of the worker's slots.", "worker")
	workerSlots    = desc("worker_slots", "Slots that the worker owns.", "worker")
)

type traffic struct {
	packetsIn, bytesIn, packetsOut, bytesOut, created, active *prometheus.Desc
}

func trafficDescs(of string, labels []string) traffic {
	return traffic{
		desc(of+"_receive_packets_total", "Packets from clients.", labels...),
		desc(of+"_receive_bytes_total", "Bytes of IP packets from clients.", labels...),
		desc(of+"_transmit_packets_total", "Packets to clients.", labels...),
		desc(of+"_transmit_bytes_total", "Bytes of IP packets to clients.", labels...),
		desc(of+"_sessions_total", "Sessions created.", labels...),
		desc(of+"_sessions", "Sessions now.", labels...),
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	// What depends on the forwarder comes and goes with it, so only this is promised.
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
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	s := scrape(ch)
	c.collectAgent(s)
	client, err := c.sources.Dial(ctx)
	s.flag(forwarderUp, err == nil && c.sources.Forwarder().Connected)
	if err != nil {
		return
	}
	defer client.Close()
	// What cannot be read is left out: Prometheus sees the gap, and forwarder_up says why.
	collectStatus(ctx, s, client)
	collectServices(ctx, s, client)
	collectSNAT(ctx, s, client)
	collectDrops(ctx, s, client)
	collectPorts(ctx, s, client)
	collectWorkers(ctx, s, client)
}

func (c *Collector) collectAgent(s scrape) {
	file, forwarder := c.sources.File(), c.sources.Forwarder()
	s.gauge(configGeneration, float64(file.Generation))
	s.gauge(configApplied, float64(forwarder.Generation))
	s.flag(configGood, file.Err == nil && file.Generation > 0 && forwarder.Refused == 0)
	s.time(configAttempted, file.Attempted)
	s.time(configLoaded, file.Loaded)

	snapshot := c.sources.Store.Snapshot()
	if snapshot.Config == nil {
		return
	}
	for _, service := range snapshot.Config.Services {
		for _, wanted := range service.Servers {
			ref := model.ServerRef{Service: service.Key, Address: wanted.Address}
			spec := snapshot.States[ref]
			labels := []string{service.Name, model.ServerText(wanted.Address)}
			s.flag(serverUp, spec.State != model.Down, labels...)
			s.flag(serverDrained, snapshot.IsDrained(ref, wanted) && spec.State != model.Kill, labels...)
			s.flag(serverKilled, spec.State == model.Kill, labels...)
			s.gauge(serverWeight, float64(spec.Weight), labels...)
		}
	}
}

func collectStatus(ctx context.Context, s scrape, client *dpclient.Client) {
	status, err := client.Status(ctx)
	if err != nil {
		return
	}
	s.gauge(forwarderStart, float64(status.GetStartedUnixS()))
	s.gauge(forwarderRevision, float64(status.GetRevision()))
	s.gauge(forwarderSessions, float64(status.GetSessions()))
	s.gauge(forwarderCapacity, float64(status.GetSessionCapacity()))
	s.gauge(forwarderMapped, float64(status.GetSessionBytesMapped()))
	if adoption := status.GetAdoption(); adoption != nil {
		s.gauge(adoptionTime, float64(adoption.GetDurationNs())/1e9)
		s.gauge(adoptionAway, float64(adoption.GetAwayNs())/1e9)
		for _, verdict := range adoption.GetVerdicts() {
			s.gauge(adopted, float64(verdict.GetSessions()), verdict.GetName())
		}
	}
}

func (s scrape) traffic(d traffic, t *pb.Traffic, labels ...string) {
	s.counter(d.packetsIn, t.GetPacketsIn(), labels...)
	s.counter(d.bytesIn, t.GetBytesIn(), labels...)
	s.counter(d.packetsOut, t.GetPacketsOut(), labels...)
	s.counter(d.bytesOut, t.GetBytesOut(), labels...)
	s.counter(d.created, t.GetSessionsCreated(), labels...)
	s.gauge(d.active, float64(t.GetSessionsActive()), labels...)
}

func collectServices(ctx context.Context, s scrape, client *dpclient.Client) {
	_ = client.EachService(ctx, nil, func(stats *pb.ServiceStats) error {
		key, err := dpclient.KeyFromWire(stats.GetService().GetKey())
		if err != nil {
			return err
		}
		name := stats.GetService().GetName()
		s.traffic(service, stats.GetTraffic(), name, key.Protocol.String(), key.VIP.String(), key.Ports())
		for _, one := range stats.GetServers() {
			address, err := dpclient.ServerAddressFromWire(one.GetServer())
			if err != nil {
				return err
			}
			s.traffic(server, one.GetTraffic(), name, model.ServerText(address))
		}
		return nil
	})
}

func collectSNAT(ctx context.Context, s scrape, client *dpclient.Client) {
	rules, err := client.SNAT(ctx)
	if err != nil {
		return
	}
	for _, rule := range rules {
		s.traffic(snat, rule.GetTraffic(), rule.GetRule().GetName())
	}
}

func collectDrops(ctx context.Context, s scrape, client *dpclient.Client) {
	list, err := client.Drops(ctx)
	if err != nil {
		return
	}
	for _, drop := range list {
		s.counter(drops, drop.GetPackets(), drop.GetName())
	}
}

func collectPorts(ctx context.Context, s scrape, client *dpclient.Client) {
	list, err := client.Ports(ctx)
	if err != nil {
		return
	}
	for _, port := range list {
		name := port.GetName()
		s.flag(portUp, port.GetUp(), name)
		s.counter(portRxPacket, port.GetRxPackets(), name)
		s.counter(portRxBytes, port.GetRxBytes(), name)
		s.counter(portTxPacket, port.GetTxPackets(), name)
		s.counter(portTxBytes, port.GetTxBytes(), name)
		s.counter(portMissed, port.GetRxMissed(), name)
		s.counter(portFailed, port.GetTxFailed(), name)
		s.counter(portDirector, port.GetDirectorSteered(), name, "steered")
		s.counter(portDirector, port.GetDirectorPassed(), name, "passed")
		s.counter(portDirector, port.GetDirectorDropped(), name, "dropped")
	}
}

func collectWorkers(ctx context.Context, s scrape, client *dpclient.Client) {
	list, err := client.Workers(ctx)
	if err != nil {
		return
	}
	for _, worker := range list {
		id := strconv.Itoa(int(worker.GetId()))
		s.counter(workerRx, worker.GetRxPackets(), id)
		s.counter(workerTx, worker.GetTxPackets(), id)
		s.counter(workerOut, worker.GetHandedOut(), id)
		s.counter(workerIn, worker.GetHandedIn(), id)
		s.counter(workerForeign, worker.GetForeign(), id)
		s.counter(workerBusy, worker.GetBusyCycles(), id)
		s.counter(workerIdle, worker.GetIdleCycles(), id)
		s.counter(workerSleeps, worker.GetSleeps(), id)
		s.gauge(workerSessions, float64(worker.GetSessions()), id)
		s.gauge(workerSlots, float64(worker.GetSlots()), id)
	}
}
