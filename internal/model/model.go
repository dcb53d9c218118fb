// SPDX-License-Identifier: Apache-2.0

// Package model holds the user's configuration (Config) and a forwarder's contents (Table), independent of
// files, wire formats and time. The rest of the control plane uses its types.
package model

import (
	"fmt"
	"net/netip"
	"time"
)

// Protocol is an IP protocol number.
type Protocol uint8

// The protocols that can be balanced.
const (
	TCP Protocol = 6
	UDP Protocol = 17
)

func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	}
	return fmt.Sprintf("protocol-%d", uint8(p))
}

// Mode is how packets reach the servers.
type Mode uint8

// The modes. FNAT translates both addresses; servers answer to a local address of the forwarder. DR
// (direct routing) passes packets on unchanged; servers answer clients directly. NAT translates the
// destination; servers answer clients through the forwarder. IPIP is DR in a tunnel.
const (
	FNAT Mode = 1
	DR   Mode = 2
	NAT  Mode = 3
	IPIP Mode = 4
)

func (m Mode) String() string {
	switch m {
	case FNAT:
		return "fnat"
	case DR:
		return "dr"
	case NAT:
		return "nat"
	case IPIP:
		return "ipip"
	}
	return fmt.Sprintf("mode-%d", uint8(m))
}

// OwnsVIP reports whether servers accept packets for the VIP itself.
func (m Mode) OwnsVIP() bool {
	return m == DR || m == IPIP
}

// Marks reports whether the forwarder supports marked health checks.
type Marks struct {
	Active  bool   // marked checks reach their servers
	Refused string // why they do not; empty: they do, or no mark was requested
}

// Marks of health checks: SO_MARK of the agent's sockets.
const (
	FirstMark = 0x53000001
	LastMark  = 0x53ffffff
)

// State decides whether a server gets new sessions.
type State uint8

// The states of a server in the forwarder.
const (
	Up    State = 1
	Drain State = 2 // no new sessions, requested by the user
	Down  State = 3 // no new sessions, as its health checks fail
	Kill  State = 4 // no new sessions, and existing ones are reset
)

func (s State) String() string {
	switch s {
	case Up:
		return "up"
	case Drain:
		return "drain"
	case Down:
		return "down"
	case Kill:
		return "kill"
	}
	return fmt.Sprintf("state-%d", uint8(s))
}

// ServiceKey identifies a service by what clients connect to.
type ServiceKey struct {
	Protocol Protocol
	VIP      netip.Addr
	Port     uint16 // 0: all ports
	LastPort uint16 // of a range that begins with Port; 0: that port alone
}

// ServerRef identifies a server: the same backend in two services is two servers.
type ServerRef struct {
	Service ServiceKey
	Address netip.AddrPort // port 0: the client's destination port
}

// Timeout names the session state to which a timeout applies.
type Timeout int

// The states of a session that have a timeout.
const (
	SynSent Timeout = iota
	SynReceived
	Established
	FinWait
	Closing
	TimeWait
	Reset
	UDPOneWay
	UDPTwoWay
	Echo
	timeouts
)

func (t Timeout) String() string {
	return [timeouts]string{"syn_sent", "syn_received", "established", "fin_wait", "closing",
		"time_wait", "reset", "udp_one_way", "udp", "echo"}[t]
}

// Timeouts end idle sessions: in whole seconds, indexed by Timeout; 0 stands for the default.
type Timeouts [timeouts]uint32

// DefaultTimeouts are the forwarder's defaults.
var DefaultTimeouts = Timeouts{
	SynSent: 10, SynReceived: 10, Established: 900, FinWait: 240, Closing: 240, TimeWait: 15, Reset: 5,
	UDPOneWay: 30, UDPTwoWay: 300, Echo: 60,
}

// Or returns t with every zero replaced by def's value.
func (t Timeouts) Or(def Timeouts) Timeouts {
	for i := range t {
		if t[i] == 0 {
			t[i] = def[i]
		}
	}
	return t
}

// HealthType is a kind of health check.
type HealthType string

// The types of health checks.
const (
	HealthNone HealthType = "none"
	HealthTCP  HealthType = "tcp"
	HealthHTTP HealthType = "http"
)

// StatusRange is an inclusive range of HTTP status codes.
type StatusRange struct{ First, Last uint16 }

func (r StatusRange) String() string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// Health configures the health checks of a service's servers; comparable.
type Health struct {
	Type     HealthType
	Port     uint16 // 0: the server's own
	Path     string
	Host     string // empty: the server's address
	Expect   StatusRange
	Interval time.Duration
	Timeout  time.Duration
	Rise     int
	Fall     int
	Jitter   int // percent of the interval, longer or shorter
	// Linger is how long a connection waits for the server's FIN after a check; 0: it ends by a reset.
	Linger time.Duration
	// The header with which a check of the server's own port begins, like clients' connections.
	Proxy ClientAddress
}

// Server is a backend in the user's configuration.
type Server struct {
	Address netip.AddrPort // as in ServerRef
	Weight  uint16
	Drain   bool
	// DrainDeadline ends the sessions of a drained server this long after the drain began; 0: never.
	DrainDeadline time.Duration

	Backup      bool   // used only if no other server accepts the session
	MaxSessions uint32 // 0: no limit

	Load ServerLoad
	Link string // name of a link that servers share; empty: its own
}

// Service is a service in the user's configuration.
type Service struct {
	Name     string
	Key      ServiceKey
	Mode     Mode
	Policy   Policy
	Timeouts Timeouts
	Health   Health
	Load     Load
	Feedback Feedback
	Servers  []Server
}

// Metrics configures Prometheus metrics.
type Metrics struct {
	Listen string // "address:port"; empty: nowhere
	Detail Detail
}

// Detail selects the objects with metrics.
type Detail uint8

// The details: every service and every server; services only; neither.
const (
	DetailServers Detail = iota
	DetailServices
	DetailNone
)

// Details lists all details.
var Details = []Detail{DetailServers, DetailServices, DetailNone}

func (d Detail) String() string {
	return [...]string{"servers", "services", "none"}[d]
}

// SFlow configures the export of samples.
type SFlow struct {
	Collector    netip.AddrPort // invalid: nowhere
	AgentAddress netip.Addr     // invalid: the source address of datagrams to the collector
	Sampling     uint32         // one of so many received packets; 0: none
	Drops        uint32         // one of so many dropped packets; 0: none
}

// Config is one valid configuration.
type Config struct {
	LocalAddresses []netip.Addr
	PeerLocals     []netip.Addr // local addresses of other nodes of the cluster
	NextHops       []netip.Addr // by which routers reach the forwarder; none: LocalAddresses
	Services       []Service
	SNAT           []SNAT
	AccessSets     []AccessSet
	AccessLists    []AccessList
	GlobalAccess   string // name of the list for all services; empty: none
	Tenants        []Tenant
	Limits         []ConfigLimit
	Shaping        []ConfigShaping
	Metrics        Metrics
	SFlow          SFlow
	Routes         Routes
	Deprecated     []Warning // uses of deprecated keys
}
