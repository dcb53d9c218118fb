// SPDX-License-Identifier: Apache-2.0

package model

import "fmt"

// shapingWarnings warns of maxima without effect, because a level above is lower.
func (c *Config) shapingWarnings() []Warning {
	var warnings []Warning
	for i, resolved := range c.ResolveShaping() {
		port := &c.Shaping[i]
		check := func(where string, n int, maximum, above uint64, whose string) {
			if maximum > above {
				warnings = append(warnings, Warning{fmt.Sprintf("shaping[%d].%s[%d].maximum", i, where, n),
					fmt.Sprintf("a maximum of %s has no effect, as %s has %s: lower it, or remove this key", BitRate(maximum), whose, BitRate(above))})
			}
		}
		for n := range port.Classes {
			check("classes", n, port.Classes[n].Maximum, port.Rate, "the port")
		}
		for n := range port.Tenants {
			check("tenants", n, port.Tenants[n].Maximum, port.Rate, "the port")
		}
		tenants := map[string]*ShapingTenant{} // by service
		for n := range resolved.Tenants {
			for _, service := range resolved.Tenants[n].Services {
				tenants[service.Name] = &resolved.Tenants[n]
			}
		}
		for n, service := range port.Services {
			above, whose := port.Rate, "the port"
			if tenant := tenants[service.Service]; tenant != nil && tenant.Maximum > 0 && tenant.Maximum < above {
				above, whose = tenant.Maximum, tenant.Name
			}
			check("services", n, service.Maximum, above, whose)
		}
	}
	return warnings
}
