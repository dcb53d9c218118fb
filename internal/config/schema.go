// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"time"

	"steelyard/internal/model"

	"go.yaml.in/yaml/v4"
)

// The file's content, before defaults and cross-checks.

type rawFile struct {
	version  value[int]
	locals   []value[netip.Addr]
	peers    []value[netip.Addr] // local addresses of other nodes
	nextHops []value[netip.Addr]
	defaults rawDefaults
	services []rawService
	snat     []rawSNAT
	access   []rawAccessList
	sets     []rawAccessSet
	// The list for all services.
	globalAccess value[string]
	metrics      rawMetrics
	export       rawExport
	tenants      []rawTenant
	limits       []rawLimit
	shaping      []rawShaping
	routes       rawRoutes
}

type rawDefaults struct {
	scheduler  value[model.Scheduler]
	synDefence value[model.SynDefence]
	when       value[model.WhenUnavailable]
	sync       value[model.Sync]
	resets     rawResets
	timeouts   rawTimeouts
	health     rawHealth
}

type rawTimeouts [len(model.Timeouts{})]value[uint32]

type rawMetrics struct {
	listen value[string]
	detail value[model.Detail]
}

type rawService struct {
	at          position
	path        string
	name        value[string]
	vip         value[netip.Addr]
	port        value[portRange]
	protocol    value[model.Protocol]
	mode        value[model.Mode]
	scheduler   value[model.Scheduler]
	hashOn      value[model.HashOn]
	persistence rawPersistence
	slowStart   value[uint32]
	onePacket   value[bool]
	sloppyTCP   value[bool]
	maxSessions value[uint32]

	clientLimits rawClientLimits
	client       value[model.ClientAddress]
	options      value[model.ClientOptions]
	dscp         value[model.DSCP]
	synDefence   value[model.SynDefence]
	when         value[model.WhenUnavailable]
	sync         value[model.Sync]
	access       value[string]
	resets       rawResets
	timeouts     rawTimeouts
	health       rawHealth
	load         rawLoad
	feedback     rawFeedback
	servers      []rawServer
}

type rawHealth struct {
	at       position
	kind     value[model.HealthType]
	port     value[uint16]
	path     value[string]
	host     value[string]
	expect   value[model.StatusRange]
	interval value[time.Duration]
	timeout  value[time.Duration]
	rise     value[int]
	fall     value[int]
	jitter   value[int]
	linger   value[time.Duration]
}

type rawServer struct {
	address     value[netip.Addr]
	port        value[uint16]
	weight      value[uint16]
	drain       value[bool]
	deadline    value[time.Duration]
	backup      value[bool]
	maxSessions value[uint32]
	load        rawServerLoad
	link        value[string]
}

// LongestDeadline is the maximum deadline of a drain.
const LongestDeadline = 7 * 24 * time.Hour

// The defaults that the schema names.
const (
	defaultScheduler = model.WRR
	defaultWeight    = 1
)

var defaultHealth = model.Health{
	Type: model.HealthTCP, Path: "/", Expect: model.StatusRange{First: 200, Last: 399},
	Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3, Jitter: 10, Linger: time.Second,
}

var timeoutDocs = [len(model.Timeouts{})]string{
	model.SynSent:     "TCP: the client has sent a SYN; the server has not answered.",
	model.SynReceived: "TCP: the server has answered; the client has not acknowledged.",
	model.Established: "TCP: the handshake is complete.",
	model.FinWait:     "TCP: one side has sent a FIN.",
	model.Closing:     "TCP: both sides have sent a FIN; not both are acknowledged.",
	model.TimeWait:    "TCP: both FINs are acknowledged.",
	model.Reset:       "TCP: one side has sent a reset.",
	model.UDPOneWay:   "UDP: the server has not replied, or the client has sent nothing since its first reply.",
	model.UDPTwoWay:   "UDP: the client has sent again after the server's first reply.",
	model.Echo:        "ICMP and ICMPv6 echo, with `snat` only.",
}

func timeoutFields() []field[rawTimeouts] {
	var fields []field[rawTimeouts]
	for i, doc := range timeoutDocs {
		fields = append(fields, scalar(
			fieldDoc{name: model.Timeout(i).String(), kind: "duration of whole seconds, 1s to 9h",
				def: fmt.Sprintf("%ds", model.DefaultTimeouts[i]), doc: doc},
			func(t *rawTimeouts) *value[uint32] { return &t[i] }, parseTimeout))
	}
	return fields
}

