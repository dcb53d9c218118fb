// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"time"

	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/agentpb"

	"connectrpc.com/connect"
)

// ListShaping implements the service.
func (s *Server) ListShaping(ctx context.Context, _ *connect.Request[pb.ListShapingRequest]) (
	*connect.Response[pb.ListShapingResponse], error) {
	response := &pb.ListShapingResponse{}
	err := s.withForwarder(ctx, func(c *dpclient.Client) error {
		var err error
		response.Ports, err = c.Shaping(ctx)
		return err
	})
	response.SampledNs = uint64(time.Since(s.Started))
	return connect.NewResponse(response), err
}
