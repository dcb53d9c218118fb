// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

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
		return nil, &farewell{fmt.Sprintf("interrupted; the request continues without this command: `steelyard describe request %s` shows it, `steelyard nfv delete %s` ends it", id, id)}
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

// ---- views --------------------------------------------------------------------------------------

type requestView struct {
	ID           string             `json:"id"`
	Project      string             `json:"project"`
	State        string             `json:"state"`
	Key          string             `json:"key"`
	Protocol     string             `json:"protocol"`
	VIP          string             `json:"vip"`
	VPort        uint32             `json:"vport"`
	Settings     string             `json:"settings"`
	Group        string             `json:"group"`
	Spare        bool               `json:"spare"`
	Forwarder    string             `json:"forwarder"`
	Leaving      string             `json:"leaving"`
	Why          string             `json:"why"`
	Error        string             `json:"error"`
	Route        *routeView         `json:"route"` // null: none yet
	Reals        []realView         `json:"real_services"`
	More         []virtualView      `json:"more"` // further services of the VIP
	History      []requestEventView `json:"history"`
	Revision     int64              `json:"revision"`
	AskedMs      uint64             `json:"asked_unix_ms"`
	ChangedMs    uint64             `json:"changed_unix_ms"`
	Warnings     []string           `json:"warnings,omitempty"`
	Predecessors []string           `json:"predecessors"`
}

type virtualView struct {
	Key      string     `json:"key"`
	Protocol string     `json:"protocol"`
	VPort    uint32     `json:"vport"`
	Reals    []realView `json:"real_services"`
}

type routeView struct {
	Generation  uint64 `json:"generation"`
	Destination string `json:"destination"`
	NextHop     string `json:"next_hop"`
	Forwarder   string `json:"forwarder"`
	Withdraw    bool   `json:"withdraw"`
	Confirmed   bool   `json:"confirmed"`
}

type realView struct {
	Key      string     `json:"key"`
	Protocol string     `json:"protocol"`
	DIP      string     `json:"dip"`
	DPort    uint32     `json:"dport"`
	Weight   uint32     `json:"weight"`
	Health   uint32     `json:"health"`
	Reserved *rangeView `json:"reserved"` // null: not known
}

type rangeView struct {
	From float64 `json:"from"`
	To   float64 `json:"to"`
}

type requestEventView struct {
	AtMs   uint64 `json:"at_unix_ms"`
	State  string `json:"state"`
	Detail string `json:"detail"`
}

func stateWordOf(s *pb.Status) string { return stateName(s.GetState()) }

func stateName(state pb.State) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(state.String(), "STATE_")), "_", "-")
}

func viewRequest(s *pb.Status) requestView {
	w, virtual := s.GetWanted(), s.GetWanted().GetVirtual()
	v := requestView{ID: w.GetId(), Project: w.GetProject(), State: stateWordOf(s), Key: virtual.GetKey(), Protocol: virtual.GetProtocol(), VIP: virtual.GetVip(),
		VPort: virtual.GetVport(), Settings: w.GetSettings(), Group: w.GetGroup(), Spare: w.GetSpare(), Forwarder: s.GetForwarder(), Leaving: s.GetLeaving(),
		Why: s.GetWhy(), Error: s.GetError(), Reals: []realView{}, History: []requestEventView{}, Revision: s.GetRevision(), AskedMs: s.GetAskedUnixMs(),
		ChangedMs: s.GetChangedUnixMs(), Warnings: s.GetWarnings(), Predecessors: append([]string{}, w.GetPredecessors()...)}
	if r := s.GetRoute(); r != nil {
		v.Route = &routeView{r.GetGeneration(), r.GetDestination(), r.GetNextHop(), r.GetForwarder(), r.GetWithdraw(), r.GetConfirmed()}
	}
	v.Reals, v.More = viewReals(virtual), []virtualView{}
	for _, more := range w.GetMore() {
		v.More = append(v.More, virtualView{more.GetKey(), more.GetProtocol(), more.GetVport(), viewReals(more)})
	}
	for _, e := range s.GetHistory() {
		v.History = append(v.History, requestEventView{e.GetAtUnixMs(), stateName(e.GetState()), e.GetDetail()})
	}
	return v
}

