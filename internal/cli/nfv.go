// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"steelyard/internal/controller"
	pb "steelyard/internal/gen/nfvpb"
	"steelyard/internal/gen/nfvpb/nfvpbconnect"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
)

// nfv returns a client of the workflow at a controller.
func (a *app) nfv() nfvpbconnect.NfvServiceClient {
	socket := controller.DefaultSocket
	if a.socketGiven {
		socket = a.socket
	}
	client, url := a.reach(socket)
	return nfvpbconnect.NewNfvServiceClient(client, url)
}

func (a *app) nfvCommand() *cobra.Command {
	command := group("nfv", "Request load balancing without selecting a forwarder: the NFV workflow")
	command.AddCommand(a.nfvRequestCommand(), a.nfvRouteSetCommand(), a.nfvDeleteCommand(), a.nfvWatchCommand())
	return command
}

func (a *app) nfvRequestCommand() *cobra.Command {
	b := &pb.Balancing{}
	var protocol, settings, wait string
	var services []serviceFlag // in their order on the command line
	command := &cobra.Command{
		Use: "request ID", Short: "Request load balancing of a service", Args: args(1, 1),
		Long: "The controller records the request, selects a forwarder, configures it, and publishes a route, which you set and confirm (`steelyard nfv route-set`). If no " +
			"forwarder fits, the request stays in `needs-forwarder` until one does. Requests of one project may share a VIP, on different ports: they have one forwarder and one route. Repeating a request with the same ID and contents has no effect. " +
			"`steelyard describe request` shows its state, and the reason for its placement.",
		Example: "  steelyard nfv request web --vip 10.9.0.80:80 --real 10.1.0.21:8080 --real 10.1.0.22:8080,weight=3 --settings web.yaml --wait routing\n" +
			"  steelyard nfv request shop --vip 10.9.0.81:80 --real 10.1.0.21:8080 --vip 10.9.0.81:443 --real 10.1.0.21:8443",
		RunE: func(c *cobra.Command, ids []string) error {
			b.Id, b.Project = ids[0], a.project
			if err := parseServices(b, protocol, services); err != nil {
				return err
			}
			if settings != "" {
				data, err := os.ReadFile(settings)
				if err != nil {
					return err
				}
				b.Settings = string(data)
			}
			response, err := ask(c.Context(), a, a.nfv().RequestBalancing, &pb.RequestBalancingRequest{Balancing: b})
			if err != nil {
				return err
			}
			status := response.GetStatus()
			if wait != "" {
				if status, err = a.awaitRequest(c.Context(), b.Id, wait); err != nil {
					return err
				}
			}
			return a.showRequest(status)
		},
	}
	flags := command.Flags()
	flags.Var(&flagOrder{&services, true}, "vip", "`address:port` to which clients connect; may be repeated for more ports of the same address, each followed by its --real, and with udp/ or tcp/ in front")
	flags.StringVar(&protocol, "protocol", "tcp", "tcp or `udp`, for each --vip without a protocol")
	flags.Var(&flagOrder{&services, false}, "real", "`address:port` of a real service of the preceding --vip, optionally with ,weight=N; may be repeated")
	flags.StringVar(&settings, "settings", "", "`file` with more keys of the service, such as mode, scheduler, health, load: see steelyard.yaml(5)")
	flags.StringVar(&b.Group, "group", "", "`name` of a group: its services are placed on different forwarders")
	flags.BoolVar(&b.Spare, "spare", false, "place it only where the others could replace any lost forwarder (N+1)")
	flags.StringArrayVar(&b.Predecessors, "predecessor", nil, "`name` of a predecessor in the service chain, returned with the route; may be repeated")
	flags.StringVar(&wait, "wait", "", "wait for a `state`: routing, routed, serving, needs-forwarder, …")
	_ = command.MarkFlagRequired("vip")
	a.outputFlag(command)
	return command
}

// serviceFlag is a --vip or a --real.
type serviceFlag struct {
	vip  bool
	text string
}

// flagOrder is the value of both flags, which keeps their order.
type flagOrder struct {
	to  *[]serviceFlag
	vip bool
}

func (f *flagOrder) String() string { return "" }
func (f *flagOrder) Type() string   { return "stringArray" }
func (f *flagOrder) Set(text string) error {
	*f.to = append(*f.to, serviceFlag{f.vip, text})
	return nil
}

// parseServices parses all --vip and --real into a request. With a single --vip, their order is free.
func parseServices(b *pb.Balancing, protocol string, flags []serviceFlag) error {
	var all []*pb.VirtualService
	var early []*pb.RealService // before the first --vip
	for _, flag := range flags {
		if !flag.vip {
			r, err := parseReal(flag.text)
			if err != nil {
				return err
			}
			if len(all) == 0 {
				early = append(early, r)
			} else {
				last := all[len(all)-1]
				last.RealServices = append(last.RealServices, r)
			}
			continue
		}
		of, rest, found := strings.Cut(flag.text, "/")
		if !found {
			of, rest = protocol, flag.text
		}
		address, err := netip.ParseAddrPort(rest)
		if err != nil {
			return fmt.Errorf("--vip: %q is not an address with a port: write one like 10.9.0.80:80, [fd00::80]:80 or udp/10.9.0.80:53", flag.text)
		}
		all = append(all, &pb.VirtualService{Protocol: of, Vip: address.Addr().String(), Vport: uint32(address.Port())})
	}
	if len(all) > 1 && len(early) > 0 {
		return errors.New("--real before the first of several --vip: write each --vip before its --real")
	}
	all[0].RealServices = append(early, all[0].RealServices...)
	b.Virtual, b.More = all[0], all[1:]
	return nil
}

