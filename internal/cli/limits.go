// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/agentpb"
	"steelyard/internal/model"

	"github.com/spf13/cobra"
)

// limitView is a limit as `-o json` prints it.
type limitView struct {
	Name      string           `json:"name"`
	Tenant    string           `json:"tenant,omitempty"`
	Of        string           `json:"of"`
	Targets   []string         `json:"targets"` // empty: all services
	Unit      string           `json:"unit"`    // bits, packets or sessions
	PerSecond uint64           `json:"per_second"`
	Burst     uint64           `json:"burst"` // bytes, packets or sessions
	Count     string           `json:"count,omitempty"`
	Direction string           `json:"direction,omitempty"`
	Action    string           `json:"action"`
	DSCP      *uint8           `json:"dscp,omitempty"` // of the action mark
	Wanted    string           `json:"engine_wanted"`
	Engine    string           `json:"engine"` // in force
	Why       string           `json:"engine_why"`
	Passed    limitCounts      `json:"passed"`
	Above     limitCounts      `json:"above"`
	Share     float64          `json:"above_percent"`  // of all bytes with bits, of all packets or sessions otherwise
	Left      *uint64          `json:"left,omitempty"` // of the bucket; absent: each client has one
	Clients   *limitClientView `json:"clients,omitempty"`

	spec model.LimitSpec
}

type limitCounts struct {
	Packets uint64 `json:"packets"` // sessions, with that unit
	Bytes   uint64 `json:"bytes"`
}

type limitClientView struct {
	Within     []string         `json:"within"` // empty: all
	Prefix4    uint8            `json:"prefix4"`
	Prefix6    uint8            `json:"prefix6"`
	MaxClients uint32           `json:"max_clients"`
	Most       uint32           `json:"most"` // deprecated: max_clients
	Now        uint32           `json:"now"`
	Unlimited  limitCounts      `json:"unlimited"` // of clients without a free bucket; they passed
	Worst      []limitWorstView `json:"worst"`     // as many as were requested
}

type limitWorstView struct {
	Network string      `json:"network"`
	Passed  limitCounts `json:"passed"`
	Above   limitCounts `json:"above"`
	Share   float64     `json:"above_percent"`
}

var limitUnits = map[model.LimitUnit]string{model.LimitBits: "bits", model.LimitPackets: "packets", model.LimitSessions: "sessions"}

func viewCounts(c *dpclient.LimitCounts) limitCounts {
	return limitCounts{c.GetPackets(), c.GetBytes()}
}

// of returns the count that a unit limits.
func (c limitCounts) of(unit model.LimitUnit) uint64 {
	if unit == model.LimitBits {
		return c.Bytes
	}
	return c.Packets
}

// text writes a count in few digits.
func (c limitCounts) text(unit model.LimitUnit) string {
	text := scaled(float64(c.of(unit)))
	if unit != model.LimitBits {
		return text
	}
	digits := strings.TrimRight(text, "kMGT")
	return digits + " " + text[len(digits):] + "B"
}

// named is text that says what is counted.
func (c limitCounts) named(unit model.LimitUnit) string {
	if unit == model.LimitBits {
		return c.text(unit)
	}
	return c.text(unit) + " " + limitUnits[unit]
}

// all writes a count with all digits.
func (c limitCounts) all(unit model.LimitUnit) string {
	if unit == model.LimitSessions {
		return plural(int(c.Packets), "session")
	}
	return fmt.Sprintf("%s, %s", plural(int(c.Packets), "packet"), plural(int(c.Bytes), "byte"))
}

// percentAbove returns how much of what came was above the limit.
func percentAbove(passed, above limitCounts, unit model.LimitUnit) float64 {
	all := float64(passed.of(unit)) + float64(above.of(unit))
	if all == 0 {
		return 0
	}
	return 100 * float64(above.of(unit)) / all
}

// aboveCell is the count above a limit, with its share.
func aboveCell(above limitCounts, share float64, unit model.LimitUnit) cell {
	if above == (limitCounts{}) {
		return cell{text: "0"}
	}
	return cell{fmt.Sprintf("%s (%.1f%%)", above.text(unit), share), yellow}
}

