// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"time"

	"steelyard/internal/drain"
	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/stall"
	"steelyard/internal/store"

	"connectrpc.com/connect"
)

// settleTime is how long controllers wait for the forwarder: the configuration follows the drains.
const settleTime = 3 * time.Second

// SetDrains implements the service. It refuses orders older than those on disk, whichever controller sends them.
func (d *Desired) SetDrains(ctx context.Context, request *connect.Request[pb.SetDrainsRequest]) (*connect.Response[pb.SetDrainsResponse], error) {
	given := store.ControllerDrains{Revision: request.Msg.GetRevision(), Agent: request.Msg.GetAgent(), Judged: request.Msg.GetJudged()}
	for _, order := range request.Msg.GetOrders() {
		ref, err := drain.Parse(order.GetServer())
		wanted := drain.FromWire(order)
		if err != nil || !wanted.Drain { // a newer controller may have services that this agent cannot represent
			continue
		}
		given.Orders = append(given.Orders, store.ControllerDrain{
			Ref: ref, Service: order.GetService(), Kill: wanted.Kill, Deadline: wanted.Deadline, Revision: order.GetRevision(), Agent: order.GetAgent(), Number: order.GetNumber(),
		})
	}
	taken, changed, err := d.Store.ReplaceControllerDrains(given)
	answer := &pb.SetDrainsResponse{Older: !taken}
	if err != nil {
		answer.Warnings = append(answer.Warnings, "drains are in effect but not saved: "+err.Error())
	}
	if changed {
		ctx, cancel := stall.WithTimeout(ctx, settleTime)
		defer cancel()
		if warning := d.Settle(ctx); warning != "" {
			answer.Warnings = append(answer.Warnings, warning)
		}
	}
	var own []store.OwnDrain
	answer.Agent, answer.Last, own = d.Store.OwnDrains()
	for _, one := range own {
		order := &pb.DrainOrder{Server: drain.Text(one.Ref), Service: one.Service, Revision: one.Revision, Agent: answer.Agent, Number: one.Number}
		if one.Drain != nil {
			order.Drain, order.Kill = true, one.Drain.Kill
			if !one.Drain.Until.IsZero() {
				order.DeadlineMs = uint64(max(1, time.Until(one.Drain.Until).Milliseconds()))
			}
		}
		answer.Own = append(answer.Own, order)
	}
	return connect.NewResponse(answer), nil
}

// AwaitDrains implements the service.
func (d *Desired) AwaitDrains(ctx context.Context, request *connect.Request[pb.AwaitDrainsRequest]) (*connect.Response[pb.AwaitDrainsResponse], error) {
	last, err := d.Store.AwaitOwn(ctx, request.Msg.GetAfter())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.AwaitDrainsResponse{Last: last}), nil
}