var healthFields = []field[rawHealth]{
	scalar(fieldDoc{name: "type", kind: "tcp, http or none", def: "tcp; none for UDP services",
		doc: "`tcp`: the check opens and closes a connection. `http`: the server must answer a GET with an expected status. `none`: servers are always up. The checks of `dr` and `ipip` services connect to the VIP, the others to the server's own address."},
		func(h *rawHealth) *value[model.HealthType] { return &h.kind }, parseHealthType),
	scalar(fieldDoc{name: "port", kind: "port", def: "the server's port",
		doc: "The TCP port to which checks connect. It is required for UDP services, because only TCP ports can be checked, and for services of many ports unless each server has its own `port`."},
		func(h *rawHealth) *value[uint16] { return &h.port }, parsePort),
	scalar(fieldDoc{name: "path", kind: "path", def: defaultHealth.Path,
		doc: "http: the path of the request, with a query if needed. No command, log or error shows the query."},
		func(h *rawHealth) *value[string] { return &h.path }, parsePath),
	scalar(fieldDoc{name: "host", kind: "host name", def: "the server's address and port",
		doc: "http: the Host header."},
		func(h *rawHealth) *value[string] { return &h.host }, parseHost),
	scalar(fieldDoc{name: "expect", kind: "status or range of statuses", def: defaultHealth.Expect.String(),
		doc: "http: the status codes with which a check passes. Checks do not follow redirects."},
		func(h *rawHealth) *value[model.StatusRange] { return &h.expect }, parseExpect),
	scalar(fieldDoc{name: "interval", kind: "duration, 100ms to 1h", def: defaultHealth.Interval.String(),
		doc: "Time from the start of one check of a server to the start of the next."},
		func(h *rawHealth) *value[time.Duration] { return &h.interval },
		parseDuration(100*time.Millisecond, time.Hour)),
	scalar(fieldDoc{name: "timeout", kind: "duration, 10ms to 1m", def: defaultHealth.Timeout.String(),
		doc: "A check that takes longer fails. At most the interval; the default is lowered to a shorter interval."},
		func(h *rawHealth) *value[time.Duration] { return &h.timeout },
		parseDuration(10*time.Millisecond, time.Minute)),
	scalar(fieldDoc{name: "rise", kind: "number, 1 to 100", def: fmt.Sprint(defaultHealth.Rise),
		doc: "A server comes up after this many passed checks in a row."},
		func(h *rawHealth) *value[int] { return &h.rise }, parseNumber(1, 100)),
	scalar(fieldDoc{name: "fall", kind: "number, 1 to 100", def: fmt.Sprint(defaultHealth.Fall),
		doc: "A server goes down after this many failed checks in a row."},
		func(h *rawHealth) *value[int] { return &h.fall }, parseNumber(1, 100)),
	scalar(fieldDoc{name: "jitter", kind: "percentage, 0% to 50%", def: fmt.Sprintf("%d%%", defaultHealth.Jitter),
		doc: "Each interval is longer or shorter by a random share of up to this much, so that checks do not all start at the same time."},
		func(h *rawHealth) *value[int] { return &h.jitter }, parsePercent(50)),
	scalar(fieldDoc{name: "linger", kind: "duration, 0s to 10s", def: defaultHealth.Linger.String(),
		doc: "A check ends its connection by a FIN, and discards what the server sends until the server has closed too, for at most this long. " +
			"`0s`: it ends by a reset, which servers may log as an error. See docs/servers.md for what each costs."},
		func(h *rawHealth) *value[time.Duration] { return &h.linger }, parseDuration(0, 10*time.Second)),
}

