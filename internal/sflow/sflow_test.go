// SPDX-License-Identifier: Apache-2.0

package sflow

import (
	"bytes"
	"net/netip"
	"os"
	"regexp"
	"testing"
	"time"

	decoder "github.com/netsampler/goflow2/v2/decoders/sflow"
)

// decode reads a datagram with a decoder that is not ours.
func decode(t *testing.T, datagram []byte) *decoder.Packet {
	t.Helper()
	packet := &decoder.Packet{}
	if err := decoder.DecodeMessageVersion(bytes.NewBuffer(datagram), packet); err != nil {
		t.Fatalf("%v in % x", err, datagram)
	}
	if int(packet.SamplesCount) != len(packet.Samples) {
		t.Fatalf("%d samples announced, %d read", packet.SamplesCount, len(packet.Samples))
	}
	return packet
}

func packet(length int) Packet {
	header := make([]byte, min(length, 128))
	for i := range header {
		header[i] = byte(i)
	}
	return Packet{Header: header, Length: uint32(length), Input: 7, Output: 9}
}

func checkHeader(t *testing.T, record decoder.FlowRecord, want Packet) {
	t.Helper()
	header, ok := record.Data.(decoder.SampledHeader)
	if !ok {
		t.Fatalf("not a header: %#v", record)
	}
	if header.Protocol != 1 || header.FrameLength != want.Length+4 || header.Stripped != 4 ||
		int(header.OriginalLength) != len(want.Header) || !bytes.HasPrefix(header.HeaderData, want.Header) {
		t.Errorf("header %#v", header)
	}
}

func TestFlows(t *testing.T) {
	e := NewEncoder(netip.MustParseAddr("192.0.2.9"))
	for _, length := range []int{60, 61, 62, 63, 1514} { // the header's length is padded
		e.Flow(packet(length), 1000, 3)
	}
	got := decode(t, e.Datagram(1234*time.Millisecond))
	if got.Version != 5 || got.IPVersion != 1 || !bytes.Equal(got.AgentIP, []byte{192, 0, 2, 9}) || got.SequenceNumber != 1 || got.Uptime != 1234 {
		t.Errorf("%+v", got)
	}
	for i, length := range []int{60, 61, 62, 63, 1514} {
		sample, ok := got.Samples[i].(decoder.ExpandedFlowSample)
		if !ok {
			t.Fatalf("%#v", got.Samples[i])
		}
		if sample.Header.SampleSequenceNumber != uint32(i+1) || sample.Header.SourceIdType != 0 || sample.Header.SourceIdValue != 7 ||
			sample.SamplingRate != 1000 || sample.SamplePool != uint32(i+1)*1000 || sample.Drops != 3 ||
			sample.InputIfFormat != 0 || sample.InputIfValue != 7 || sample.OutputIfFormat != 0 || sample.OutputIfValue != 9 {
			t.Errorf("%+v", sample)
		}
		checkHeader(t, sample.Records[0], packet(length))
	}
	if e.Datagram(0) != nil {
		t.Error("a datagram without samples")
	}
}

func TestDiscards(t *testing.T) {
	e := NewEncoder(netip.MustParseAddr("2001:db8::9"))
	e.Discard(packet(64), "no-session", 100)
	outward := packet(1514)
	outward.Input = 0
	e.Discard(outward, "tx-full", 1)
	got := decode(t, e.Datagram(0))
	if got.IPVersion != 2 || len(got.AgentIP) != 16 {
		t.Errorf("%+v", got)
	}
	for i, want := range []struct {
		p                          Packet
		source, unreported, reason uint32
		name                       string
	}{{packet(64), 7, 99, 289, "no-session"}, {outward, 9, 0, 259, "tx-full"}} {
		sample, ok := got.Samples[i].(decoder.DropSample)
		if !ok {
			t.Fatalf("%#v", got.Samples[i])
		}
		if sample.Header.SampleSequenceNumber != 1 || sample.Header.SourceIdValue != want.source || sample.Drops != want.unreported ||
			sample.Input != want.p.Input || sample.Output != 9 || sample.Reason != want.reason {
			t.Errorf("%+v", sample)
		}
		checkHeader(t, sample.Records[0], want.p)
		if function, ok := sample.Records[1].Data.(decoder.ExtendedFunction); !ok || function.Symbol != want.name {
			t.Errorf("%#v", sample.Records[1])
		}
	}
}

