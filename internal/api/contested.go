// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"net/netip"

	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/agentpb"

	"connectrpc.com/connect"
)

// ClaimAddresses implements the service.
func (s *Server) ClaimAddresses(ctx context.Context, request *connect.Request[pb.ClaimAddressesRequest]) (*connect.Response[pb.ClaimAddressesResponse], error) {
	var some []netip.Addr
	for _, text := range request.Msg.GetAddresses() {
		address, err := netip.ParseAddr(text)
		if err != nil || address.Zone() != "" {
			return nil, invalid(fmt.Errorf("%q is not an address", text))
		}
		some = append(some, address.Unmap())
	}
	ctx, cancel := beforeDeadline(ctx)
	defer cancel()
	response := &pb.ClaimAddressesResponse{}
	err := s.withForwarder(ctx, func(c *dpclient.Client) (err error) {
		response.Claimed, err = c.Claim(ctx, some...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(response), nil
}

// contested returns the forwarder's warnings of addresses that other hosts have. It returns none if the forwarder does not answer; the status shows them
// later.
func (s *Server) contested(ctx context.Context) []string {
	var warnings []string
	_ = s.withForwarder(ctx, func(c *dpclient.Client) error {
		status, err := c.Status(ctx)
		warnings = status.GetContested()
		return err
	})
	return warnings
}
