// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/netip"
	"slices"
)

// limitWarnings warns of limits and tenants without effect.
func (c *Config) limitWarnings() []Warning {
	if len(c.Limits)+len(c.Tenants) == 0 {
		return nil
	}
	var warnings []Warning
	vips := map[netip.Addr]bool{}
	for i := range c.Services {
		vips[c.Services[i].Key.VIP] = true
	}
	const noService = "no service has the VIP %s: %s concerns nothing there; use the VIP of a service, or add one"
	used := map[string]bool{}
	for i := range c.Limits {
		limit := &c.Limits[i]
		used[limit.Of.Tenant] = true
		path := fmt.Sprintf("limits[%d]", i)
		for _, vip := range limit.Of.VIPs {
			if !vips[vip] {
				warnings = append(warnings, Warning{path + ".vip", fmt.Sprintf(noService, vip, "limit "+limit.Name)})
			}
		}
	}
	for i := range c.Shaping {
		for _, tenant := range c.Shaping[i].Tenants {
			used[tenant.Tenant] = true
		}
	}
	for i := range c.Tenants {
		tenant := &c.Tenants[i]
		path := fmt.Sprintf("tenants[%d]", i)
		if !used[tenant.Name] {
			warnings = append(warnings, Warning{path, fmt.Sprintf("nothing names tenant %s: name it in the `tenant` of a limit or in the `shaping` of a port, or remove it", tenant.Name)})
		}
		for j, vip := range tenant.VIPs {
			if !vips[vip] {
				warnings = append(warnings, Warning{fmt.Sprintf("%s.vips[%d]", path, j), fmt.Sprintf(noService, vip, "tenant "+tenant.Name)})
			}
		}
	}
	return append(warnings, c.concernWarnings()...)
}

// concernWarnings returns those that depend on the services that a limit concerns.
func (c *Config) concernWarnings() []Warning {
	if !slices.ContainsFunc(c.Limits, func(l ConfigLimit) bool { return l.Spec.Direction == LimitToClients || l.Spec.limitsBegunByClient() }) {
		return nil
	}
	var warnings []Warning
	byKey := make(map[ServiceKey]*Service, len(c.Services))
	byVIP := map[netip.Addr][]*Service{}
	var all []*Service
	for i := range c.Services {
		s := &c.Services[i]
		byKey[s.Key] = s
		byVIP[s.Key.VIP] = append(byVIP[s.Key.VIP], s)
		all = append(all, s)
	}
	for i, limit := range c.ResolveLimits() {
		var of []*Service
		for _, key := range limit.Services {
			of = append(of, byKey[key])
		}
		for _, server := range limit.Servers {
			of = append(of, byKey[server.Service])
		}
		for _, vip := range limit.VIPs {
			of = append(of, byVIP[vip]...)
		}
		path := fmt.Sprintf("limits[%d]", i)
		if limit.Spec.Direction == LimitToClients && len(of) > 0 && !slices.ContainsFunc(of, func(s *Service) bool { return !s.Mode.OwnsVIP() }) {
			warnings = append(warnings, Warning{path + ".direction", fmt.Sprintf(
				"servers of dr and ipip services answer clients directly, so limit %s concerns no packet: use to-servers", limit.Name)})
		}
		if len(limit.Services)+len(limit.Servers)+len(limit.VIPs) == 0 {
			of = all
		}
		if forged := forgeable(of); limit.Spec.limitsBegunByClient() && len(forged) > 0 {
			warnings = append(warnings, Warning{path + ".clients", fmt.Sprintf("a SYN with a forged source takes from the bucket of the client "+
				"that it impersonates, so attackers can use up a client's rate of limit %s: use `syn_defence: always` for %s",
				limit.Name, listOf(forged, func(name string) string { return name }))})
		}
	}
	return warnings
}

// limitsBegunByClient: each client has a bucket of new sessions.
func (s LimitSpec) limitsBegunByClient() bool {
	return s.Unit == LimitSessions && s.ByClient
}

// forgeable returns the names of services for which SYNs with possibly forged sources count; each once.
func forgeable(services []*Service) []string {
	var names []string
	for _, s := range services {
		if s.Key.Protocol == TCP && s.Policy.SynDefence != DefenceAlways {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
