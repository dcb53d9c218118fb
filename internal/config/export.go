// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net/netip"

	"steelyard/internal/model"
)

type rawExport struct {
	sflow rawSFlow
}

type rawSFlow struct {
	collector value[netip.AddrPort]
	sampling  value[int]
	drops     value[int]
	agent     value[netip.Addr]
}

const (
	defaultSampling = 1000
	defaultDrops    = 100
	maxSampling     = 1 << 24
)

var sflowFields = []field[rawSFlow]{
	scalar(fieldDoc{name: "collector", kind: "address with port", required: true,
		doc: "Where datagrams go, by UDP. The usual port of sFlow collectors is 6343."},
		func(s *rawSFlow) *value[netip.AddrPort] { return &s.collector }, parseCollector),
	scalar(fieldDoc{name: "sampling", kind: fmt.Sprintf("0 to %d", maxSampling), def: fmt.Sprint(defaultSampling),
		doc: "One of every so many received packets is sampled, at random; 0: none."},
		func(s *rawSFlow) *value[int] { return &s.sampling }, parseNumber(0, maxSampling)),
	scalar(fieldDoc{name: "drops", kind: fmt.Sprintf("0 to %d", maxSampling), def: fmt.Sprint(defaultDrops),
		doc: "One of every so many dropped packets is sampled, with the drop reason; 0: none. At most 1000 per second and worker."},
		func(s *rawSFlow) *value[int] { return &s.drops }, parseNumber(0, maxSampling)),
	scalar(fieldDoc{name: "agent_address", kind: "address", def: "the source address of the datagrams",
		doc: "The address by which the collector identifies this agent."},
		func(s *rawSFlow) *value[netip.Addr] { return &s.agent }, parseAddress),
}

var sflowObject = docsOf("sflow", "Samples of packets for an sFlow collector: see [export](export.md).", sflowFields)

var exportFields = []field[rawExport]{
	nested(fieldDoc{name: "sflow", kind: "mapping", object: sflowObject,
		doc: "By sFlow version 5. Without this section nothing is exported."},
		func(e *rawExport) *rawSFlow { return &e.sflow }, sflowFields),
}

var exportObject = docsOf("export", "What the agent sends to other programs.", exportFields)

func parseCollector(text string) (netip.AddrPort, error) {
	collector, err := netip.ParseAddrPort(text)
	if err == nil && collector.Port() == 0 {
		err = errors.New("no port")
	}
	if err != nil {
		if address, err := netip.ParseAddr(text); err == nil {
			return collector, fmt.Errorf("%q has no port: write %s", text, netip.AddrPortFrom(address, 6343))
		}
		return collector, fmt.Errorf("%q is not an address with a port: write one like 192.0.2.1:6343 or [2001:db8::1]:6343", text)
	}
	if collector.Addr().IsUnspecified() || collector.Addr().IsMulticast() {
		return collector, fmt.Errorf("%s is no host's address: write the collector's", collector.Addr())
	}
	return netip.AddrPortFrom(collector.Addr().Unmap(), collector.Port()), nil
}

func (b *builder) sflow() model.SFlow {
	raw := &b.raw.export.sflow
	if !raw.collector.set {
		return model.SFlow{}
	}
	sflow := model.SFlow{Collector: raw.collector.v, AgentAddress: raw.agent.v,
		Sampling: uint32(raw.sampling.or(defaultSampling)), Drops: uint32(raw.drops.or(defaultDrops))}
	if sflow.Sampling == 0 && sflow.Drops == 0 {
		b.fail(raw.sampling.at, raw.sampling.path, "with `sampling: 0` and `drops: 0` there is nothing to export: remove `sflow`")
	}
	return sflow
}
