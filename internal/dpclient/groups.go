// SPDX-License-Identifier: Apache-2.0

package dpclient

import (
	"context"

	pb "steelyard/internal/gen/forwarderpb"
)

// Messages about the group of which a forwarder is a node.
type (
	Group       = pb.Group
	GroupPeer   = pb.GroupPeer
	GroupSecret = pb.GroupSecret
	GroupResult = pb.GroupResult
)

// SetGroup makes the forwarder a node of a group; node 0: it leaves its group. A new process applies the group, so this connection ends if the
// result says that it has changed.
func (c *Client) SetGroup(ctx context.Context, group *Group) (*GroupResult, error) {
	response, err := c.call(ctx, &pb.Request{Body: &pb.Request_SetGroup{SetGroup: &pb.SetGroupRequest{Group: group}}})
	return response.GetSetGroup(), err
}
