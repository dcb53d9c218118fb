// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	pb "steelyard/internal/gen/agentpb"
	"steelyard/internal/model"

	"github.com/spf13/cobra"
)

func (a *app) getCommand() *cobra.Command {
	get := group("get", "Show services, servers, sessions, limits, shaping, access lists and sets, SNAT rules, drops, attacks, ports, workers, slots, peers, routes, BGP neighbors, status, or a controller's objects")
	add := func(command *cobra.Command, run func(context.Context) error) *cobra.Command {
		command.Args = args(0, 0)
		command.RunE = func(c *cobra.Command, _ []string) error { return run(c.Context()) }
		a.outputFlag(command)
		get.AddCommand(command)
		return command
	}
	add(&cobra.Command{Use: "services", Aliases: []string{"service"}, Short: "Show services and their traffic"}, a.getServices)
	var service string
	servers := add(&cobra.Command{Use: "servers", Aliases: []string{"server"}, Short: "Show servers: state, weight and traffic"},
		func(ctx context.Context) error { return a.getServers(ctx, service) })
	servers.Flags().StringVar(&service, "service", "", "only servers of the service with this `name`")
	filter := &pb.ListSessionsRequest{}
	sessions := add(&cobra.Command{Use: "sessions", Aliases: []string{"session"}, Short: "Show sessions"},
		func(ctx context.Context) error { return a.getSessions(ctx, filter) })
	sessions.Flags().StringVar(&filter.Client, "client", "", "only sessions of the client with this `address`")
	sessions.Flags().StringVar(&filter.Service, "service", "", "only sessions of the service with this `name`")
	sessions.Flags().Uint32Var(&filter.Limit, "limit", 1000, "maximum number, up to 100000; 0 means 1000")
	worst := false
	limits := add(&cobra.Command{Use: "limits", Aliases: []string{"limit"}, Short: "Show limits: rate, passed traffic, and traffic above",
		Long: "PASSED and ABOVE count bytes of IP packets for limits in bits, and packets or new sessions for the others, since the forwarder's " +
			"start, or since the limit's creation. Traffic above a limit is dropped, or marked. `steelyard describe limit` shows one limit, with its clients."},
		func(ctx context.Context) error { return a.getLimits(ctx, worst) })
	limits.Flags().BoolVar(&worst, "worst", false, "for limits by clients, also show the client with the most packets above it")
	add(&cobra.Command{Use: "shaping", Short: "Show shaped ports: sent, queued and dropped packets of each queue",
		Long: "One row for each class of each service with traffic since the forwarder's start, or since the port is shaped. SENT counts Ethernet frames. A service of `-` stands for the services " +
			"of the tenant without their own entries; a tenant of `-` for packets of no tenant. FULL and EARLY count dropped packets."}, a.getShaping)
	access := add(&cobra.Command{Use: "access [LIST]", Short: "Show access lists: rules and how often each matched",
		Long: "MATCHES counts packets of new sessions. The XDP program drops SYNs for the leading rules of the list of all services, before " +
			"a worker receives them; these drops have their own row, and are not in the matches of the rules."}, nil)
	access.Args = args(0, 1)
	access.RunE = func(c *cobra.Command, names []string) error {
		return a.getAccess(c.Context(), strings.Join(names, ""))
	}
	add(&cobra.Command{Use: "sets", Short: "Show access sets: number of prefixes, and the lists that name them"}, a.getSets)
	add(&cobra.Command{Use: "snat", Short: "Show SNAT rules and their traffic"}, a.getSNAT)
	all := false
	drops := add(&cobra.Command{Use: "drops", Short: "Show dropped packets by reason, with remedies"},
		func(ctx context.Context) error { return a.getDrops(ctx, all) })
	drops.Flags().BoolVar(&all, "all", false, "also show reasons without packets")
	past := false
	attacks := add(&cobra.Command{Use: "attacks", Aliases: []string{"attack"}, Short: "Show attacks: kind, target, rate, start and countermeasure",
		Long: "An attack begins when the rate of one kind of packets is over 8 times its average, and over 1000 packets per second, for two " +
			"seconds; it ends when the rate is under half of that for 30 seconds. The average is that of five minutes without an " +
			"attack. This is a report only: the forwarder's defences do not depend on it."},
		func(ctx context.Context) error { return a.getAttacks(ctx, past) })
	attacks.Flags().BoolVar(&past, "past", false, "also show attacks that have ended")
	add(&cobra.Command{Use: "ports", Aliases: []string{"port"}, Short: "Show ports and their counters",
		Long: "The last three columns count what the XDP program did with received packets. STEERED: passed to a socket of the " +
			"forwarder. PASSED: passed to the kernel, because they are not for the forwarder. NO SOCKET: dropped, because they are for a VIP " +
			"and no forwarder had a socket on the port. `steelyard get drops` shows all drops, also those of the XDP program."}, a.getPorts)
	add(&cobra.Command{Use: "workers", Aliases: []string{"worker"}, Short: "Show workers and their counters"}, a.getWorkers)
	add(&cobra.Command{Use: "slots", Aliases: []string{"slot"}, Short: "Show slots: owner and sessions"}, a.getSlots)
	get.AddCommand(a.getPeersCommand())
	add(&cobra.Command{Use: "routes", Aliases: []string{"route"}, Short: "Show the addresses that are announced to routers, and why others are not",
		Long: routesLong}, a.getRoutes)
	add(&cobra.Command{Use: "neighbors", Aliases: []string{"neighbor"}, Short: "Show the agent's BGP sessions with routers"}, a.getNeighbors)
	add(&cobra.Command{Use: "forwarders", Short: "Show the forwarders of a controller, and their states",
		Long: "STATE: in-force (the forwarder has confirmed the desired configuration), loaded (its agent has loaded it, the forwarder has not confirmed it), behind (the agent " +
			"has not loaded it: see ERROR), lost (the agent does not reach the forwarder, which is dead or does not answer), alone (no controller is connected to the " +
			"agent: its host is down or unreachable, or the agent is stopped), empty (nothing was applied)."}, a.getForwarders)
	add(&cobra.Command{Use: "placement", Short: "Show the forwarders of a controller, ranked for the placement of new services",
		Long: "LOAD is the highest of three: WORKERS (busy time of the busiest one), TABLE (fill of the session table), LINK (utilization of the busiest port with a known speed). " +
			"N+1: whether the others could replace any lost forwarder."}, a.getPlacement)
	var removed bool
	requests := add(&cobra.Command{Use: "requests", Aliases: []string{"request"}, Short: "Show requests to a controller (`steelyard nfv`), and their states"},
		func(ctx context.Context) error { return a.getRequests(ctx, removed) })
	requests.Flags().BoolVar(&removed, "removed", false, "also show requests that were removed in the last day")
	add(&cobra.Command{Use: "groups", Aliases: []string{"group"}, Short: "Show the groups of a controller's forwarders that keep each other's sessions"}, a.getGroups)
	var happened uint32
	events := add(&cobra.Command{Use: "events", Short: "Show what happened to a controller's forwarders by itself, newest first",
		Long: "WHAT: lost and back (an agent does not reach its forwarder, and reaches it again), takeover (another node serves a node's sessions), return (that node is back), rotation (a step of the replacement of a group's secret). " +
			"`steelyard watch` shows them as they happen, `get audit` also what users did."},
		func(ctx context.Context) error { return a.getEvents(ctx, happened) })
	events.Flags().Uint32Var(&happened, "limit", 100, "maximum number, up to 1000")
	add(&cobra.Command{Use: "projects", Short: "Show the projects of a controller, and their quotas"}, a.getProjects)
	var records uint32
	audit := add(&cobra.Command{Use: "audit", Short: "Show the audit records of a controller, newest first"},
		func(ctx context.Context) error { return a.getAudit(ctx, records) })
	audit.Flags().Uint32Var(&records, "limit", 100, "maximum number, up to 1000")
	add(&cobra.Command{Use: "status", Short: "Show the state of the agent and its forwarder",
		Long: "Exit codes: 0 the configuration file is in force, or its outcome is not known yet; 1 the file has an error or was refused: the previous " +
			"configuration, if any, stays in force; 2 failure, such as no answer from the agent."}, a.getStatus)
	return get
}

