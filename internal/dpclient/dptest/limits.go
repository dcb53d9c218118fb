// SPDX-License-Identifier: Apache-2.0

package dptest

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	pb "steelyard/internal/gen/forwarderpb"

	"google.golang.org/protobuf/proto"
)

func (c *config) putLimit(limit *pb.Limit) error {
	sessions := limit.GetUnit() == pb.LimitUnit_LIMIT_UNIT_SESSIONS
	switch {
	case limit.GetName() == "" || len(limit.GetName()) > 63:
		return errors.New("a limit without a name")
	case limit.GetPerSecond() == 0 || limit.GetBurst() == 0 || limit.GetUnit() == pb.LimitUnit_LIMIT_UNIT_UNSPECIFIED:
		return errors.New("a limit without a rate or a burst")
	case sessions && (limit.GetDirection() != 0 || limit.GetAction() == pb.LimitAction_LIMIT_ACTION_MARK):
		return errors.New("a limit of new sessions with a direction or a mark")
	case limit.GetLayer() != 0 && limit.GetUnit() != pb.LimitUnit_LIMIT_UNIT_BITS:
		return errors.New("a layer of something that is not bits")
	case limit.GetBatch() != 0 && limit.GetEngine() != pb.LimitEngine_LIMIT_ENGINE_LIGHT_LOCK:
		return errors.New("a batch without light-lock")
	case len(limit.GetServices())+len(limit.GetVips())+len(limit.GetServers()) > 1024:
		return errors.New("too many targets")
	}
	c.limits[limit.GetName()] = proto.CloneOf(limit)
	return nil
}

// checkLimits checks the totals of all limits.
func (c *config) checkLimits() error {
	clients, names := 0, 0
	for _, limit := range c.limits {
		names += max(len(limit.GetServices())+len(limit.GetVips())+len(limit.GetServers()), 1) + len(limit.GetClients().GetWithin())
		if limit.GetClients() != nil {
			clients += int(cmp.Or(limit.GetClients().GetMost(), 65536))
		}
	}
	switch {
	case len(c.limits) > 1<<16:
		return errors.New("too many limits")
	case clients > 1<<20:
		return errors.New("too many buckets of clients")
	case names > 1<<18:
		return errors.New("limits name too much")
	}
	return nil
}

func (s *session) limits() []*pb.Limit {
	var limits []*pb.Limit
	for _, name := range slices.Sorted(maps.Keys(s.config.limits)) {
		limits = append(limits, s.config.limits[name])
	}
	return limits
}

// listLimits counts something for each limit, and lists clients of those by clients.
func (s *session) listLimits(request *pb.ListLimitsRequest) *pb.Response {
	limits := slices.DeleteFunc(s.limits(), func(l *pb.Limit) bool { return request.GetName() != "" && l.GetName() != request.GetName() })
	if request.GetName() != "" && len(limits) == 0 {
		return refuse(pb.Code_CODE_INVALID, "there is no limit %s", request.GetName())
	}
	limits, next := page(s.Forwarder, limits, int(request.GetCursor()), int(request.GetLimit()))
	list := &pb.LimitList{NextCursor: uint32(next)}
	for _, limit := range limits {
		stats := &pb.LimitStats{Limit: limit, Passed: &pb.LimitCounts{Packets: 10_000, Bytes: 15_000_000},
			Above: &pb.LimitCounts{Packets: 3000, Bytes: 4_500_000}, Left: limit.GetBurst() / 4, Engine: "cas",
			Why: "several workers share the bucket", Unlimited: &pb.LimitCounts{}}
		if limit.GetUnit() == pb.LimitUnit_LIMIT_UNIT_SESSIONS {
			stats.Passed, stats.Above = &pb.LimitCounts{Packets: 500}, &pb.LimitCounts{}
		}
		if limit.GetClients() != nil {
			stats.Left, stats.Clients = 0, 3
			stats.Unlimited = &pb.LimitCounts{Packets: 7, Bytes: 700}
			worst := []*pb.LimitClient{
				{Address: []byte{192, 0, 2, 7}, Length: 32, Passed: &pb.LimitCounts{Packets: 100, Bytes: 150_000},
					Above: &pb.LimitCounts{Packets: 2000, Bytes: 3_000_000}},
				{Address: append([]byte{0x20, 1, 0xd, 0xb8}, make([]byte, 12)...), Length: 64,
					Passed: &pb.LimitCounts{Packets: 100, Bytes: 150_000}, Above: &pb.LimitCounts{Packets: 5, Bytes: 7500}},
			}
			stats.Worst = worst[:min(len(worst), int(request.GetWorst()))]
		}
		list.Limits = append(list.Limits, stats)
	}
	return &pb.Response{Body: &pb.Response_ListLimits{ListLimits: list}}
}