func viewReals(of *pb.VirtualService) []realView {
	views := []realView{}
	for _, r := range of.GetRealServices() {
		real := realView{Key: r.GetKey(), Protocol: r.GetProtocol(), DIP: r.GetDip(), DPort: r.GetDport(), Weight: r.GetWeight(), Health: r.GetHealth()}
		if r.GetReserved() != nil {
			real.Reserved = &rangeView{r.GetReserved().GetFrom(), r.GetReserved().GetTo()}
		}
		views = append(views, real)
	}
	return views
}

// vipText returns the VIP with all its ports.
func (v requestView) vipText() string {
	text := v.Protocol + " " + net.JoinHostPort(v.VIP, strconv.Itoa(int(v.VPort)))
	for _, more := range v.More {
		text += fmt.Sprintf(", %s %d", more.Protocol, more.VPort)
	}
	return text
}

// news returns the latest message about a request.
func (v requestView) news() string {
	if len(v.History) == 0 {
		return ""
	}
	return v.History[len(v.History)-1].Detail
}

func (v requestView) paint() cell {
	colors := map[string]string{"serving": green, "routed": green, "failed": red, "needs-forwarder": red, "removed": dim}
	color, ok := colors[v.State]
	if !ok {
		color = yellow
	}
	return cell{v.State, color}
}

func (r *routeView) text() string {
	if r == nil {
		return ""
	}
	text := r.Destination
	if r.NextHop != "" {
		text += " via " + r.NextHop
	}
	text = fmt.Sprintf("%d: %s (%s)", r.Generation, text, r.Forwarder)
	if r.Withdraw {
		text += ", to be removed"
	}
	if r.Confirmed {
		return text + ", confirmed"
	}
	return text + ", not confirmed"
}

func (a *app) getRequests(ctx context.Context, removed bool) error {
	response, err := ask(ctx, a, a.nfv().ListBalancings, &pb.ListBalancingsRequest{Project: a.project, Removed: removed})
	if err != nil {
		return err
	}
	views := []requestView{}
	for _, s := range response.GetBalancings() {
		views = append(views, viewRequest(s))
	}
	return a.show(views, func() {
		t := &table{columns: []column{left("ID"), left("PROJECT"), left("STATE"), left("VIP"), left("FORWARDER"), left("ROUTE"), left("WHY")}}
		for _, v := range views {
			forwarder, why := v.Forwarder, v.Why
			if v.Leaving != "" {
				forwarder = strings.TrimSpace(forwarder + " (leaving " + v.Leaving + ")")
			}
			if v.Error != "" {
				why = v.Error
			}
			t.add(v.ID, v.Project, v.paint(), v.vipText(), forwarder, v.Route.text(), why)
		}
		a.print(t)
	})
}

func (a *app) describeRequestCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "request ID", Short: "Show everything about a request to a controller: its state, and the reason for its placement", Args: args(1, 1),
		RunE: func(c *cobra.Command, ids []string) error {
			response, err := ask(c.Context(), a, a.nfv().GetBalancing, &pb.GetBalancingRequest{Id: ids[0]})
			if err != nil {
				return err
			}
			return a.showRequest(response.GetStatus())
		},
	}
	a.outputFlag(command)
	return command
}

