// SPDX-License-Identifier: Apache-2.0

package dpclient

import (
	"context"
	"net/netip"
	"time"

	pb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/model"

	"google.golang.org/protobuf/proto"
)

// DelayStats has the delay of a server's answers to SYNs.
type DelayStats = pb.DelayStats

// ServerStats are the counters of a server.
type ServerStats = pb.ServerStats

// ServiceShares are the measured shares of a service. Without servers, weights apply again.
type ServiceShares struct {
	Service model.ServiceKey
	Servers []ServerShare
}

// ServerShare is the share of one server, above 0, up to 1.
type ServerShare struct {
	Address netip.AddrPort
	Share   float64
}

// wholeShare is a share of 1 on the wire.
const wholeShare = 1<<32 - 1

// ShareFromWire returns a share, 0 to 1.
func ShareFromWire(share uint32) float64 { return float64(share) / wholeShare }

// The forwarder accepts so many servers in one request.
const maxShareServers = 16384

// SharesToWire writes the shares of a service.
func SharesToWire(s ServiceShares) *pb.ServiceShares {
	wire := &pb.ServiceShares{Service: keyToWire(s.Service)}
	for _, server := range s.Servers {
		wire.Servers = append(wire.Servers, &pb.ServerShare{
			Address: server.Address.Addr().AsSlice(), Port: uint32(server.Address.Port()),
			Share: uint32(min(max(server.Share*wholeShare, 1), wholeShare)),
		})
	}
	return wire
}

// SetShares sets measured shares for some time, in as few requests as possible. Services and servers that the forwarder does not have are
// left out.
func (c *Client) SetShares(ctx context.Context, shares []ServiceShares, valid time.Duration) error {
	request := &pb.SetSharesRequest{ValidS: uint32(valid / time.Second)}
	servers, size := 0, 0
	send := func() error {
		if len(request.Services) == 0 {
			return nil
		}
		_, err := c.call(ctx, &pb.Request{Body: &pb.Request_SetShares{SetShares: request}})
		request.Services, servers, size = nil, 0, 0
		return err
	}
	for _, one := range shares {
		wire := SharesToWire(one)
		bytes := proto.Size(wire) + 8 // its tag and length
		if servers+len(one.Servers) > maxShareServers || size+bytes > maxBatchBytes {
			if err := send(); err != nil {
				return err
			}
		}
		request.Services = append(request.Services, wire)
		servers += len(one.Servers)
		size += bytes
	}
	return send()
}
