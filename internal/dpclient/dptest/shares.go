// SPDX-License-Identifier: Apache-2.0

package dptest

import (
	"bytes"

	pb "steelyard/internal/gen/forwarderpb"

	"google.golang.org/protobuf/proto"
)

// setShares keeps them for ever.
func (s *session) setShares(request *pb.SetSharesRequest) *pb.Response {
	if request.GetValidS() == 0 {
		return refuse(pb.Code_CODE_INVALID, "shares: valid for 0 s")
	}
	result := &pb.SharesResult{}
	for _, one := range request.GetServices() {
		if s.config.services[keyOf(one.GetService())] == nil {
			result.Unknown++
			continue
		}
		if s.shares == nil {
			s.shares = map[string]*pb.ServiceShares{}
		}
		s.shares[keyOf(one.GetService())] = proto.CloneOf(one)
		result.Services++
	}
	s.cond.Broadcast()
	return &pb.Response{Body: &pb.Response_SetShares{SetShares: result}}
}

// AwaitShares waits until the first service with this VIP has matching shares.
func (f *Forwarder) AwaitShares(vip []byte, wanted func(*pb.ServiceShares) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		for _, one := range f.shares {
			if bytes.Equal(one.GetService().GetVip(), vip) && wanted(one) {
				return
			}
		}
		f.cond.Wait()
	}
}

func (s *session) addShares(stats *pb.ServiceStats) {
	shares := s.shares[keyOf(stats.GetService().GetKey())]
	if len(shares.GetServers()) > 0 {
		stats.SharesValidS = 60
	}
	for _, server := range stats.GetServers() {
		if s.Delay != nil {
			server.Delay = s.Delay(server.GetServer())
		}
		for _, one := range shares.GetServers() {
			if bytes.Equal(one.GetAddress(), server.GetServer().GetAddress()) && one.GetPort() == server.GetServer().GetPort() {
				server.Share = one.GetShare()
			}
		}
	}
}
