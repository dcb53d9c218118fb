// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"slices"

	"steelyard/internal/model"
)

// Parse parses a file's content; `file` names it in errors, which are of type Errors.
func Parse(file string, data []byte) (*model.Config, error) {
	config, _, err := parse(file, data, false)
	return config, err
}

// parse is Parse, and also returns the number of values in the file. partial: the file lacks services that its tenants and limits may name.
func parse(file string, data []byte, partial bool) (*model.Config, int, error) {
	d := &decoder{file: file}
	root := d.parse(data)
	if root == nil {
		return nil, 0, d.result()
	}
	var raw rawFile
	readObject(d, root, "", fileFields, &raw)
	if d.full() {
		d.errs = d.errs[:1] // later errors are about copies of the same value
		return nil, 0, d.result()
	}
	b := &builder{decoder: d, raw: &raw, names: map[string]position{}, keys: map[model.ServiceKey]position{},
		ranges: map[netip.Addr][]rangeAt{},
		access: map[string]position{}, sets: map[string]position{},
		locals: map[netip.Addr]position{}, servers: map[netip.Addr]position{},
		tenants: map[string]position{}, partial: partial}
	config := b.build()
	config.Deprecated = d.deprecated
	if err := d.result(); err != nil {
		return nil, 0, err
	}
	return config, d.values, nil
}

// builder builds a configuration from the file's values, and finds contradictions.
type builder struct {
	*decoder
	raw *rawFile

	names   map[string]position
	keys    map[model.ServiceKey]position
	ranges  map[netip.Addr][]rangeAt // by VIP
	access  map[string]position      // lists by name
	sets    map[string]position      // likewise
	locals  map[netip.Addr]position
	servers map[netip.Addr]position
	// The defaults' error was reported: once, not for each service.
	defaultsReported bool

	has4 bool // local addresses by family
	has6 bool

	tenants   map[string]position
	services  []model.Service           // all services, once they are built
	byName    map[string]*model.Service // index of services, built on demand
	partial   bool                      // tenants and limits may name further services
	unchecked bool                      // contradictions are not reported
	unnamed   bool                      // a service's name is missing, and other entries may refer to it
	suggested int                       // errors about unknown names that have a suggestion

	builtTenants []model.Tenant
}

// unique fails if the name is in names already, and otherwise adds its position. within: " in a list", or empty for names that are unique in the
// whole file.
func (b *builder) unique(names map[string]position, what string, name value[string], within string) {
	if first, ok := names[name.v]; ok && name.set {
		b.fail(name.at, name.path, "a %s in line %d is named %q too: names must be unique%s", what, first.line, name.v, within)
	}
	names[name.v] = name.at
}

// fail reports a contradiction, unless it may follow from a misspelt key.
func (b *builder) fail(at position, path, format string, args ...any) {
	if !b.unchecked && !b.follows(path) {
		b.decoder.fail(at, path, format, args...)
	}
}

func (b *builder) build() *model.Config {
	config := &model.Config{Metrics: model.Metrics{Listen: b.raw.metrics.listen.v, Detail: b.raw.metrics.detail.v}}
	config.LocalAddresses, config.PeerLocals = b.localAddresses()
	config.NextHops = b.nextHops()
	config.AccessSets = b.accessSets()
	config.AccessLists, config.GlobalAccess = b.accessLists(), b.raw.globalAccess.v
	for i := range b.raw.services {
		config.Services = append(config.Services, b.service(&b.raw.services[i]))
	}
	config.SNAT = b.snat()
	b.services = config.Services
	config.Tenants = b.buildTenants()
	config.Limits = b.buildLimits()
	config.Shaping = b.buildShaping()
	config.SFlow = b.sflow()
	config.Routes = b.routes()
	b.checkRoles()
	return config
}

// nextHops returns at most one address per family, because a route has one next hop.
func (b *builder) nextHops() []netip.Addr {
	var list []netip.Addr
	seen := map[bool]position{}
	for _, hop := range b.raw.nextHops {
		if !hop.set {
			continue
		}
		if first, ok := seen[hop.v.Is4()]; ok {
			b.fail(hop.at, hop.path, "%s is the second one of its family, after line %d: a route has one next hop, remove one", hop.v, first.line)
		}
		seen[hop.v.Is4()] = hop.at
		list = append(list, hop.v)
	}
	return list
}

