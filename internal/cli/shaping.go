// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/agentpb"
	"steelyard/internal/model"

	"github.com/spf13/cobra"
)

// shapingView is a shaped port as `-o json` prints it.
type shapingView struct {
	Port    string            `json:"port"`
	Rate    uint64            `json:"rate"`  // bits/s
	Burst   uint64            `json:"burst"` // bytes
	Count   string            `json:"count"`
	Active  bool              `json:"active"`            // the port exists, and has this shaping
	Problem string            `json:"problem,omitempty"` // why it is not
	Worker  uint32            `json:"worker"`
	Waiting uint32            `json:"waiting"` // packets
	Room    uint32            `json:"room"`    // maximum packets of all queues
	Queues  []shapedQueueView `json:"queues"`  // those that have been used
	// From the configuration.
	Classes []shapingClassView  `json:"classes"`
	Tenants []shapingTenantView `json:"tenants"`

	shaping model.Shaping
}

type shapingClassView struct {
	Name       string            `json:"name"`
	DSCP       []string          `json:"dscp"` // the last class also has DSCPs that no class lists
	Priority   uint8             `json:"priority"`
	Weight     uint8             `json:"weight"`
	Guaranteed uint64            `json:"guaranteed"` // bits/s; 0: none
	Maximum    uint64            `json:"maximum"`    // bits/s; 0: that of the level above
	Queue      uint32            `json:"queue"`      // packets
	EarlyDrops *shapingEarlyView `json:"early_drops"`
}

type shapingEarlyView struct {
	FromPercent uint8 `json:"from_percent"` // of the queue
	ToPercent   uint8 `json:"to_percent"`
	Probability uint8 `json:"probability_percent"`
}

// shapingTenantView is a tenant. Without a name: all other tenants.
type shapingTenantView struct {
	Name       string               `json:"name"`
	Guaranteed uint64               `json:"guaranteed"` // without its own rate: the sum of its services
	Maximum    uint64               `json:"maximum"`
	Weight     uint8                `json:"weight"`
	Services   []shapingServiceView `json:"services"`
}

// shapingServiceView is a service. Without a name: the tenant's other services, which Of lists.
type shapingServiceView struct {
	Name       string   `json:"name"`
	Guaranteed uint64   `json:"guaranteed"`
	Maximum    uint64   `json:"maximum"`
	Weight     uint8    `json:"weight"`
	Class      string   `json:"class"` // empty: by DSCP
	Of         []string `json:"of"`    // services and VIPs
}

// viewTree fills in the configured tree.
func (v *shapingView) viewTree() {
	v.Classes, v.Tenants = []shapingClassView{}, []shapingTenantView{}
	for _, c := range v.shaping.Classes {
		class := shapingClassView{c.Name, []string{}, c.Priority, c.Weight, c.Guaranteed, c.Maximum, c.Queue, nil}
		for _, dscp := range c.DSCP {
			class.DSCP = append(class.DSCP, dscp.String())
		}
		if c.Early.Percent > 0 {
			class.EarlyDrops = &shapingEarlyView{c.Early.From, c.Early.To, c.Early.Percent}
		}
		v.Classes = append(v.Classes, class)
	}
	for _, t := range v.shaping.Tenants {
		tenant := shapingTenantView{t.Name, t.Guaranteed, t.Maximum, t.Weight, []shapingServiceView{}}
		for _, s := range t.Services {
			service := shapingServiceView{s.Name, s.Guaranteed, s.Maximum, s.Weight, s.Class, []string{}}
			for _, key := range s.Services {
				service.Of = append(service.Of, key.String())
			}
			for _, vip := range s.VIPs {
				service.Of = append(service.Of, vip.String())
			}
			tenant.Services = append(tenant.Services, service)
		}
		v.Tenants = append(v.Tenants, tenant)
	}
}

// shapedQueueView is the queue of a class of a service. Without a service: the tenant's other services.
type shapedQueueView struct {
	Tenant       string `json:"tenant"`
	Service      string `json:"service"`
	Class        string `json:"class"`
	SentPackets  uint64 `json:"sent_packets"`
	SentBytes    uint64 `json:"sent_bytes"`
	Full         uint64 `json:"dropped_full"` // packets
	Early        uint64 `json:"dropped_early"`
	DroppedBytes uint64 `json:"dropped_bytes"`
	Waiting      uint32 `json:"waiting"` // packets
	Limit        uint32 `json:"queue"`   // maximum packets
}

