// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	pb "steelyard/internal/gen/nfvpb"

	"github.com/spf13/cobra"
)

// Views of requests and of the placement, and the commands that show them.

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
	Generation  uint64   `json:"generation"`
	Destination string   `json:"destination"`
	NextHop     string   `json:"next_hop"`
	Forwarder   string   `json:"forwarder"`
	Withdraw    bool     `json:"withdraw"`
	Confirmed   bool     `json:"confirmed"`
	NextHops    []string `json:"next_hops"` // all of them
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
		v.Route = &routeView{r.GetGeneration(), r.GetDestination(), r.GetNextHop(), r.GetForwarder(), r.GetWithdraw(), r.GetConfirmed(), listed(r.GetNextHops())}
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
	if len(r.NextHops) > 0 {
		text += " via " + strings.Join(r.NextHops, ", ")
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
