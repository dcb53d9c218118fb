// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"maps"
	"math"
	"sync"
	"time"

	"steelyard/internal/cluster"
	agentpb "steelyard/internal/gen/agentpb"
	"steelyard/internal/stall"

	"connectrpc.com/connect"
)

// measured is a forwarder's load, as read from its agent.
type measured struct {
	Busy     float64            `json:"busy"`  // 0 to 1, of the busiest worker's time; negative: unknown
	Table    float64            `json:"table"` // fill of the session table; likewise
	Link     float64            `json:"link"`  // use of the busiest port; likewise
	Down     string             `json:"down,omitempty"`
	Services map[string]traffic `json:"services,omitempty"` // of projects of the workflow; only the busiest ones
}

// traffic is a service's part of its forwarder's traffic.
type traffic struct {
	Part    float64 `json:"part"` // of the packets since the last reading, 0 to 1; negative: unknown
	Created uint64  `json:"created"`
}

const (
	measureSmooth  = 10 * time.Second // time constant of loads
	measureStep    = 0.02             // a smaller change is not written
	measureRepeat  = 20 * time.Second // an unchanged load is written again after this time: an older load counts as unknown
	measureAtOnce  = 16
	measureTimeout = 5 * time.Second
)

// meter reads the load of one forwarder periodically.
type meter struct {
	session *session
	at      time.Time
	workers map[uint32][2]uint64 // busy and idle cycles
	ports   map[string]uint64    // bytes of the busier direction
	packets map[string]uint64    // by service
	some    someServices
	load    measured
	written measured
	wrote   time.Time
}

// measure reads the load of this controller's forwarders, and writes it for the placement.
func (s *Server) measure(ctx context.Context) {
	meters := map[string]*meter{}
	for ctx.Err() == nil {
		s.mu.Lock()
		sessions := maps.Clone(s.sessions)
		s.mu.Unlock()
		for name, m := range meters {
			if sessions[name] != m.session {
				delete(meters, name)
			}
		}
		var reading sync.WaitGroup
		places := make(chan struct{}, measureAtOnce)
		for name, one := range sessions {
			m := meters[name]
			if m == nil {
				m = &meter{session: one, load: measured{Busy: -1, Table: -1, Link: -1}}
				meters[name] = m
			}
			of := s.requestedOf(name)
			places <- struct{}{}
			reading.Go(func() {
				defer func() { <-places }()
				asking, cancel := stall.WithTimeout(ctx, measureTimeout)
				defer cancel()
				if m.read(asking, of) {
					s.writeLoad(asking, m)
				}
			})
		}
		reading.Wait()
		pause(ctx, s.measureEvery)
	}
}

// read queries the agent once. Returns false if it does not answer.
func (m *meter) read(ctx context.Context, of requested) bool {
	agent := m.session.agent
	status, err := agent.GetStatus(ctx, connect.NewRequest(&agentpb.GetStatusRequest{}))
	if err != nil {
		return false // the session logs the reason
	}
	now := time.Now()
	elapsed := now.Sub(m.at)
	if m.at.IsZero() {
		elapsed = 0
	}
	m.at = now
	forwarder := status.Msg.GetForwarder()
	if m.load.Down = ""; !forwarder.GetConnected() {
		m.load.Down = cmp.Or(forwarder.GetError(), "the agent does not reach it")
		m.workers, m.ports, m.packets, m.some = nil, nil, nil, someServices{}
		return true
	}
	if room := forwarder.GetStatus().GetSessionCapacity(); room > 0 {
		m.load.Table = float64(forwarder.GetStatus().GetSessions()) / float64(room)
	}
	weight := -math.Expm1(-elapsed.Seconds() / measureSmooth.Seconds())
	if workers, err := agent.ListWorkers(ctx, connect.NewRequest(&agentpb.ListWorkersRequest{})); err == nil {
		smooth(&m.load.Busy, m.busy(workers.Msg), weight)
	}
	if ports, err := agent.ListPorts(ctx, connect.NewRequest(&agentpb.ListPortsRequest{})); err == nil {
		smooth(&m.load.Link, m.link(ports.Msg, elapsed), weight)
	}
	m.readServices(ctx, status.Msg.GetServices(), of)
	return true
}

