// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// rateView is the traffic of a service between two samples, per second.
type rateView struct {
	Service        string  `json:"service"`
	PacketsInPerS  float64 `json:"packets_in_per_s"`
	PacketsOutPerS float64 `json:"packets_out_per_s"`
	BitsInPerS     float64 `json:"bits_in_per_s"`
	BitsOutPerS    float64 `json:"bits_out_per_s"`
	SessionsPerS   float64 `json:"sessions_per_s"`
	SessionsActive uint64  `json:"sessions_active"`
}

func (a *app) statsCommand() *cobra.Command {
	var watch time.Duration
	limits, shaping := false, false
	command := &cobra.Command{
		Use: "stats", Short: "Show rates by service, by limit or by queue of shaped ports: packets, bits and new sessions per second", Args: args(0, 0),
		Long: "Measures for one second and prints the rates once. With -w: measures and prints every interval, until interrupted.",
	}
	command.Flags().VarP((*intervalValue)(&watch), "watch", "w", "print rates every `interval`, such as 2s")
	command.Flags().BoolVar(&limits, "limits", false, "rates by limit: passed traffic, and traffic above")
	command.Flags().BoolVar(&shaping, "shaping", false, "rates by queue of shaped ports: sent and dropped packets")
	command.MarkFlagsMutuallyExclusive("limits", "shaping")
	a.outputFlag(command)
	command.RunE = func(c *cobra.Command, _ []string) error {
		if c.Flags().Changed("watch") && watch < 100*time.Millisecond {
			return fmt.Errorf("-w %s is too short: use 100ms or more", watch)
		}
		if limits {
			return sampleRates(c.Context(), watch, func(ctx context.Context) ([]limitView, uint64, error) { return a.listLimits(ctx, "", 0) },
				limitRates, a.showLimitRates)
		}
		if shaping {
			return sampleRates(c.Context(), watch, a.listShaping, shapingRates, a.showShapingRates)
		}
		return sampleRates(c.Context(), watch, a.sample, rates, a.showRates)
	}
	return command
}

// intervalValue is a duration whose errors show the correct format.
type intervalValue time.Duration

func (v *intervalValue) String() string { return time.Duration(*v).String() }
func (v *intervalValue) Type() string   { return "interval" }
func (v *intervalValue) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("not an interval: write 1s or 500ms, with the unit")
	}
	*v = intervalValue(d)
	return nil
}

// sampleRates takes samples, compares each with the previous one, and shows the rates; once if watch is 0.
func sampleRates[V, R any](ctx context.Context, watch time.Duration, sample func(context.Context) ([]V, uint64, error),
	compare func(before, after []V, seconds float64) []R, show func([]R) error) error {
	interval := watch
	if watch == 0 {
		interval = time.Second
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	before, beforeNs, err := sample(ctx)
	if err != nil {
		return err
	}
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		after, afterNs, err := sample(ctx)
		if err != nil {
			return err
		}
		if err := show(compare(before, after, float64(afterNs-beforeNs)/1e9)); err != nil || watch == 0 {
			return err
		}
		before, beforeNs = after, afterNs
	}
}

func (a *app) sample(ctx context.Context) ([]serviceView, uint64, error) {
	views, response, err := a.listServices(ctx, "")
	if err != nil {
		return nil, 0, err
	}
	a.warn(response.GetWarnings())
	return views, response.GetSampledNs(), nil
}

// rates compares two samples. A counter that fell was reset by a restart and counts from zero.
func rates(before, after []serviceView, seconds float64) []rateView {
	old := map[string]*trafficView{}
	for _, s := range before {
		old[s.Name] = s.Traffic
	}
	views := []rateView{}
	total := rateView{Service: "total"}
	for _, s := range after {
		from, to := old[s.Name], s.Traffic
		if from == nil || to == nil {
			continue // the service is new in this interval
		}
		perSecond := func(from, to uint64) float64 {
			if to < from {
				from = 0
			}
			return float64(to-from) / seconds
		}
		view := rateView{
			Service:        s.Name,
			PacketsInPerS:  perSecond(from.PacketsIn, to.PacketsIn),
			PacketsOutPerS: perSecond(from.PacketsOut, to.PacketsOut),
			BitsInPerS:     8 * perSecond(from.BytesIn, to.BytesIn),
			BitsOutPerS:    8 * perSecond(from.BytesOut, to.BytesOut),
			SessionsPerS:   perSecond(from.SessionsCreated, to.SessionsCreated),
			SessionsActive: to.SessionsActive,
		}
		total.PacketsInPerS += view.PacketsInPerS
		total.PacketsOutPerS += view.PacketsOutPerS
		total.BitsInPerS += view.BitsInPerS
		total.BitsOutPerS += view.BitsOutPerS
		total.SessionsPerS += view.SessionsPerS
		total.SessionsActive += view.SessionsActive
		views = append(views, view)
	}
	return append(views, total)
}

func (a *app) showRates(views []rateView) error {
	return a.show(views, func() {
		t := &table{columns: []column{left("SERVICE"), right("PACKETS IN/s"), right("PACKETS OUT/s"), right("BITS IN/s"),
			right("BITS OUT/s"), right("SESSIONS/s"), right("SESSIONS")}}
		for _, v := range views {
			t.add(v.Service, scaled(v.PacketsInPerS), scaled(v.PacketsOutPerS), scaled(v.BitsInPerS),
				scaled(v.BitsOutPerS), scaled(v.SessionsPerS), v.SessionsActive)
		}
		a.print(t)
	})
}

// scaled formats a number with three or four digits and its prefix: 1.53k, 22.1M.
func scaled(v float64) string {
	prefixes := []string{"", "k", "M", "G", "T"}
	i := 0
	for ; v >= 1000 && i+1 < len(prefixes); i++ {
		v /= 1000
	}
	switch {
	case i == 0:
		return fmt.Sprintf("%.0f", v)
	case v < 10:
		return fmt.Sprintf("%.2f%s", v, prefixes[i])
	case v < 100:
		return fmt.Sprintf("%.1f%s", v, prefixes[i])
	}
	return fmt.Sprintf("%.0f%s", v, prefixes[i])
}