func (a *app) showRequest(s *pb.Status) error {
	v := viewRequest(s)
	a.warn(v.Warnings)
	return a.show(v, func() {
		a.pair("Request", v.ID+" of project "+v.Project)
		a.pair("State", a.paint(v.paint())+", since "+since(v.ChangedMs/1000))
		if v.Error != "" {
			a.pair("Error", a.paint(cell{v.Error, red}))
		}
		all := append([]virtualView{{v.Key, v.Protocol, v.VPort, v.Reals}}, v.More...)
		for i, one := range all {
			name := ""
			if i == 0 {
				name = "Virtual"
			}
			a.pair(name, fmt.Sprintf("%s %s, key %s", one.Protocol, net.JoinHostPort(v.VIP, strconv.Itoa(int(one.VPort))), one.Key))
		}
		a.pair("Forwarder", orDash(v.Forwarder))
		if v.Leaving != "" {
			a.pair("", v.Leaving+" serves it too, until the new route is set")
		}
		if v.Why != "" {
			a.pair("Why", v.Why)
		}
		if v.Group != "" {
			a.pair("Group", v.Group)
		}
		if v.Spare {
			a.pair("N+1", "required")
		}
		if v.Route != nil {
			a.pair("Route", v.Route.text())
		}
		if len(v.Predecessors) > 0 {
			a.pair("For", strings.Join(v.Predecessors, ", "))
		}
		fmt.Fprintln(a.out)
		reals := &table{columns: []column{right("PORT"), left("REAL SERVICE"), right("WEIGHT"), left("HEALTH"), left("RESERVED"), left("KEY")}}
		for _, one := range all {
			for _, r := range one.Reals {
				health, reserved := cell{"-", dim}, "-"
				if r.Reserved != nil {
					reserved = fmt.Sprintf("[%.3f, %.3f)", r.Reserved.From, r.Reserved.To)
					if health = (cell{"1", green}); r.Health == 0 {
						health = cell{"0", red}
					}
				}
				reals.add(one.VPort, net.JoinHostPort(r.DIP, strconv.Itoa(int(r.DPort))), r.Weight, health, reserved, r.Key)
			}
		}
		a.print(reals)
		fmt.Fprintln(a.out)
		history := &table{columns: []column{left("AT"), left("STATE"), left("WHAT")}}
		for _, e := range v.History {
			history.add(time.UnixMilli(int64(e.AtMs)).UTC().Format(time.RFC3339), e.State, e.Detail)
		}
		a.print(history)
	})
}

type placementView struct {
	Leader       string      `json:"leader"`
	MissingSpare string      `json:"missing_spare"` // empty: N+1 is satisfied
	Forwarders   []placeView `json:"forwarders"`    // best first
}

type placeView struct {
	Name     string  `json:"name"`
	Serves   bool    `json:"serves"`
	Why      string  `json:"why"`
	Load     float64 `json:"load"`
	Workers  float64 `json:"workers"` // negative: unknown
	Table    float64 `json:"table"`
	Link     float64 `json:"link"`
	AgeMs    uint64  `json:"age_ms"`
	Services uint32  `json:"services"`
}

func (a *app) getPlacement(ctx context.Context) error {
	response, err := ask(ctx, a, a.nfv().GetPlacement, &pb.GetPlacementRequest{})
	if err != nil {
		return err
	}
	v := placementView{response.GetLeader(), response.GetMissingSpare(), []placeView{}}
	for _, p := range response.GetForwarders() {
		v.Forwarders = append(v.Forwarders, placeView{p.GetForwarder(), p.GetServes(), p.GetWhy(), p.GetLoad(), p.GetWorkers(), p.GetTable(), p.GetLink(),
			p.GetAgeMs(), p.GetServices()})
	}
	return a.show(v, func() {
		part := func(value float64) string {
			if value < 0 {
				return "-"
			}
			return fmt.Sprintf("%.0f%%", 100*value)
		}
		t := &table{columns: []column{left("FORWARDER"), left("SERVES"), right("LOAD"), right("WORKERS"), right("TABLE"), right("LINK"), right("REQUESTS"), left("WHY")}}
		for _, p := range v.Forwarders {
			serves := cell{"yes", green}
			if !p.Serves {
				serves = cell{"no", red}
			}
			t.add(p.Name, serves, part(p.Load), part(p.Workers), part(p.Table), part(p.Link), p.Services, p.Why)
		}
		a.print(t)
		if v.MissingSpare == "" {
			a.pair("N+1", a.paint(cell{"holds", green}))
		} else {
			a.pair("N+1", a.paint(cell{v.MissingSpare, yellow}))
		}
		if v.Leader == "" {
			a.pair("Leader", a.paint(cell{"none: no controller works on requests", red}))
		} else {
			a.pair("Leader", v.Leader)
		}
	})
}
