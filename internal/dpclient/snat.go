// SPDX-License-Identifier: Apache-2.0

package dpclient

import (
	"context"
	"fmt"
	"net/netip"

	pb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/model"
)

// SNATToWire writes an SNAT rule.
func SNATToWire(rule model.SNAT) *pb.Snat {
	wire := &pb.Snat{Name: rule.Name, Timeouts: timeoutsToWire(rule.Timeouts)}
	for _, prefix := range rule.Inside {
		wire.Inside = append(wire.Inside, &pb.Prefix{Address: prefix.Addr().AsSlice(), Length: uint32(prefix.Bits())})
	}
	for _, address := range rule.Pool {
		wire.Pool = append(wire.Pool, address.AsSlice())
	}
	return wire
}

// SNATFromWire reads an SNAT rule.
func SNATFromWire(wire *pb.Snat) (model.SNAT, error) {
	rule := model.SNAT{Name: wire.GetName(), Timeouts: timeoutsFromWire(wire.GetTimeouts())}
	for _, inside := range wire.GetInside() {
		address, err := addressFromWire(inside.GetAddress())
		if err != nil {
			return rule, fmt.Errorf("snat %s: inside: %w", rule.Name, err)
		}
		prefix := netip.PrefixFrom(address, int(inside.GetLength()))
		if !prefix.IsValid() {
			return rule, fmt.Errorf("snat %s: prefix length %d from the forwarder", rule.Name, inside.GetLength())
		}
		rule.Inside = append(rule.Inside, prefix)
	}
	for _, bytes := range wire.GetPool() {
		address, err := addressFromWire(bytes)
		if err != nil {
			return rule, fmt.Errorf("snat %s: pool: %w", rule.Name, err)
		}
		rule.Pool = append(rule.Pool, address)
	}
	return rule, nil
}

// SNAT returns all rules with their counters.
func (c *Client) SNAT(ctx context.Context) ([]*pb.SnatStats, error) {
	response, err := c.call(ctx, &pb.Request{Body: &pb.Request_ListSnat{ListSnat: &pb.ListSnatRequest{}}})
	return response.GetListSnat().GetRules(), err
}