func viewLimit(info *pb.LimitInfo) (limitView, error) {
	stats := info.GetStats()
	limit, err := dpclient.LimitFromWire(stats.GetLimit())
	if err != nil {
		return limitView{}, err
	}
	spec := limit.Spec
	view := limitView{
		Name: limit.Name, Tenant: limit.Tenant, Of: info.GetOf(), Targets: append([]string{}, info.GetTargets()...),
		Unit: limitUnits[spec.Unit], PerSecond: spec.PerSecond, Burst: spec.Burst, Action: "drop",
		Wanted: spec.Engine.String(), Engine: stats.GetEngine(), Why: stats.GetWhy(),
		Passed: viewCounts(stats.GetPassed()), Above: viewCounts(stats.GetAbove()), spec: spec,
	}
	view.Share = percentAbove(view.Passed, view.Above, spec.Unit)
	if spec.Layer != 0 {
		view.Count = spec.Layer.String()
	}
	if spec.Direction != 0 {
		view.Direction = spec.Direction.String()
	}
	if spec.Action == model.LimitMark {
		view.Action, view.DSCP = "mark", (*uint8)(&spec.Mark)
	}
	if !spec.ByClient {
		left := stats.GetLeft()
		view.Left = &left
		return view, nil
	}
	view.Clients = &limitClientView{
		Within: append([]string{}, texts(limit.Within)...), Prefix4: spec.Prefix4, Prefix6: spec.Prefix6, MaxClients: spec.MaxClients, Most: spec.MaxClients,
		Now: stats.GetClients(), Unlimited: viewCounts(stats.GetUnlimited()), Worst: []limitWorstView{},
	}
	for _, client := range stats.GetWorst() {
		network, err := dpclient.LimitClientFromWire(client)
		if err != nil {
			return view, err
		}
		passed, above := viewCounts(client.GetPassed()), viewCounts(client.GetAbove())
		view.Clients.Worst = append(view.Clients.Worst, limitWorstView{network.String(), passed, above,
			percentAbove(passed, above, spec.Unit)})
	}
	return view, nil
}

func (a *app) listLimits(ctx context.Context, name string, worst uint32) ([]limitView, uint64, error) {
	response, err := call(ctx, a, a.client().ListLimits, &pb.ListLimitsRequest{Name: name, Worst: worst})
	if err != nil {
		return nil, 0, err
	}
	views := []limitView{}
	for _, info := range response.GetLimits() {
		view, err := viewLimit(info)
		if err != nil {
			return nil, 0, err
		}
		views = append(views, view)
	}
	return views, response.GetSampledNs(), nil
}

func (a *app) getLimits(ctx context.Context, worst bool) error {
	asked := uint32(0)
	if worst {
		asked = 1
	}
	views, _, err := a.listLimits(ctx, "", asked)
	if err != nil {
		return err
	}
	return a.show(views, func() {
		t := &table{columns: []column{left("NAME"), left("OF"), right("RATE"), right("BURST"), right("PASSED"), right("ABOVE"), left("ENGINE")}}
		if worst {
			t.columns = append(t.columns, left("WORST CLIENT"), right("ITS ABOVE"))
		}
		for _, v := range views {
			of := v.Of
			if v.Clients != nil {
				of += ", by client"
			}
			row := []any{v.Name, of, v.spec.Rate(), v.spec.Amount(v.Burst), v.Passed.named(v.spec.Unit),
				aboveCell(v.Above, v.Share, v.spec.Unit), v.Engine}
			if worst {
				row = append(row, v.worstCells()...)
			}
			t.add(row...)
		}
		a.print(t)
	})
}

// worstCells are the cells of the client with the most packets above the limit.
func (v limitView) worstCells() []any {
	if v.Clients == nil || len(v.Clients.Worst) == 0 {
		return []any{"", ""}
	}
	worst := v.Clients.Worst[0]
	return []any{worst.Network, aboveCell(worst.Above, worst.Share, v.spec.Unit)}
}

func (a *app) describeLimitCommand() *cobra.Command {
	worst := uint32(10)
	command := &cobra.Command{
		Use: "limit NAME", Short: "Show everything about a limit, and the clients with the most packets above it", Args: args(1, 1),
		RunE: func(c *cobra.Command, args []string) error { return a.describeLimit(c.Context(), args[0], worst) },
	}
	command.Flags().Uint32Var(&worst, "worst", worst, "maximum number of clients, up to 100")
	a.outputFlag(command)
	return command
}

