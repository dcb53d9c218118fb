// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"slices"
	"strconv"

	"steelyard/internal/model"
)

// Builds the configuration's tenants and limits from the file's. The services are built already.

// Defaults of a burst: the rate times 250 ms, and at least these. A TCP sender that has lost all segments in flight is silent for 200 ms or more
// (docs/design/0033-limits-in-the-path.md).
const (
	burstsPerSecond = 4
	minBurstBytes   = 32_000
	minBurstPacket  = 32
	minBurstBegun   = 16
	largestPacket   = 1500 // of most networks
)

// maxSuggested bounds the errors that search for the name that was meant, because there may be many names and many errors.
const maxSuggested = 20

func (b *builder) buildTenants() []model.Tenant {
	var tenants []model.Tenant
	for i := range b.raw.tenants {
		raw := &b.raw.tenants[i]
		tenant := model.Tenant{Name: raw.name.v}
		b.unique(b.tenants, "tenant", raw.name, "")
		tenant.Services = b.limitedServices(raw.services)
		for _, vip := range raw.vips {
			if vip.set && slices.Contains(tenant.VIPs, vip.v) {
				b.fail(vip.at, vip.path, "%s is in this list already: remove one", vip.v)
			}
			tenant.VIPs = append(tenant.VIPs, vip.v)
		}
		switch targets := len(raw.services) + len(raw.vips); {
		case targets == 0:
			b.fail(raw.at, raw.path, "the tenant is empty: add `services` or `vips`")
		case targets > maxLimitTargets:
			b.fail(raw.at, raw.path, "the tenant has %d services and VIPs, at most %d are possible: name VIPs instead of their services",
				targets, maxLimitTargets)
		}
		tenants = append(tenants, tenant)
	}
	b.builtTenants = tenants
	return tenants
}

// limitedServices checks a list of services, and returns their names.
func (b *builder) limitedServices(list []value[string]) []string {
	var names []string
	seen := make(map[string]bool, len(list))
	for _, name := range list {
		if name.set && seen[name.v] {
			b.fail(name.at, name.path, "%s is in this list already: remove one", name.v)
		}
		seen[name.v] = true
		b.checkServiceName(name)
		names = append(names, name.v)
	}
	return names
}

// checkServiceName checks that a service exists, if the services are known.
func (b *builder) checkServiceName(name value[string]) bool {
	if _, ok := b.names[name.v]; ok || !name.set || b.partial || b.unnamed || b.meant["services"] {
		return ok
	}
	b.fail(name.at, name.path, "there is no service %s%s", strconv.Quote(name.v), b.meantName(name.v, b.names, "`services`"))
	return false
}

// meantName returns the end of an error's text: the name that was probably meant, or where valid names are.
func (b *builder) meantName(name string, names map[string]position, where string) string {
	b.suggested++
	best, bestDistance := "", 3
	if b.suggested <= maxSuggested {
		for one := range names {
			if distance := editDistance(name, one); distance < bestDistance || distance == bestDistance && one < best {
				best, bestDistance = one, distance
			}
		}
	}
	if best != "" {
		return ": did you mean " + best + "?"
	}
	return ": use a name that " + where + " has"
}

func (b *builder) buildLimits() []model.ConfigLimit {
	var limits []model.ConfigLimit
	seen := make(map[string]position, len(b.raw.limits))
	for i := range b.raw.limits {
		raw := &b.raw.limits[i]
		b.unique(seen, "limit", raw.name, "")
		if i == maxLimits {
			b.fail(raw.name.at, raw.name.path, "%d limits, at most %d are possible: let tenants share some", len(b.raw.limits), maxLimits)
		}
		limit := model.ConfigLimit{Name: raw.name.v, Of: b.limitTarget(raw), Spec: b.limitSpec(raw)}
		for _, prefix := range raw.clients.within {
			if prefix.set {
				limit.Within = append(limit.Within, prefix.v)
			}
		}
		limit.Within = model.MergePrefixes(limit.Within)
		limits = append(limits, limit)
	}
	b.checkLimitTotals(limits)
	b.checkLimitsOfOne(limits)
	return limits
}

// tenantsByName returns the built tenants, by name.
func (b *builder) tenantsByName() map[string]*model.Tenant {
	tenants := make(map[string]*model.Tenant, len(b.builtTenants))
	for i := range b.builtTenants {
		tenants[b.builtTenants[i].Name] = &b.builtTenants[i]
	}
	return tenants
}

