// SPDX-License-Identifier: Apache-2.0

// Package sflow writes sFlow version 5 datagrams: samples of packets, samples of discarded packets, and
// counters of interfaces.
//
// The formats are those of sflow_version_5.txt (datagrams, flow and counter samples, in their expanded forms)
// and sflow_drops.txt (discarded packets), all in XDR (RFC 4506): words of four bytes in network order.
package sflow

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// MaxDatagram is the largest datagram in bytes: it fits an Ethernet frame behind tunnels.
const MaxDatagram = 1400

// The largest part of a packet, and the longest name of a reason, that fit a sample.
const (
	maxHeader = 256
	maxReason = 64
)

// Data formats of enterprise 0.
const (
	sampleFlow     = 3 // flow_sample_expanded
	sampleCounters = 4 // counters_sample_expanded
	sampleDiscard  = 5 // discarded_packet

	recordHeader   = 1    // sampled_header
	recordFunction = 1038 // extended_function
	recordCounters = 1    // if_counters

	headerEthernet = 1 // header_protocol
	fcs            = 4 // bytes of an Ethernet frame's checksum, which samples lack
)

// Packet is a sampled packet.
type Packet struct {
	Header []byte // its first bytes, from the Ethernet header on
	Length uint32 // of the whole frame, without its checksum
	Input  uint32 // index of the interface; 0: unknown
	Output uint32 // likewise
}

// Counters are those of an interface since some beginning.
type Counters struct {
	Interface             uint32 // index
	Up                    bool
	InBytes, OutBytes     uint64
	InPackets, OutPackets uint64
	InLost, OutLost       uint64
}

// source is what the datagrams say about one source of samples, an interface.
type source struct {
	flows, discards, counters uint32 // sequence numbers
	pool                      uint32 // packets that could have been sampled
	unreported                uint32 // discarded packets without a sample
}

// Encoder builds the datagrams of one agent. Not for concurrent use.
type Encoder struct {
	agent    netip.Addr
	sequence uint32 // of datagrams
	sources  map[uint32]*source
	samples  uint32 // in data
	data     []byte
}

// NewEncoder returns an Encoder for the agent with this address.
func NewEncoder(agent netip.Addr) *Encoder {
	return &Encoder{agent: agent.Unmap(), sources: map[uint32]*source{}}
}

func (e *Encoder) source(index uint32) *source {
	s := e.sources[index]
	if s == nil {
		s = &source{}
		e.sources[index] = s
	}
	return s
}

func (e *Encoder) word(values ...uint32) {
	for _, v := range values {
		e.data = binary.BigEndian.AppendUint32(e.data, v)
	}
}

// opaque appends variable-length data: its length, the data, and zeros up to a whole word.
func (e *Encoder) opaque(data []byte) {
	e.word(uint32(len(data)))
	e.data = append(e.data, data...)
	for len(e.data)%4 != 0 {
		e.data = append(e.data, 0)
	}
}

// within writes a structure behind its format and its length.
func (e *Encoder) within(format uint32, write func()) {
	e.word(format, 0)
	start := len(e.data)
	write()
	binary.BigEndian.PutUint32(e.data[start-4:], uint32(len(e.data)-start))
}

func (e *Encoder) sampledHeader(p Packet) {
	header := p.Header[:min(len(p.Header), maxHeader)]
	e.within(recordHeader, func() {
		e.word(headerEthernet, p.Length+fcs, fcs)
		e.opaque(header)
	})
}

// Flow adds a sample that stands for `rate` received packets; lost is the number of samples that were lost so far.
func (e *Encoder) Flow(p Packet, rate, lost uint32) {
	s := e.source(p.Input)
	s.flows++
	s.pool += rate
	e.samples++
	e.within(sampleFlow, func() {
		e.word(s.flows, 0, p.Input, rate, s.pool, lost, 0, p.Input, 0, p.Output, 1)
		e.sampledHeader(p)
	})
}

// Discard adds a sample that stands for `rate` packets dropped for this reason, a name of the forwarder.
func (e *Encoder) Discard(p Packet, reason string, rate uint32) {
	index := p.Input
	if index == 0 {
		index = p.Output
	}
	s := e.source(index)
	s.discards++
	s.unreported += max(rate, 1) - 1
	e.samples++
	e.within(sampleDiscard, func() {
		e.word(s.discards, 0, index, s.unreported, p.Input, p.Output, Reason(reason), 2)
		e.sampledHeader(p)
		e.within(recordFunction, func() { e.opaque([]byte(reason[:min(len(reason), maxReason)])) })
	})
}

// Counters adds an interface's counters.
func (e *Encoder) Counters(c Counters) {
	const ethernet, admin, operational, unknown = 6, 1, 2, ^uint32(0)
	s := e.source(c.Interface)
	s.counters++
	e.samples++
	status := uint32(admin)
	if c.Up {
		status |= operational
	}
	e.within(sampleCounters, func() {
		e.word(s.counters, 0, c.Interface, 1)
		e.within(recordCounters, func() {
			e.word(c.Interface, ethernet, 0, 0) // speed unknown
			e.word(0, status)                   // direction unknown
			e.word(uint32(c.InBytes>>32), uint32(c.InBytes), uint32(c.InPackets), unknown, unknown, uint32(c.InLost), 0, 0)
			e.word(uint32(c.OutBytes>>32), uint32(c.OutBytes), uint32(c.OutPackets), unknown, unknown, uint32(c.OutLost), 0)
			e.word(0) // promiscuous mode
		})
	})
}

// largestSample is an upper bound of a sample's size.
const largestSample = 8 + 11*4 + 8 + 16 + maxHeader + 8 + 4 + maxReason

// Full reports whether the next sample may not fit into the datagram, which must then be taken first.
func (e *Encoder) Full() bool {
	return headBytes+len(e.data)+largestSample > MaxDatagram
}

const headBytes = 4 + 4 + 16 + 4*4

// Datagram returns the samples since the last call as one datagram, or nil if there are none; uptime is the
// agent's.
func (e *Encoder) Datagram(uptime time.Duration) []byte {
	if e.samples == 0 {
		return nil
	}
	e.sequence++
	family := uint32(1)
	if e.agent.Is6() {
		family = 2
	}
	head := make([]byte, 0, headBytes+len(e.data))
	head = binary.BigEndian.AppendUint32(head, 5)
	head = binary.BigEndian.AppendUint32(head, family)
	head = append(head, e.agent.AsSlice()...)
	for _, v := range []uint32{0, e.sequence, uint32(uptime.Milliseconds()), e.samples} { // sub-agent 0
		head = binary.BigEndian.AppendUint32(head, v)
	}
	head = append(head, e.data...)
	e.data, e.samples = e.data[:0], 0
	return head
}
