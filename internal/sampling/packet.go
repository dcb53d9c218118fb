// SPDX-License-Identifier: Apache-2.0

package sampling

import (
	"encoding/binary"
	"net/netip"

	"steelyard/internal/model"
)

const (
	protocolTCP = 6
	protocolUDP = 17

	ethernetIPv4, ethernetIPv6 = 0x0800, 0x86dd
	ethernetVLAN, ethernetQinQ = 0x8100, 0x88a8
)

// packet has the fields of a sample's header. For later fragments and truncated headers, the port is 0.
type packet struct {
	source, destination netip.Addr
	protocol            uint8
	port                uint16 // destination
	flags               uint8  // TCP
}

const (
	flagSYN = 0x02
	flagACK = 0x10
)

// parsePacket reads a frame's first bytes; false: not IP, or too short for its addresses.
func parsePacket(frame []byte) (packet, bool) {
	for at := 12; len(frame) >= at+2; at += 4 {
		rest := frame[at+2:]
		switch binary.BigEndian.Uint16(frame[at:]) {
		case ethernetIPv4:
			return parseIPv4(rest)
		case ethernetIPv6:
			return parseIPv6(rest)
		case ethernetVLAN, ethernetQinQ:
			continue
		}
		break
	}
	return packet{}, false
}

func parseIPv4(b []byte) (packet, bool) {
	if len(b) < 20 {
		return packet{}, false
	}
	p := packet{source: netip.AddrFrom4([4]byte(b[12:16])), destination: netip.AddrFrom4([4]byte(b[16:20])), protocol: b[9]}
	if header := int(b[0]&15) * 4; binary.BigEndian.Uint16(b[6:])&0x1fff == 0 && header >= 20 && len(b) > header {
		p.parsePorts(b[header:])
	}
	return p, true
}

func parseIPv6(b []byte) (packet, bool) {
	if len(b) < 40 {
		return packet{}, false
	}
	p := packet{source: netip.AddrFrom16([16]byte(b[8:24])), destination: netip.AddrFrom16([16]byte(b[24:40])), protocol: b[6]}
	for b = b[40:]; len(b) >= 8; {
		switch p.protocol {
		case 0, 43, 60: // hop-by-hop, routing, destination options
			size := 8 + 8*int(b[1])
			p.protocol = b[0]
			b = b[min(size, len(b)):]
		case 44: // fragment
			p.protocol = b[0]
			if binary.BigEndian.Uint16(b[2:])&0xfff8 != 0 {
				return p, true
			}
			b = b[8:]
		default:
			p.parsePorts(b)
			return p, true
		}
	}
	return p, true
}

func (p *packet) parsePorts(b []byte) {
	if (p.protocol != protocolTCP && p.protocol != protocolUDP) || len(b) < 4 {
		return
	}
	p.port = binary.BigEndian.Uint16(b[2:])
	if p.protocol == protocolTCP && len(b) >= 14 {
		p.flags = b[13]
	}
}

// isTo reports whether the packet goes to a service.
func (p packet) isTo(key model.ServiceKey) bool {
	return p.destination == key.VIP && uint8(key.Protocol) == p.protocol &&
		(key.Port == 0 || p.port == key.Port || p.port > key.Port && p.port <= key.LastPort)
}
