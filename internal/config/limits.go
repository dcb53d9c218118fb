// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"strconv"

	"steelyard/internal/model"

	"go.yaml.in/yaml/v4"
)

// Tenants and limits, as in the file. limits_check.go builds and checks them.

type rawTenant struct {
	at       position
	path     string
	name     value[string]
	services []value[string]
	vips     []value[netip.Addr]
}

type rawLimit struct {
	at       position
	path     string
	name     value[string]
	tenant   value[string]
	service  value[string]
	services rawNames
	vip      value[netip.Addr]
	server   rawLimitServer
	rates    [4]value[uint64] // by model.LimitUnit
	rated    bool             // the file has a rate, maybe with an error
	burst    value[quantity]
	count    value[model.LimitLayer]
	way      value[model.LimitDirection]
	clients  rawLimitClients
	action   rawLimitAction
	engine   value[model.LimitEngine]
	batch    value[quantity]
}

type rawNames struct {
	at    position
	path  string
	names []value[string]
}

type rawLimitServer struct {
	at      position
	path    string
	service value[string]
	address value[netip.Addr]
	port    value[uint16]
}

type rawLimitClients struct {
	at         position
	path       string
	within     []value[netip.Prefix]
	prefix4    value[int]
	prefix6    value[int]
	maxClients value[int]
}

type rawLimitAction struct {
	at   position
	path string
	mark value[model.DSCP]
}

// The forwarder's limits.
const (
	maxLimits       = 65536
	maxLimitsOfOne  = 8 // of the same service, VIP or server, or of all services
	maxLimitTargets = 1024
	maxLimitWithin  = 64
	maxLimitClients = 1 << 20 // buckets of clients, per limit and of all limits together
	maxLimitNames   = 1 << 18 // services, VIPs, servers and prefixes of clients that all limits name
	maxBurstBytes   = 100_000_000_000
	maxBurstCount   = 1_000_000_000
)

// rateRanges are the forwarder's ranges of rates, by unit.
var rateRanges = [4]struct{ low, high uint64 }{
	model.LimitBits:     {8000, 400_000_000_000},
	model.LimitPackets:  {1, 1_000_000_000},
	model.LimitSessions: {1, 10_000_000},
}

// rateKeys are the keys of rates, by unit.
var rateKeys = [4]string{model.LimitBits: "bits_per_second", model.LimitPackets: "packets_per_second",
	model.LimitSessions: "new_sessions_per_second"}

func rateField(unit model.LimitUnit, kind, doc string) field[rawLimit] {
	return field[rawLimit]{fieldDoc{name: rateKeys[unit], kind: kind, doc: doc},
		func(d *decoder, n *yaml.Node, path string, into *rawLimit) {
			into.rated = true
			into.rates[unit] = readScalar(d, n, path, parseRate(unit))
		}}
}

var limitServerFields = []field[rawLimitServer]{
	scalar(fieldDoc{name: "service", kind: "name of a service", required: true, doc: "The service that has the server."},
		func(s *rawLimitServer) *value[string] { return &s.service }, parseName),
	scalar(fieldDoc{name: "address", kind: "address", required: true, doc: "The server's address."},
		func(s *rawLimitServer) *value[netip.Addr] { return &s.address }, parseAddress),
	scalar(fieldDoc{name: "port", kind: "port", def: "the only port that the server has there",
		doc: "The server's port."},
		func(s *rawLimitServer) *value[uint16] { return &s.port }, parsePort),
}

var limitClientsFields = []field[rawLimitClients]{
	{fieldDoc{name: "within", kind: "list of prefixes",
		doc: "The limit applies to clients in these prefixes only; at most 64. Without it, to all clients."},
		func(d *decoder, n *yaml.Node, path string, into *rawLimitClients) {
			readList(d, n, path, func(n *yaml.Node, path string) {
				into.within = append(into.within, readScalar(d, n, path, ParsePrefix))
			})
		}},
	scalar(fieldDoc{name: "prefix4", kind: "number, 8 to 32", def: fmt.Sprint(model.LimitPrefix4),
		doc: "IPv4 clients in one network of this prefix length share a bucket."},
		func(c *rawLimitClients) *value[int] { return &c.prefix4 }, parseNumber(8, 32)),
	scalar(fieldDoc{name: "prefix6", kind: "number, 16 to 128", def: fmt.Sprint(model.LimitPrefix6),
		doc: "Likewise for IPv6; one site usually has a /64."},
		func(c *rawLimitClients) *value[int] { return &c.prefix6 }, parseNumber(16, 128)),
	scalar(fieldDoc{name: "max_clients", former: "most", kind: "number, 1 to 1048576", def: fmt.Sprint(model.LimitMaxClients),
		doc: "The maximum number of buckets; all limits together have at most 1048576. A bucket that is full again is reused for another client; packets of a client without a bucket pass, and are counted. " +
			"Some clients find no bucket while others are free, so configure twice the number of concurrent clients."},
		func(c *rawLimitClients) *value[int] { return &c.maxClients }, parseNumber(1, maxLimitClients)),
}

