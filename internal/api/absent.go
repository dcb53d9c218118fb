// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"

	"steelyard/internal/config"
	"steelyard/internal/dpclient"
	"steelyard/internal/model"
)

// absentPorts warns of shaped ports that the forwarder lacks, because nothing else reports them on apply. It returns nothing if the forwarder does not
// answer; the status shows them later.
func (s *Server) absentPorts(ctx context.Context, name string, text []byte, wanted *model.Config) []string {
	if wanted == nil || len(wanted.Shaping) == 0 {
		return nil
	}
	has := map[string]bool{}
	err := s.withForwarder(ctx, func(c *dpclient.Client) error {
		ports, err := c.Ports(ctx)
		for _, port := range ports {
			has[port.GetName()] = true
		}
		return err
	})
	if err != nil {
		return nil
	}
	var warnings []string
	for i := range wanted.Shaping {
		if port := wanted.Shaping[i].Port; !has[port] {
			warnings = append(warnings, config.Place(name, text, fmt.Sprintf("shaping[%d].port", i))+
				fmt.Sprintf("the forwarder has no port %s, so its shaping has no effect: use a name that `steelyard get ports` shows", port))
		}
	}
	return warnings
}
