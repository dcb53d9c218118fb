// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"steelyard/internal/config"
	"steelyard/internal/model"
)

// Checks of one project's claims against the addresses of the others.

// claimCheck checks one project's claims.
type claimCheck struct {
	*claimed
	project  string
	record   project
	operator bool
}

// all returns the first error, in the order of addresses.
func (c claimCheck) all(fresh *uses) error {
	for _, key := range slices.SortedFunc(maps.Keys(fresh.keys), model.ServiceKey.Compare) {
		if err := c.vip(key.VIP); err != nil {
			return err
		}
	}
	for _, address := range slices.SortedFunc(maps.Keys(fresh.servers), netip.Addr.Compare) {
		if err := c.server(address, fresh.servers[address]); err != nil {
			return err
		}
	}
	for _, address := range slices.SortedFunc(maps.Keys(fresh.own), netip.Addr.Compare) {
		if err := c.forwarders(address); err != nil {
			return err
		}
	}
	for _, prefix := range slices.SortedFunc(maps.Keys(fresh.inside), comparePrefixes) {
		if err := c.insides(prefix); err != nil {
			return err
		}
	}
	return nil
}

// within rejects an address outside the project's prefixes. Without prefixes, only an admin may claim addresses.
func (c claimCheck) within(what, option string, address netip.Addr, prefixes []netip.Prefix) error {
	const remedy = "ask an admin for it: `steelyard project set %s %s PREFIX,…`"
	switch {
	case slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(address) }):
		return nil
	case len(prefixes) > 0:
		return denied("%s %s is in no prefix of the project %s (%s): "+remedy, what, address, c.project, prefixText(prefixes), c.project, option)
	case c.operator:
		return denied("%s %s: the project %s has no prefixes, so only an admin may add addresses: "+remedy, what, address, c.project, c.project, option)
	}
	return nil
}

// user names the project that uses an address: for admins by its name, for other callers as "another project".
func (c claimCheck) user(h holding) string {
	if c.operator {
		return "another project"
	}
	return "the project " + h.project + ", " + h.at
}

// requester names the request that has a VIP: for admins by its ID and project, for other callers as "another project".
func (c claimCheck) requester(h holder) string {
	if c.operator {
		return "another project"
	}
	return "the request " + h.Request + " of the project " + h.Project
}

func (c claimCheck) vip(vip netip.Addr) error {
	if err := c.within("the VIP", "--vips", vip, c.record.VIPs); err != nil {
		return err
	}
	const rule = "a VIP belongs to one project, with all its ports, and to no host: use another address"
	if other, found := c.vips[vip]; found {
		return invalid(fmt.Errorf("the VIP %s belongs to %s: %s", vip, c.user(other), rule))
	}
	if has, found := c.requests[vip]; found && has.Project != c.project {
		return invalid(fmt.Errorf("the VIP %s belongs to %s: %s", vip, c.requester(has), rule))
	}
	if users := c.servers[vip]; len(users) > 0 {
		return invalid(fmt.Errorf("the VIP %s is a server of %s: %s", vip, c.user(users[0]), rule))
	}
	if other, found := c.own[vip]; found {
		return invalid(fmt.Errorf("the VIP %s is an address of the forwarder itself, %s: %s", vip, other.at, rule))
	}
	if what, found := c.control[vip]; found {
		return invalid(fmt.Errorf("the VIP %s is the address of %s: %s", vip, what, rule))
	}
	return nil
}

func (c claimCheck) server(address netip.Addr, nat bool) error {
	if err := c.within("the server", "--servers", address, c.record.Servers); err != nil {
		return err
	}
	if other, found := c.own[address]; found {
		return invalid(fmt.Errorf("the server %s is an address of the forwarder itself, %s: use a host's", address, other.at))
	}
	if what, found := c.control[address]; found && (nat || c.operator) {
		return denied("the server %s is the address of %s: only an admin may use it as a server, and not with mode nat", address, what)
	}
	const rule = "with mode nat a forwarder translates all packets from the server's ports, so two projects cannot share it: use fnat"
	if other, found := c.vips[address]; found && nat {
		return invalid(fmt.Errorf("the server %s is a VIP of %s: %s", address, c.user(other), rule))
	}
	if has, found := c.requests[address]; found && nat && has.Project != c.project {
		return invalid(fmt.Errorf("the server %s is the VIP of %s: %s", address, c.requester(has), rule))
	}
	for _, other := range c.servers[address] {
		if nat || other.nat {
			return invalid(fmt.Errorf("the server %s is one of %s too, and one of them has mode nat: %s", address, c.user(other), rule))
		}
	}
	return nil
}

// forwarders rejects a local address, a next hop or a pool address that another project uses.
func (c claimCheck) forwarders(address netip.Addr) error {
	if other, found := c.vips[address]; found {
		return invalid(fmt.Errorf("%s is a VIP of %s: a forwarder needs an address of its own", address, c.user(other)))
	}
	if users := c.servers[address]; len(users) > 0 {
		return invalid(fmt.Errorf("%s is a server of %s: a forwarder needs an address of its own", address, c.user(users[0])))
	}
	if has, found := c.requests[address]; found && has.Project != c.project {
		return invalid(fmt.Errorf("%s is the VIP of %s: a forwarder needs an address of its own", address, c.requester(has)))
	}
	return nil
}

// insides rejects SNAT prefixes of an operator that contain servers of other projects.
func (c claimCheck) insides(prefix netip.Prefix) error {
	if !c.operator {
		return nil
	}
	for _, address := range slices.SortedFunc(maps.Keys(c.servers), netip.Addr.Compare) {
		if prefix.Contains(address) {
			return denied("the SNAT prefix %s has the server %s of another project: only an admin may translate servers of other projects", prefix, address)
		}
	}
	return nil
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// prefixesOf parses the prefixes of a project.
func prefixesOf(what string, texts []string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for _, text := range texts {
		prefix, err := config.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%s prefixes: %w", what, err)
		}
		prefixes = append(prefixes, prefix)
	}
	slices.SortFunc(prefixes, comparePrefixes)
	return slices.Compact(prefixes), nil
}

func prefixTexts(prefixes []netip.Prefix) []string {
	var texts []string
	for _, prefix := range prefixes {
		texts = append(texts, prefix.String())
	}
	return texts
}

func prefixText(prefixes []netip.Prefix) string {
	if len(prefixes) == 0 {
		return "none"
	}
	return strings.Join(prefixTexts(prefixes), ", ")
}