var serverFields = []field[rawServer]{
	scalar(fieldDoc{name: "address", kind: "address", required: true,
		doc: "The server's address. With `fnat` and `ipip` it may be IPv4 or IPv6, whatever the VIP is; otherwise it has the VIP's family."},
		func(s *rawServer) *value[netip.Addr] { return &s.address }, parseAddress),
	scalar(fieldDoc{name: "port", kind: "port", def: "the service's port",
		doc: "The port on which the server listens. If the service has many ports, the default is the client's destination port. With `dr` and `ipip` it is always the service's port."},
		func(s *rawServer) *value[uint16] { return &s.port }, parsePort),
	scalar(fieldDoc{name: "weight", kind: "number, 0 to 65535", def: fmt.Sprint(defaultWeight),
		doc: "The server's share of new sessions with `wrr`, `wlc`, `sed`, `sh`, `maglev`, `conhash`, `share` and `p2c`. With 0 the server gets no new sessions; existing ones continue."},
		func(s *rawServer) *value[uint16] { return &s.weight }, parseWeight),
	scalar(fieldDoc{name: "drain", kind: "true or false", def: "false",
		doc: "`true`: the server gets no new sessions; existing ones continue. `steelyard drain` does the same without the file."},
		func(s *rawServer) *value[bool] { return &s.drain }, parseBool),
	scalar(fieldDoc{name: "drain_deadline", kind: "duration, 1s to 168h", def: "",
		doc: "With `drain: true`: after this time the remaining sessions end with resets to both ends. Without it they continue until they end. The time begins when the agent first reads `drain: true`; restarts do not prolong it."},
		func(s *rawServer) *value[time.Duration] { return &s.deadline }, parseDuration(time.Second, LongestDeadline)),
	scalar(fieldDoc{name: "backup", kind: "true or false", def: "false",
		doc: "`true`: the server gets new sessions only while all other servers of the service are down, drained or full, for example to serve an error page."},
		func(s *rawServer) *value[bool] { return &s.backup }, parseBool),
	scalar(fieldDoc{name: "max_sessions", kind: "number, 1 to 2147483647", def: "",
		doc: "The maximum number of sessions of the server; further ones go to other servers. The limit is exact over all workers. Lowering it ends no session."},
		func(s *rawServer) *value[uint32] { return &s.maxSessions }, parseMaxSessions),
	serverLoadField,
	serverLinkField,
}

var (
	timeoutsObject = docsOf("timeouts", "The time after which an idle session ends, by its state.", timeoutFields())
	healthObject   = docsOf("health", "How the agent checks servers. It checks them from this host: over the host's routes to the server's "+
		"own address; with `dr` and `ipip`, to the VIP on the path of clients' packets. The servers of a new service begin up, and the first "+
		"check decides. A server that is added to a service with other servers up begins down until its first check passes. After the first "+
		"check, `rise` and `fall` apply.", healthFields)
	serverObject = docsOf("servers", "The servers of a service. Each address and port may occur once.",
		serverFields)
)

const (
	defenceKind     = "auto, always or off"
	unavailableKind = "drop, reset or icmp"
	syncKind        = "off, established, all or strict; or a mapping"
)