func viewShaping(stats *dpclient.ShapingStats) (shapingView, error) {
	shaping, err := dpclient.ShapingFromWire(stats.GetShaping())
	if err != nil {
		return shapingView{}, err
	}
	view := shapingView{Port: shaping.Port, Rate: shaping.Rate, Burst: shaping.Burst, Count: shaping.Layer.String(), Active: stats.GetActive(),
		Worker: stats.GetWorker(), Waiting: stats.GetWaiting(), Room: stats.GetRoom(), Problem: stats.GetProblem(), Queues: []shapedQueueView{},
		shaping: shaping}
	view.viewTree()
	for _, n := range stats.GetCounts() {
		t, s, c := int(n.GetTenant()), int(n.GetService()), int(n.GetClass())
		if t >= len(shaping.Tenants) || s >= len(shaping.Tenants[t].Services) || c >= len(shaping.Classes) {
			return view, fmt.Errorf("the forwarder reports a queue that port %s does not have", shaping.Port)
		}
		view.Queues = append(view.Queues, shapedQueueView{Tenant: shaping.Tenants[t].Name, Service: shaping.Tenants[t].Services[s].Name,
			Class: shaping.Classes[c].Name, SentPackets: n.GetSentPackets(), SentBytes: n.GetSentBytes(), Full: n.GetDroppedFull(),
			Early: n.GetDroppedEarly(), DroppedBytes: n.GetDroppedBytes(), Waiting: n.GetWaiting(), Limit: shaping.Classes[c].Queue})
	}
	return view, nil
}

func (a *app) listShaping(ctx context.Context) ([]shapingView, uint64, error) {
	response, err := call(ctx, a, a.client().ListShaping, &pb.ListShapingRequest{})
	if err != nil {
		return nil, 0, err
	}
	views := []shapingView{}
	for _, stats := range response.GetPorts() {
		view, err := viewShaping(stats)
		if err != nil {
			return nil, 0, err
		}
		views = append(views, view)
	}
	return views, response.GetSampledNs(), nil
}

func orDash(name string) string {
	if name == "" {
		return "-"
	}
	return name
}

func dropCell(packets uint64) cell {
	if packets == 0 {
		return cell{text: "0"}
	}
	return cell{scaled(float64(packets)), yellow}
}

// cells are the cells of a queue.
func (q shapedQueueView) cells() []any {
	bytes := limitCounts{Bytes: q.SentBytes}
	return []any{orDash(q.Tenant), orDash(q.Service), q.Class, scaled(float64(q.SentPackets)), bytes.text(model.LimitBits),
		fmt.Sprintf("%d of %d", q.Waiting, q.Limit), dropCell(q.Full), dropCell(q.Early)}
}

func shapingColumns() []column {
	return []column{left("TENANT"), left("SERVICE"), left("CLASS"), right("SENT PACKETS"), right("SENT"), right("WAITING"),
		right("FULL"), right("EARLY")}
}

func (a *app) getShaping(ctx context.Context) error {
	views, _, err := a.listShaping(ctx)
	if err != nil {
		return err
	}
	return a.show(views, func() {
		t := &table{columns: append([]column{left("PORT"), right("RATE")}, shapingColumns()...)}
		for _, v := range views {
			rate := model.BitRate(v.Rate)
			switch {
			case v.Problem != "":
				t.add(v.Port, rate, "", "", cell{"not in force yet", yellow}, "", "", "", "", "")
			case !v.Active:
				t.add(v.Port, rate, "", "", cell{"no such port", yellow}, "", "", "", "", "")
			case len(v.Queues) == 0:
				t.add(v.Port, rate, "", "", "", "0", "", "", "0", "0")
			}
			for _, q := range v.Queues {
				t.add(append([]any{v.Port, rate}, q.cells()...)...)
			}
		}
		a.print(t)
	})
}

func (a *app) describeShapingCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "shaping PORT", Short: "Show everything about the shaping of a port", Args: args(1, 1),
		RunE: func(c *cobra.Command, args []string) error { return a.describeShaping(c.Context(), args[0]) },
	}
	a.outputFlag(command)
	return command
}

func (a *app) describeShaping(ctx context.Context, port string) error {
	views, _, err := a.listShaping(ctx)
	if err != nil {
		return err
	}
	for _, v := range views {
		if v.Port == port {
			return a.show(v, func() { a.printShaping(v) })
		}
	}
	return fmt.Errorf("port %s is not shaped: see `steelyard get shaping`", port)
}

func ratesOf(guaranteed, maximum uint64) []any {
	return []any{orDash(model.BitRate(guaranteed)), orDash(model.BitRate(maximum))}
}