// listServices requests services, and warns if their counters are missing.
func (a *app) listServices(ctx context.Context, name string) ([]serviceView, *pb.ListServicesResponse, error) {
	response, err := call(ctx, a, a.client().ListServices, &pb.ListServicesRequest{Name: name})
	if err != nil {
		return nil, nil, err
	}
	views := []serviceView{}
	for _, info := range response.GetServices() {
		views = append(views, viewService(info))
	}
	return views, response, nil
}

func (a *app) getServices(ctx context.Context) error {
	views, response, err := a.listServices(ctx, "")
	if err != nil {
		return err
	}
	a.warn(response.GetWarnings())
	return a.show(views, func() {
		t := &table{columns: []column{left("NAME"), left("PROTOCOL"), left("ADDRESS"), left("MODE"), left("SCHEDULER"), left("SYN DEFENCE"),
			right("UP"), right("SESSIONS"), right("CREATED"), right("PACKETS IN"), right("PACKETS OUT")}}
		for _, s := range views {
			t.add(s.Name, s.Protocol, s.endpoint(), s.Mode, s.Scheduler, s.defenceState(), upOfAll(s),
				sessions(s.Traffic, s.MaxSessions),
				count(s.Traffic, func(t *trafficView) uint64 { return t.SessionsCreated }),
				count(s.Traffic, func(t *trafficView) uint64 { return t.PacketsIn }),
				count(s.Traffic, func(t *trafficView) uint64 { return t.PacketsOut }))
		}
		a.print(t)
	})
}