func TestCounters(t *testing.T) {
	e := NewEncoder(netip.MustParseAddr("192.0.2.9"))
	e.Counters(Counters{Interface: 3, Up: true, InBytes: 1<<40 + 1, OutBytes: 1<<40 + 2, InPackets: 5, OutPackets: 6, InLost: 7, OutLost: 8})
	sample, ok := decode(t, e.Datagram(0)).Samples[0].(decoder.CounterSample)
	if !ok || len(sample.Records) != 1 {
		t.Fatalf("%#v", sample)
	}
	got, ok := sample.Records[0].Data.(decoder.IfCounters)
	want := decoder.IfCounters{IfIndex: 3, IfType: 6, IfStatus: 3, IfInOctets: 1<<40 + 1, IfInUcastPkts: 5, IfInMulticastPkts: ^uint32(0),
		IfInBroadcastPkts: ^uint32(0), IfInDiscards: 7, IfOutOctets: 1<<40 + 2, IfOutUcastPkts: 6, IfOutMulticastPkts: ^uint32(0),
		IfOutBroadcastPkts: ^uint32(0), IfOutDiscards: 8}
	if !ok || got != want {
		t.Errorf("%+v", sample.Records[0])
	}
}

// TestEveryDropHasAReason: each of the forwarder's drops is exported under a reason, and the table names no other.
func TestEveryDropHasAReason(t *testing.T) {
	source, err := os.ReadFile("../../dataplane/base/include/sy_base.h")
	if err != nil {
		t.Fatal(err)
	}
	// Those that no reason of sFlow is like, and those that are no packet or no drop.
	unlike := map[string]bool{"none": true, "icmp-fragment": true, "unfinished-checksum": true, "no-local-address": true,
		"nat-clash": true, "nat-stray": true, "snat-stray": true, "session-evicted": true, "server-removed": true,
		"session-killed": true, "embryonic-evicted": true, "syn-proof": true, "opening": true, "not-on-link": true, "untranslatable": true, "no-client-address": true,
		"icmp-unhandled": true, "icmp-no-session": true, "path-mtu-kept": true}
	names := map[string]bool{}
	for _, match := range regexp.MustCompile(`\tX\([A-Z_0-9]+, "([a-z0-9-]+)"`).FindAllSubmatch(source, -1) {
		name := string(match[1])
		names[name] = true
		if _, ok := reasons[name]; ok == unlike[name] {
			t.Errorf("%s: put it into the table of reasons, or among those without one here", name)
		}
	}
	for name := range reasons {
		if !names[name] {
			t.Errorf("%s is no drop of the forwarder", name)
		}
	}
}

// FuzzSamples: whatever the samples hold, datagrams stay within their bounds and can be read.
func FuzzSamples(f *testing.F) {
	f.Add([]byte("header"), uint32(64), uint32(1), uint32(2), "no-service", uint32(100))
	f.Add([]byte{}, uint32(0), uint32(0), uint32(0), "", uint32(0))
	f.Fuzz(func(t *testing.T, header []byte, length, input, output uint32, reason string, rate uint32) {
		e := NewEncoder(netip.MustParseAddr("2001:db8::9"))
		p := Packet{Header: header, Length: length, Input: input, Output: output}
		added := 0
		for ; !e.Full(); added++ {
			if added%2 == 0 {
				e.Discard(p, reason, rate)
			} else {
				e.Flow(p, rate, 0)
			}
		}
		datagram := e.Datagram(time.Second)
		if len(datagram) > MaxDatagram {
			t.Fatalf("%d bytes", len(datagram))
		}
		if got := decode(t, datagram); len(got.Samples) != added {
			t.Errorf("%d samples, not %d", len(got.Samples), added)
		}
	})
}