// parseReal parses "10.1.0.22:8080,weight=3".
func parseReal(text string) (*pb.RealService, error) {
	endpoint, rest, _ := strings.Cut(text, ",")
	address, err := netip.ParseAddrPort(endpoint)
	if err != nil {
		return nil, fmt.Errorf("--real: %q is not an address with a port: write one like 10.1.0.21:8080", endpoint)
	}
	r := &pb.RealService{Dip: address.Addr().String(), Dport: uint32(address.Port())}
	if rest != "" {
		number, ok := strings.CutPrefix(rest, "weight=")
		weight, err := strconv.ParseUint(number, 10, 16)
		if !ok || err != nil || weight == 0 {
			return nil, fmt.Errorf("--real: %q is not weight=N", rest)
		}
		r.Weight = uint32(weight)
	}
	return r, nil
}

// reached reports whether a request is in a state, or has passed it: a state may be skipped within a moment if another request has set the route.
func reached(now, wanted pb.State) bool {
	return now == wanted || pb.State_STATE_ROUTING <= wanted && wanted <= now && now <= pb.State_STATE_SERVING
}

// awaitRequest waits until a request is in a state, or can no longer reach it.
func (a *app) awaitRequest(ctx context.Context, id, wanted string) (*pb.Status, error) {
	state, ok := pb.State_value["STATE_"+strings.ToUpper(strings.ReplaceAll(wanted, "-", "_"))]
	if !ok {
		return nil, fmt.Errorf("%q is not a state: use acknowledged, needs-forwarder, configuring, routing, routed, serving, withdrawing, removed or failed", wanted)
	}
	user := ctx
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	stream, err := a.nfv().WatchBalancings(ctx, connect.NewRequest(&pb.WatchBalancingsRequest{Id: id}))
	if err != nil {
		return nil, a.explainController(err)
	}
	defer stream.Close()
	last := "not known"
	for stream.Receive() {
		s := stream.Msg().GetStatus()
		last = stateWordOf(s)
		switch {
		case reached(s.GetState(), pb.State(state)):
			return s, nil
		case s.GetState() == pb.State_STATE_FAILED, s.GetState() == pb.State_STATE_REMOVED:
			return nil, fmt.Errorf("%s is %s: %s", id, last, s.GetError())
		}
	}
	if user.Err() != nil {
		return nil, &interruptMessage{fmt.Sprintf("interrupted; the request continues without this command: `steelyard describe request %s` shows it, `steelyard nfv delete %s` ends it", id, id)}
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s is not %s within %s, but %s: see `steelyard describe request %s`", id, wanted, a.timeout, last, id)
	}
	return nil, a.explainController(stream.Err())
}

func (a *app) nfvRouteSetCommand() *cobra.Command {
	var generation uint64
	command := &cobra.Command{
		Use: "route-set ID", Short: "Confirm that the route of a request is set, or withdrawn", Args: args(1, 1),
		RunE: func(c *cobra.Command, ids []string) error {
			if generation == 0 {
				response, err := ask(c.Context(), a, a.nfv().GetBalancing, &pb.GetBalancingRequest{Id: ids[0]})
				if err != nil {
					return err
				}
				if generation = response.GetStatus().GetRoute().GetGeneration(); generation == 0 {
					return fmt.Errorf("%s has no route yet: it is %s", ids[0], stateWordOf(response.GetStatus()))
				}
			}
			_, err := ask(c.Context(), a, a.nfv().ConfirmRoute, &pb.ConfirmRouteRequest{Id: ids[0], Generation: generation})
			return err
		},
	}
	command.Flags().Uint64Var(&generation, "generation", 0, "generation `number` of the route (default the newest; a program should name the one that it has set)")
	return command
}

func (a *app) nfvDeleteCommand() *cobra.Command {
	return &cobra.Command{
		Use: "delete ID", Short: "Delete a request, in any state", Args: args(1, 1),
		Long: "If it has a route, withdraw that first and confirm it by `steelyard nfv route-set`; then the forwarder drops the service. While another request " +
			"has the same VIP, the route stays, and the request is removed at once.",
		RunE: func(c *cobra.Command, ids []string) error {
			_, err := ask(c.Context(), a, a.nfv().DeleteBalancing, &pb.DeleteBalancingRequest{Id: ids[0]})
			return err
		},
	}
}

func (a *app) nfvWatchCommand() *cobra.Command {
	request := &pb.WatchBalancingsRequest{}
	command := &cobra.Command{
		Use: "watch [ID]", Short: "Show requests, and their events as they happen", Args: args(0, 1),
		Long: "First shows the current state of each request. --after resumes after a revision of an earlier watch.",
		RunE: func(c *cobra.Command, ids []string) error {
			if len(ids) > 0 {
				request.Id = ids[0]
			}
			stream, err := a.nfv().WatchBalancings(c.Context(), connect.NewRequest(request))
			if err != nil {
				return a.explainController(err)
			}
			defer stream.Close()
			for stream.Receive() {
				v := viewRequest(stream.Msg().GetStatus())
				if stream.Msg().GetForgotten() {
					v.State = "forgotten"
				}
				a.line(v, func() string {
					return fmt.Sprintf("%d  %s  %s  %s  %s", v.Revision, v.ID, v.State, orDash(v.Forwarder), v.news())
				})
			}
			if c.Context().Err() != nil {
				return nil // the user has interrupted it
			}
			return a.explainController(stream.Err())
		},
	}
	command.Flags().Int64Var(&request.AfterRevision, "after", 0, "`revision` after which events are shown; 0: begin with all existing requests")
	a.outputFlag(command)
	return command
}
