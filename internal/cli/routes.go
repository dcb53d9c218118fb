// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	pb "steelyard/internal/gen/agentpb"
	"steelyard/internal/routes"

	"github.com/spf13/cobra"
)

// announcementView is an address and whether it is announced, as `-o json` prints it.
type announcementView struct {
	Prefix      string `json:"prefix"`
	Kind        string `json:"kind"` // "vip", "local" or "pool"
	Announced   bool   `json:"announced"`
	Reason      string `json:"reason"`        // why it is not announced
	SinceUnixMs uint64 `json:"since_unix_ms"` // of the last change
}

const routesLong = "A VIP is announced while one of its services has a healthy server; local and pool addresses while this host serves. REASON says why an " +
	"address is withdrawn. docs/routes.md has the configuration, also that of BIRD and FRR."

func (a *app) getRoutes(ctx context.Context) error {
	response, err := call(ctx, a, a.client().ListRoutes, &pb.ListRoutesRequest{})
	if err != nil {
		return err
	}
	a.warn(response.GetWarnings())
	views := []announcementView{}
	for _, route := range response.GetRoutes() {
		views = append(views, announcementView{route.GetPrefix(), route.GetKind(), route.GetAnnounced(), route.GetReason(), route.GetSinceUnixMs()})
	}
	return a.show(views, func() {
		if len(views) == 0 {
			fmt.Fprintln(a.out, "No addresses are announced: the configuration has no `routes`.")
			return
		}
		if kernel := response.GetKernel(); kernel != "" {
			fmt.Fprintf(a.out, "Kernel routes: %s\n", kernel)
		}
		if neighbors := viewNeighbors(response); len(neighbors) > 0 {
			up := 0
			for _, neighbor := range neighbors {
				if neighbor.State == "established" {
					up++
				}
			}
			fmt.Fprintf(a.out, "BGP: %d of %s established\n", up, plural(len(neighbors), "session"))
		}
		t := &table{columns: []column{left("PREFIX"), left("KIND"), left("STATE"), left("SINCE"), left("REASON")}}
		for _, route := range views {
			state := cell{"announced", green}
			if !route.Announced {
				state = cell{"withdrawn", red}
			}
			since := ""
			if route.SinceUnixMs != 0 {
				since = brief(time.Since(time.UnixMilli(int64(route.SinceUnixMs))))
			}
			t.add(route.Prefix, route.Kind, state, since, route.Reason)
		}
		a.print(t)
	})
}

// neighborView is a BGP neighbour of the agent, as `-o json` prints it.
type neighborView struct {
	Address     string `json:"address"`
	AS          uint32 `json:"as"`
	State       string `json:"state"`         // of RFC 4271, such as "established"
	SinceUnixMs uint64 `json:"since_unix_ms"` // 0: not established
	Error       string `json:"error"`
	BFD         string `json:"bfd"` // empty: not configured
}

func viewNeighbors(response *pb.ListRoutesResponse) []neighborView {
	views := []neighborView{}
	for _, n := range response.GetNeighbors() {
		views = append(views, neighborView{n.GetAddress(), n.GetAs(), n.GetState(), n.GetSinceUnixMs(), n.GetError(), n.GetBfd()})
	}
	return views
}

func (a *app) getNeighbors(ctx context.Context) error {
	response, err := call(ctx, a, a.client().ListRoutes, &pb.ListRoutesRequest{})
	if err != nil {
		return err
	}
	views := viewNeighbors(response)
	return a.show(views, func() {
		if len(views) == 0 {
			fmt.Fprintln(a.out, "The agent has no BGP neighbors: the configuration has no `routes.bgp`.")
			return
		}
		t := &table{columns: []column{left("NEIGHBOR"), right("AS"), left("STATE"), left("SINCE"), left("BFD"), left("ERROR")}}
		for _, n := range views {
			state, since := cell{n.State, red}, ""
			if n.SinceUnixMs != 0 {
				state.paint, since = green, brief(time.Since(time.UnixMilli(int64(n.SinceUnixMs))))
			}
			t.add(n.Address, n.AS, state, since, n.BFD, n.Error)
		}
		a.print(t)
	})
}

// Intervals of a wait for the clients' packets to stop.
const (
	quietPoll = 200 * time.Millisecond
	quietTime = 2 * time.Second
)

