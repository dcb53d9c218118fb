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
	defaults rawDefaults
	services []rawService
	snat     []rawSNAT
	metrics  rawMetrics
}

type rawDefaults struct {
	scheduler value[model.Scheduler]
	resets    rawResets
	timeouts  rawTimeouts
	health    rawHealth
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
	client      value[model.ClientAddress]
	resets      rawResets
	timeouts    rawTimeouts
	health      rawHealth
	servers     []rawServer
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
}

type rawServer struct {
	address     value[netip.Addr]
	port        value[uint16]
	weight      value[uint16]
	drain       value[bool]
	deadline    value[time.Duration]
	backup      value[bool]
	maxSessions value[uint32]
}

// LongestDeadline is the upper limit for a drain's deadline.
const LongestDeadline = 7 * 24 * time.Hour

// The defaults that the schema names.
const (
	defaultScheduler = model.WRR
	defaultWeight    = 1
)

var defaultHealth = model.Health{
	Type: model.HealthTCP, Path: "/", Expect: model.StatusRange{First: 200, Last: 399},
	Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3, Jitter: 10,
}

var timeoutDocs = [len(model.Timeouts{})]string{
	model.SynSent:     "TCP: the client's SYN was seen, the server has not answered.",
	model.SynReceived: "TCP: the server has answered, the client has not acknowledged.",
	model.Established: "TCP: both sides talk.",
	model.FinWait:     "TCP: one side has closed.",
	model.Closing:     "TCP: both sides have closed, not all is acknowledged.",
	model.TimeWait:    "TCP: closed in both directions.",
	model.Reset:       "TCP: a reset was seen.",
	model.UDPOneWay:   "UDP: the server has not answered yet.",
	model.UDPTwoWay:   "UDP: both sides have sent.",
	model.Echo:        "ICMP and ICMPv6 echo, under `snat` alone.",
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
		doc: "`tcp`: a connection is made and closed. `http`: a GET must be answered with an expected status. `none`: servers are always up. Servers of `dr` and `ipip` services are asked on the VIP, others on their own address."},
		func(h *rawHealth) *value[model.HealthType] { return &h.kind }, parseHealthType),
	scalar(fieldDoc{name: "port", kind: "port", def: "the server's port",
		doc: "The port that is checked, of the address that is asked. UDP services must name one, as only TCP ports can be checked; so must services of many ports, unless each server has a port of its own."},
		func(h *rawHealth) *value[uint16] { return &h.port }, parsePort),
	scalar(fieldDoc{name: "path", kind: "path", def: defaultHealth.Path,
		doc: "http: what is asked for, with its query if need be."},
		func(h *rawHealth) *value[string] { return &h.path }, parsePath),
	scalar(fieldDoc{name: "host", kind: "host name", def: "the server's address and port",
		doc: "http: the Host header."},
		func(h *rawHealth) *value[string] { return &h.host }, parseHost),
	scalar(fieldDoc{name: "expect", kind: "status or range of statuses", def: defaultHealth.Expect.String(),
		doc: "http: the statuses that pass. Redirects are not followed."},
		func(h *rawHealth) *value[model.StatusRange] { return &h.expect }, parseExpect),
	scalar(fieldDoc{name: "interval", kind: "duration, 100ms to 1h", def: defaultHealth.Interval.String(),
		doc: "From the start of one check of a server to the start of the next."},
		func(h *rawHealth) *value[time.Duration] { return &h.interval },
		parseDuration(100*time.Millisecond, time.Hour)),
	scalar(fieldDoc{name: "timeout", kind: "duration, 10ms to 1m", def: defaultHealth.Timeout.String(),
		doc: "A check that takes longer has failed. At most the interval, which it is no longer than unless it is given."},
		func(h *rawHealth) *value[time.Duration] { return &h.timeout },
		parseDuration(10*time.Millisecond, time.Minute)),
	scalar(fieldDoc{name: "rise", kind: "number, 1 to 100", def: fmt.Sprint(defaultHealth.Rise),
		doc: "Checks that must pass in a row to bring a server up."},
		func(h *rawHealth) *value[int] { return &h.rise }, parseNumber(1, 100)),
	scalar(fieldDoc{name: "fall", kind: "number, 1 to 100", def: fmt.Sprint(defaultHealth.Fall),
		doc: "Checks that must fail in a row to take a server down."},
		func(h *rawHealth) *value[int] { return &h.fall }, parseNumber(1, 100)),
	scalar(fieldDoc{name: "jitter", kind: "percentage, 0% to 50%", def: fmt.Sprintf("%d%%", defaultHealth.Jitter),
		doc: "Each interval is longer or shorter by up to this much, at random, so that checks do not march in step."},
		func(h *rawHealth) *value[int] { return &h.jitter }, parsePercent(50)),
}

