// SPDX-License-Identifier: Apache-2.0

package dptest

import (
	pb "steelyard/internal/gen/forwarderpb"

	"google.golang.org/protobuf/proto"
)

// The role, and peers.

func (s *session) setRole(request *pb.SetRoleRequest) *pb.Response {
	if s.Peers.GetNode() == 0 {
		return refuse(pb.Code_CODE_INVALID, "this forwarder has no peers, so it has no role")
	}
	before := s.Peers.GetRole()
	s.Peers.Wanted = request.GetRole()
	if request.GetNow() || !s.RoleWaits {
		s.Peers.Role = request.GetRole()
	}
	return &pb.Response{Body: &pb.Response_SetRole{SetRole: &pb.RoleResult{Before: before, Role: s.Peers.GetRole()}}}
}

func (s *session) listPeers() *pb.Response {
	list := &pb.PeerList{}
	proto.Merge(list, s.Peers)
	return &pb.Response{Body: &pb.Response_ListPeers{ListPeers: list}}
}