// checkLimitTotals checks that all limits together fit into the forwarder. It reports the first limit that exceeds a maximum.
func (b *builder) checkLimitTotals(limits []model.ConfigLimit) {
	if b.partial || !b.namesLead() {
		return // the targets of some limits are unknown
	}
	tenants, mistaken := b.tenantsByName(), b.mistaken()
	clients, names := 0, 0
	for i := range limits {
		limit, raw := &limits[i], &b.raw.limits[i]
		if mistaken[raw.path] {
			continue
		}
		concerns := len(limit.Of.Services) + len(limit.Of.VIPs)
		if tenant := tenants[limit.Of.Tenant]; tenant != nil {
			concerns = len(tenant.Services) + len(tenant.VIPs)
		}
		names += max(concerns, 1) + len(limit.Within) // a server counts as one, and so do all services together
		if clients += int(limit.Spec.MaxClients); clients > maxLimitClients {
			at, path := raw.clients.at, raw.clients.path
			if raw.clients.maxClients.set {
				at, path = raw.clients.maxClients.at, raw.clients.maxClients.path
			}
			b.fail(at, path, "the limits by clients have %d buckets up to this one, at most %d are possible together: lower `max_clients` of some",
				clients, maxLimitClients)
			return
		}
		if names > maxLimitNames {
			b.fail(raw.at, raw.path, "the limits name %d services, VIPs, servers and prefixes of clients up to this one, at most %d are possible together: "+
				"name VIPs instead of services, or larger prefixes", names, maxLimitNames)
			return
		}
	}
}

// checkLimitsOfOne checks that no service, VIP or server has too many limits.
func (b *builder) checkLimitsOfOne(limits []model.ConfigLimit) {
	if b.partial || !b.namesLead() {
		return // the targets of some limits are unknown
	}
	tenants, mistaken := b.tenantsByName(), b.mistaken()
	type one struct {
		service string
		address netip.AddrPort // of a server, or of a VIP without a service
	}
	counts := map[one]int{}
	for i := range limits {
		raw := &b.raw.limits[i]
		if mistaken[raw.path] {
			continue
		}
		of, reported := limits[i].Of, false
		if tenant := tenants[of.Tenant]; tenant != nil {
			of.Services, of.VIPs = tenant.Services, tenant.VIPs
		}
		var ones []one
		for _, name := range of.Services {
			ones = append(ones, one{service: name})
		}
		for _, vip := range of.VIPs {
			ones = append(ones, one{address: netip.AddrPortFrom(vip, 0)})
		}
		if of.Server.Service != "" || len(ones) == 0 {
			ones = append(ones, one{of.Server.Service, of.Server.Address})
		}
		for _, each := range ones {
			if counts[each]++; counts[each] != maxLimitsOfOne+1 || reported {
				continue
			}
			reported = true // once per limit, and once per target
			what := "all services"
			switch {
			case each.service != "" && each.address.IsValid():
				what = "server " + model.ServerText(each.address) + " of " + each.service
			case each.service != "":
				what = "service " + each.service
			case each.address.IsValid():
				what = "VIP " + each.address.Addr().String()
			}
			b.fail(raw.at, raw.path, "more than %d limits apply to %s, some maybe through tenants: remove some", maxLimitsOfOne, what)
		}
	}
}

// limitTarget returns the target of a limit.
func (b *builder) limitTarget(raw *rawLimit) model.LimitTarget {
	given := 0
	only := func(set bool, at position, path string) {
		if !set {
			return
		}
		if given++; given > 1 {
			b.fail(at, path, "a limit has only one of `tenant`, `service`, `services`, `vip` and `server`: put several into a tenant, or write two limits")
		}
	}
	only(raw.tenant.set, raw.tenant.at, raw.tenant.path)
	only(raw.service.set, raw.service.at, raw.service.path)
	only(raw.services.at != position{}, raw.services.at, raw.services.path)
	only(raw.vip.set, raw.vip.at, raw.vip.path)
	only(raw.server.at != position{}, raw.server.at, raw.server.path)

	target := model.LimitTarget{Tenant: raw.tenant.v, Services: b.limitedServices(raw.services.names), Server: b.limitedServer(&raw.server)}
	if _, ok := b.tenants[raw.tenant.v]; raw.tenant.set && !ok && !b.meant["tenants"] {
		b.fail(raw.tenant.at, raw.tenant.path, "there is no tenant %s%s", strconv.Quote(raw.tenant.v),
			b.meantName(raw.tenant.v, b.tenants, "`tenants`"))
	}
	if raw.service.set {
		b.checkServiceName(raw.service)
		target.Services = []string{raw.service.v}
	}
	if raw.vip.set {
		target.VIPs = []netip.Addr{raw.vip.v}
	}
	switch names := len(raw.services.names); {
	case raw.services.at != position{} && names == 0:
		b.fail(raw.services.at, raw.services.path, "no service is named: name some, or remove this line for a limit of all services")
	case names > maxLimitTargets:
		b.fail(raw.services.at, raw.services.path, "%d services, at most %d are possible: name VIPs, in a tenant", names, maxLimitTargets)
	}
	return target
}