var limitActionFields = []field[rawLimitAction]{
	scalar(fieldDoc{name: "mark", kind: "DSCP: its name, such as af13, or a number, 0 to 63", required: true,
		doc: "Packets above the limit are forwarded with this DSCP."},
		func(a *rawLimitAction) *value[model.DSCP] { return &a.mark }, parseDSCP),
}

var tenantFields = []field[rawTenant]{
	scalar(fieldDoc{name: "name", kind: "name", required: true,
		doc: "A unique name of at most 63 bytes: letters, digits, `.`, `_` and `-`."},
		func(t *rawTenant) *value[string] { return &t.name }, parseName),
	{fieldDoc{name: "services", kind: "list of names of services", doc: "The tenant's services."},
		func(d *decoder, n *yaml.Node, path string, into *rawTenant) {
			readList(d, n, path, func(n *yaml.Node, path string) {
				into.services = append(into.services, readScalar(d, n, path, parseName))
			})
		}},
	{fieldDoc{name: "vips", kind: "list of addresses", doc: "All services of these VIPs belong to the tenant, too, including services that are added later."},
		func(d *decoder, n *yaml.Node, path string, into *rawTenant) {
			readList(d, n, path, func(n *yaml.Node, path string) {
				into.vips = append(into.vips, readScalar(d, n, path, parseAddress))
			})
		}},
}

const ratesDoc = " One of the three rates is required."

