// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strconv"

	"steelyard/internal/model"
)

// Builds the configuration's shaping from the file's. The services and tenants are built already.

func (b *builder) buildShaping() []model.ConfigShaping {
	var all []model.ConfigShaping
	seen := map[string]position{}
	for i := range b.raw.shaping {
		raw := &b.raw.shaping[i]
		if first, ok := seen[raw.port.v]; ok && raw.port.set {
			b.fail(raw.port.at, raw.port.path, "%s is shaped in line %d already: put both into one", raw.port.v, first.line)
		}
		seen[raw.port.v] = raw.port.at
		if i == maxShapedPorts {
			b.fail(raw.at, raw.path, "%d ports, at most %d are possible", len(b.raw.shaping), maxShapedPorts)
		}
		all = append(all, b.shapingOf(raw))
	}
	return all
}

func (b *builder) shapingOf(raw *rawShaping) model.ConfigShaping {
	s := model.ConfigShaping{Port: raw.port.v, Rate: raw.rate.v, Layer: raw.count.or(model.LimitL1)}
	s.Burst = max(s.Rate/8/shapingBurstsPerS, minShapingBurst)
	if raw.burst.set {
		spec := model.LimitSpec{Unit: model.LimitBits}
		burst, ok := b.amountOf(raw.burst, &spec)
		if ok && burst < 4096 {
			b.fail(raw.burst.at, raw.burst.path, "%d is out of range: use 4096 to %sB", burst, shortNumber(maxBurstBytes))
		}
		s.Burst = burst
	}
	s.Classes = b.shapingClasses(raw)
	names := map[string]position{}
	for i := range s.Classes {
		names[s.Classes[i].Name] = position{}
	}
	s.Tenants = b.shapingTenants(raw, s.Rate)
	s.Services = b.shapingServices(raw, names)
	b.checkShapingTree(raw, &s)
	return s
}

func (b *builder) shapingClasses(raw *rawShaping) []model.ShapingClass {
	if len(raw.classes) == 0 {
		return []model.ShapingClass{{Name: "default", Priority: lowestPriority, Weight: 1, Queue: defaultShapingQueue}}
	}
	var classes []model.ShapingClass
	seen, dscps := map[string]position{}, map[model.DSCP]position{}
	for i := range raw.classes {
		c := &raw.classes[i]
		b.unique(seen, "class", c.name, " on a port")
		if i == maxShapingClasses {
			b.fail(c.at, c.path, "%d classes, at most %d are possible", len(raw.classes), maxShapingClasses)
		}
		class := model.ShapingClass{Name: c.name.v, Priority: uint8(c.priority.or(lowestPriority)), Weight: uint8(c.weight.or(1)),
			Queue: uint32(c.queue.or(defaultShapingQueue)), Guaranteed: c.guaranteed.v, Maximum: c.maximum.v}
		for _, dscp := range c.dscp {
			if first, ok := dscps[dscp.v]; ok && dscp.set {
				b.fail(dscp.at, dscp.path, "%s is in line %d already: a DSCP has one class", dscp.v, first.line)
			}
			dscps[dscp.v] = dscp.at
			class.DSCP = append(class.DSCP, dscp.v)
		}
		slices.Sort(class.DSCP)
		b.checkShapingRates(c.guaranteed, c.maximum, raw.rate.v)
		if c.early.at != (position{}) {
			class.Early = model.ShapingEarly{From: uint8(c.early.from.or(25)), To: uint8(c.early.to.or(75)), Percent: uint8(c.early.percent.or(10))}
			if class.Early.From >= class.Early.To {
				b.fail(c.early.at, c.early.path, "early drops begin at %d %% and end at %d %%: `from` must be below `to`", class.Early.From, class.Early.To)
			}
			if class.Early.Percent == 0 {
				b.fail(c.early.percent.at, c.early.percent.path, "0%% is out of range: use 1%% to 100%%, or remove `early_drops`")
			}
		}
		classes = append(classes, class)
	}
	return classes
}

func (b *builder) shapingTenants(raw *rawShaping, rate uint64) []model.ConfigShapingTenant {
	var tenants []model.ConfigShapingTenant
	seen := map[string]position{}
	sum := uint64(0)
	for i := range raw.tenants {
		t := &raw.tenants[i]
		b.unique(seen, "tenant", t.name, " on a port")
		if _, ok := b.tenants[t.name.v]; t.name.set && !ok && !b.meant["tenants"] {
			raw.loose = true
			b.fail(t.name.at, t.name.path, "there is no tenant %s%s", strconv.Quote(t.name.v), b.meantName(t.name.v, b.tenants, "`tenants`"))
		}
		b.checkShapingRates(t.guaranteed, t.maximum, rate)
		if sum += t.guaranteed.v; rate > 0 && t.guaranteed.set && sum > rate && t.guaranteed.v <= rate {
			b.fail(t.guaranteed.at, t.guaranteed.path, "up to this tenant %s are guaranteed, the port has %s: lower some", model.BitRate(sum), model.BitRate(rate))
			sum = 0
		}
		if i == maxShapingTenants {
			b.fail(t.at, t.path, "%d tenants, at most %d are possible", len(raw.tenants), maxShapingTenants)
		}
		tenants = append(tenants, model.ConfigShapingTenant{Tenant: t.name.v, Guaranteed: t.guaranteed.v, Maximum: t.maximum.v, Weight: uint8(t.weight.or(1))})
	}
	return tenants
}

func (b *builder) shapingServices(raw *rawShaping, classes map[string]position) []model.ConfigShapingService {
	var services []model.ConfigShapingService
	seen := map[string]position{}
	for i := range raw.services {
		s := &raw.services[i]
		b.unique(seen, "service", s.name, " on a port")
		b.checkServiceName(s.name)
		b.checkShapingRates(s.guaranteed, s.maximum, raw.rate.v)
		if _, ok := classes[s.class.v]; s.class.set && !ok {
			b.fail(s.class.at, s.class.path, "the port has no class %s%s", strconv.Quote(s.class.v), b.meantName(s.class.v, classes, "`classes`"))
		}
		services = append(services, model.ConfigShapingService{Service: s.name.v, Guaranteed: s.guaranteed.v, Maximum: s.maximum.v,
			Weight: uint8(s.weight.or(1)), Class: s.class.v})
	}
	if all := len(services) + len(raw.tenants) + 1; all > maxShapingServices {
		b.fail(raw.at, raw.path, "%d services and tenants, at most %d are possible: let services share a tenant's rates", all-1, maxShapingServices-1)
	}
	return services
}