var serverFields = []field[rawServer]{
	scalar(fieldDoc{name: "address", kind: "address", required: true,
		doc: "Where the server is. Of either family under `fnat`, which translates between IPv4 and IPv6, and `ipip`; else of the VIP's."},
		func(s *rawServer) *value[netip.Addr] { return &s.address }, parseAddress),
	scalar(fieldDoc{name: "port", kind: "port", def: "the service's port",
		doc: "Where the server listens. Of a service with many ports it is the one that the client asked for, unless it is given here. Under `dr` and `ipip` it is the service's port."},
		func(s *rawServer) *value[uint16] { return &s.port }, parsePort),
	scalar(fieldDoc{name: "weight", kind: "number, 0 to 65535", def: fmt.Sprint(defaultWeight),
		doc: "The share of new sessions under `wrr`, `wlc`, `sed` and those that hash. With 0 the server gets no new ones; those it has go on."},
		func(s *rawServer) *value[uint16] { return &s.weight }, parseWeight),
	scalar(fieldDoc{name: "drain", kind: "true or false", def: "false",
		doc: "`true`: no new sessions; those it has go on. `steelyard drain` does the same without the file."},
		func(s *rawServer) *value[bool] { return &s.drain }, parseBool),
	scalar(fieldDoc{name: "drain_deadline", kind: "duration, 1s to 168h", def: "",
		doc: "With `drain: true`: so long after the drain began, what sessions are left end by resets to both ends. Without: never. The drain begins when the agent first reads it; restarts do not prolong it."},
		func(s *rawServer) *value[time.Duration] { return &s.deadline }, parseDuration(time.Second, LongestDeadline)),
	scalar(fieldDoc{name: "backup", kind: "true or false", def: "false",
		doc: "`true`: new sessions only when no other server of the service takes them, as all are down, drained or full; for instance to say sorry."},
		func(s *rawServer) *value[bool] { return &s.backup }, parseBool),
	scalar(fieldDoc{name: "max_sessions", kind: "number, 1 to 2147483647", def: "",
		doc: "So many sessions at most; new ones beyond go to other servers. Exact over all workers. Lowered, it ends none."},
		func(s *rawServer) *value[uint32] { return &s.maxSessions }, parseMaxSessions),
}

var (
	timeoutsObject = docsOf("timeouts", "When idle sessions end, by their state.", timeoutFields())
	healthObject   = docsOf("health", "How servers are checked. Checks come from this host: by its routes to the "+
		"server's own address, under `dr` and `ipip` to the VIP as clients' packets go. The servers of a new service begin up, and the first check decides; a "+
		"server added to a service that has others up begins down, until its first check has passed. After that `rise` and "+
		"`fall` count.", healthFields)
	serverObject = docsOf("servers", "The servers of a service; the same address and port may be named once.",
		serverFields)
)