func (a *app) printShaping(v shapingView) {
	a.pair("Port", v.Port)
	a.pair("Rate", fmt.Sprintf("%s, counted at %s", model.BitRate(v.Rate), v.Count))
	a.pair("Burst", model.LimitSpec{Unit: model.LimitBits}.Amount(v.Burst))
	if v.Problem != "" {
		a.pair("State", a.paint(cell{"not in force yet, the port stays as it was: " + v.Problem, yellow}))
	} else if !v.Active {
		a.pair("State", a.paint(cell{"not in force: the forwarder has no such port; see `steelyard get ports`", yellow}))
	} else {
		a.pair("State", fmt.Sprintf("worker %d sends; %d of at most %d packets are queued", v.Worker, v.Waiting, v.Room))
	}
	fmt.Fprintln(a.out)
	classes := &table{columns: []column{left("CLASS"), right("PRIORITY"), right("WEIGHT"), right("GUARANTEED"), right("MAXIMUM"), right("QUEUE"),
		left("EARLY DROPS"), left("DSCP")}}
	for i, c := range v.shaping.Classes {
		early, dscp := "-", ""
		if c.Early.Percent > 0 {
			early = fmt.Sprintf("%d%% from %d%% to %d%%", c.Early.Percent, c.Early.From, c.Early.To)
		}
		for n, one := range c.DSCP {
			if n > 0 {
				dscp += " "
			}
			dscp += one.String()
		}
		if i == len(v.shaping.Classes)-1 {
			if dscp != "" {
				dscp += " "
			}
			dscp += "(others)"
		}
		classes.add(append(append([]any{c.Name, c.Priority, c.Weight}, ratesOf(c.Guaranteed, c.Maximum)...), c.Queue, early, dscp)...)
	}
	a.print(classes)
	fmt.Fprintln(a.out)
	branches := &table{columns: []column{left("TENANT"), left("SERVICE"), right("GUARANTEED"), right("MAXIMUM"), right("WEIGHT"), left("CLASS")}}
	for _, tenant := range v.shaping.Tenants {
		branches.add(append(append([]any{orDash(tenant.Name), "(all)"}, ratesOf(tenant.Guaranteed, tenant.Maximum)...), tenant.Weight, "")...)
		for _, service := range tenant.Services {
			branches.add(append(append([]any{orDash(tenant.Name), orDash(service.Name)}, ratesOf(service.Guaranteed, service.Maximum)...),
				service.Weight, orDash(service.Class))...)
		}
	}
	a.print(branches)
	fmt.Fprintln(a.out)
	queues := &table{columns: shapingColumns()}
	for _, q := range v.Queues {
		queues.add(q.cells()...)
	}
	a.print(queues)
}

// shapingRateView has the rates of a queue between two samples, per second.
type shapingRateView struct {
	Port     string  `json:"port"`
	Tenant   string  `json:"tenant"`
	Service  string  `json:"service"`
	Class    string  `json:"class"`
	PerS     float64 `json:"sent_packets_per_s"`
	BitsPerS float64 `json:"sent_bits_per_s"` // of frames
	DropPerS float64 `json:"dropped_packets_per_s"`
	Waiting  uint32  `json:"waiting"`
}

// shapingRates compares two samples. A counter that fell was reset by a restart and counts from zero.
func shapingRates(before, after []shapingView, seconds float64) []shapingRateView {
	type key struct{ port, tenant, service, class string }
	old := map[key]shapedQueueView{}
	for _, v := range before {
		for _, q := range v.Queues {
			old[key{v.Port, q.Tenant, q.Service, q.Class}] = q
		}
	}
	views := []shapingRateView{}
	for _, v := range after {
		for _, q := range v.Queues {
			was := old[key{v.Port, q.Tenant, q.Service, q.Class}]
			perSecond := func(from, to uint64) float64 {
				if to < from {
					from = 0
				}
				return float64(to-from) / seconds
			}
			views = append(views, shapingRateView{v.Port, q.Tenant, q.Service, q.Class, perSecond(was.SentPackets, q.SentPackets),
				8 * perSecond(was.SentBytes, q.SentBytes), perSecond(was.Full+was.Early, q.Full+q.Early), q.Waiting})
		}
	}
	return views
}

func (a *app) showShapingRates(views []shapingRateView) error {
	return a.show(views, func() {
		t := &table{columns: []column{left("PORT"), left("TENANT"), left("SERVICE"), left("CLASS"), right("SENT PACKETS/s"), right("SENT BITS/s"),
			right("DROPPED PACKETS/s"), right("WAITING")}}
		for _, v := range views {
			t.add(v.Port, orDash(v.Tenant), orDash(v.Service), v.Class, scaled(v.PerS), scaled(v.BitsPerS), scaled(v.DropPerS), v.Waiting)
		}
		a.print(t)
	})
}