// limitedServer returns the server that a limit applies to.
func (b *builder) limitedServer(raw *rawLimitServer) model.NamedServer {
	if !raw.service.set || !raw.address.set || !b.checkServiceName(raw.service) {
		return model.NamedServer{}
	}
	found := model.NamedServer{Service: raw.service.v}
	ports := 0
	for _, server := range b.serviceNamed(raw.service.v).Servers {
		if server.Address.Addr() != raw.address.v {
			continue
		}
		if raw.port.set && server.Address.Port() != raw.port.v {
			continue
		}
		ports++
		found.Address = server.Address
	}
	switch {
	case ports == 0:
		b.fail(raw.address.at, raw.address.path, "%s has no such server: use an address and a port from its `servers`", raw.service.v)
	case ports > 1:
		b.fail(raw.address.at, raw.address.path, "%s has %s with %d ports: add the `port`", raw.service.v, raw.address.v, ports)
	}
	return found
}

// serviceNamed returns an existing service.
func (b *builder) serviceNamed(name string) *model.Service {
	if b.byName == nil {
		b.byName = make(map[string]*model.Service, len(b.services))
		for i := range b.services {
			b.byName[b.services[i].Name] = &b.services[i]
		}
	}
	return b.byName[name]
}

// limitSpec returns a limit's rate, burst and options.
func (b *builder) limitSpec(raw *rawLimit) model.LimitSpec {
	spec := model.LimitSpec{Action: model.LimitDrop, Engine: raw.engine.v}
	for unit, rate := range raw.rates {
		if !rate.set {
			continue
		}
		if spec.Unit != 0 {
			b.fail(rate.at, rate.path, "a limit has one rate: remove `%s` or this line, or write two limits", rateKeys[spec.Unit])
			continue
		}
		spec.Unit, spec.PerSecond = model.LimitUnit(unit), rate.v
	}
	if spec.Unit == 0 {
		if !raw.rated { // otherwise its error was reported
			b.fail(raw.at, raw.path, "the limit has no rate: add `bits_per_second: …`, `packets_per_second: …` or `new_sessions_per_second: …`")
		}
		return spec
	}
	b.limitMeaning(raw, &spec)
	spec.Burst = b.burst(raw, &spec)
	spec.Batch = b.batch(raw, &spec)
	if c := &raw.clients; c.at != (position{}) {
		b.limitClients(c, &spec)
	}
	return spec
}

// limitMeaning builds layer, direction and action, which depend on the unit.
func (b *builder) limitMeaning(raw *rawLimit, spec *model.LimitSpec) {
	const onlyOf = "%s has no %s: use `%s`, or remove this line"
	if spec.Unit == model.LimitBits {
		spec.Layer = raw.count.or(model.LimitL3)
	} else if raw.count.set {
		b.fail(raw.count.at, raw.count.path, onlyOf, rateKeys[spec.Unit], "bytes to count", rateKeys[model.LimitBits])
	}
	if spec.Unit != model.LimitSessions {
		spec.Direction = raw.way.or(model.LimitBoth)
	} else if raw.way.set {
		b.fail(raw.way.at, raw.way.path, onlyOf, rateKeys[spec.Unit], "direction", rateKeys[model.LimitPackets])
	}
	if raw.action.mark.set {
		spec.Action, spec.Mark = model.LimitMark, raw.action.mark.v
		if spec.Unit == model.LimitSessions {
			b.fail(raw.action.at, raw.action.path, "a session above the limit cannot begin, so there is nothing to mark: use `action: drop`")
		}
	}
	const noAtomic = "so `engine: atomic` is not possible: remove this line"
	if spec.Engine == model.EngineAtomic && spec.Unit == model.LimitSessions {
		b.fail(raw.engine.at, raw.engine.path, "the limit counts new sessions, and packets go through the event device only after their session was created, "+noAtomic)
	} else if spec.Engine == model.EngineAtomic && spec.Action == model.LimitMark {
		b.fail(raw.engine.at, raw.engine.path, "the limit marks, and packets are marked before they go through the event device, "+noAtomic)
	}
}