var serviceFields = []field[rawService]{
	scalar(fieldDoc{name: "name", kind: "name", required: true,
		doc: "Unique; at most 63 bytes: letters, digits, `.`, `_` and `-`."},
		func(s *rawService) *value[string] { return &s.name }, parseName),
	scalar(fieldDoc{name: "vip", kind: "address", required: true,
		doc: "The address clients connect to. It belongs to the forwarder alone: neither a server nor a local address may have it."},
		func(s *rawService) *value[netip.Addr] { return &s.vip }, parseAddress),
	scalar(fieldDoc{name: "port", kind: "port, range of ports, or all", required: true,
		doc: "What clients connect to: one port, `8000-8099`, or `all`. Ranges of one VIP and protocol may lie within each other, and the narrowest has the port; they may not overlap otherwise."},
		func(s *rawService) *value[portRange] { return &s.port }, parsePorts),
	scalar(fieldDoc{name: "protocol", kind: "tcp or udp", def: "tcp", doc: "Together with VIP and port it must be unique."},
		func(s *rawService) *value[model.Protocol] { return &s.protocol }, parseWord(model.TCP, model.UDP)),
	scalar(fieldDoc{name: "mode", kind: "fnat, dr, nat or ipip", def: "fnat",
		doc: "`fnat`: packets reach the server from a local address, so that its answers come back to the forwarder without any change to its routes. `dr`: packets reach the server as the client sent them, and it answers the client itself; it must have the VIP, silently, on a network of the forwarder's. `nat`: packets reach the server from the client's own address, and the forwarder must be the server's gateway. `ipip`: as `dr`, in a tunnel from a local address, to servers anywhere and of either family (see docs/modes.md)."},
		func(s *rawService) *value[model.Mode] { return &s.mode }, parseWord(model.FNAT, model.DR, model.NAT, model.IPIP)),
	scalar(fieldDoc{name: "scheduler", kind: schedulerKind, def: defaultScheduler.String(), doc: schedulerDoc},
		func(s *rawService) *value[model.Scheduler] { return &s.scheduler }, parseScheduler),
	scalar(fieldDoc{name: "hash_on", kind: "source or tuple", def: model.HashSource.String(),
		doc: "What `sh`, `maglev` and `conhash` hash: the client's address, or its address and port."},
		func(s *rawService) *value[model.HashOn] { return &s.hashOn }, parseWord(model.HashSource, model.HashTuple)),
	{fieldDoc{name: "persistence", kind: "mapping", object: persistenceObject,
		doc: "Clients keep to their server for all their sessions."},
		func(d *decoder, n *yaml.Node, path string, into *rawService) {
			into.persistence.at = positionOf(n)
			readObject(d, n, path, persistenceFields, &into.persistence)
		}},
	scalar(fieldDoc{name: "slow_start", kind: "duration of whole seconds, 1s to 1h", def: "",
		doc: "A server that comes up beside others begins with a sixteenth of its weight and has all of it after this time. Without it, at once."},
		func(s *rawService) *value[uint32] { return &s.slowStart }, parseSlowStart),
	scalar(fieldDoc{name: "one_packet", kind: "true or false", def: "false",
		doc: "UDP under `fnat`: `true`: each datagram is scheduled again, also those of one client from one port; the server's first answer to it comes back. For DNS and the like."},
		func(s *rawService) *value[bool] { return &s.onePacket }, parseBool),
	scalar(fieldDoc{name: "sloppy_tcp", kind: "true or false", def: "false",
		doc: "TCP under `dr` and `ipip` with `maglev` or `conhash`: `true`: a TCP packet of no session goes to the server that its hash " +
			"names, and begins a session, as IPVS's setting of this name lets it. For several forwarders behind a router that may move a connection " +
			"from one to another. All must have the same servers, of the same weights. See docs/modes.md."},
		func(s *rawService) *value[bool] { return &s.sloppyTCP }, parseBool),
	scalar(fieldDoc{name: "max_sessions", kind: "number, 1 to 2147483647", def: "",
		doc: "So many sessions at most; new ones beyond are dropped as `connection-limit`. Exact over all workers. Lowered, it ends none."},
		func(s *rawService) *value[uint32] { return &s.maxSessions }, parseMaxSessions),
	scalar(fieldDoc{name: "client_address", kind: "none, toa, proxy_v1 or proxy_v2", def: "none",
		doc: "TCP under `fnat`: how servers learn who the client is. `toa`: by a TCP option, which a module in their kernels reads; " +
			"`proxy_v1`, `proxy_v2`: by a header of the PROXY protocol, which the server must be told to expect. A change concerns " +
			"new sessions only. See docs/modes.md."},
		func(s *rawService) *value[model.ClientAddress] { return &s.client }, parseWord(model.ClientAddresses...)),
	{fieldDoc{name: "resets", kind: "mapping", object: resetsObject, doc: resetsDoc + " Deviations from `defaults.resets`."},
		func(d *decoder, n *yaml.Node, path string, into *rawService) {
			into.resets.at = positionOf(n)
			readObject(d, n, path, resetsFields, &into.resets)
		}},
	nested(fieldDoc{name: "timeouts", kind: "mapping", object: timeoutsObject,
		doc: "Deviations from `defaults.timeouts`."},
		func(s *rawService) *rawTimeouts { return &s.timeouts }, timeoutFields()),
	{fieldDoc{name: "health", kind: "mapping", object: healthObject, doc: "Deviations from `defaults.health`."},
		func(d *decoder, n *yaml.Node, path string, into *rawService) {
			into.health.at = positionOf(n)
			readObject(d, n, path, healthFields, &into.health)
		}},
	{fieldDoc{name: "servers", kind: "list of mappings", required: true, object: serverObject,
		doc: "Who serves. May be empty: new sessions are then dropped as `no-server`."},
		func(d *decoder, n *yaml.Node, path string, into *rawService) {
			readList(d, n, path, func(n *yaml.Node, path string) {
				var server rawServer
				readObject(d, n, path, serverFields, &server)
				into.servers = append(into.servers, server)
			})
		}},
}

