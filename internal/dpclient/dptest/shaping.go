// SPDX-License-Identifier: Apache-2.0

package dptest

import (
	"errors"
	"maps"
	"slices"

	pb "steelyard/internal/gen/forwarderpb"

	"google.golang.org/protobuf/proto"
)

func (c *config) putShaping(shaping *pb.Shaping) error {
	switch {
	case shaping.GetPort() == "":
		return errors.New("shaping without a port")
	case shaping.GetRate() < 8000 || shaping.GetBurst() < 4096:
		return errors.New("shaping without a rate or a burst")
	case len(shaping.GetClasses()) == 0 || len(shaping.GetClasses()) > 8 || len(shaping.GetTenants()) == 0:
		return errors.New("shaping without a class or a tenant")
	}
	for _, class := range shaping.GetClasses() {
		if class.GetWeight() == 0 || class.GetQueue() == 0 || class.GetPriority() > 7 {
			return errors.New("a class without a weight or a queue")
		}
	}
	for _, tenant := range shaping.GetTenants() {
		if tenant.GetWeight() == 0 || len(tenant.GetServices()) == 0 {
			return errors.New("a tenant without a weight or services")
		}
	}
	c.shaping[shaping.GetPort()] = proto.CloneOf(shaping)
	return nil
}

func (s *session) shaping() []*pb.Shaping {
	var all []*pb.Shaping
	for _, port := range slices.Sorted(maps.Keys(s.config.shaping)) {
		all = append(all, s.config.shaping[port])
	}
	return all
}

// listShaping counts something for each class of each service. The owner of port eth8 does not answer.
func (s *session) listShaping() *pb.Response {
	list := &pb.ShapingList{}
	for _, shaping := range s.shaping() {
		stats := &pb.ShapingStats{Shaping: shaping, Active: shaping.GetPort() == "eth0", Room: 2688, Worker: 0}
		if shaping.GetPort() == "eth8" {
			stats.Problem = "shaping of port eth8: worker 0 does not answer"
		}
		for t, tenant := range shaping.GetTenants() {
			for n := range tenant.GetServices() {
				for k := range shaping.GetClasses() {
					if !stats.Active {
						continue
					}
					stats.Counts = append(stats.Counts, &pb.ShapingCounts{Tenant: uint32(t), Service: uint32(n), Class: uint32(k),
						SentPackets: uint64(1000 * (t + n + k + 1)), SentBytes: uint64(1_500_000 * (t + n + k + 1)),
						DroppedFull: uint64(10 * k), DroppedEarly: uint64(3 * n), DroppedBytes: uint64(15_000 * k), Waiting: uint32(k)})
					stats.Waiting += uint32(k)
				}
			}
		}
		list.Ports = append(list.Ports, stats)
	}
	return &pb.Response{Body: &pb.Response_ListShaping{ListShaping: list}}
}
