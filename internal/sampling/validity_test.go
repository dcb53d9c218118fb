// SPDX-License-Identifier: Apache-2.0

package sampling

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"steelyard/internal/dpclient"
	"steelyard/internal/dpclient/dptest"
	pb "steelyard/internal/gen/forwarderpb"
)

var webKey = &pb.ServiceKey{Protocol: dpclient.TCP, Vip: []byte{10, 0, 0, 80}, Port: 80}

// synFrom is a sample of a SYN to web, from an address.
func synFrom(t *testing.T, from netip.Addr, oneIn uint32) *pb.Sample {
	header := frame(t, syn)
	source := from.As4()
	binary.BigEndian.PutUint32(header[26:], binary.BigEndian.Uint32(source[:]))
	return &pb.Sample{Header: header, Length: 60, OneIn: oneIn}
}

func flood(rate uint64, subsided bool) *pb.Attack {
	return &pb.Attack{Kind: "syn-flood", Service: webKey, BeganUnixMs: 1, Rate: rate, Subsided: subsided}
}

// The rate of samples follows the flood: few at first, then one in 600 at 300 000/s, and all customers' packets after its end. The numbers of samples
// alone do not give the numbers of packets.
func TestSamplingFollowsTheFloodsRate(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	customer := netip.MustParseAddr("203.0.113.9")
	attacker := netip.MustParseAddr("198.51.100.9")
	for name, from := range map[string]func() netip.Addr{
		"forged": func() netip.Addr { return randomAddress(r) }, "one network": func() netip.Addr { return attacker },
	} {
		a := attacks{}
		step := func(seconds int, rate, customers uint64) {
			a.follow([]*dpclient.Attack{flood(rate, false)})
			oneIn := a.rates().Received
			for range seconds * int((rate-customers)/uint64(oneIn)) {
				a.add(synFrom(t, from(), oneIn))
			}
			for range seconds * int(max(customers/uint64(oneIn), 1)) {
				a.add(synFrom(t, customer, oneIn))
			}
		}
		step(2, 5_000, 200)
		step(10, 300_000, 200)
		a.add(synFrom(t, customer, a.rates().Received)) // of the flood's rate still
		step(2, 200, 200)                               // only customers, until the forwarder says that it has subsided
		id, _ := idOf(flood(0, false))
		got := a.of[id].sources(noSession)
		for _, source := range got.Networks {
			if source.Network.Contains(customer) {
				t.Errorf("%s: the customer is named: %+v", name, got)
			}
		}
		if (name == "one network") != (len(got.Networks) == 1 && got.Networks[0].Percent > 99) || got.Spoofed != (name == "forged") {
			t.Errorf("%s: %+v", name, got)
		}
		before := got.Samples
		a.follow([]*dpclient.Attack{flood(200, true)})
		for range 10_000 {
			a.add(synFrom(t, customer, 1))
		}
		if after := a.of[id].sources(noSession); after.Samples != before {
			t.Errorf("%s: %d samples were counted after the flood", name, after.Samples-before)
		}
		a.follow([]*dpclient.Attack{flood(300_000, false)}) // it comes again
		a.add(synFrom(t, customer, 1))
		if after := a.of[id].sources(noSession); after.Samples != before+1 {
			t.Errorf("%s: what comes again is not counted", name)
		}
	}
}

// A network with a validated session is not named, however much of the attack comes from there; one that is not looked up yet neither.
func TestSourcesWithSessions(t *testing.T) {
	n := newNetworks()
	customer, attacker := netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("198.51.100.9")
	for range minSamples {
		n.add(customer, 10)
		n.add(attacker, 10)
	}
	known := map[netip.Prefix]validity{}
	has := func(network netip.Prefix) validity { return known[network] }
	if s := n.sources(has); len(s.Networks) != 0 || s.Spoofed || s.Many || s.Clients {
		t.Errorf("nothing is known yet: %+v", s)
	}
	known[networkOf(attacker)], known[networkOf(customer)] = unvalidated, validated
	if s := n.sources(has); len(s.Networks) != 1 || s.Networks[0].Network != networkOf(attacker) || !s.Clients {
		t.Errorf("%+v", s)
	}
	known[networkOf(attacker)] = validated
	if s := n.sources(has); len(s.Networks) != 0 || !s.Clients || s.Spoofed || s.Many {
		t.Errorf("%+v", s)
	}
}

// The sampler requests sessions of the networks that would be named: half-open ones validate no network, a later validated one does.
func TestSessionsAreLookedUp(t *testing.T) {
	forwarder := dptest.New(t)
	forwarder.Sessions = []*pb.Session{
		{Client: []byte{198, 51, 100, 7}, State: "syn-received"}, {Client: []byte{203, 0, 113, 200}, State: "established"},
	}
	s := start(t, forwarder)
	attack := flood(1000, false)
	forwarder.SetAttacks(attack)
	waitFor(t, "requests for samples", func() bool { return len(forwarder.Fetches()) > 1 })
	for range minSamples {
		forwarder.AddSamples(synFrom(t, netip.MustParseAddr("203.0.113.9"), 2), synFrom(t, netip.MustParseAddr("198.51.100.9"), 2))
	}
	waitFor(t, "the sources", func() bool { got := s.Sources(attack); return len(got.Networks) > 0 && got.Clients })
	if got := s.Sources(attack); len(got.Networks) != 1 || got.Networks[0].Network.String() != "198.51.100.0/24" {
		t.Errorf("%+v", got)
	}
	network := netip.MustParsePrefix("198.51.100.0/24")
	s.mu.Lock()
	first := s.attacks.due(time.Now())
	again := s.attacks.due(time.Now().Add(lookAgain))
	s.mu.Unlock()
	if len(first) != 0 || len(again) != 1 || again[0] != network {
		t.Errorf("looked up again: %v, later %v", first, again)
	}
}
