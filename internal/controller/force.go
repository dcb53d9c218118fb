// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"steelyard/internal/cluster"
	agentpb "steelyard/internal/gen/agentpb"
	"steelyard/internal/stall"

	"connectrpc.com/connect"
)

// `apply --force` through a controller: addresses of the file that other hosts have are claimed by the forwarder, once it has confirmed the file.

// forcible returns the addresses of a plan that the caller may have claimed from other hosts: an admin all of the project's, an operator the VIPs within
// its prefixes.
func (p *plan) forcible(who caller) ([]netip.Addr, error) {
	var all []netip.Addr
	for i := range p.parsed.Services {
		if service := &p.parsed.Services[i]; p.has(service) {
			all = append(all, service.Key.VIP)
		}
	}
	if !who.admin() {
		all = slices.DeleteFunc(all, func(vip netip.Addr) bool {
			return !slices.ContainsFunc(p.record.VIPs, func(prefix netip.Prefix) bool { return prefix.Contains(vip) })
		})
		if len(all) == 0 {
			return nil, denied("%s may claim no address of the file from other hosts: no VIP is in a prefix of the project %s (%s): an admin changes that: "+
				"`steelyard project set %s --vips PREFIX,…`", who, p.project, prefixText(p.record.VIPs), p.project)
		}
	} else if p.project == defaultProject {
		all = append(all, p.parsed.LocalAddresses...)
		for _, rule := range p.parsed.SNAT {
			all = append(all, rule.Pool...)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all), nil
}

// force has a forwarder claim addresses that other hosts have.
func (s *Server) force(ctx context.Context, who caller, p *plan, addresses []netip.Addr, response *agentpb.ApplyConfigResponse) error {
	if len(addresses) == 0 { // of none, the agent would claim all
		return nil
	}
	if response.GetRevision() == 0 {
		response.Warnings = append(response.Warnings, "no address is claimed from another host, as the forwarder has not confirmed the file: apply it again with --force then")
		return nil
	}
	request := &agentpb.ClaimAddressesRequest{}
	for _, address := range addresses {
		request.Addresses = append(request.Addresses, address.String())
	}
	detail := "from other hosts: " + strings.Join(request.Addresses[:min(len(request.Addresses), mostNamed)], " ")
	if more := len(request.Addresses) - mostNamed; more > 0 {
		detail += fmt.Sprintf(" and %d more", more)
	}
	if _, err := s.store.Commit(ctx, s.record(new(cluster.Txn), who.String(), "claim", p.forwarder, p.project, detail)); err != nil {
		return unavailable(fmt.Errorf("the configuration is in the forwarder, but no address is claimed from another host, as that cannot be recorded: %w", err))
	}
	ctx, cancel := stall.WithTimeout(ctx, pushTimeout)
	defer cancel()
	agent, mark, err := s.agentOf(ctx, p.forwarder)
	if err == nil {
		order := connect.NewRequest(request)
		mark(order.Header())
		_, err = agent.ClaimAddresses(ctx, order)
	}
	if connect.CodeOf(err) == connect.CodeUnimplemented {
		err = fmt.Errorf("the agent of %s is of an older version: update it, or run `steelyard apply --force` on its host", p.forwarder)
	}
	if err != nil {
		return unavailable(fmt.Errorf("the configuration is in the forwarder, but no address is claimed from another host: %w", err))
	}
	return nil
}

// mostNamed bounds the addresses of an audit record.
const mostNamed = 20
