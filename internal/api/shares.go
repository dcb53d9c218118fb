// SPDX-License-Identifier: Apache-2.0

package api

import (
	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/agentpb"
	"steelyard/internal/model"
)

// shares adds the forwarder's measurements of a service's servers, and the shares that result from them.
func (s *Server) shares(info *pb.ServiceInfo, service *model.Service, stats *dpclient.ServiceStats) {
	measured := map[string]*dpclient.ServerStats{}
	for _, one := range stats.GetServers() {
		if address, err := dpclient.ServerAddressFromWire(one.GetServer()); err == nil {
			measured[address.String()] = one
		}
	}
	if s.Shares == nil {
		return
	}
	state, feedback := s.Shares(service.Key)
	if feedback {
		info.Feedback = &pb.FeedbackState{
			Policy: service.Feedback.Policy.String(), Gamma: service.Feedback.Gamma, MinimumPercent: uint32(service.Feedback.Minimum),
			SettleMs: uint64(service.Feedback.Settle.Milliseconds()), LinkCapacity: service.Feedback.Capacity, LearnsCapacity: service.Feedback.Learn,
			Warning: state.Warning, ComputedUnixMs: unixMillis(state.At), ValidS: stats.GetSharesValidS(),
		}
	}
	for i, server := range service.Servers {
		one := measured[server.Address.String()]
		info.Servers[i].Delay = one.GetDelay()
		ref := model.ServerRef{Service: service.Key, Address: server.Address}
		computed, known := state.Shares[ref]
		if !known && one.GetShare() == 0 {
			continue
		}
		info.Servers[i].Share = &pb.ShareState{
			Share: dpclient.ShareFromWire(one.GetShare()), Computed: computed.Share, Target: computed.Target, Phi: computed.Phi, Eta: computed.Eta,
			Starting: computed.Starting, Reason: computed.Reason,
		}
		if link, counts := state.Links[ref]; counts {
			info.Servers[i].Share.Link = &pb.LinkState{Name: link.Name, Carries: uint64(link.Carries), Capacity: uint64(link.Capacity), Learned: link.Learns, Full: link.Full}
		}
		if known {
			info.Servers[i].Share.State = computed.State.String()
		}
	}
}
