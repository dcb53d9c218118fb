// SPDX-License-Identifier: Apache-2.0

package sampling

import (
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"steelyard/internal/dpclient"
	"steelyard/internal/dpclient/dptest"
	pb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/model"
)

func randomAddress(r *rand.Rand) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(64 + r.IntN(32)), byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())})
}

func noSession(netip.Prefix) validity { return unvalidated }

func TestSources(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, test := range map[string]struct {
		samples int
		next    func(i int) netip.Addr
		check   func(s Sources) bool
	}{
		"too few": {minSamples - 1, func(int) netip.Addr { return netip.MustParseAddr("192.0.2.1") },
			func(s Sources) bool { return len(s.Networks) == 0 && !s.Spoofed && !s.Many }},
		"one network": {100, func(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}) },
			func(s Sources) bool {
				return len(s.Networks) == 1 && s.Networks[0] == Source{netip.MustParsePrefix("198.51.100.0/24"), 100}
			}},
		"one network of IPv6": {100, func(i int) netip.Addr { return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 1, 15: byte(i)}) },
			func(s Sources) bool {
				return len(s.Networks) == 1 && s.Networks[0].Network == netip.MustParsePrefix("2001:db8:1::/48")
			}},
		"few random": {minSamples, func(int) netip.Addr { return randomAddress(r) },
			func(s Sources) bool { return s.Spoofed && len(s.Networks) == 0 }},
		"many random": {200000, func(int) netip.Addr { return randomAddress(r) },
			func(s Sources) bool { return s.Spoofed && len(s.Networks) == 0 }},
		"many, again and again": {50000, func(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, byte(i % 250), 1}) },
			func(s Sources) bool { return s.Many && !s.Spoofed }},
		"a tenth of one network among random ones": {50000, func(i int) netip.Addr {
			if i%10 == 0 {
				return netip.MustParseAddr("203.0.113.9")
			}
			return randomAddress(r)
		}, func(s Sources) bool {
			return len(s.Networks) == 1 && s.Networks[0].Network == netip.MustParsePrefix("203.0.113.0/24") &&
				s.Networks[0].Percent > 9 && s.Networks[0].Percent <= 10
		}},
	} {
		n := newNetworks()
		for i := range test.samples {
			n.add(test.next(i), 1)
		}
		if s := n.sources(noSession); !test.check(s) || len(n.of) > maxNetworks {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// frame makes a frame of hexadecimal digits; spaces are for the reader.
func frame(t testing.TB, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

const (
	macs = "020000000001020000000002"
	syn  = macs + "0800 4500002800000000 4006 0000 c6336409 0a000050 04d2 0050 00000000 00000000 5002 0000 00000000"
	udp6 = macs + "86dd 60000000 0008 11 40 20010db8000000000000000000000009 fd000000000000000000000000000080 0007 0035 0008 0000"
)

func TestParsePacket(t *testing.T) {
	web := model.ServiceKey{Protocol: model.TCP, VIP: netip.MustParseAddr("10.0.0.80"), Port: 80}
	for name, test := range map[string]struct {
		frame string
		want  packet
		ok    bool
	}{
		"syn": {syn, packet{netip.MustParseAddr("198.51.100.9"), web.VIP, 6, 80, flagSYN}, true},
		"syn with a tag": {strings.Replace(syn, "0800 4", "81000000 0800 4", 1),
			packet{netip.MustParseAddr("198.51.100.9"), web.VIP, 6, 80, flagSYN}, true},
		"later fragment": {strings.Replace(syn, "4500002800000000", "4500002800000010", 1),
			packet{netip.MustParseAddr("198.51.100.9"), web.VIP, 6, 0, 0}, true},
		"udp6": {udp6, packet{netip.MustParseAddr("2001:db8::9"), netip.MustParseAddr("fd00::80"), 17, 53, 0}, true},
		"udp6 behind options": {strings.Replace(strings.Replace(udp6, "0008 11 40", "0010 00 40", 1), " 0007", "1100000000000000 0007", 1),
			packet{netip.MustParseAddr("2001:db8::9"), netip.MustParseAddr("fd00::80"), 17, 53, 0}, true},
		"arp":   {macs + "0806 0001", packet{}, false},
		"short": {macs + "0800 45", packet{}, false},
		"empty": {"", packet{}, false},
	} {
		got, ok := parsePacket(frame(t, test.frame))
		if got != test.want || ok != test.ok {
			t.Errorf("%s: %+v %v", name, got, ok)
		}
	}
}

// FuzzParsePacket: any bytes are read without a fault.
func FuzzParsePacket(f *testing.F) {
	f.Add(frame(f, syn))
	f.Add(frame(f, udp6))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, ok := parsePacket(data); ok && (!p.source.IsValid() || !p.destination.IsValid()) {
			t.Errorf("%+v", p)
		}
	})
}

// TestAttackSources: while an attack is under way its packets are sampled, and no others count.
func TestAttackSources(t *testing.T) {
	forwarder := dptest.New(t)
	s := start(t, forwarder)
	key := &pb.ServiceKey{Protocol: dpclient.TCP, Vip: []byte{10, 0, 0, 80}, Port: 80}
	attack := &pb.Attack{Kind: "syn-flood", Service: key, BeganUnixMs: 1, Rate: 100000}
	forwarder.SetAttacks(attack)
	waitFor(t, "requests for samples", func() bool { return len(forwarder.Fetches()) > 1 })
	if first := forwarder.Fetches()[0]; first.GetReceived() != 200 || first.GetDropped() != 200 {
		t.Errorf("%v", first)
	}
	for range minSamples {
		forwarder.AddSamples(&pb.Sample{Header: frame(t, syn), Length: 60, OneIn: 200},
			&pb.Sample{Header: frame(t, syn), Length: 60, OneIn: 200, Drop: "table-full"},
			&pb.Sample{Header: frame(t, udp6), Length: 60, OneIn: 200})
	}
	waitFor(t, "samples of the attack", func() bool { return s.Sources(attack).Samples >= minSamples && len(s.Sources(attack).Networks) > 0 })
	got := s.Sources(attack)
	if len(got.Networks) != 1 || got.Networks[0].Network.String() != "198.51.100.0/24" || got.Samples != minSamples {
		t.Errorf("%+v", got)
	}
	ended := &pb.Attack{Kind: "syn-flood", Service: key, BeganUnixMs: 1, EndedUnixMs: 2}
	forwarder.SetAttacks(ended)
	before := 0
	waitFor(t, "the end of sampling", func() bool {
		now := len(forwarder.Fetches())
		ended := now == before
		before = now
		time.Sleep(2 * fetchPeriod)
		return ended
	})
	if got := s.Sources(ended); got.Samples != minSamples {
		t.Errorf("after its end: %+v", got)
	}
	forwarder.SetAttacks()
	waitFor(t, "the end of the listing", func() bool { return s.Sources(ended).Samples == 0 })
}

// The drop reasons that identify attacks exist in the forwarder.
func TestDropsOfAttacks(t *testing.T) {
	source, err := os.ReadFile("../../dataplane/base/include/sy_base.h")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"no-session", "bad-cookie", "no-service", "unknown-destination", "tiny-fragment", "bad-fragment", "echo-rate"}
	for name := range malformed {
		names = append(names, name)
	}
	for _, name := range names {
		if !strings.Contains(string(source), "\""+name+"\"") {
			t.Errorf("%s is no drop of the forwarder", name)
		}
	}
}