// smooth updates an average, unless the new value is unknown.
func smooth(value *float64, now, weight float64) {
	switch {
	case now < 0:
	case *value < 0:
		*value = now
	default:
		*value += (now - *value) * weight
	}
}

// busy returns the busy fraction of the busiest worker's time since the last reading.
func (m *meter) busy(list *agentpb.ListWorkersResponse) float64 {
	maximum, now := -1.0, map[uint32][2]uint64{}
	m.some.received = 0
	for _, w := range list.GetWorkers() {
		m.some.received += w.GetRxPackets()
		cycles := [2]uint64{w.GetBusyCycles(), w.GetIdleCycles()}
		now[w.GetId()] = cycles
		before, ok := m.workers[w.GetId()]
		if !ok || cycles[0] < before[0] || cycles[1] < before[1] { // a restarted forwarder counts from 0
			continue
		}
		if all := (cycles[0] - before[0]) + (cycles[1] - before[1]); all > 0 {
			maximum = max(maximum, float64(cycles[0]-before[0])/float64(all))
		}
	}
	m.workers = now
	return maximum
}

// link returns the utilization of the busiest port with a known speed.
func (m *meter) link(list *agentpb.ListPortsResponse, elapsed time.Duration) float64 {
	maximum, now := -1.0, map[string]uint64{}
	for _, p := range list.GetPorts() {
		bytes := max(p.GetRxBytes(), p.GetTxBytes())
		now[p.GetName()] = bytes
		before, ok := m.ports[p.GetName()]
		if !ok || bytes < before || list.GetSpeedBits()[p.GetName()] == 0 || elapsed <= 0 {
			continue
		}
		maximum = max(maximum, min(1, 8*float64(bytes-before)/elapsed.Seconds()/float64(list.GetSpeedBits()[p.GetName()])))
	}
	m.ports = now
	return maximum
}

// news reports whether a reading differs enough from the stored one.
func (m *meter) news() bool {
	if m.wrote.IsZero() || time.Since(m.wrote) >= measureRepeat || m.load.Down != m.written.Down {
		return true
	}
	far := func(a, b float64) bool { return math.Abs(a-b) >= measureStep || (a < 0) != (b < 0) }
	if far(m.load.Busy, m.written.Busy) || far(m.load.Table, m.written.Table) || far(m.load.Link, m.written.Link) {
		return true
	}
	for name, now := range m.load.Services {
		if before, ok := m.written.Services[name]; !ok || (now.Created > 0) != (before.Created > 0) {
			return true
		}
	}
	return false
}

// writeLoad writes a forwarder's load, if this controller still owns the forwarder.
func (s *Server) writeLoad(ctx context.Context, m *meter) {
	if !m.news() {
		return
	}
	txn := new(cluster.Txn).At(keyOwners+m.session.forwarder, m.session.fence).Put(keyLoads+m.session.forwarder, encode(m.load), 0)
	if down := m.load.Down; down == "" && (m.written.Down != "" || m.wrote.IsZero()) {
		if txn.Delete(keyLost + m.session.forwarder); m.written.Down != "" {
			s.record(txn, "controller/"+s.id, eventBack, m.session.forwarder, "", "its agent reaches it again")
		}
	}
	if down := m.load.Down; down != "" && down != m.written.Down {
		txn.Put(keyLost+m.session.forwarder, []byte(shortened(down)), 0)
		s.record(txn, "controller/"+s.id, eventLost, m.session.forwarder, "", "its agent does not reach it: "+down)
	}
	if _, err := s.store.Commit(ctx, txn); err != nil {
		return // another controller owns it, or etcd is unreachable: the next reading tries again
	}
	m.written, m.wrote = m.load, time.Now()
	m.written.Services = maps.Clone(m.load.Services)
}
