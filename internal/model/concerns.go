// SPDX-License-Identifier: Apache-2.0

package model

import "slices"

// What limits and shaping have for one service.

// LimitsOf returns the limits that a packet of the service may meet, in the file's order: its own, those of its VIP, its
// tenants and its servers, and those of all services.
func (c *Config) LimitsOf(key ServiceKey) []Limit {
	return slices.DeleteFunc(c.ResolveLimits(), func(l Limit) bool {
		all := len(l.Services)+len(l.VIPs)+len(l.Servers) == 0
		return !all && !slices.Contains(l.Services, key) && !slices.Contains(l.VIPs, key.VIP) &&
			!slices.ContainsFunc(l.Servers, func(r ServerRef) bool { return r.Service == key })
	})
}

// Of returns the tenant and the service of a port that packets of a service belong to.
func (s *Shaping) Of(key ServiceKey) (tenant *ShapingTenant, service *ShapingService) {
	tenant, service = &s.Tenants[0], &s.Tenants[0].Services[0]
	for i := range s.Tenants {
		for j := range s.Tenants[i].Services {
			one := &s.Tenants[i].Services[j]
			if slices.Contains(one.Services, key) {
				return &s.Tenants[i], one
			}
			if slices.Contains(one.VIPs, key.VIP) {
				tenant, service = &s.Tenants[i], one
			}
		}
	}
	return tenant, service
}
