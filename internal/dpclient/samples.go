// SPDX-License-Identifier: Apache-2.0

package dpclient

import (
	"context"
	"net/netip"

	pb "steelyard/internal/gen/forwarderpb"
)

// HasValidated reports whether a client of a network has a session that is neither half open nor unreplied.
func (c *Client) HasValidated(ctx context.Context, network netip.Prefix) (bool, error) {
	sessions, _, err := c.Sessions(ctx, SessionFilter{Client: network.Addr(), Bits: network.Bits(), Validated: true}, 1)
	return len(sessions) > 0, err
}

// SampleRates select the packets that workers sample: one of every so many of each kind; 0: none.
type SampleRates struct {
	Received, Dropped uint32
}

// Samples returns packets that were sampled after the number `after`, which is that of the last answer's
// Last; 0: of now on. Workers sample for two more seconds. The rates of other clients apply too if they are
// smaller, so each sample has the number of packets that it represents.
func (c *Client) Samples(ctx context.Context, after uint64, rates SampleRates) (*pb.Samples, error) {
	response, err := c.call(ctx, &pb.Request{Body: &pb.Request_FetchSamples{FetchSamples: &pb.FetchSamplesRequest{
		After: after, Received: rates.Received, Dropped: rates.Dropped}}})
	return response.GetFetchSamples(), err
}
