// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"

	"steelyard/internal/model"
)

// Rates of a shaped port that are impossible. Each mistake is reported at its position, and all of them at once.

// checkShapingRates checks that guaranteed ≤ maximum ≤ the rate of the level above.
func (b *builder) checkShapingRates(guaranteed, maximum value[uint64], above uint64) {
	if guaranteed.set && maximum.set && guaranteed.v > maximum.v {
		b.fail(guaranteed.at, guaranteed.path, "the guaranteed rate, %s, is above the maximum, %s: lower it", model.BitRate(guaranteed.v), model.BitRate(maximum.v))
	}
	if above > 0 && guaranteed.set && guaranteed.v > above {
		b.fail(guaranteed.at, guaranteed.path, "the guaranteed rate, %s, is above the %s of the port or tenant that it is a part of: lower it", model.BitRate(guaranteed.v), model.BitRate(above))
	}
}

// checkShapingClasses checks that the classes' guaranteed rates, which each service has, fit into the port, and into the maximum of each tenant and
// service; and that a service's packets can reach its guaranteed rate.
func (b *builder) checkShapingClasses(raw *rawShaping, s *model.ConfigShaping) {
	all, maximum, bounded := uint64(0), uint64(0), true
	classes := map[string]*model.ShapingClass{}
	for i := range s.Classes {
		class := &s.Classes[i]
		classes[class.Name] = class
		all, maximum = all+class.Guaranteed, maximum+class.Maximum
		bounded = bounded && class.Maximum > 0
		if s.Rate > 0 && all > s.Rate && class.Guaranteed <= s.Rate {
			rate := &raw.classes[i].guaranteed
			b.fail(rate.at, rate.path, "up to this class %s are guaranteed in each service, the port has %s: lower some", model.BitRate(all), model.BitRate(s.Rate))
			return // the levels below would only repeat the error
		}
	}
	for i := range raw.tenants {
		if maximum := &raw.tenants[i].maximum; maximum.set && all > maximum.v {
			b.fail(maximum.at, maximum.path, "classes are guaranteed %s in each service, above this maximum, %s: raise it, or lower `guaranteed` of the classes",
				model.BitRate(all), model.BitRate(maximum.v))
		}
	}
	for i := range raw.services {
		service := &raw.services[i]
		minimum, reach, whose := all, maximum, "its classes have at most %s together"
		if !bounded {
			reach = 0
		}
		if class := classes[service.class.v]; service.class.set && class != nil {
			minimum, reach, whose = class.Guaranteed, class.Maximum, "its packets are of class "+class.Name+", whose maximum is %s"
		}
		if service.maximum.set && minimum > service.maximum.v {
			b.fail(service.maximum.at, service.maximum.path, "classes are guaranteed %s in this service, above its maximum, %s: raise it, or lower `guaranteed` of the classes",
				model.BitRate(minimum), model.BitRate(service.maximum.v))
		}
		if service.guaranteed.set && reach > 0 && service.guaranteed.v > reach {
			b.fail(service.guaranteed.at, service.guaranteed.path, "the guaranteed rate, %s, cannot be reached, as "+whose+": lower it, or raise that",
				model.BitRate(service.guaranteed.v), model.BitRate(reach))
		}
	}
}

// shapedTenants maps services to their tenant on a port.
type shapedTenants struct {
	names map[string]string
	vips  map[netip.Addr]string
}

// shapedTenantsOf checks that services and VIPs have one tenant each on a port.
func (b *builder) shapedTenantsOf(raw *rawShaping, s *model.ConfigShaping) shapedTenants {
	tenants := b.tenantsByName()
	of := shapedTenants{map[string]string{}, map[netip.Addr]string{}}
	for i, one := range s.Tenants {
		tenant, at := tenants[one.Tenant], &raw.tenants[i].name
		if tenant == nil {
			continue
		}
		for _, name := range tenant.Services {
			if other, ok := of.names[name]; ok && other != one.Tenant {
				b.fail(at.at, at.path, "%s has the service %s, as %s has: on a port a service has one tenant", one.Tenant, name, other)
				raw.loose = true
			}
			of.names[name] = one.Tenant
		}
		for _, vip := range tenant.VIPs {
			if other, ok := of.vips[vip]; ok && other != one.Tenant {
				b.fail(at.at, at.path, "%s has the VIP %s, as %s has: on a port a VIP has one tenant", one.Tenant, vip, other)
				raw.loose = true
			}
			of.vips[vip] = one.Tenant
		}
	}
	return of
}

// checkShapingTree checks that the services of a tenant get no more than the tenant's rate, and all together no more than the port's.
func (b *builder) checkShapingTree(raw *rawShaping, s *model.ConfigShaping) {
	b.checkShapingClasses(raw, s)
	of := b.shapedTenantsOf(raw, s)
	if raw.loose || s.Rate == 0 || b.partial || !b.namesLead() {
		return // the tenant of a service is unknown
	}
	has, sum, full := map[string]uint64{"": s.Rate}, map[string]uint64{}, map[string]bool{}
	for _, tenant := range s.Tenants {
		has[tenant.Tenant] = s.Rate
		if tenant.Maximum > 0 {
			has[tenant.Tenant] = min(s.Rate, tenant.Maximum)
		}
		if tenant.Guaranteed > 0 {
			has[tenant.Tenant] = min(has[tenant.Tenant], tenant.Guaranteed)
		}
	}
	whole := shapingGuaranteed(s.Tenants, sum) > s.Rate // was reported, at the tenants
	for i, one := range s.Services {
		service := b.serviceNamed(one.Service)
		if service == nil {
			continue
		}
		tenant, named := of.names[one.Service]
		if !named {
			tenant = of.vips[service.Key.VIP]
		}
		sum[tenant] += one.Guaranteed
		rate := &raw.services[i].guaranteed
		if !rate.set || rate.v > s.Rate {
			continue
		}
		all := shapingGuaranteed(s.Tenants, sum)
		switch {
		case sum[tenant] > has[tenant] && !full[tenant]:
			full[tenant] = true
			what := "the port has"
			if tenant != "" {
				what = tenant + " has"
			}
			b.fail(rate.at, rate.path, "up to this service %s are guaranteed, %s %s: lower some", model.BitRate(sum[tenant]), what, model.BitRate(has[tenant]))
		case all > s.Rate && !whole && !full[tenant]:
			whole = true
			b.fail(rate.at, rate.path, "up to this service, tenants and services are guaranteed %s, the port has %s: lower some",
				model.BitRate(all), model.BitRate(s.Rate))
		}
	}
}

// shapingGuaranteed returns the sum of the guaranteed rates of a port's tenants; services: the sums of their services.
func shapingGuaranteed(tenants []model.ConfigShapingTenant, services map[string]uint64) uint64 {
	sum := services[""]
	for _, tenant := range tenants {
		sum += max(tenant.Guaranteed, services[tenant.Tenant])
	}
	return sum
}