// defenceState returns the setting of the SYN defence and, for auto, whether it is on.
func (s serviceView) defenceState() cell {
	switch {
	case s.Protocol == "udp":
		return cell{}
	case s.policy.SynDefence == model.DefenceAuto && s.Defence != nil && s.Defence.On:
		return cell{s.SynDefence + " (on)", yellow}
	}
	return cell{text: s.SynDefence}
}

func upOfAll(s serviceView) cell {
	up := 0
	for _, server := range s.Servers {
		if server.State == "up" {
			up++
		}
	}
	c := cell{text: fmt.Sprintf("%d/%d", up, len(s.Servers)), paint: yellow}
	switch up {
	case len(s.Servers):
		c.paint = green
	case 0:
		c.paint = red
	}
	return c
}

// count returns a counter as text, or "-" if the forwarder lacks it.
func count(t *trafficView, pick func(*trafficView) uint64) string {
	if t == nil {
		return "-"
	}
	return fmt.Sprint(pick(t))
}

// sessions returns the current number of sessions, and the limit.
func sessions(t *trafficView, limit uint32) string {
	text := count(t, func(t *trafficView) uint64 { return t.SessionsActive })
	if limit != 0 {
		text += fmt.Sprintf("/%d", limit)
	}
	return text
}

func weightText(s serverView) string {
	text := fmt.Sprint(s.Weight)
	if s.Backup {
		text += " (backup)"
	}
	return text
}

func (a *app) getServers(ctx context.Context, service string) error {
	views, response, err := a.listServices(ctx, service)
	if err != nil {
		return err
	}
	a.warn(response.GetWarnings())
	servers := []serverView{}
	for _, view := range views {
		servers = append(servers, view.Servers...)
	}
	return a.show(servers, func() { a.print(serverTable(servers)) })
}

func serverTable(servers []serverView) *table {
	t := &table{columns: []column{left("SERVICE"), left("SERVER"), left("STATE"), right("WEIGHT"), left("HEALTH"),
		right("SESSIONS"), right("CREATED"), right("PACKETS IN"), right("PACKETS OUT")}}
	loads := anyLoad(servers)
	if loads {
		t.columns = append(t.columns, right("LOAD"))
	}
	shares := anyServer(servers, func(s serverView) bool { return s.Share != nil })
	if shares {
		t.columns = append(t.columns, right("SHARE"), right("DELAY"))
	}
	for _, s := range servers {
		row := []any{s.Service, endpoint(s.Address, s.Port), s.stateText(), weightText(s), healthSummary(s),
			sessions(s.Traffic, s.MaxSessions),
			count(s.Traffic, func(t *trafficView) uint64 { return t.SessionsCreated }),
			count(s.Traffic, func(t *trafficView) uint64 { return t.PacketsIn }),
			count(s.Traffic, func(t *trafficView) uint64 { return t.PacketsOut })}
		if loads {
			row = append(row, s.Load.summary())
		}
		if shares {
			delay := "-"
			if s.Delay != nil && s.Delay.Samples > 0 {
				delay = shortTime(s.Delay.SmoothedNs)
			}
			row = append(row, s.Share.summary(), delay)
		}
		t.add(row...)
	}
	return t
}

func unanswered(syns uint64) string {
	return fmt.Sprintf("%d SYNs unanswered in 10 s, 0 answered", syns)
}

func healthSummary(s serverView) cell {
	switch h := s.Health; {
	case h == nil && s.UnansweredSYNs > 0:
		return cell{"not checked, " + unanswered(s.UnansweredSYNs), yellow}
	case h == nil:
		return cell{"not checked", dim}
	case h.Undecided > 0: // the state stays
		return cell{"undecided (this host)", yellow}
	case !h.Checked:
		return cell{"not checked yet", dim}
	case h.LastPassed && h.Up && s.UnansweredSYNs > 0:
		return cell{"passing, " + unanswered(s.UnansweredSYNs), yellow}
	case h.LastPassed && h.Up:
		return cell{"passing", green}
	case h.LastPassed:
		return cell{fmt.Sprintf("passing (%d so far)", h.Streak), yellow}
	case h.Up:
		return cell{fmt.Sprintf("failing (%d so far)", h.Streak), yellow}
	default:
		return cell{"failing", red}
	}
}

