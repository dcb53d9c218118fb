// SPDX-License-Identifier: Apache-2.0

package dpclient

import (
	"context"
	"fmt"

	pb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/model"
)

// ShapingStats are the counters of a shaped port.
type ShapingStats = pb.ShapingStats

// ShapingToWire writes a port's shaping.
func ShapingToWire(s model.Shaping) *pb.Shaping {
	wire := &pb.Shaping{Port: s.Port, Rate: s.Rate, Burst: s.Burst, Layer: pb.LimitLayer(s.Layer)}
	for _, class := range s.Classes {
		one := &pb.ShapingClass{Name: class.Name, Priority: uint32(class.Priority), Weight: uint32(class.Weight), Queue: class.Queue,
			Guaranteed: class.Guaranteed, Maximum: class.Maximum, EarlyFrom: uint32(class.Early.From),
			EarlyTo: uint32(class.Early.To), EarlyPercent: uint32(class.Early.Percent)}
		for _, dscp := range class.DSCP {
			one.Dscp = append(one.Dscp, uint32(dscp))
		}
		wire.Classes = append(wire.Classes, one)
	}
	for _, tenant := range s.Tenants {
		one := &pb.ShapingTenant{Name: tenant.Name, Guaranteed: tenant.Guaranteed, Maximum: tenant.Maximum, Weight: uint32(tenant.Weight)}
		for _, service := range tenant.Services {
			one.Services = append(one.Services, ShapingServiceToWire(service))
		}
		wire.Tenants = append(wire.Tenants, one)
	}
	return wire
}

// ShapingServiceToWire writes a service of a shaped port.
func ShapingServiceToWire(s model.ShapingService) *pb.ShapingService {
	of := &pb.ShapingService{Name: s.Name, Guaranteed: s.Guaranteed, Maximum: s.Maximum, Weight: uint32(s.Weight), Class: s.Class}
	for _, key := range s.Services {
		of.Services = append(of.Services, keyToWire(key))
	}
	for _, vip := range s.VIPs {
		of.Vips = append(of.Vips, vip.AsSlice())
	}
	return of
}

// ShapingFromWire reads a port's shaping.
func ShapingFromWire(wire *pb.Shaping) (model.Shaping, error) {
	s := model.Shaping{Port: wire.GetPort(), Rate: wire.GetRate(), Burst: wire.GetBurst(),
		Layer: max(model.LimitLayer(wire.GetLayer()), model.LimitL3)}
	for _, class := range wire.GetClasses() {
		one := model.ShapingClass{Name: class.GetName(), Priority: uint8(class.GetPriority()), Weight: uint8(class.GetWeight()),
			Queue: class.GetQueue(), Guaranteed: class.GetGuaranteed(), Maximum: class.GetMaximum(),
			Early: model.ShapingEarly{From: uint8(class.GetEarlyFrom()), To: uint8(class.GetEarlyTo()), Percent: uint8(class.GetEarlyPercent())}}
		for _, dscp := range class.GetDscp() {
			one.DSCP = append(one.DSCP, model.DSCP(dscp))
		}
		s.Classes = append(s.Classes, one)
	}
	for _, tenant := range wire.GetTenants() {
		one := model.ShapingTenant{Name: tenant.GetName(), Guaranteed: tenant.GetGuaranteed(), Maximum: tenant.GetMaximum(),
			Weight: uint8(tenant.GetWeight())}
		for _, service := range tenant.GetServices() {
			of, err := ShapingServiceFromWire(service)
			if err != nil {
				return s, fmt.Errorf("shaping of port %s: %w", s.Port, err)
			}
			one.Services = append(one.Services, of)
		}
		s.Tenants = append(s.Tenants, one)
	}
	return s, nil
}

// ShapingServiceFromWire reads a service of a shaped port.
func ShapingServiceFromWire(wire *pb.ShapingService) (model.ShapingService, error) {
	of := model.ShapingService{Name: wire.GetName(), Guaranteed: wire.GetGuaranteed(), Maximum: wire.GetMaximum(),
		Weight: uint8(wire.GetWeight()), Class: wire.GetClass()}
	for _, key := range wire.GetServices() {
		service, err := KeyFromWire(key)
		if err != nil {
			return of, err
		}
		of.Services = append(of.Services, service)
	}
	for _, bytes := range wire.GetVips() {
		vip, err := addressFromWire(bytes)
		if err != nil {
			return of, fmt.Errorf("a VIP: %w", err)
		}
		of.VIPs = append(of.VIPs, vip)
	}
	return of, nil
}

// Shaping returns the shaping of all ports, with counters.
func (c *Client) Shaping(ctx context.Context) ([]*pb.ShapingStats, error) {
	response, err := c.call(ctx, &pb.Request{Body: &pb.Request_ListShaping{ListShaping: &pb.ListShapingRequest{}}})
	return response.GetListShaping().GetPorts(), err
}
