// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/agentpb"
	"steelyard/internal/model"
)

// attackView is an attack as `-o json` prints it.
type attackView struct {
	Kind    string   `json:"kind"`
	Help    string   `json:"help"`
	Service string   `json:"service,omitempty"` // absent: no service
	Target  string   `json:"target,omitempty"`  // the service's VIP and ports
	Began   uint64   `json:"began_unix_ms"`
	Ended   uint64   `json:"ended_unix_ms"` // 0: the attack continues
	Packets uint64   `json:"packets"`
	Rate    uint64   `json:"rate"` // packets/s
	Peak    uint64   `json:"peak"`
	Usual   uint64   `json:"usual"`
	Done    []string `json:"done"`
	// Networks with 1 % or more of the packets, none of them with a validated session; without any, spread describes the sources.
	From    []sourceView `json:"from"`
	Spread  string       `json:"spread,omitempty"`
	Samples uint64       `json:"samples"`
}

type sourceView struct {
	Network string  `json:"network"`
	Percent float64 `json:"percent"`
}

// shownNetworks bounds the source networks in a line of the table.
const shownNetworks = 2

func viewSources(info *pb.Attack) []sourceView {
	views := []sourceView{}
	for _, source := range info.GetFrom() {
		if address, ok := netip.AddrFromSlice(source.GetAddress()); ok {
			network := netip.PrefixFrom(address, int(source.GetLength()))
			views = append(views, sourceView{network.String(), math.Round(10*source.GetPercent()) / 10})
		}
	}
	return views
}

func spreadText(spread pb.Attack_Spread) string {
	switch spread {
	case pb.Attack_SPREAD_SPOOFED:
		return "spoofed or very many"
	case pb.Attack_SPREAD_MANY:
		return "many networks"
	case pb.Attack_SPREAD_CLIENTS:
		return "clients with sessions"
	}
	return ""
}

// fromText describes the sources of an attack.
func (v attackView) fromText() string {
	var parts []string
	for i, source := range v.From {
		if i == shownNetworks {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, fmt.Sprintf("%s %.0f %%", source.Network, source.Percent))
	}
	if len(parts) == 0 {
		return v.Spread
	}
	return strings.Join(parts, ", ")
}

func viewAttack(info *pb.Attack) (attackView, error) {
	attack := info.GetAttack()
	view := attackView{
		Kind: attack.GetKind(), Help: attack.GetHelp(), Service: attack.GetServiceName(), Began: attack.GetBeganUnixMs(),
		Ended: attack.GetEndedUnixMs(), Packets: attack.GetPackets(), Rate: attack.GetRate(), Peak: attack.GetPeak(),
		Usual: attack.GetUsual(), Done: append([]string{}, attack.GetDone()...),
		From: viewSources(info), Spread: spreadText(info.GetSpread()), Samples: info.GetSamples(),
	}
	if attack.GetService() == nil {
		return view, nil
	}
	key, err := dpclient.KeyFromWire(attack.GetService())
	view.Target = targetText(key)
	return view, err
}

func targetText(key model.ServiceKey) string {
	if key.VIP.Is6() {
		return fmt.Sprintf("[%s]:%s", key.VIP, key.Ports())
	}
	return fmt.Sprintf("%s:%s", key.VIP, key.Ports())
}

// sinceText describes when an attack began, and its duration.
func (v attackView) sinceText() string {
	began := time.UnixMilli(int64(v.Began))
	if v.Ended > 0 {
		lasted := time.UnixMilli(int64(v.Ended)).Sub(began)
		return ago(began) + ", for " + lasted.Round(time.Second).String()
	}
	return ago(began)
}

// amount abbreviates a large number: 512 k, 1.1 M.
func amount(n uint64) string {
	switch {
	case n >= 10_000_000:
		return fmt.Sprintf("%d M", n/1_000_000)
	case n >= 1_000_000:
		return fmt.Sprintf("%.1f M", float64(n)/1e6)
	case n >= 10_000:
		return fmt.Sprintf("%d k", n/1000)
	}
	return fmt.Sprint(n)
}

func (a *app) getAttacks(ctx context.Context, past bool) error {
	response, err := call(ctx, a, a.client().ListAttacks, &pb.ListAttacksRequest{})
	if err != nil {
		return err
	}
	views := []attackView{}
	for _, info := range response.GetAttacks() {
		view, err := viewAttack(info)
		if err != nil {
			return err
		}
		if past || view.Ended == 0 {
			views = append(views, view)
		}
	}
	if left := response.GetLeftOut(); left > 0 {
		a.warn([]string{fmt.Sprintf("%d more attacks did not fit into the list: `steelyard get drops` counts their packets", left)})
	}
	return a.show(views, func() {
		if len(views) == 0 {
			fmt.Fprintln(a.out, "No attack is under way.")
			return
		}
		t := &table{columns: []column{left("SINCE"), left("KIND"), left("TARGET"), right("RATE"), right("PACKETS"),
			left("FROM"), left("WHAT IS DONE")}}
		for _, v := range views {
			rate := amount(v.Rate) + "/s"
			if v.Ended > 0 {
				rate = amount(v.Peak) + "/s"
			}
			t.add(v.sinceText(), v.Kind, strings.TrimSpace(v.Service+" "+v.Target), rate, amount(v.Packets), v.fromText(), strings.Join(v.Done, "; "))
		}
		a.print(t)
	})
}
