// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"strings"

	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/agentpb"
)

// snatView is an SNAT rule as `-o json` prints it.
type snatView struct {
	Name    string       `json:"name"`
	Inside  []string     `json:"inside"`
	Pool    []string     `json:"pool"`
	Traffic *trafficView `json:"traffic"` // in: from the inside hosts
}

func (a *app) getSNAT(ctx context.Context) error {
	response, err := call(ctx, a, a.client().ListSnat, &pb.ListSnatRequest{})
	if err != nil {
		return err
	}
	views := []snatView{}
	for _, stats := range response.GetRules() {
		rule, err := dpclient.SNATFromWire(stats.GetRule())
		if err != nil {
			return err
		}
		view := snatView{Name: rule.Name, Inside: []string{}, Pool: []string{}, Traffic: viewTraffic(stats.GetTraffic())}
		for _, prefix := range rule.Inside {
			view.Inside = append(view.Inside, prefix.String())
		}
		for _, address := range rule.Pool {
			view.Pool = append(view.Pool, address.String())
		}
		views = append(views, view)
	}
	return a.show(views, func() {
		t := &table{columns: []column{left("NAME"), left("INSIDE"), left("POOL"), right("SESSIONS"), right("CREATED"),
			right("PACKETS OUT"), right("PACKETS BACK")}}
		for _, rule := range views {
			t.add(rule.Name, strings.Join(rule.Inside, " "), strings.Join(rule.Pool, " "), sessions(rule.Traffic, 0),
				count(rule.Traffic, func(t *trafficView) uint64 { return t.SessionsCreated }),
				count(rule.Traffic, func(t *trafficView) uint64 { return t.PacketsIn }),
				count(rule.Traffic, func(t *trafficView) uint64 { return t.PacketsOut }))
		}
		a.print(t)
	})
}
