// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/netip"
	"slices"
)

// limitWarnings returns what limits and tenants have that has no effect.
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
	for i := range c.Tenants {
		tenant := &c.Tenants[i]
		path := fmt.Sprintf("tenants[%d]", i)
		if !used[tenant.Name] {
			warnings = append(warnings, Warning{path, fmt.Sprintf("no limit names tenant %s: name it in the `tenant` of a limit, or remove it", tenant.Name)})
		}
		for j, vip := range tenant.VIPs {
			if !vips[vip] {
				warnings = append(warnings, Warning{fmt.Sprintf("%s.vips[%d]", path, j), fmt.Sprintf(noService, vip, "tenant "+tenant.Name)})
			}
		}
	}
	return append(warnings, c.directionWarnings()...)
}

// directionWarnings finds limits of packets that never come.
func (c *Config) directionWarnings() []Warning {
	if !slices.ContainsFunc(c.Limits, func(l ConfigLimit) bool { return l.Spec.Direction == LimitToClients }) {
		return nil
	}
	var warnings []Warning
	modes := make(map[ServiceKey]Mode, len(c.Services))
	byVIP := map[netip.Addr][]ServiceKey{}
	for i := range c.Services {
		key := c.Services[i].Key
		modes[key] = c.Services[i].Mode
		byVIP[key.VIP] = append(byVIP[key.VIP], key)
	}
	for i, limit := range c.ResolveLimits() {
		if limit.Spec.Direction != LimitToClients {
			continue
		}
		of := limit.Services
		for _, server := range limit.Servers {
			of = append(of, server.Service)
		}
		for _, vip := range limit.VIPs {
			of = append(of, byVIP[vip]...)
		}
		if len(of) > 0 && !slices.ContainsFunc(of, func(key ServiceKey) bool { return !modes[key].OwnsVIP() }) {
			warnings = append(warnings, Warning{fmt.Sprintf("limits[%d].direction", i), fmt.Sprintf(
				"servers of dr and ipip services answer clients directly, so limit %s concerns no packet: use to-servers", limit.Name)})
		}
	}
	return warnings
}
