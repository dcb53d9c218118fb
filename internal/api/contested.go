// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"

	"steelyard/internal/dpclient"
)

// contested returns the forwarder's warnings of addresses that other hosts have. Without an answer it returns none, as
// status shows them later.
func (s *Server) contested(ctx context.Context) []string {
	var warnings []string
	_ = s.withForwarder(ctx, func(c *dpclient.Client) error {
		status, err := c.Status(ctx)
		warnings = status.GetContested()
		return err
	})
	return warnings
}