var limitFields = []field[rawLimit]{
	scalar(fieldDoc{name: "name", kind: "name", required: true,
		doc: "A unique name of at most 63 bytes: letters, digits, `.`, `_` and `-`."},
		func(l *rawLimit) *value[string] { return &l.name }, parseName),
	scalar(fieldDoc{name: "tenant", kind: "name of a tenant",
		doc: "The limit applies to all services of this tenant together. Only one of `tenant`, `service`, `services`, `vip` and `server` is possible; " +
			"without any, the limit applies to all services together."},
		func(l *rawLimit) *value[string] { return &l.tenant }, parseName),
	scalar(fieldDoc{name: "service", kind: "name of a service", doc: "The limit applies to this service."},
		func(l *rawLimit) *value[string] { return &l.service }, parseName),
	{fieldDoc{name: "services", kind: "list of names of services", doc: "The limit applies to these services together."},
		func(d *decoder, n *yaml.Node, path string, into *rawLimit) {
			into.services.at, into.services.path = positionOf(n), path
			readList(d, n, path, func(n *yaml.Node, path string) {
				into.services.names = append(into.services.names, readScalar(d, n, path, parseName))
			})
		}},
	scalar(fieldDoc{name: "vip", kind: "address", doc: "The limit applies to all services of this VIP together."},
		func(l *rawLimit) *value[netip.Addr] { return &l.vip }, parseAddress),
	{fieldDoc{name: "server", kind: "mapping", object: limitServerObject, doc: "The limit applies to this server of a service."},
		func(d *decoder, n *yaml.Node, path string, into *rawLimit) {
			into.server.at, into.server.path = positionOf(n), path
			readObject(d, n, path, limitServerFields, &into.server)
		}},
	rateField(model.LimitBits, "number of bits, 8k to 400G", "Bits per second, such as `800k`, `1.5M` or `10G` (powers of 1000)."+ratesDoc),
	rateField(model.LimitPackets, "number of packets, 1 to 1G", "Packets per second."+ratesDoc),
	rateField(model.LimitSessions, "number of sessions, 1 to 10M", "New sessions per second."+ratesDoc),
	scalar(fieldDoc{name: "burst", kind: "bytes, packets or sessions", def: "the rate times 250 ms; at least 32kB, 32 packets or 16 sessions",
		doc: "The capacity of the token bucket. For a rate in bits: bytes, such as `64kB` or `2MB`; at least 1500 plus what `count` adds, or the largest " +
			"packets never pass. For the others: packets or sessions, such as `500` or `2k`. See docs/limits.md."},
		func(l *rawLimit) *value[quantity] { return &l.burst }, parseQuantity),
	scalar(fieldDoc{name: "count", kind: "l3, l2, l2+fcs or l1", def: "l3",
		doc: "The bytes of a packet that `bits_per_second` counts. `l3`: the IP packet; `l2`: with the Ethernet header, 14 bytes, and at least 60 in all; `l2+fcs`: with the frame check " +
			"sequence, 18 bytes, and at least 64 in all; `l1`: with preamble and gap, 38 bytes, and at least 84 in all."},
		func(l *rawLimit) *value[model.LimitLayer] { return &l.count }, parseWord(model.LimitLayers...)),
	scalar(fieldDoc{name: "direction", kind: "both, to-servers or to-clients", def: "both",
		doc: "The direction of packets that the limit counts. With `both`, the directions share the bucket. Under `dr` and `ipip`, packets to clients do not pass the forwarder."},
		func(l *rawLimit) *value[model.LimitDirection] { return &l.way }, parseWord(model.LimitDirections...)),
	{fieldDoc{name: "clients", kind: "mapping", object: limitClientsObject,
		doc: "Each client has its own bucket; `{}`: with the defaults. Without it, all clients share one bucket."},
		func(d *decoder, n *yaml.Node, path string, into *rawLimit) {
			into.clients.at, into.clients.path = positionOf(n), path
			readObject(d, n, path, limitClientsFields, &into.clients)
		}},
	{fieldDoc{name: "action", kind: "drop, or mapping", def: "drop", object: limitActionObject,
		doc: "The action for packets above the limit. `drop`: they are dropped, as `limit-exceeded` or `session-rate`. `{mark: af13}`: they are forwarded with this DSCP."},
		readLimitAction},
	scalar(fieldDoc{name: "engine", kind: "auto, cas, lock, light-lock or atomic", def: "auto",
		doc: "How workers synchronize on the bucket. `auto`: not at all with one worker, else `cas`. `atomic`: packets go through an event device, which schedules them to one worker at a time. The others are for comparison, and not for limits by clients. See docs/limits.md."},
		func(l *rawLimit) *value[model.LimitEngine] { return &l.engine }, parseWord(model.LimitEngines...)),
	scalar(fieldDoc{name: "batch", kind: "bytes, packets or sessions", def: "a tenth of the burst",
		doc: "With `light-lock`: how much a worker acquires from the bucket at once."},
		func(l *rawLimit) *value[quantity] { return &l.batch }, parseQuantity),
}

var (
	tenantObject = docsOf("tenants", "Named sets of services, for limits that these share. A service may have several tenants.", tenantFields)
	limitObject  = docsOf("limits", "Rate limits of traffic. A packet with several limits is charged to all of them, or is dropped and charged to none. "+
		"See docs/limits.md.", limitFields)
	limitServerObject  = docsOf("server of limits", "The server that a limit applies to.", limitServerFields)
	limitClientsObject = docsOf("clients of limits", "The clients of a limit that have their own buckets.", limitClientsFields)
	limitActionObject  = docsOf("action of limits", "The action for packets above a limit, if they are not dropped.", limitActionFields)
)

// readLimitAction decodes `drop`, or a mapping.
func readLimitAction(d *decoder, n *yaml.Node, path string, into *rawLimit) {
	into.action.at, into.action.path = positionOf(n), path
	of := n
	if of.Kind == yaml.AliasNode && of.Alias != nil {
		of = of.Alias
	}
	if of.Kind == yaml.MappingNode {
		readObject(d, n, path, limitActionFields, &into.action)
		return
	}
	readScalar(d, n, path, func(text string) (struct{}, error) {
		if text != "drop" {
			return struct{}{}, fmt.Errorf("%q is unknown: use drop, or {mark: af13} with a DSCP", text)
		}
		return struct{}{}, nil
	})
}

func parseDSCP(text string) (model.DSCP, error) {
	if dscp, ok := model.DSCPByName(text); ok {
		return dscp, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > 63 {
		return 0, fmt.Errorf("%q is not a DSCP: write a name such as af13, cs1 or ef, or a number from 0 to 63", text)
	}
	if err := checkDecimal(text); err != nil {
		return 0, err
	}
	return model.DSCP(n), nil
}
