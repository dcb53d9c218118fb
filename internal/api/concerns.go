// SPDX-License-Identifier: Apache-2.0

package api

import (
	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/agentpb"
	"steelyard/internal/model"
)

// concern adds the limits and the shaping of a service to its description.
func (s *Server) concern(info *pb.ServiceInfo, key model.ServiceKey, running *model.Config) {
	for _, limit := range running.LimitsOf(key) {
		of := limit.Target(s.Store.ServiceName)
		limit.Services, limit.VIPs, limit.Servers = nil, nil, nil
		info.Limits = append(info.Limits, &pb.ServiceLimit{Limit: dpclient.LimitToWire(limit), Of: of})
	}
	for _, port := range running.ResolveShaping() {
		tenant, service := port.Of(key)
		info.Shaping = append(info.Shaping, &pb.ServiceShaping{Port: port.Port, Tenant: tenant.Name,
			Service: dpclient.ShapingServiceToWire(model.ShapingService{Name: service.Name, Guaranteed: service.Guaranteed,
				Maximum: service.Maximum, Weight: service.Weight, Class: service.Class}), Classes: uint32(len(port.Classes))})
	}
}