var defaultsFields = []field[rawDefaults]{
	scalar(fieldDoc{name: "scheduler", kind: schedulerKind, def: defaultScheduler.String(),
		doc: "For services that name none."},
		func(s *rawDefaults) *value[model.Scheduler] { return &s.scheduler }, parseScheduler),
	nested(fieldDoc{name: "resets", kind: "mapping", object: resetsObject, doc: "For all TCP services."},
		func(s *rawDefaults) *rawResets { return &s.resets }, resetsFields),
	nested(fieldDoc{name: "timeouts", kind: "mapping", object: timeoutsObject, doc: "For all services."},
		func(s *rawDefaults) *rawTimeouts { return &s.timeouts }, timeoutFields()),
	nested(fieldDoc{name: "health", kind: "mapping", object: healthObject,
		doc: "For all services; UDP services take part only where they have a `health` of their own."},
		func(s *rawDefaults) *rawHealth { return &s.health }, healthFields),
}

var metricsFields = []field[rawMetrics]{
	scalar(fieldDoc{name: "listen", kind: "address with port", required: true,
		doc: "Where Prometheus reads `/metrics`, by plain HTTP."},
		func(m *rawMetrics) *value[string] { return &m.listen }, parseListen),
	scalar(fieldDoc{name: "detail", kind: "servers, services or none", def: model.DetailServers.String(),
		doc: "Of what there are series: every server and service, ten for each server; services alone; or neither. " +
			"`/metrics?detail=…` asks for another one, and `/metrics?service=NAME`, as often as wanted, for all of some services. " +
			"20 000 services of three servers are 60 MB with every server, 10 MB without."},
		func(m *rawMetrics) *value[model.Detail] { return &m.detail }, parseWord(model.Details...)),
}

var (
	serviceObject  = docsOf("services", "What clients may connect to.", serviceFields)
	defaultsObject = docsOf("defaults", "What services have in common.", defaultsFields)
	metricsObject  = docsOf("metrics", "Counters for Prometheus.", metricsFields)
)

// maxLocalAddresses is the forwarder's limit.
const maxLocalAddresses = 255

var fileFields = []field[rawFile]{
	scalar(fieldDoc{name: "version", kind: "1", required: true, doc: "Of this file's format."},
		func(f *rawFile) *value[int] { return &f.version }, parseNumber(1, 1)),
	{fieldDoc{name: "local_addresses", kind: "list of addresses",
		doc: "The addresses from which servers see sessions under `fnat`, and tunnels of `ipip` begin: at least one of each family that servers of such services have, at " +
			"most 255. Servers must be able to route back to them, and nothing else may use them."},
		func(d *decoder, n *yaml.Node, path string, into *rawFile) {
			readList(d, n, path, func(n *yaml.Node, path string) {
				into.locals = append(into.locals, readScalar(d, n, path, parseAddress))
			})
		}},
	nested(fieldDoc{name: "defaults", kind: "mapping", object: defaultsObject, doc: "What services have in common."},
		func(f *rawFile) *rawDefaults { return &f.defaults }, defaultsFields),
	{fieldDoc{name: "services", kind: "list of mappings", required: true, object: serviceObject,
		doc: "What clients may connect to. An empty list removes all services from the forwarder."},
		func(d *decoder, n *yaml.Node, path string, into *rawFile) {
			readList(d, n, path, func(n *yaml.Node, path string) {
				service := rawService{at: positionOf(n), path: path}
				readObject(d, n, path, serviceFields, &service)
				into.services = append(into.services, service)
			})
		}},
	{fieldDoc{name: "snat", kind: "list of mappings", object: snatObject,
		doc: "What servers and other hosts inside may send to others by way of the forwarder, and from which addresses. " + snatDoc},
		func(d *decoder, n *yaml.Node, path string, into *rawFile) {
			readList(d, n, path, func(n *yaml.Node, path string) {
				rule := rawSNAT{at: positionOf(n), path: path}
				readObject(d, n, path, snatFields, &rule)
				into.snat = append(into.snat, rule)
			})
		}},
	nested(fieldDoc{name: "metrics", kind: "mapping", object: metricsObject,
		doc: "Counters for Prometheus; without it there are none."},
		func(f *rawFile) *rawMetrics { return &f.metrics }, metricsFields),
}

var fileObject = docsOf("The file", "", fileFields)