func (a *app) getSessions(ctx context.Context, filter *pb.ListSessionsRequest) error {
	response, err := call(ctx, a, a.client().ListSessions, filter)
	if err != nil {
		return err
	}
	views := []sessionView{}
	for _, session := range response.GetSessions() {
		views = append(views, viewSession(session))
	}
	if response.GetMore() {
		a.warn([]string{fmt.Sprintf("there are more than %s: use --client or --service, or raise --limit", plural(len(views), "session"))})
	}
	return a.show(views, func() {
		t := &table{columns: []column{left("PROTOCOL"), left("CLIENT"), left("VIP"), left("LOCAL"), left("SERVER"),
			left("STATE"), right("IDLE"), right("AGE"), right("EXPIRES"), right("SLOT")}}
		for _, s := range views {
			t.add(s.Protocol, endpoint(s.Client, s.ClientPort), endpoint(s.VIP, s.VIPPort), localEndpoint(s),
				endpoint(s.Server, s.ServerPort), s.State, fmt.Sprintf("%ds", s.IdleS), fmt.Sprintf("%ds", s.AgeS),
				fmt.Sprintf("%ds", s.ExpiresS), s.Slot)
		}
		a.print(t)
	})
}

func (a *app) getDrops(ctx context.Context, all bool) error {
	response, err := call(ctx, a, a.client().ListDrops, &pb.ListDropsRequest{})
	if err != nil {
		return err
	}
	views := []dropView{}
	for _, drop := range response.GetDrops() {
		if all || drop.GetPackets() > 0 {
			views = append(views, dropView{drop.GetName(), drop.GetPackets(), drop.GetHelp()})
		}
	}
	return a.show(views, func() {
		if len(views) == 0 {
			fmt.Fprintln(a.out, "No packet was dropped.")
			return
		}
		t := &table{columns: []column{left("REASON"), right("PACKETS"), left("MEANING")}}
		for _, drop := range views {
			t.add(drop.Name, drop.Packets, drop.Help)
		}
		a.print(t)
	})
}

func (a *app) getPorts(ctx context.Context) error {
	response, err := call(ctx, a, a.client().ListPorts, &pb.ListPortsRequest{})
	if err != nil {
		return err
	}
	views := []portView{}
	for _, port := range response.GetPorts() {
		views = append(views, viewPort(port))
	}
	return a.show(views, func() {
		t := &table{columns: []column{left("NAME"), left("BACKEND"), left("LINK"), left("MAC"), right("MTU"), right("QUEUES"),
			right("RX PACKETS"), right("RX BYTES"), right("TX PACKETS"), right("TX BYTES"), right("MISSED"),
			right("FAILED"), right("STEERED"), right("PASSED"), right("NO SOCKET")}}
		for _, p := range views {
			link := "down"
			if p.Up {
				link = "up"
			}
			t.add(p.Name, p.Backend, paintState(link), p.MAC, p.MTU, p.Queues, p.RxPackets, p.RxBytes, p.TxPackets,
				p.TxBytes, p.RxMissed, p.TxFailed, p.DirectorSteered, p.DirectorPassed, p.DirectorDropped)
		}
		a.print(t)
		for _, p := range views {
			if p.Problem != "" {
				fmt.Fprintln(a.out, a.paint(cell{p.Name + ": " + p.Problem, red}))
			}
		}
	})
}

func (a *app) getWorkers(ctx context.Context) error {
	response, err := call(ctx, a, a.client().ListWorkers, &pb.ListWorkersRequest{})
	if err != nil {
		return err
	}
	views := []workerView{}
	for _, worker := range response.GetWorkers() {
		views = append(views, viewWorker(worker))
	}
	return a.show(views, func() {
		t := &table{columns: []column{right("WORKER"), right("SLOTS"), right("SESSIONS"), right("RX PACKETS"),
			right("TX PACKETS"), right("STEERED OUT"), right("STEERED IN"), right("REMOTE"), right("BUSY"), right("SLEEPS")}}
		for _, w := range views {
			busy := "-"
			if total := float64(w.BusyCycles) + float64(w.IdleCycles); total > 0 {
				busy = fmt.Sprintf("%.1f%%", 100*float64(w.BusyCycles)/total)
			}
			t.add(w.ID, w.Slots, w.Sessions, w.RxPackets, w.TxPackets, w.SteeredOut, w.SteeredIn, w.Remote, busy, w.Sleeps)
		}
		a.print(t)
	})
}

func (a *app) getSlots(ctx context.Context) error {
	response, err := call(ctx, a, a.client().ListSlots, &pb.ListSlotsRequest{})
	if err != nil {
		return err
	}
	views := []slotView{}
	for _, s := range response.GetSlots() {
		views = append(views, slotView{s.GetSlot(), s.GetWorker(), s.GetSessions(), s.GetCapacity(), s.GetPackets()})
	}
	return a.show(views, func() {
		t := &table{columns: []column{right("SLOT"), right("WORKER"), right("SESSIONS"), right("CAPACITY"), right("PACKETS")}}
		for _, s := range views {
			t.add(s.Slot, s.Worker, s.Sessions, s.Capacity, s.Packets)
		}
		a.print(t)
	})
}