func (a *app) drainNodeCommand() *cobra.Command {
	var undo, wait bool
	command := &cobra.Command{
		Use: "node", Short: "Withdraw this node's routes, so that its flows move to other nodes before it stops", Args: args(0, 0),
		Long: "The agent withdraws all routes, and `steelyard health` is failing, so that VRRP moves the addresses, too. The forwarder still serves what reaches it. " +
			"Stop it when no client's packets arrive: --wait returns then. The drain survives restarts of the agent, until `steelyard undrain node`.",
		Example: "  steelyard drain node --wait && systemctl stop steelyard-forwarder\n  steelyard undrain node",
	}
	flags := command.Flags()
	flags.BoolVar(&undo, "undo", false, "end the drain")
	flags.BoolVar(&wait, "wait", false, "wait until no packets of clients have arrived for 2s, and report every 10s; --timeout does not apply")
	command.MarkFlagsMutuallyExclusive("undo", "wait")
	command.RunE = func(c *cobra.Command, _ []string) error {
		if err := a.drainNode(c.Context(), !undo); err != nil || !wait {
			return err
		}
		err := a.awaitQuiet(c.Context())
		if err != nil && c.Context().Err() != nil {
			return &interruptMessage{"interrupted; the drain continues without this command: `steelyard undrain node` ends it"}
		}
		return err
	}
	return command
}

func (a *app) undrainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "undrain SERVER[@SERVICE]|node", Short: "End a drain of a server or of this node", Args: args(1, 1),
		Long:    serverArgument + "It is the same as `steelyard drain … --undo`.",
		Example: "  steelyard undrain 10.1.0.21@web\n  steelyard undrain node",
		RunE: func(c *cobra.Command, words []string) error {
			if words[0] == "node" {
				return a.drainNode(c.Context(), false)
			}
			return a.setDrain(c.Context(), words[0], &pb.SetDrainRequest{}, "no longer drained", "was not drained", false)
		},
	}
}

func (a *app) drainNode(ctx context.Context, drain bool) error {
	response, err := call(ctx, a, a.client().DrainNode, &pb.DrainNodeRequest{Drain: drain})
	if err != nil {
		return err
	}
	a.warn(response.GetWarnings())
	text := map[[2]bool]string{{true, false}: "draining, its routes are withdrawn", {true, true}: "already drained",
		{false, false}: "no longer drained", {false, true}: "was not drained"}[[2]bool{drain, response.GetUnchanged()}]
	fmt.Fprintf(a.out, "node: %s\n", text)
	return nil
}

// stillCounter notices since when a counter does not change.
type stillCounter struct {
	value uint64
	since time.Time
}

func (s *stillCounter) update(value uint64) time.Duration {
	if value != s.value || s.since.IsZero() {
		s.value, s.since = value, time.Now()
	}
	return time.Since(s.since)
}

// clientPackets returns how many packets of clients the services have had, those that other nodes of an ECMP group relay included, and how many
// packets the ports have received, those of servers included.
func (a *app) clientPackets(ctx context.Context) (served, arrived uint64, err error) {
	views, _, err := a.listServices(ctx, "")
	if err != nil {
		return 0, 0, err
	}
	ports, err := call(ctx, a, a.client().ListPorts, &pb.ListPortsRequest{})
	if err != nil {
		return 0, 0, err
	}
	for _, view := range views {
		if view.Traffic != nil {
			served += view.Traffic.PacketsIn
		}
	}
	for _, port := range ports.GetPorts() {
		arrived += port.GetRxPackets()
	}
	return served, arrived, nil
}

// awaitQuiet waits until clients' packets no longer arrive. Other nodes of an ECMP group may relay packets of this node's sessions as long as these live.
func (a *app) awaitQuiet(ctx context.Context) error {
	ticker := time.NewTicker(quietPoll)
	defer ticker.Stop()
	var served, arrived stillCounter
	reported := time.Now()
	for {
		nowServed, nowArrived, err := a.clientPackets(ctx)
		if err != nil {
			return err
		}
		if max(served.update(nowServed), arrived.update(nowArrived)) >= quietTime {
			fmt.Fprintln(a.out, "node: drained")
			return nil
		}
		if time.Since(reported) >= drainReport {
			reported = time.Now()
			fmt.Fprintln(a.err, "steelyard: waiting: clients still send packets to this node")
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// removeRoutes removes the routes that an agent has left in the kernel, and prints them.
func (a *app) removeRoutes() error {
	prefixes, err := routes.Remove()
	for _, prefix := range prefixes {
		fmt.Fprintf(a.out, "route %s\n", prefix)
	}
	return err
}
