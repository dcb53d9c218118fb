// SPDX-License-Identifier: Apache-2.0

package sampling

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"steelyard/internal/dpclient"
	"steelyard/internal/egress"
	"steelyard/internal/model"
	"steelyard/internal/sflow"

	"github.com/prometheus/client_golang/prometheus"
)

// exportMetrics count exports to collectors since the agent's start.
type exportMetrics struct {
	datagrams prometheus.Counter
	errors    prometheus.Counter
	samples   *prometheus.CounterVec
}

func newExportMetrics() exportMetrics {
	return exportMetrics{
		datagrams: prometheus.NewCounter(prometheus.CounterOpts{Name: "steelyard_sflow_datagrams_total",
			Help: "Datagrams sent to the sFlow collector."}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{Name: "steelyard_sflow_errors_total",
			Help: "Datagrams that could not be sent to the sFlow collector."}),
		samples: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "steelyard_sflow_samples_total",
			Help: "Samples in those datagrams."}, []string{"kind"}),
	}
}

func (m *exportMetrics) collect(ch chan<- prometheus.Metric) {
	m.datagrams.Collect(ch)
	m.errors.Collect(ch)
	m.samples.Collect(ch)
}

// export sends samples to one collector. A nil export sends none.
type export struct {
	egress  *egress.Policy
	config  model.SFlow
	started time.Time
	metrics *exportMetrics

	conn    net.Conn // nil: none
	retry   time.Time
	encoder *sflow.Encoder
	agent   netip.Addr // of the encoder
	owed    struct{ received, dropped uint32 }
	err     error // the last one, at this time
	failed  time.Time
}

// A problem is over when nothing has failed for so long.
const problemLasts = 30 * time.Second

func newExport(config model.SFlow, policy *egress.Policy, started time.Time, metrics *exportMetrics) *export {
	if !config.Collector.IsValid() {
		return nil
	}
	return &export{config: config, egress: policy, started: started, metrics: metrics}
}

func (e *export) close() {
	if e != nil && e.conn != nil {
		e.conn.Close()
		e.conn = nil
	}
}

// problem returns why datagrams have not reached the collector lately.
func (e *export) problem() error {
	if e == nil || time.Since(e.failed) > problemLasts {
		return nil
	}
	return e.err
}

func (e *export) fail(err error) {
	e.err, e.failed = e.explain(err), time.Now()
}

// open makes the socket, unless there is one.
func (e *export) open() {
	if e == nil || e.conn != nil || time.Now().Before(e.retry) {
		return
	}
	dialed, err := e.egress.Dialer(egress.Administrator).Dial("udp", e.config.Collector.String()) // the project default alone has one
	if err != nil {
		e.fail(err)
		e.retry = time.Now().Add(retryPeriod)
		return
	}
	conn := dialed.(*net.UDPConn)
	e.conn = conn
	agent := e.config.AgentAddress
	if !agent.IsValid() {
		agent = conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone("")
	}
	if e.encoder == nil || e.agent != agent {
		e.encoder, e.agent = sflow.NewEncoder(agent), agent
	}
}

func (e *export) explain(err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("sFlow: no collector listens on %s: start it, or change export.sflow.collector", e.config.Collector)
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("sFlow: this host has no route to the collector %s: add one, or change export.sflow.collector", e.config.Collector)
	}
	return fmt.Errorf("sFlow: cannot send to %s: %w", e.config.Collector, err)
}

// due counts a sample that stands for oneIn packets, and says whether it is to be sent, and for how many packets
// then: the forwarder may sample more often for another client.
func due(owed *uint32, oneIn, wanted uint32) (rate uint32, send bool) {
	if oneIn >= wanted {
		return oneIn, true
	}
	*owed += oneIn
	if *owed < wanted {
		return 0, false
	}
	*owed -= wanted
	return wanted, true
}

func (e *export) add(sample *dpclient.Sample, lost uint64) {
	if e == nil || e.encoder == nil {
		return
	}
	packet := sflow.Packet{Header: sample.GetHeader(), Length: sample.GetLength(), Input: sample.GetIfIndex(), Output: sample.GetOutIfIndex()}
	if sample.GetDrop() == "" {
		if rate, send := due(&e.owed.received, sample.GetOneIn(), e.config.Sampling); send && e.config.Sampling > 0 {
			e.metrics.samples.WithLabelValues("packet").Inc()
			e.encoder.Flow(packet, rate, uint32(lost))
		}
	} else if rate, send := due(&e.owed.dropped, sample.GetOneIn(), e.config.Drops); send && e.config.Drops > 0 {
		e.metrics.samples.WithLabelValues("drop").Inc()
		e.encoder.Discard(packet, sample.GetDrop(), rate)
	}
	if e.encoder.Full() {
		e.send()
	}
}

func (e *export) addCounters(port *dpclient.Port) {
	if e == nil || e.encoder == nil || port.GetIfIndex() == 0 {
		return
	}
	e.metrics.samples.WithLabelValues("counters").Inc()
	e.encoder.Counters(sflow.Counters{
		Interface: port.GetIfIndex(), Up: port.GetUp(), InBytes: port.GetRxBytes(), OutBytes: port.GetTxBytes(),
		InPackets: port.GetRxPackets(), OutPackets: port.GetTxPackets(), InLost: port.GetRxMissed(), OutLost: port.GetTxFailed(),
	})
	if e.encoder.Full() {
		e.send()
	}
}

// send sends the pending datagram, or drops it without a socket.
func (e *export) send() {
	if e == nil || e.encoder == nil {
		return
	}
	datagram := e.encoder.Datagram(time.Since(e.started))
	if datagram == nil || e.conn == nil {
		return
	}
	if _, err := e.conn.Write(datagram); err != nil {
		e.metrics.errors.Inc()
		e.fail(err)
		if !errors.Is(err, syscall.ECONNREFUSED) { // caused by an earlier datagram; the socket is usable
			e.close()
			e.retry = time.Now().Add(retryPeriod)
		}
		return
	}
	e.metrics.datagrams.Inc()
}