// amountOf returns a burst or batch in the limit's unit.
func (b *builder) amountOf(given value[quantity], spec *model.LimitSpec) (uint64, bool) {
	maximum := uint64(maxBurstCount)
	switch q := given.v; {
	case spec.Unit == model.LimitBits && q.prefix && !q.bytes:
		b.fail(given.at, given.path, "a %s limit has bytes here: write %sB", rateKeys[spec.Unit], shortNumber(q.n))
		return 0, false
	case spec.Unit == model.LimitBits:
		maximum = maxBurstBytes
	case q.bytes:
		what := "packets"
		if spec.Unit == model.LimitSessions {
			what = "sessions"
		}
		b.fail(given.at, given.path, "a %s limit has %s here, not bytes: write a number like 500 or 2k", rateKeys[spec.Unit], what)
		return 0, false
	}
	if given.v.n == 0 || given.v.n > maximum {
		b.fail(given.at, given.path, "%d is out of range: use 1 to %s", given.v.n, shortNumber(maximum))
		return 0, false
	}
	return given.v.n, true
}

func (b *builder) burst(raw *rawLimit, spec *model.LimitSpec) uint64 {
	if raw.burst.set {
		burst, ok := b.amountOf(raw.burst, spec)
		if minimum := largestPacket + spec.Layer.Overhead(); ok && spec.Unit == model.LimitBits && burst < minimum {
			b.fail(raw.burst.at, raw.burst.path, "packets of %d bytes would never pass, because they count as %d with `%s`: use at least that",
				largestPacket, minimum, spec.Layer)
		}
		return burst
	}
	switch spec.Unit {
	case model.LimitBits:
		return max(spec.PerSecond/8/burstsPerSecond, minBurstBytes)
	case model.LimitPackets:
		return max(spec.PerSecond/burstsPerSecond, minBurstPacket)
	}
	return max(spec.PerSecond/burstsPerSecond, minBurstBegun)
}

func (b *builder) batch(raw *rawLimit, spec *model.LimitSpec) uint32 {
	if !raw.batch.set {
		return 0
	}
	if spec.Engine != model.EngineLightLock {
		b.fail(raw.batch.at, raw.batch.path, "only light-lock has batches: use `engine: light-lock`, or remove this line")
		return 0
	}
	batch, ok := b.amountOf(raw.batch, spec)
	if ok && batch > min(spec.Burst, 1<<32-1) {
		b.fail(raw.batch.at, raw.batch.path, "the batch is larger than the burst, %d: use a tenth of that", spec.Burst)
	}
	return uint32(batch)
}

func (b *builder) limitClients(raw *rawLimitClients, spec *model.LimitSpec) {
	spec.ByClient = true
	if spec.Engine > model.EngineCAS {
		b.fail(raw.at, raw.path, "buckets of clients are allocated by compare-and-swap, so `engine: %s` is not possible: remove it, or `clients`", spec.Engine)
	}
	spec.Prefix4, spec.Prefix6 = uint8(raw.prefix4.or(model.LimitPrefix4)), uint8(raw.prefix6.or(model.LimitPrefix6))
	spec.MaxClients = uint32(raw.maxClients.or(model.LimitMaxClients))
	for i, prefix := range raw.within {
		if i == maxLimitWithin {
			b.fail(prefix.at, prefix.path, "%d prefixes, at most %d are possible: use larger ones", len(raw.within), maxLimitWithin)
		}
		length, key := spec.Prefix4, "prefix4"
		if prefix.v.Addr().Is6() {
			length, key = spec.Prefix6, "prefix6"
		}
		if prefix.set && prefix.v.Bits() > int(length) {
			b.fail(prefix.at, prefix.path, "the clients of a /%d share a bucket, and %s is smaller: use `%s: %d`",
				length, prefix.v, key, prefix.v.Bits())
		}
	}
}