func (a *app) describeLimit(ctx context.Context, name string, worst uint32) error {
	views, _, err := a.listLimits(ctx, name, worst)
	if err != nil {
		return err
	}
	v, unit := views[0], views[0].spec.Unit
	return a.show(v, func() {
		a.pair("Name", v.Name)
		a.pair("Of", v.ofText())
		rate := v.spec.Rate()
		if v.Count != "" {
			rate += ", counted at " + v.Count
		}
		if v.Direction != "" {
			rate += ", " + v.directionText()
		}
		a.pair("Rate", rate)
		burst := v.spec.Amount(v.Burst)
		if v.Left != nil {
			burst += fmt.Sprintf("; %s left now", v.spec.Amount(*v.Left))
		}
		a.pair("Burst", burst)
		a.pair("Action", v.spec.ActionText())
		a.pair("Engine", fmt.Sprintf("%s (%s asked for): %s", v.Engine, v.Wanted, v.Why))
		a.pair("Passed", v.Passed.all(unit))
		a.pair("Above", a.paint(cell{fmt.Sprintf("%s (%.2f%%)", v.Above.all(unit), v.Share), aboveCell(v.Above, 0, unit).paint}))
		if v.Clients != nil {
			a.describeLimitClients(v)
		}
	})
}

func (v limitView) directionText() string {
	if v.spec.Direction == model.LimitBoth {
		return "both directions together"
	}
	return v.Direction
}

// ofText describes the target of the limit.
func (v limitView) ofText() string {
	if v.Tenant == "" {
		return v.Of
	}
	return v.Of + ": " + strings.Join(v.Targets, ", ")
}

func (a *app) describeLimitClients(v limitView) {
	c, unit := v.Clients, v.spec.Unit
	clients := fmt.Sprintf("each IPv4 network of /%d and IPv6 network of /%d has a bucket", c.Prefix4, c.Prefix6)
	if len(c.Within) > 0 {
		clients += ", within " + strings.Join(c.Within, " ")
	}
	a.pair("Clients", fmt.Sprintf("%s\n%d of at most %d buckets are in use; one that is full again is reused for another client", clients, c.Now, c.MaxClients))
	if c.Unlimited != (limitCounts{}) {
		a.pair("Unlimited", a.paint(cell{c.Unlimited.all(unit) + ": they found no free bucket, and passed; raise `max_clients`", yellow}))
	}
	if len(c.Worst) == 0 {
		return
	}
	fmt.Fprintln(a.out)
	t := &table{columns: []column{left("CLIENT"), right("PASSED"), right("ABOVE")}}
	for _, worst := range c.Worst {
		t.add(worst.Network, worst.Passed.text(unit), aboveCell(worst.Above, worst.Share, unit))
	}
	a.print(t)
}

// limitRateView is what came to a limit between two samples, per second.
type limitRateView struct {
	Limit         string  `json:"limit"`
	Rate          string  `json:"rate"`
	PassedPerS    float64 `json:"passed_packets_per_s"` // sessions, with that unit
	AbovePerS     float64 `json:"above_packets_per_s"`
	PassedBitsPer float64 `json:"passed_bits_per_s"`
	AboveBitsPer  float64 `json:"above_bits_per_s"`

	unit model.LimitUnit
}

// limitRates compares two samples. A counter that fell was reset by a restart and counts from zero.
func limitRates(before, after []limitView, seconds float64) []limitRateView {
	old := make(map[string]*limitView, len(before))
	for i := range before {
		old[before[i].Name] = &before[i]
	}
	views := []limitRateView{}
	for i := range after {
		to := &after[i]
		from := old[to.Name]
		if from == nil {
			continue // the limit is new in this interval
		}
		perSecond := func(from, to uint64) float64 {
			if to < from {
				from = 0
			}
			return float64(to-from) / seconds
		}
		views = append(views, limitRateView{
			Limit: to.Name, Rate: to.spec.Rate(), unit: to.spec.Unit,
			PassedPerS: perSecond(from.Passed.Packets, to.Passed.Packets), AbovePerS: perSecond(from.Above.Packets, to.Above.Packets),
			PassedBitsPer: 8 * perSecond(from.Passed.Bytes, to.Passed.Bytes), AboveBitsPer: 8 * perSecond(from.Above.Bytes, to.Above.Bytes),
		})
	}
	return views
}

func (a *app) showLimitRates(views []limitRateView) error {
	return a.show(views, func() {
		t := &table{columns: []column{left("LIMIT"), right("RATE"), right("PASSED PACKETS/s"), right("ABOVE PACKETS/s"),
			right("PASSED BITS/s"), right("ABOVE BITS/s"), right("PASSED SESSIONS/s"), right("ABOVE SESSIONS/s")}}
		for _, v := range views {
			if v.unit == model.LimitSessions {
				t.add(v.Limit, v.Rate, "", "", "", "", scaled(v.PassedPerS), scaled(v.AbovePerS))
			} else {
				t.add(v.Limit, v.Rate, scaled(v.PassedPerS), scaled(v.AbovePerS), scaled(v.PassedBitsPer), scaled(v.AboveBitsPer), "", "")
			}
		}
		a.print(t)
	})
}