var serviceFields = []field[rawService]{
	scalar(fieldDoc{name: "name", kind: "name", required: true,
		doc: "A unique name of at most 63 bytes: letters, digits, `.`, `_` and `-`."},
		func(s *rawService) *value[string] { return &s.name }, parseName),
	scalar(fieldDoc{name: "vip", kind: "address", required: true,
		doc: "The address to which clients connect. Only the forwarder uses it: it must not also be a server's or a local address."},
		func(s *rawService) *value[netip.Addr] { return &s.vip }, parseAddress),
	scalar(fieldDoc{name: "port", kind: "port, range of ports, or all", required: true,
		doc: "The port to which clients connect: one port, a range such as `8000-8099`, or `all`. A range may lie within another one of the same VIP and protocol; the narrowest range that contains the port applies. Ranges may not overlap otherwise."},
		func(s *rawService) *value[portRange] { return &s.port }, parsePorts),
	scalar(fieldDoc{name: "protocol", kind: "tcp or udp", def: "tcp", doc: "VIP, port and protocol together must be unique."},
		func(s *rawService) *value[model.Protocol] { return &s.protocol }, parseWord(model.TCP, model.UDP)),
	scalar(fieldDoc{name: "mode", kind: "fnat, dr, nat or ipip", def: "fnat",
		doc: "`fnat`: the server sees packets from a local address, so its answers return to the forwarder without a change to its routes. `dr`: the server gets packets as the client sent them and answers the client itself; it must be on a network of the forwarder and have the VIP without answering ARP or neighbour discovery for it. `nat`: the server sees the client's address, and the forwarder must be the server's gateway. `ipip`: as `dr`, but in a tunnel from a local address; servers may be anywhere and of either family. See docs/modes.md."},
		func(s *rawService) *value[model.Mode] { return &s.mode }, parseWord(model.FNAT, model.DR, model.NAT, model.IPIP)),
	scalar(fieldDoc{name: "scheduler", kind: schedulerKind, def: defaultScheduler.String(), doc: schedulerDoc},
		func(s *rawService) *value[model.Scheduler] { return &s.scheduler }, parseScheduler),
	scalar(fieldDoc{name: "hash_on", kind: "source or tuple", def: model.HashSource.String(),
		doc: "What `sh`, `maglev` and `conhash` hash: the client's address (`source`), or its address and port (`tuple`)."},
		func(s *rawService) *value[model.HashOn] { return &s.hashOn }, parseWord(model.HashSource, model.HashTuple)),
	{fieldDoc{name: "persistence", kind: "mapping", object: persistenceObject,
		doc: "All sessions of a client go to the same server."},
		func(d *decoder, n *yaml.Node, path string, into *rawService) {
			into.persistence.at = positionOf(n)
			readObject(d, n, path, persistenceFields, &into.persistence)
		}},
	scalar(fieldDoc{name: "slow_start", kind: "duration of whole seconds, 1s to 1h", def: "",
		doc: "A server that comes up while others are up begins with a sixteenth of its weight and reaches its full weight after this time. Without it the server has its full weight at once."},
		func(s *rawService) *value[uint32] { return &s.slowStart }, parseWholeSeconds(maxSlowStart)),
	scalar(fieldDoc{name: "one_packet", kind: "true or false", def: "false",
		doc: "UDP with `fnat`: `true`: every datagram is scheduled individually, even those of one client from one port, and the forwarder returns the server's first answer to each. For DNS and similar protocols."},
		func(s *rawService) *value[bool] { return &s.onePacket }, parseBool),
	scalar(fieldDoc{name: "sloppy_tcp", kind: "true or false", def: "false",
		doc: "TCP with `dr` and `ipip` and the scheduler `maglev` or `conhash`: `true`: a TCP packet without a session creates one with the server " +
			"that its hash selects, as the IPVS setting of this name does. For several forwarders behind a router that may move a connection " +
			"from one to another. All of them must have the same servers with the same weights. See docs/modes.md."},
		func(s *rawService) *value[bool] { return &s.sloppyTCP }, parseBool),
	scalar(fieldDoc{name: "max_sessions", kind: "number, 1 to 2147483647", def: "",
		doc: "The maximum number of sessions of the service; packets that would create more are dropped as `connection-limit`. The limit is exact over all workers. Lowering it ends no session."},
		func(s *rawService) *value[uint32] { return &s.maxSessions }, parseMaxSessions),
	nested(fieldDoc{name: "client_limits", kind: "mapping", object: clientLimitsObject,
		doc: "Limits of each client's new and concurrent sessions."},
		func(s *rawService) *rawClientLimits { return &s.clientLimits }, clientLimitsFields),
	scalar(fieldDoc{name: "client_address", kind: "none, toa, proxy_v1 or proxy_v2", def: "none",
		doc: "TCP with `fnat`: how servers get the client's address. `toa`: in a TCP option, which a module in the server's kernel reads. " +
			"`proxy_v1`, `proxy_v2`: in a header of the PROXY protocol, which the server must be configured to expect. A change applies to " +
			"new sessions only. See docs/modes.md."},
		func(s *rawService) *value[model.ClientAddress] { return &s.client }, parseWord(model.ClientAddresses...)),
	scalar(fieldDoc{name: "client_options", kind: "remove or keep", def: model.RemoveOptions.String(),
		doc: "`remove`: in every mode, options of clients' packets in which servers look for the client's address are overwritten with padding, so that no client " +
			"can claim another address: TCP options 200, 253 and 254 (TOA) and IPv4 option 31 (UOA). `keep`: servers get them, which is " +
			"for clients that are balancers themselves; not with `client_address: toa`. See docs/modes.md."},
		func(s *rawService) *value[model.ClientOptions] { return &s.options }, parseWord(model.RemoveOptions, model.KeepOptions)),
	scalar(fieldDoc{name: "syn_defence", kind: defenceKind, def: "auto with fnat and nat, off with dr and ipip",
		doc: "TCP: keeps SYNs of forged sources from using up sessions and ports. With `fnat` and `nat` the forwarder answers each SYN " +
			"itself, by a SYN cookie, and opens the server's connection once the client has returned the cookie. Such a session uses two records, and " +
			"the slow path. With `dr` and `ipip` an unknown client gets an ACK to which its kernel answers by a reset and one " +
			"more SYN; then it stays known until 10 minutes after its last connection. `always`: each SYN; `auto`: while most handshakes of " +
			"the service are not completed; `off`: none. A change applies to new sessions only. See docs/attack.md and docs/modes.md."},
		func(s *rawService) *value[model.SynDefence] { return &s.synDefence }, parseWord(model.SynDefences...)),
	scalar(fieldDoc{name: "when_unavailable", kind: unavailableKind, def: model.UnavailableReset.String(),
		doc: "What a client gets while no server accepts its session, because all are down, drained, of weight 0 or full (`max_sessions`), or because no local port is free. " +
			"`reset`: a reset over TCP and ICMP port unreachable over UDP, so that clients fail at once with \"connection refused\"; `icmp`: ICMP port unreachable, " +
			"as IPVS sends it; `drop`: nothing, and clients wait for their timeout. While no server is up, TCP segments without a session are answered, too. " +
			"Answers are limited: 10000 resets and 1000 ICMP errors a second, a tenth of them towards one network (/24, /48). " +
			"For ports of a VIP without a service, see `--unknown-ports` of steelyard-forwarder(8)."},
		func(s *rawService) *value[model.WhenUnavailable] { return &s.when }, parseWord(model.WhenUnavailables...)),
	syncField("From when on a peer of the forwarder keeps the service's sessions, so that they survive the loss of this host. `established`: over TCP once the "+
		"handshake is complete, over UDP once the client has sent again; a session that is lost before that begins anew when the client repeats its "+
		"packet. `all`: from its creation. `strict`: likewise, and a TCP server gets the client's SYN only when a living peer has the session (or while the SYN defence answers for it, when any node can open the session): "+
		"each connection begins a round trip between the nodes later. `off`: never, for sessions so short that copying them is not worth it, such as DNS. "+
		"`{ older_than: 3s }`: as `established`, but once the session is that old. A change applies to sessions "+
		"that begin or change after it. Without peers (`--peer` of steelyard-forwarder(8)) it has no effect. See docs/high-availability.md.",
		func(s *rawService) *value[model.Sync] { return &s.sync }),
	scalar(fieldDoc{name: "dscp", kind: "DSCP: its name, such as ef or cs5, or a number, 0 to 63", def: "",
		doc: "The DSCP of packets to servers, in every mode, for routers on the path and for hooks of programs " +
			"on the user-space stack (docs/hooks.md). Limits with `mark` may change it. Without it packets keep their DSCP."},
		func(s *rawService) *value[model.DSCP] { return &s.dscp }, parseDSCP),
	scalar(fieldDoc{name: "access", kind: "name of an access list", def: "",
		doc: "The access list for the service's new sessions, in addition to the one for all services. Both must allow a session."},
		func(s *rawService) *value[string] { return &s.access }, parseName),
	{fieldDoc{name: "resets", kind: "mapping", object: resetsObject, doc: resetsDoc + " Overrides `defaults.resets`."},
		func(d *decoder, n *yaml.Node, path string, into *rawService) {
			into.resets.at = positionOf(n)
			readObject(d, n, path, resetsFields, &into.resets)
		}},
	nested(fieldDoc{name: "timeouts", kind: "mapping", object: timeoutsObject,
		doc: "Overrides `defaults.timeouts`."},
		func(s *rawService) *rawTimeouts { return &s.timeouts }, timeoutFields()),
	{fieldDoc{name: "health", kind: "mapping", object: healthObject, doc: "Overrides `defaults.health`."},
		func(d *decoder, n *yaml.Node, path string, into *rawService) {
			into.health.at = positionOf(n)
			readObject(d, n, path, healthFields, &into.health)
		}},
	loadField,
	feedbackField,
	mappings(fieldDoc{name: "servers", required: true, object: serverObject,
		doc: "The real servers. If the list is empty, packets that would create sessions are dropped as `no-server`."},
		func(f *rawService) *[]rawServer { return &f.servers },
		func(position, string) rawServer { return rawServer{} }, serverFields),
}

