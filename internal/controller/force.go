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

// `apply --force` through a controller: once the forwarder has confirmed the file, it claims addresses of the file that other hosts have.

// forcible returns the addresses of a plan that the caller may claim from other hosts. An admin may claim all of the project's addresses, an operator
// the VIPs within its prefixes.
func (p *plan) forcible(caller principal) ([]netip.Addr, error) {
	var all []netip.Addr
	for i := range p.parsed.Services {
		if service := &p.parsed.Services[i]; p.has(service) {
			all = append(all, service.Key.VIP)
		}
	}
	if !caller.admin() {
		all = slices.DeleteFunc(all, func(vip netip.Addr) bool {
			return !slices.ContainsFunc(p.record.VIPs, func(prefix netip.Prefix) bool { return prefix.Contains(vip) })
		})
		if len(all) == 0 {
			return nil, denied("%s may claim no address of the file from other hosts: no VIP is in a prefix of the project %s (%s): an admin changes that: "+
				"`steelyard project set %s --vips PREFIX,…`", caller, p.project, prefixText(p.record.VIPs), p.project)
		}
	} else if p.project == defaultProject {
		all = append(all, p.parsed.LocalAddresses...)
		all = append(all, p.parsed.PeerLocals...)
		for _, rule := range p.parsed.SNAT {
			all = append(all, rule.Pool...)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all), nil
}

// force makes a forwarder claim addresses that other hosts have.
func (s *Server) force(ctx context.Context, caller principal, p *plan, addresses []netip.Addr, response *agentpb.ApplyConfigResponse) error {
	if len(addresses) == 0 { // for an empty list, the agent would claim all
		return nil
	}
	if response.GetRevision() == 0 {
		response.Warnings = append(response.Warnings, "no address was claimed from another host, because the forwarder has not confirmed the file: apply it again with --force once it has")
		return nil
	}
	request := &agentpb.ClaimAddressesRequest{}
	for _, address := range addresses {
		request.Addresses = append(request.Addresses, address.String())
	}
	detail := "from other hosts: " + strings.Join(request.Addresses[:min(len(request.Addresses), maxNamed)], " ")
	if more := len(request.Addresses) - maxNamed; more > 0 {
		detail += fmt.Sprintf(" and %d more", more)
	}
	if _, err := s.store.Commit(ctx, s.record(new(cluster.Txn), caller.String(), "claim", p.forwarder, p.project, detail)); err != nil {
		return unavailable(fmt.Errorf("the forwarder has the configuration, but claims no address from another host, because the audit record cannot be written: %w", err))
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
		return unavailable(fmt.Errorf("the forwarder has the configuration, but claims no address from another host: %w", err))
	}
	return nil
}

// maxNamed bounds the addresses that an audit record names.
const maxNamed = 20
