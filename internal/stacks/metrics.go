// SPDX-License-Identifier: Apache-2.0

package stacks

import (
	"context"
	"strconv"
	"strings"
	"time"

	pb "steelyard/internal/gen/stackpb"

	"github.com/prometheus/client_golang/prometheus"
)

// Collector shows all programs with the stack to Prometheus, in their own names and numbers: of each stack of a
// program there is a series. It implements prometheus.Collector.
type Collector struct {
	Directory string
	Patience  time.Duration // of a scrape
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("steelyard_stack_"+name, help, append([]string{"stack"}, labels...), nil)
}

var (
	descUp     = desc("up", "1 if the program answered this scrape.", "program", "interfaces")
	descStacks = desc("stacks", "Stacks of the program: processes of `steelyard run`, contexts of the library.")
	descSilent = desc("silent", "Stacks whose counts are missing, as they did not answer in time.")
	descNotes  = desc("warnings", "What the program warns of; `steelyard stack list` shows it.")
	descLost   = desc("lost_packets_total", "Packets that came and were missed or dropped, or could not be sent, by reason.", "number", "reason")
	descHooks  = desc("hook_calls_total", "Calls of a hook that gave this level; level `none`: that left it as it was.", "hook", "level")
)

// Describe implements prometheus.Collector. The programs define the counters, so it lists none.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	found, err := Find(c.Directory)
	if err != nil {
		out <- prometheus.NewInvalidMetric(descUp, err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Patience)
	defer cancel()
	for i, answer := range AskAll(ctx, found, &pb.Request{Body: &pb.Request_List{List: &pb.List{}}}) {
		listing := answer.Response.GetListing()
		if listing == nil {
			out <- number(descUp, prometheus.GaugeValue, 0, found[i].Name, "", "")
			continue
		}
		collect(out, found[i].Name, listing)
	}
}

func number(d *prometheus.Desc, kind prometheus.ValueType, value uint64, labels ...string) prometheus.Metric {
	for i, label := range labels {
		labels[i] = strings.ToValidUTF8(label, "?")
	}
	return prometheus.MustNewConstMetric(d, kind, float64(value), labels...)
}

func collect(out chan<- prometheus.Metric, name string, from *pb.Listing) {
	out <- number(descUp, prometheus.GaugeValue, 1, name, from.GetProgram(), from.GetInterfaces())
	out <- number(descStacks, prometheus.GaugeValue, uint64(from.GetStacks()), name)
	out <- number(descSilent, prometheus.GaugeValue, uint64(len(from.GetSilent())), name)
	out <- number(descNotes, prometheus.GaugeValue, uint64(len(from.GetNotes())), name)
	for _, one := range from.GetEach() {
		which := strconv.FormatUint(uint64(one.GetNumber()), 10)
		for i, value := range one.GetCounts() {
			if i < len(from.GetNumbers()) {
				collectNumber(out, name, which, from.GetNumbers()[i], value)
			}
		}
		waited := uint64(0)
		for _, packets := range one.GetDropped() {
			waited += packets
		}
		for _, reason := range []struct {
			name  string
			value uint64
		}{{"missed", one.GetMissed()}, {"unsent", one.GetUnsent()}, {"unreachable", one.GetUnreachable()}, {"dropped", waited}} {
			out <- number(descLost, prometheus.CounterValue, reason.value, name, which, reason.name)
		}
	}
	for _, hook := range from.GetHooks() {
		left := hook.GetCalls()
		for level, calls := range hook.GetLevels() {
			left -= min(left, calls)
			out <- number(descHooks, prometheus.CounterValue, calls, name, hook.GetName(), strconv.Itoa(level))
		}
		out <- number(descHooks, prometheus.CounterValue, left, name, hook.GetName(), "none")
	}
}

// collectNumber collects one of the stack's own numbers, if Prometheus allows its name: any program may answer.
func collectNumber(out chan<- prometheus.Metric, name, which string, of *pb.Number, value uint64) {
	series, kind := of.GetName(), prometheus.GaugeValue
	if strings.Trim(series, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || series == "" {
		return
	}
	if !of.GetNow() {
		series, kind = series+"_total", prometheus.CounterValue
	}
	out <- number(desc(series, strings.ToValidUTF8(of.GetHelp(), "?")+".", "number"), kind, value, name, which)
}