var defaultsFields = []field[rawDefaults]{
	scalar(fieldDoc{name: "scheduler", kind: schedulerKind, def: defaultScheduler.String(),
		doc: "The scheduler of services without their own."},
		func(s *rawDefaults) *value[model.Scheduler] { return &s.scheduler }, parseScheduler),
	scalar(fieldDoc{name: "syn_defence", kind: defenceKind, def: "auto with fnat and nat, off with dr and ipip",
		doc: "The SYN defence of TCP services without their own."},
		func(s *rawDefaults) *value[model.SynDefence] { return &s.synDefence }, parseWord(model.SynDefences...)),
	scalar(fieldDoc{name: "when_unavailable", kind: unavailableKind, def: model.UnavailableReset.String(),
		doc: "What clients get while no server accepts their sessions, for services without their own setting."},
		func(s *rawDefaults) *value[model.WhenUnavailable] { return &s.when }, parseWord(model.WhenUnavailables...)),
	syncField("From when on peers keep sessions, for services without their own setting.",
		func(s *rawDefaults) *value[model.Sync] { return &s.sync }),
	nested(fieldDoc{name: "resets", kind: "mapping", object: resetsObject, doc: "The resets of all TCP services."},
		func(s *rawDefaults) *rawResets { return &s.resets }, resetsFields),
	nested(fieldDoc{name: "timeouts", kind: "mapping", object: timeoutsObject, doc: "The timeouts of all services and SNAT rules."},
		func(s *rawDefaults) *rawTimeouts { return &s.timeouts }, timeoutFields()),
	nested(fieldDoc{name: "health", kind: "mapping", object: healthObject,
		doc: "The health checks of all services. UDP services are checked only if they have their own `health`."},
		func(s *rawDefaults) *rawHealth { return &s.health }, healthFields),
}

