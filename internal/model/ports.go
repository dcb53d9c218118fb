// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// anyPort stands for all ports of a service, or for a server's port that equals the client's.
const anyPort = "*"

// Many reports whether the service has more than one port.
func (k ServiceKey) Many() bool {
	return k.Port == 0 || k.LastPort != 0
}

// Ports returns "80", "8000-8099" or "*".
func (k ServiceKey) Ports() string {
	switch {
	case k.Port == 0:
		return anyPort
	case k.LastPort != 0:
		return fmt.Sprintf("%d-%d", k.Port, k.LastPort)
	}
	return strconv.Itoa(int(k.Port))
}

func (k ServiceKey) String() string {
	return fmt.Sprintf("%s %s", k.Protocol, net.JoinHostPort(k.VIP.String(), k.Ports()))
}

func (k ServiceKey) bounds() (first, last uint16) {
	switch {
	case k.Port == 0:
		return 1, 65535
	case k.LastPort != 0:
		return k.Port, k.LastPort
	}
	return k.Port, k.Port
}

// Crosses reports whether both have common ports and each also has ports that the other lacks: then
// neither is the narrower one.
func (k ServiceKey) Crosses(other ServiceKey) bool {
	if k.VIP != other.VIP || k.Protocol != other.Protocol {
		return false
	}
	first, last := k.bounds()
	otherFirst, otherLast := other.bounds()
	apart := last < otherFirst || otherLast < first
	within := first <= otherFirst && otherLast <= last || otherFirst <= first && last <= otherLast
	return !apart && !within
}

// SamePorts reports whether both have exactly the same ports, possibly written in two forms: then neither
// is the narrower one.
func (k ServiceKey) SamePorts(other ServiceKey) bool {
	first, last := k.bounds()
	otherFirst, otherLast := other.bounds()
	return k.VIP == other.VIP && k.Protocol == other.Protocol && first == otherFirst && last == otherLast
}

// ServerText returns "10.1.0.21:80", or "10.1.0.21:*" for a server that gets the client's port.
func ServerText(server netip.AddrPort) string {
	if server.Port() != 0 {
		return server.String()
	}
	return net.JoinHostPort(server.Addr().String(), anyPort)
}

// ParseServer reads a text in ServerText's format.
func ParseServer(text string) (netip.AddrPort, error) {
	if host, ok := strings.CutSuffix(text, ":"+anyPort); ok {
		return netip.ParseAddrPort(host + ":0")
	}
	return netip.ParseAddrPort(text)
}
