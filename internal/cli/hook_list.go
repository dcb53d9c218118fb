// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	pb "steelyard/internal/gen/stackpb"

	"github.com/spf13/cobra"
)

type hookView struct {
	Name         string    `json:"name"`
	Number       uint32    `json:"number"`
	Kind         string    `json:"kind"`
	Where        []string  `json:"where"`
	Idle         []string  `json:"idle,omitempty"` // of these: places without a listener
	Native       bool      `json:"native"`         // true: a function of the program
	Compiled     bool      `json:"compiled"`       // to machine code; otherwise interpreted
	Instructions uint32    `json:"instructions"`
	Longest      uint32    `json:"longest"`
	Loads        uint32    `json:"loads"`
	Params       []uint64  `json:"params"`
	Calls        uint64    `json:"calls"`
	Levels       [8]uint64 `json:"levels"`
	Wrong        uint64    `json:"wrong"`
	Timed        uint64    `json:"timed"`
	Cycles       float64   `json:"cycles_per_call"`
	Stacks       uint32    `json:"stacks"`
}

func (a *app) hookListCommand(o *hookOptions) *cobra.Command {
	command := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List hooks, and their results", Args: args(0, 0),
		Long: "Covers all programs on this host; with --stack, one. LEVELS counts how often the hook returned each priority, 0 first, 7 last; all other calls " +
			"kept the priority. WRONG counts invalid results. CYCLES of the TSC are an average over every 64th call. LONGEST is the longest path through the code, in instructions. " +
			"STACKS counts the program's stacks with the hook. Warnings report lost packets, as in steelyard stack list.",
	}
	a.outputFlag(command)
	command.RunE = func(c *cobra.Command, _ []string) error {
		views, err := a.listStacks(c.Context(), &o.stackOptions)
		if err != nil {
			return err
		}
		return a.showStacks(views, hookTable, nil)
	}
	return command
}

func viewsOfHooks(from []*pb.Hook) []hookView {
	views := []hookView{}
	for _, h := range from {
		one := hookView{Name: h.GetName(), Number: h.GetNumber(), Kind: h.GetKind(), Where: []string{}, Native: h.GetNative(), Compiled: h.GetCompiled(),
			Instructions: h.GetInstructions(), Longest: h.GetLongest(), Loads: h.GetLoads(), Params: h.GetParams(), Calls: h.GetCalls(),
			Wrong: h.GetWrong(), Timed: h.GetTimed(), Stacks: h.GetStacks()}
		copy(one.Levels[:], h.GetLevels())
		if h.GetTimed() > 0 {
			one.Cycles = float64(h.GetCycles()) / float64(h.GetTimed())
		}
		for _, place := range h.GetPlaces() {
			one.Where = append(one.Where, placeText(place))
			if place.GetIdle() {
				one.Idle = append(one.Idle, placeText(place))
			}
		}
		views = append(views, one)
	}
	return views
}

func placeText(place *pb.Place) string {
	if place.GetPort() == 0 {
		return "default"
	}
	address, ok := netip.AddrFromSlice(place.GetAddress())
	if !ok {
		return fmt.Sprintf(":%d", place.GetPort())
	}
	return netip.AddrPortFrom(address, uint16(place.GetPort())).String()
}

func hookTable(views []stackView) *table {
	t := &table{columns: []column{left("STACK"), left("HOOK"), left("KIND"), left("WHERE"), right("CALLS"), left("LEVELS"), right("WRONG"),
		right("CYCLES"), right("LONGEST"), left("CODE"), right("STACKS")}}
	for _, view := range views {
		for _, h := range view.Hooks {
			t.add(view.Name, h.Name, h.Kind, whereText(h), h.Calls, levelsText(h.Levels), wrongCell(h.Wrong), cyclesText(h),
				longestText(h), codeText(h), fmt.Sprintf("%d/%d", h.Stacks, view.Stacks))
		}
		if len(view.Hooks) == 0 {
			t.add(view.Name, "(none)", "", "", "", "", "", "", "", "", "")
		}
	}
	return t
}

// whereText names a hook's places, and marks those without a listener.
func whereText(h hookView) string {
	texts := slices.Clone(h.Where)
	for i, place := range texts {
		if slices.Contains(h.Idle, place) {
			texts[i] += " (no listener)"
		}
	}
	return strings.Join(texts, ", ")
}

// levelsText formats the returned levels: 0:512 6:3.
func levelsText(levels [8]uint64) string {
	var parts []string
	for level, calls := range levels {
		if calls > 0 {
			parts = append(parts, fmt.Sprintf("%d:%d", level, calls))
		}
	}
	return strings.Join(parts, " ")
}

func wrongCell(wrong uint64) cell {
	if wrong > 0 {
		return cell{fmt.Sprint(wrong), red}
	}
	return cell{text: "0"}
}

func cyclesText(h hookView) string {
	if h.Timed == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", h.Cycles)
}

func longestText(h hookView) string {
	if h.Native {
		return ""
	}
	return fmt.Sprint(h.Longest)
}

func codeText(h hookView) string {
	switch {
	case h.Native:
		return "native"
	case h.Compiled:
		return "compiled"
	}
	return "interpreted"
}
