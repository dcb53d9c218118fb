// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/netip"
	"slices"
)

// Warning is about something that is valid but probably not meant.
type Warning struct {
	Path string // in the file: "access_lists[0]"
	Text string
}

// Warnings returns the parts of a configuration that are valid but probably not meant.
func (c *Config) Warnings() []Warning {
	var warnings []Warning
	sets := map[string]bool{}
	for i := range c.AccessLists {
		for _, rule := range c.AccessLists[i].Rules {
			for _, set := range rule.Sets {
				sets[set] = true
			}
		}
	}
	for i, set := range c.AccessSets {
		if !sets[set.Name] {
			warnings = append(warnings, Warning{fmt.Sprintf("access_sets[%d]", i),
				fmt.Sprintf("no rule names access set %s: name it in the `from` of a rule, or remove it", set.Name)})
		}
	}
	used := map[string]bool{c.GlobalAccess: true}
	for i := range c.Services {
		used[c.Services[i].Policy.Access] = true
	}
	for i := range c.AccessLists {
		list := &c.AccessLists[i]
		path := fmt.Sprintf("access_lists[%d]", i)
		if !used[list.Name] {
			warnings = append(warnings, Warning{path, fmt.Sprintf(
				"access list %s decides nothing: name it in a service's `access`, or in `access` for all services", list.Name)})
		}
		if last := list.lastReached(); last+1 < len(list.Rules) {
			warnings = append(warnings, Warning{fmt.Sprintf("%s.rules[%d]", path, last+1), fmt.Sprintf(
				"rule %d of access list %s is never reached, because rule %d decides for all clients: move that one to the end, or remove the rules after it",
				last+2, list.Name, last+1)})
		}
	}
	return slices.Concat(c.Deprecated, warnings, c.limitWarnings(), c.burstWarnings(), c.shapingWarnings())
}

// lastReached returns the position of the last rule that a session can reach.
func (l *AccessList) lastReached() int {
	for i := range l.Rules {
		if l.Rules[i].Action != AccessCount && l.Rules[i].matchesAll() {
			return i
		}
	}
	return len(l.Rules) - 1
}

// matchesAll reports whether a rule matches every session. Prefixes that have all addresses only together do not count.
func (r *AccessRule) matchesAll() bool {
	all4, all6 := false, false
	for _, prefix := range r.From {
		all4 = all4 || prefix == netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		all6 = all6 || prefix == netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	anyClient := len(r.From) == 0 && len(r.Sets) == 0 || all4 && all6
	return anyClient && r.Protocol == 0 && len(r.Ports) == 0
}

// PathOf returns where a configuration has an address as one of the forwarder's own: "services[0].vip",
// "local_addresses[1]", "peer_local_addresses[0]" or "snat[0].pool[0]"; empty: nowhere.
func (c *Config) PathOf(address netip.Addr) string {
	for i := range c.Services {
		if c.Services[i].Key.VIP == address {
			return fmt.Sprintf("services[%d].vip", i)
		}
	}
	for i, local := range c.LocalAddresses {
		if local == address {
			return fmt.Sprintf("local_addresses[%d]", i)
		}
	}
	if i := slices.Index(c.PeerLocals, address); i >= 0 {
		return fmt.Sprintf("peer_local_addresses[%d]", i)
	}
	for i := range c.SNAT {
		for j, one := range c.SNAT[i].Pool {
			if one == address {
				return fmt.Sprintf("snat[%d].pool[%d]", i, j)
			}
		}
	}
	return ""
}