func (b *builder) service(raw *rawService) model.Service {
	service := model.Service{
		Name: raw.name.v,
		Key: model.ServiceKey{
			Protocol: raw.protocol.or(model.TCP), VIP: raw.vip.v, Port: raw.port.v.first, LastPort: raw.port.v.last,
		},
		Mode: raw.mode.or(model.FNAT),
	}
	service.Policy = b.policy(raw, service.Key.Protocol)
	for i := range service.Timeouts {
		service.Timeouts[i] = raw.timeouts[i].over(b.raw.defaults.timeouts[i]).or(model.DefaultTimeouts[i])
	}
	service.Health = b.health(raw, service.Key.Protocol)
	if service.Health.Type == model.HealthHTTP && service.Policy.ClientAddress >= model.ProxyV1 {
		service.Health.Proxy = service.Policy.ClientAddress
	}

	if raw.name.set {
		if first, ok := b.names[service.Name]; ok {
			b.fail(raw.name.at, raw.name.path, "a service in line %d is named %q too: names must be unique",
				first.line, service.Name)
		} else {
			b.names[service.Name] = raw.name.at
		}
	}
	b.unnamed = b.unnamed || !raw.name.set
	if raw.vip.set && raw.port.set {
		if first, ok := b.keys[service.Key]; ok {
			b.fail(raw.vip.at, raw.vip.path, "%s is already a service, in line %d: put all its servers into one",
				service.Key, first.line)
		} else {
			b.keys[service.Key] = raw.vip.at
			b.checkRange(raw, service.Key)
		}
	}
	service.Load = b.load(raw, service.Health)
	service.Feedback = b.feedback(raw, &service)
	service.Servers = b.serversOf(raw)
	b.checkPorts(raw, &service)
	return service
}

func (b *builder) serversOf(raw *rawService) []model.Server {
	seen := map[netip.AddrPort]position{}
	missing := map[bool]bool{} // families without a local address, IPv4: true
	servers := make([]model.Server, 0, len(raw.servers))
	for _, s := range raw.servers {
		if !s.address.set {
			continue
		}
		b.checkFamily(raw, s, missing)
		port := b.serverPort(raw, s)
		address := netip.AddrPortFrom(s.address.v, port)
		if first, ok := seen[address]; ok && (s.port.set || raw.port.set) {
			b.fail(s.address.at, s.address.path, "%s is already a server of this service, in line %d: remove one",
				model.ServerText(address), first.line)
		}
		seen[address] = s.address.at
		if _, ok := b.servers[s.address.v]; !ok {
			b.servers[s.address.v] = s.address.at
		}
		if s.deadline.set && !s.drain.v {
			b.fail(s.deadline.at, s.deadline.path, "only a drain has a deadline: add `drain: true`, or remove this")
		}
		b.checkLink(raw, &s)
		servers = append(servers, model.Server{
			Address: address, Weight: s.weight.or(defaultWeight), Drain: s.drain.v, DrainDeadline: s.deadline.v,
			Backup: s.backup.v, MaxSessions: s.maxSessions.v, Load: b.serverLoad(raw, &s), Link: s.link.v,
		})
	}
	return servers
}

// checkFamily reports a family without a local address, at the service's first server of that family.
func (b *builder) checkFamily(raw *rawService, s rawServer, missing map[bool]bool) {
	mode := raw.mode.or(model.FNAT)
	if mode != model.FNAT && mode != model.IPIP {
		if raw.vip.set && raw.vip.v.Is4() != s.address.v.Is4() {
			b.fail(s.address.at, s.address.path, "%s is of another family than the VIP %s, and mode %s cannot "+
				"translate: use fnat or ipip, or a server of the VIP's family", s.address.v, raw.vip.v, mode)
		}
		return
	}
	if family := "IPv4"; !missing[s.address.v.Is4()] && (s.address.v.Is4() && !b.has4 || s.address.v.Is6() && !b.has6) {
		missing[s.address.v.Is4()] = true
		if s.address.v.Is6() {
			family = "IPv6"
		}
		b.fail(s.address.at, s.address.path, "%s needs a local address of the family of %s: add an %s "+
			"address to local_addresses", mode, s.address.v, family)
	}
}

