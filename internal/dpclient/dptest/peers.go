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

// setGroup applies a group without a new process. All peers are alive.
func (s *session) setGroup(group *pb.Group) *pb.Response {
	if s.RefuseGroup != "" {
		return refuse(pb.Code_CODE_INVALID, "%s", s.RefuseGroup)
	}
	changed := s.group.GetVersion() != group.GetVersion()
	if s.group = group; group.GetNode() == 0 {
		s.group, s.Peers = nil, nil
	} else if changed {
		s.Peers = &pb.PeerList{Node: group.GetNode(), Group: group.GetVersion(), Ecmp: group.GetEcmp(), Role: pb.Role_ROLE_BACKUP, Wanted: pb.Role_ROLE_BACKUP}
		for _, peer := range group.GetPeers() {
			s.Peers.Peers = append(s.Peers.Peers, &pb.Peer{Node: peer.GetNode(), State: pb.PeerState_PEER_STATE_ALIVE, Role: pb.Role_ROLE_BACKUP})
		}
	}
	return &pb.Response{Body: &pb.Response_SetGroup{SetGroup: &pb.GroupResult{Changed: changed}}}
}

// Group returns the group of which this forwarder is a node; nil: of none.
func (f *Forwarder) Group() *pb.Group {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.group
}

// SetPeers changes the role and the peers of a node.
func (f *Forwarder) SetPeers(change func(list *pb.PeerList)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f.Peers)
}
