// SPDX-License-Identifier: Apache-2.0

package sflow

// Reasons of sflow_drops.txt.
const (
	netUnreachable       = 0
	hostUnreachable      = 1
	portUnreachable      = 3
	sourceRouteFailed    = 5
	unknown              = 256
	ttlExceeded          = 257
	acl                  = 258
	noBufferSpace        = 259
	trafficShaping       = 261
	packetTooBig         = 262
	vlanTagMismatch      = 264
	blackholeRoute       = 269
	nonIP                = 270
	headerCorrupted      = 275
	unresolvedNeighbour  = 279
	nonRoutablePacket    = 281
	unknownL3            = 285
	unknownL4            = 289
	sourceIsDestination  = 297
	destinationLinkLocal = 299
)

// reasons are those of the forwarder's drops that are like one of them.
var reasons = map[string]uint32{
	"truncated": headerCorrupted, "bad-ip-header": headerCorrupted, "bad-ip-checksum": headerCorrupted,
	"tiny-fragment": headerCorrupted, "bad-fragment": headerCorrupted, "ip-options": headerCorrupted,
	"extension-header": headerCorrupted, "routing-header": sourceRouteFailed, "source-route": sourceRouteFailed,
	"not-ip": nonIP, "vlan": vlanTagMismatch, "land": sourceIsDestination, "link-local": destinationLinkLocal,
	"bad-source": unknownL3, "own-source": unknownL3, "bad-path-mtu": unknownL4, "fragment-timeout": unknownL3, "fragment-duplicate": unknownL3, "fragment-overlap": unknownL3,
	"fragment-wait-full": noBufferSpace, "fragment-too-many": unknownL3,
	"unknown-protocol": unknownL4, "bad-l4-header": unknownL4, "bad-tcp-flags": unknownL4, "bad-l4-checksum": unknownL4,
	"bad-tcp-state": unknownL4, "bad-cookie": unknownL4, "no-session": unknownL4, "relay-rate": unknownL4,
	"other-host": nonRoutablePacket, "unknown-destination": nonRoutablePacket, "no-service": portUnreachable,
	"acl-drop": acl, "acl-reset": acl, "no-server": hostUnreachable, "port-down": hostUnreachable,
	"connection-limit": trafficShaping, "client-rate": trafficShaping, "client-sessions": trafficShaping, "session-rate": trafficShaping,
	"limit-exceeded": trafficShaping, "overload": trafficShaping, "echo-rate": trafficShaping, "icmp-rate": trafficShaping,
	"reset-rate":    trafficShaping,
	"no-local-port": noBufferSpace, "no-pool-port": noBufferSpace, "backup": unknownL3, "table-full": noBufferSpace, "tx-full": noBufferSpace,
	"shaping-full": trafficShaping, "shaping-early": trafficShaping,
	"steering-full": noBufferSpace, "event-full": noBufferSpace, "no-buffer": noBufferSpace, "neighbour-queue": noBufferSpace,
	"no-route": netUnreachable, "blackhole": blackholeRoute, "no-neighbour": unresolvedNeighbour,
	"ttl-expired": ttlExceeded, "too-big": packetTooBig,
}

// Reason returns the sFlow reason of a drop, by the forwarder's name for it; 256, unknown, if none is like it.
func Reason(drop string) uint32 {
	if reason, ok := reasons[drop]; ok {
		return reason
	}
	return unknown
}
