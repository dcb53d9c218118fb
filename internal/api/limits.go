// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/agentpb"

	"connectrpc.com/connect"
)

// maxWorst is the forwarder's limit for a list of clients.
const maxWorst = 100

// ListLimits implements the service.
func (s *Server) ListLimits(ctx context.Context, request *connect.Request[pb.ListLimitsRequest]) (
	*connect.Response[pb.ListLimitsResponse], error) {
	response := &pb.ListLimitsResponse{}
	name, worst := request.Msg.GetName(), int(request.Msg.GetWorst())
	if worst > maxWorst {
		return nil, invalid(fmt.Errorf("%d clients of a limit: request at most %d", worst, maxWorst))
	}
	err := s.withForwarder(ctx, func(c *dpclient.Client) error {
		return c.EachLimit(ctx, name, worst, func(stats *dpclient.LimitStats) error {
			limit, err := dpclient.LimitFromWire(stats.GetLimit())
			if err != nil {
				return err
			}
			response.Limits = append(response.Limits, &pb.LimitInfo{Stats: stats, Of: limit.Target(s.Store.ServiceName),
				Targets: limit.Targets(s.Store.ServiceName)})
			return nil
		})
	})
	var refusal *dpclient.Error
	if name != "" && errors.As(err, &refusal) && refusal.Refused() {
		err = invalid(fmt.Errorf("the forwarder has no limit named %q: see `steelyard get limits`", name))
	}
	response.SampledNs = uint64(time.Since(s.Started))
	return connect.NewResponse(response), err
}
