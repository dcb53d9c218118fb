// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"

	"steelyard/internal/model"

	"go.yaml.in/yaml/v4"
)

// SNAT rules.

type rawSNAT struct {
	at       position
	path     string
	name     value[string]
	inside   []value[netip.Prefix]
	pool     []value[netip.Addr]
	timeouts rawTimeouts
}

const snatDoc = "For TCP, UDP, and ICMP and ICMPv6 echo. The forwarder must be the hosts' gateway. Packets between inside hosts, " +
	"to this host and to its VIPs are not translated. If several rules match, the one with the longest prefix applies. See docs/modes.md."

var snatFields = []field[rawSNAT]{
	scalar(fieldDoc{name: "name", kind: "name", required: true,
		doc: "A name, unique among the rules, of at most 63 bytes: letters, digits, `.`, `_` and `-`."},
		func(r *rawSNAT) *value[string] { return &r.name }, parseName),
	{fieldDoc{name: "inside", kind: "list of prefixes", required: true,
		doc: "The inside hosts: prefixes, or addresses of single hosts. A prefix may occur in one rule only. All rules together may have 4096 prefixes."},
		func(d *decoder, n *yaml.Node, path string, into *rawSNAT) {
			readList(d, n, path, func(n *yaml.Node, path string) {
				into.inside = append(into.inside, readScalar(d, n, path, parsePrefix))
			})
		}},
	{fieldDoc{name: "pool", kind: "list of addresses", required: true,
		doc: "The translated source addresses: at least one of each family in `inside`. A host keeps its pool address while that address has a " +
			"free port towards the destination. Rules may share addresses; nothing else may use them. At most 255 together with `local_addresses` and `peer_local_addresses`."},
		func(d *decoder, n *yaml.Node, path string, into *rawSNAT) {
			readList(d, n, path, func(n *yaml.Node, path string) {
				into.pool = append(into.pool, readScalar(d, n, path, parseAddress))
			})
		}},
	nested(fieldDoc{name: "timeouts", kind: "mapping", object: timeoutsObject,
		doc: "Overrides `defaults.timeouts`."},
		func(r *rawSNAT) *rawTimeouts { return &r.timeouts }, timeoutFields()),
}

var snatObject = docsOf("snat", "Rules for source NAT: inside hosts and their pool addresses.", snatFields)

func parsePrefix(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return prefix, fmt.Errorf("%q is not a prefix: write one like 10.1.0.0/24 or fd00:1::/64", text)
		}
		prefix = netip.PrefixFrom(address, address.BitLen())
	}
	if prefix.Bits() == 0 {
		return prefix, fmt.Errorf("%s contains every address, also those of clients: name the inside prefixes", text)
	}
	if prefix != prefix.Masked() {
		return prefix, fmt.Errorf("%s has bits set beyond its length: write %s", text, prefix.Masked())
	}
	if _, err := parseAddress(prefix.Addr().String()); err != nil {
		return prefix, err
	}
	return prefix, nil
}

// snat builds the configuration's rules from the file's, and reports contradictions.
func (b *builder) snat() []model.SNAT {
	var rules []model.SNAT
	names, insides, pools := map[string]position{}, map[netip.Prefix]position{}, map[netip.Addr]position{}
	for i := range b.raw.snat {
		raw := &b.raw.snat[i]
		rule := model.SNAT{Name: raw.name.v}
		b.unique(names, "rule", raw.name, "")
		for _, inside := range raw.inside {
			if first, ok := insides[inside.v]; ok && inside.set {
				b.fail(inside.at, inside.path, "%s is inside already, in line %d: remove one", inside.v, first.line)
			}
			insides[inside.v] = inside.at
			rule.Inside = append(rule.Inside, inside.v)
		}
		seen := map[netip.Addr]bool{}
		for _, pool := range raw.pool {
			if seen[pool.v] && pool.set {
				b.fail(pool.at, pool.path, "%s is in this pool already: remove one", pool.v)
			}
			seen[pool.v] = true
			if _, ok := pools[pool.v]; !ok && pool.set {
				pools[pool.v] = pool.at
				b.checkPoolRole(pool, len(pools))
			}
			rule.Pool = append(rule.Pool, pool.v)
		}
		b.checkPoolFamilies(raw)
		for i := range rule.Timeouts {
			rule.Timeouts[i] = raw.timeouts[i].over(b.raw.defaults.timeouts[i]).or(model.DefaultTimeouts[i])
		}
		rules = append(rules, rule)
	}
	return rules
}

// checkPoolRole checks that an address has no other role; count: pool addresses so far.
func (b *builder) checkPoolRole(pool value[netip.Addr], count int) {
	const remedy = "a pool address belongs to the forwarder alone, use another"
	if at, ok := b.locals[pool.v]; ok {
		b.fail(pool.at, pool.path, "%s is also a local address, in line %d: %s", pool.v, at.line, remedy)
	}
	if at, ok := b.servers[pool.v]; ok {
		b.fail(pool.at, pool.path, "%s is also a server, in line %d: %s", pool.v, at.line, remedy)
	}
	for i := range b.raw.services {
		if vip := b.raw.services[i].vip; vip.set && vip.v == pool.v {
			b.fail(pool.at, pool.path, "%s is also a VIP, in line %d: %s", pool.v, vip.at.line, remedy)
			break
		}
	}
	if len(b.locals)+count == maxLocalAddresses+1 {
		b.fail(pool.at, pool.path, "local and pool addresses together are more than %d: remove some", maxLocalAddresses)
	}
}

func (b *builder) checkPoolFamilies(raw *rawSNAT) {
	has := func(v4 bool) bool {
		for _, pool := range raw.pool {
			if !pool.set || pool.v.Is4() == v4 { // already reported; do not also report its family as missing
				return true
			}
		}
		return false
	}
	reported := map[bool]bool{} // by family
	for _, inside := range raw.inside {
		v4 := inside.v.Addr().Is4()
		if !inside.set || reported[v4] || has(v4) {
			continue
		}
		reported[v4] = true
		family := map[bool]string{true: "IPv4", false: "IPv6"}[v4]
		b.fail(inside.at, inside.path, "the pool has no address of the family of %s: add an %s address to it", inside.v, family)
	}
}
