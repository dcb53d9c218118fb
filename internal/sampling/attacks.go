// SPDX-License-Identifier: Apache-2.0

package sampling

import (
	"net/netip"
	"strings"

	"steelyard/internal/dpclient"
	"steelyard/internal/model"
)

// maxAttacks are watched at a time: the newest.
const maxAttacks = 64

// samplesPerSecond suffice to locate the sources of an attack.
const samplesPerSecond = 500

// attackID identifies attacks.
type attackID struct {
	kind  string
	key   model.ServiceKey // zero: of no service
	began uint64
}

func idOf(attack *dpclient.Attack) (attackID, bool) {
	id := attackID{kind: attack.GetKind(), began: attack.GetBeganUnixMs()}
	if attack.GetService() == nil {
		return id, true
	}
	key, err := dpclient.KeyFromWire(attack.GetService())
	id.key = key
	return id, err == nil
}

// attacks tracks the sources of listed attacks.
type attacks struct {
	of       map[attackID]*networks // listed
	underWay map[attackID]*networks
	rate     uint64 // packets/s of active ones
	looked   map[netip.Prefix]looked
}

// follow keeps the state of the listed attacks, newest first, and adds new ones.
func (a *attacks) follow(list []*dpclient.Attack) {
	listed := map[attackID]*networks{}
	a.underWay, a.rate = map[attackID]*networks{}, 0
	for _, attack := range list {
		id, ok := idOf(attack)
		if !ok {
			continue
		}
		counts := a.of[id]
		goesOn := attack.GetEndedUnixMs() == 0
		if counts == nil && goesOn {
			counts = newNetworks()
		}
		if goesOn && !attack.GetSubsided() && len(a.underWay) < maxAttacks { // packets after the flood are not counted
			a.underWay[id] = counts
			a.rate += attack.GetRate()
		}
		if counts != nil {
			listed[id] = counts
		}
	}
	a.of = listed
}

// rates are the rates that active attacks need; none: zero.
func (a *attacks) rates() dpclient.SampleRates {
	if len(a.underWay) == 0 {
		return dpclient.SampleRates{}
	}
	oneIn := uint32(min(max(a.rate/samplesPerSecond, 1), 10000))
	return dpclient.SampleRates{Received: oneIn, Dropped: oneIn}
}

func (a *attacks) add(sample *dpclient.Sample) {
	if len(a.underWay) == 0 {
		return
	}
	p, ok := parsePacket(sample.GetHeader())
	if !ok {
		return
	}
	for id, counts := range a.underWay {
		if id.has(p, sample.GetDrop()) {
			counts.add(p.source, uint64(max(sample.GetOneIn(), 1)))
		}
	}
}

// has reports whether a sample belongs to the attack; drop is empty for a received packet. A dropped packet was
// received too and may be sampled as both, so each kind counts one of the two.
func (id attackID) has(p packet, drop string) bool {
	switch id.kind {
	case "syn-flood":
		return drop == "" && p.isTo(id.key) && p.flags&(flagSYN|flagACK) == flagSYN
	case "udp-flood":
		return drop == "" && p.isTo(id.key)
	case "stray-tcp":
		return (drop == "no-session" || drop == "bad-cookie") && p.isTo(id.key)
	case "no-service":
		return drop == "no-service" || drop == "unknown-destination"
	case "fragment-flood":
		return strings.HasPrefix(drop, "fragment-") || drop == "tiny-fragment" || drop == "bad-fragment"
	case "icmp-flood":
		return strings.HasPrefix(drop, "icmp-") || drop == "echo-rate"
	case "malformed":
		return malformed[drop]
	case "overrun":
		return drop == ""
	}
	return false // a kind of a newer forwarder
}

var malformed = map[string]bool{"truncated": true, "bad-ip-header": true, "bad-ip-checksum": true, "bad-source": true, "own-source": true, "land": true,
	"ip-options": true, "source-route": true, "routing-header": true, "bad-l4-header": true, "bad-tcp-flags": true,
	"bad-l4-checksum": true}
