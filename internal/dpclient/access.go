// SPDX-License-Identifier: Apache-2.0

package dpclient

import (
	"context"
	"fmt"
	"net/netip"

	pb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/model"
)

// AccessListToWire writes an access list.
func AccessListToWire(list model.AccessList) *pb.AccessList {
	wire := &pb.AccessList{Name: list.Name, Otherwise: pb.AccessAction(list.Otherwise)}
	for _, rule := range list.Rules {
		one := &pb.AccessRule{Action: pb.AccessAction(rule.Action), Protocol: pb.Protocol(rule.Protocol), LogEvery: rule.LogEvery}
		for _, prefix := range rule.From {
			one.From = append(one.From, &pb.Prefix{Address: prefix.Addr().AsSlice(), Length: uint32(prefix.Bits())})
		}
		for _, ports := range rule.Ports {
			one.Ports = append(one.Ports, &pb.PortRange{First: uint32(ports.First), Last: uint32(ports.Last)})
		}
		wire.Rules = append(wire.Rules, one)
	}
	return wire
}

// AccessListFromWire reads an access list.
func AccessListFromWire(wire *pb.AccessList) (model.AccessList, error) {
	list := model.AccessList{Name: wire.GetName(), Otherwise: model.AccessAction(wire.GetOtherwise())}
	for _, one := range wire.GetRules() {
		rule := model.AccessRule{Action: model.AccessAction(one.GetAction()), Protocol: model.Protocol(one.GetProtocol()),
			LogEvery: one.GetLogEvery()}
		for _, from := range one.GetFrom() {
			address, err := addressFromWire(from.GetAddress())
			if err != nil {
				return list, fmt.Errorf("access list %s: %w", list.Name, err)
			}
			prefix := netip.PrefixFrom(address, int(from.GetLength()))
			if !prefix.IsValid() {
				return list, fmt.Errorf("access list %s: prefix length %d from the forwarder", list.Name, from.GetLength())
			}
			rule.From = append(rule.From, prefix)
		}
		for _, ports := range one.GetPorts() {
			first, err := portFromWire(ports.GetFirst())
			if err != nil {
				return list, fmt.Errorf("access list %s: %w", list.Name, err)
			}
			last, err := portFromWire(ports.GetLast())
			if err != nil {
				return list, fmt.Errorf("access list %s: %w", list.Name, err)
			}
			rule.Ports = append(rule.Ports, model.PortRange{First: first, Last: last})
		}
		list.Rules = append(list.Rules, rule)
	}
	return list, nil
}

// Access returns all access lists with their counts of matches.
func (c *Client) Access(ctx context.Context) ([]*pb.AccessStats, error) {
	response, err := c.call(ctx, &pb.Request{Body: &pb.Request_ListAccess{ListAccess: &pb.ListAccessRequest{}}})
	return response.GetListAccess().GetLists(), err
}