var metricsFields = []field[rawMetrics]{
	scalar(fieldDoc{name: "listen", kind: "address with port", required: true,
		doc: "The address on which the agent serves `/metrics` to Prometheus, and `/healthz` and `/readyz` to probes (docs/health.md), by plain HTTP."},
		func(m *rawMetrics) *value[string] { return &m.listen }, parseListen),
	scalar(fieldDoc{name: "detail", kind: "servers, services or none", def: model.DetailServers.String(),
		doc: "The objects with series: services and servers, with ten series per server; services only; or neither, and no limits. " +
			"`/metrics?detail=…` requests another detail, and `/metrics?service=NAME`, repeatable, requests everything about single services. " +
			"20 000 services of three servers each make 60 MB with `servers` and 10 MB with `services`."},
		func(m *rawMetrics) *value[model.Detail] { return &m.detail }, parseWord(model.Details...)),
}

var (
	serviceObject  = docsOf("services", "The services to which clients connect.", serviceFields)
	defaultsObject = docsOf("defaults", "Values for services that do not have their own.", defaultsFields)
	metricsObject  = docsOf("metrics", "Metrics for Prometheus.", metricsFields)
)

// maxLocalAddresses is the forwarder's limit.
const maxLocalAddresses = 255

var fileFields = []field[rawFile]{
	scalar(fieldDoc{name: "version", kind: "1", required: true, doc: "The version of the file format."},
		func(f *rawFile) *value[int] { return &f.version }, parseNumber(1, 1)),
	{fieldDoc{name: "local_addresses", kind: "list of addresses",
		doc: "The source addresses of packets to `fnat` servers and of `ipip` tunnels. At most 255, and at least one of each family that the servers of such services have. " +
			"Servers must have a route back to them, and nothing else may use them."},
		func(d *decoder, n *yaml.Node, path string, into *rawFile) {
			readList(d, n, path, func(n *yaml.Node, path string) {
				into.locals = append(into.locals, readScalar(d, n, path, parseAddress))
			})
		}},
	{fieldDoc{name: "peer_local_addresses", kind: "list of addresses",
		doc: "The local and SNAT pool addresses of the other nodes of an ECMP cluster (docs/high-availability.md): packets to them are accepted, as routers may send them to any node; new sessions never use them. " +
			"At most 255 together with `local_addresses`."},
		func(d *decoder, n *yaml.Node, path string, into *rawFile) {
			readList(d, n, path, func(n *yaml.Node, path string) {
				into.peers = append(into.peers, readScalar(d, n, path, parseAddress))
			})
		}},
	{fieldDoc{name: "next_hops", kind: "list of addresses", def: "local_addresses",
		doc: "The addresses at which routers reach this forwarder, one of each family. Only a controller uses them: in the routes of services that were requested (`steelyard nfv`)."},
		func(d *decoder, n *yaml.Node, path string, into *rawFile) {
			readList(d, n, path, func(n *yaml.Node, path string) {
				into.nextHops = append(into.nextHops, readScalar(d, n, path, parseAddress))
			})
		}},
	nested(fieldDoc{name: "defaults", kind: "mapping", object: defaultsObject, doc: "Values for services that do not have their own."},
		func(f *rawFile) *rawDefaults { return &f.defaults }, defaultsFields),
	mappings(fieldDoc{name: "services", required: true, object: serviceObject,
		doc: "The services to which clients connect. An empty list removes all services from the forwarder."},
		func(f *rawFile) *[]rawService { return &f.services },
		func(at position, path string) rawService { return rawService{at: at, path: path} }, serviceFields),
	mappings(fieldDoc{name: "access_sets", object: accessSetObject,
		doc: "Named sets of clients, for the rules of `access_lists`. At most 32."},
		func(f *rawFile) *[]rawAccessSet { return &f.sets },
		func(at position, path string) rawAccessSet { return rawAccessSet{at: at, path: path} }, accessSetFields),
	mappings(fieldDoc{name: "access_lists", object: accessListObject,
		doc: "Rules that decide which new sessions begin. `access`, here or in services, names the list that applies."},
		func(f *rawFile) *[]rawAccessList { return &f.access },
		func(position, string) rawAccessList { return rawAccessList{} }, accessListFields),
	scalar(fieldDoc{name: "access", kind: "name of an access list", def: "",
		doc: "The access list for the new sessions of all services. It does not apply to SNAT."},
		func(f *rawFile) *value[string] { return &f.globalAccess }, parseName),
	mappings(fieldDoc{name: "snat", object: snatObject,
		doc: "The inside hosts that reach others through the forwarder, and their source addresses. " + snatDoc},
		func(f *rawFile) *[]rawSNAT { return &f.snat },
		func(at position, path string) rawSNAT { return rawSNAT{at: at, path: path} }, snatFields),
	mappings(fieldDoc{name: "tenants", object: tenantObject,
		doc: "Named sets of services and VIPs, for limits that these share."},
		func(f *rawFile) *[]rawTenant { return &f.tenants },
		func(at position, path string) rawTenant { return rawTenant{at: at, path: path} }, tenantFields),
	mappings(fieldDoc{name: "limits", object: limitObject,
		doc: "Rate limits of bits, packets and new sessions, of tenants, services, VIPs, servers and clients. At most 65536, and 8 for the same service, VIP or server, or for all services; all together may name 262144 services, VIPs, servers and prefixes of clients, and have 1048576 buckets of clients. " +
			"Limits do not apply to SNAT."},
		func(f *rawFile) *[]rawLimit { return &f.limits },
		func(at position, path string) rawLimit { return rawLimit{at: at, path: path} }, limitFields),
	mappings(fieldDoc{name: "shaping", object: shapingObject,
		doc: "Ports with hierarchical traffic shaping, by tenant, service and class; at most 16 ports. Packets of SNAT and those that the forwarder originates have no tenant."},
		func(f *rawFile) *[]rawShaping { return &f.shaping },
		func(at position, path string) rawShaping { return rawShaping{at: at, path: path} }, shapingFields),
	routesField,
	nested(fieldDoc{name: "metrics", kind: "mapping", object: metricsObject,
		doc: "Metrics for Prometheus. Without this section the agent serves none."},
		func(f *rawFile) *rawMetrics { return &f.metrics }, metricsFields),
	nested(fieldDoc{name: "export", kind: "mapping", object: exportObject,
		doc: "What the agent sends to other programs. Without this section it sends nothing."},
		func(f *rawFile) *rawExport { return &f.export }, exportFields),
}

var fileObject = docsOf("The file", "", fileFields)