func (b *builder) health(raw *rawService, protocol model.Protocol) model.Health {
	own, def := &raw.health, &b.raw.defaults.health
	given := own.at != position{}
	if protocol == model.UDP && !given {
		return model.Health{Type: model.HealthNone}
	}
	kind := own.kind.over(def.kind).or(defaultHealth.Type)
	if kind == model.HealthNone {
		return model.Health{Type: model.HealthNone}
	}
	if protocol == model.UDP && !own.port.set {
		b.fail(own.at, raw.path+".health", "a UDP port cannot be checked: name a TCP `port` of the servers, "+
			"or use `type: none`")
	}
	health := model.Health{
		Type:     kind,
		Port:     own.port.over(def.port).v,
		Interval: own.interval.over(def.interval).or(defaultHealth.Interval),
		Timeout:  own.timeout.over(def.timeout).or(defaultHealth.Timeout),
		Rise:     own.rise.over(def.rise).or(defaultHealth.Rise),
		Fall:     own.fall.over(def.fall).or(defaultHealth.Fall),
		Jitter:   own.jitter.over(def.jitter).or(defaultHealth.Jitter),
		Linger:   own.linger.over(def.linger).or(defaultHealth.Linger),
	}
	if given := own.timeout.over(def.timeout); !given.set {
		health.Timeout = min(health.Timeout, health.Interval)
	} else if health.Timeout > health.Interval {
		b.timeoutTooLong(raw, health)
	}
	if kind == model.HealthHTTP {
		health.Path = own.path.over(def.path).or(defaultHealth.Path)
		health.Host = own.host.over(def.host).v
		health.Expect = own.expect.over(def.expect).or(defaultHealth.Expect)
		return health
	}
	onlyHTTP := func(set bool, at position, path string) {
		if set {
			b.fail(at, path, "only checks of `type: http` have this key: set the type, or remove this line")
		}
	}
	onlyHTTP(own.path.set, own.path.at, own.path.path)
	onlyHTTP(own.host.set, own.host.at, own.host.path)
	onlyHTTP(own.expect.set, own.expect.at, own.expect.path)
	return health
}

// timeoutTooLong reports a check whose timeout is longer than the interval, if the service or the defaults set it.
func (b *builder) timeoutTooLong(raw *rawService, health model.Health) {
	at, path := raw.health.timeout.at, raw.health.timeout.path
	if !raw.health.timeout.set {
		at, path = raw.health.interval.at, raw.health.interval.path
	}
	if at == (position{}) {
		if b.defaultsReported {
			return
		}
		b.defaultsReported = true
		at, path = b.raw.defaults.health.timeout.at, b.raw.defaults.health.timeout.path
	}
	b.fail(at, path, "the timeout, %s, is longer than the interval, %s: a silent server would be checked less often "+
		"than the interval says; shorten the timeout, or lengthen the interval", health.Timeout, health.Interval)
}

// checkRoles checks that an address has only one role: VIP, server or local address.
func (b *builder) checkRoles() {
	reported := map[netip.Addr]bool{}
	for i := range b.raw.services {
		vip := b.raw.services[i].vip
		if !vip.set || reported[vip.v] {
			continue
		}
		for _, other := range []struct {
			at   map[netip.Addr]position
			what string
		}{{b.locals, "a local address"}, {b.servers, "a server"}} {
			if at, ok := other.at[vip.v]; ok {
				reported[vip.v] = true
				b.fail(vip.at, vip.path, "%s is also %s, in line %d: a VIP belongs to the forwarder alone, "+
					"use another address for one of them", vip.v, other.what, at.line)
			}
		}
	}
	for _, local := range slices.Concat(b.raw.locals, b.raw.peers) {
		if at, ok := b.servers[local.v]; local.set && ok {
			b.fail(local.at, local.path, "%s is also a server, in line %d: a local address belongs to the "+
				"forwarder alone, use another", local.v, at.line)
		}
	}
}
