// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "steelyard/internal/gen/stackpb"
	"steelyard/internal/stacks"

	"github.com/spf13/cobra"
)

// stackPatience bounds the wait for a program's list: its stacks answer within two seconds, and other requests may be served first.
const stackPatience = 10 * time.Second

const noStack = "no program uses the user-space stack here: start one by `steelyard run`"

// stackOptions select the programs that a command queries.
type stackOptions struct {
	stack     string
	directory string
}

// stackView is a program with the stack as `-o json` prints it.
type stackView struct {
	Name       string            `json:"name"`
	Program    string            `json:"program"`
	Pid        uint32            `json:"pid"`
	Interfaces string            `json:"interfaces"` // separated by commas
	Stacks     uint32            `json:"stacks"`
	Silent     []uint32          `json:"silent,omitempty"` // processes of stacks whose counts are missing
	Notes      []string          `json:"notes,omitempty"`  // the program's own remarks
	Dropped    [8]uint64         `json:"dropped"`          // packets by level, because the stack's backlog was full
	Missed     uint64            `json:"missed"`           // packets that arrived while the receive ring was full
	Unsent     uint64            `json:"unsent"`           // packets: the transmit queue was full, or the link refused them
	NoWay      uint64            `json:"unreachable"`      // packets without a route, or to a neighbour that did not answer
	Counts     map[string]uint64 `json:"counts"`           // sums over its stacks
	Each       []oneStackView    `json:"each"`
	Hooks      []hookView        `json:"hooks"`

	numbers []*pb.Number
}

// oneStackView is one stack of a program: a process of `steelyard run`, a context of the library.
type oneStackView struct {
	Number uint32            `json:"number"` // unique among the program's current stacks
	Pid    uint32            `json:"pid"`
	Counts map[string]uint64 `json:"counts"`
}

// stackName names a stack by its process, and by its number if the process has several.
func stackName(pid, number uint32, several bool) string {
	if several {
		return fmt.Sprintf("%d#%d", pid, number)
	}
	return fmt.Sprint(pid)
}

// severalStacks returns the processes with more than one stack.
func severalStacks(each []oneStackView) map[uint32]bool {
	numbers := map[uint32]uint32{}
	several := map[uint32]bool{}
	for _, one := range each {
		if other, found := numbers[one.Pid]; found && other != one.Number {
			several[one.Pid] = true
		}
		numbers[one.Pid] = one.Number
	}
	return several
}

func (o *stackOptions) addTo(command *cobra.Command) {
	flags := command.PersistentFlags()
	flags.StringVar(&o.stack, "stack", "", "`name` of the program's stack, or the path of its socket; optional if there is only one")
	flags.StringVar(&o.directory, "stacks", stacks.Directory, "`directory` of the stacks' sockets")
	_ = flags.MarkHidden("stacks")
}

func (a *app) stackCommand() *cobra.Command {
	o := &stackOptions{}
	command := group("stack", "Show programs on the user-space stack, their counters and connections")
	command.Long = "These are programs under `steelyard run`, or with libsteelyard-tcp. The kernel's tools (ss, nstat, nft) do not show their connections.\n\n" +
		"Root, and the user of a program that is linked with the library, can query it on a socket in /run/steelyard/stack. Counts include live processes only."
	o.addTo(command)
	command.AddCommand(a.stackListCommand(o), a.stackCountersCommand(o), a.stackConnectionsCommand(o), a.stackMetricsCommand(o))
	return command
}

func (a *app) stackListCommand(o *stackOptions) *cobra.Command {
	command := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List programs: connections, traffic and lost packets", Args: args(0, 0),
		Long: "Covers all programs on this host; with --stack, one. STACKS are its processes with a stack, or contexts of the library. ACCEPTED and OPENED are " +
			"connections since the start, opened by peers and by the program. BYTES count frames; a large segment has its headers once. DROPPED counts packets " +
			"that were not processed or not sent: invalid ones, and those without buffers or a route. Warnings describe them, and " +
			"`steelyard stack counters` has all.",
	}
	a.outputFlag(command)
	command.RunE = func(c *cobra.Command, _ []string) error {
		views, err := a.listStacks(c.Context(), o)
		if err != nil {
			return err
		}
		var orphans []string
		if o.stack == "" && a.output == "table" {
			orphans = orphanTexts(stacks.Orphans("/proc"))
		}
		return a.showStacks(views, stackTable, orphans)
	}
	return command
}

// showStacks prints programs, and warns of lost packets and of other problems.
func (a *app) showStacks(views []stackView, tableOf func([]stackView) *table, more []string) error {
	return a.show(views, func() {
		if len(views) == 0 {
			fmt.Fprintln(a.err, noStack)
		} else {
			a.print(tableOf(views))
		}
		a.warn(append(lostTexts(views), more...))
	})
}

// listStacks queries all programs, or that of --stack.
func (a *app) listStacks(ctx context.Context, o *stackOptions) ([]stackView, error) {
	found := []stacks.Stack{stacks.Named(o.directory, o.stack)}
	if o.stack == "" {
		var err error
		if found, err = stacks.Find(o.directory); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, min(a.timeout, stackPatience))
	defer cancel()
	views, failed := []stackView{}, []error{}
	for i, answer := range stacks.AskAll(ctx, found, &pb.Request{Body: &pb.Request_List{List: &pb.List{}}}) {
		if answer.Err != nil {
			failed = append(failed, answer.Err)
			continue
		}
		views = append(views, viewOfStack(found[i].Name, answer.Response.GetListing()))
	}
	if len(views) == 0 && len(failed) > 0 {
		return nil, errors.Join(failed...)
	}
	for _, err := range failed { // the other programs are shown
		a.warn([]string{err.Error()})
	}
	return views, nil
}

func viewOfStack(name string, from *pb.Listing) stackView {
	view := stackView{Name: name, Program: from.GetProgram(), Pid: from.GetPid(), Interfaces: from.GetInterfaces(), Stacks: from.GetStacks(),
		Silent: from.GetSilent(), Notes: from.GetNotes(), Counts: map[string]uint64{}, Each: []oneStackView{}, Hooks: viewsOfHooks(from.GetHooks()), numbers: from.GetNumbers()}
	for _, number := range view.numbers {
		view.Counts[number.GetName()] = 0
	}
	for _, one := range from.GetEach() {
		each := oneStackView{Number: one.GetNumber(), Pid: one.GetPid(), Counts: map[string]uint64{}}
		for i, number := range one.GetCounts() {
			if i < len(view.numbers) {
				each.Counts[view.numbers[i].GetName()] = number
				view.Counts[view.numbers[i].GetName()] += number
			}
		}
		for level, packets := range one.GetDropped() {
			if level < len(view.Dropped) {
				view.Dropped[level] += packets
			}
		}
		view.Missed += one.GetMissed()
		view.Unsent += one.GetUnsent()
		view.NoWay += one.GetUnreachable()
		view.Each = append(view.Each, each)
	}
	return view
}

func stackTable(views []stackView) *table {
	t := &table{columns: []column{left("STACK"), right("PID"), left("INTERFACE"), right("STACKS"), right("LISTENERS"), right("CONNECTIONS"), right("ACCEPTED"),
		right("OPENED"), right("PACKETS IN"), right("BYTES IN"), right("PACKETS OUT"), right("BYTES OUT"), right("RETRANSMITTED"), right("DROPPED")}}
	for _, view := range views {
		c := view.Counts
		t.add(view.Name, view.Pid, view.Interfaces, view.Stacks, c["listeners"], c["connections"], c["accepted"], c["opened"], c["packets_in"],
			c["bytes_in"], c["packets_out"], c["bytes_out"], c["retransmitted"], view.dropped())
	}
	return t
}

// droppedCounts are counters (sy_stack.h) of packets that were not processed, each packet once. Segments that TCP rejects as old, or as outside of the
// window, are not included.
var droppedCounts = []string{"malformed", "bad_checksums", "refused_backlog", "refused_memory", "out_of_order_dropped"}

// dropped returns the number of packets that were not processed or not sent.
func (view *stackView) dropped() uint64 {
	sum := view.Missed + view.Unsent + view.NoWay
	for _, packets := range view.Dropped {
		sum += packets
	}
	for _, name := range droppedCounts {
		sum += view.Counts[name]
	}
	return sum
}

// lostTexts describes packets lost by stacks; received ones by level, as in levelsText.
func lostTexts(views []stackView) []string {
	var texts []string
	for _, view := range views {
		if dropped := levelsText(view.Dropped); dropped != "" {
			texts = append(texts, fmt.Sprintf("%s: it dropped packets, because its backlog was full (level:packets): %s", view.Name, dropped))
		}
		if view.Missed > 0 {
			texts = append(texts, fmt.Sprintf("%s: it missed %d packets, which arrived while a receive ring was full: a larger ring bridges longer pauses in which "+
				"the program is busy (steelyard run --ring)", view.Name, view.Missed))
		}
		if view.Unsent > 0 {
			texts = append(texts, fmt.Sprintf("%s: it could not send %d packets: the transmit queue was full, or the link refused them", view.Name, view.Unsent))
		}
		if view.NoWay > 0 {
			texts = append(texts, fmt.Sprintf("%s: it had no route for %d packets, or the neighbour did not answer", view.Name, view.NoWay))
		}
		unfinished := view.Counts["unfinished_dropped"]
		if unfinished > 0 {
			texts = append(texts, fmt.Sprintf("%s: it dropped %d packets with a partial checksum, left to offload by their sender: ethtool -K DEV tx off, "+
				"at the sender's interface", view.Name, unfinished))
		}
		if wrong := view.Counts["bad_checksums"]; wrong > unfinished {
			texts = append(texts, fmt.Sprintf("%s: it dropped %d packets with a wrong checksum: they were damaged on the path", view.Name, wrong-unfinished))
		}
		if left := view.Counts["refused_backlog"]; left > 0 {
			texts = append(texts, fmt.Sprintf("%s: it ignored %d SYNs and ACKs, because its accept queue was full: a larger backlog (listen()), "+
				"or more workers", view.Name, left))
		}
		if view.Stacks == 0 {
			texts = append(texts, fmt.Sprintf("%s: no process of it has a stack: it does not listen or connect yet, or its stack did not start: see the program's output", view.Name))
		}
		for _, note := range view.Notes {
			texts = append(texts, view.Name+": "+note)
		}
		if len(view.Silent) > 0 {
			texts = append(texts, fmt.Sprintf("%s: %s, and is not counted", view.Name, silentText(view.Silent)))
		}
	}
	return texts
}

// silentText names processes that are stopped, or do not poll for long.
func silentText(pids []uint32) string {
	return fmt.Sprintf("%s did not answer in time (process %s)", plural(len(pids), "stack"), strings.ReplaceAll(strings.Trim(fmt.Sprint(pids), "[]"), " ", ", "))
}

// orphanTexts names programs whose `steelyard run` has died.
func orphanTexts(pids []int) []string {
	if len(pids) == 0 {
		return nil
	}
	words := strings.Trim(fmt.Sprint(pids), "[]")
	return []string{fmt.Sprintf("the `steelyard run` of these processes was killed: they keep serving, but no command reaches them; remedy: kill %s, and start them again", words)}
}

func (a *app) stackCountersCommand(o *stackOptions) *cobra.Command {
	all := false
	command := &cobra.Command{
		Use: "counters", Aliases: []string{"counter"}, Short: "Show all counters of a program, by stack", Args: args(0, 0),
		Long: "One column for each stack, named by its process, and by a number where a process has several; they differ if workers get different shares of the connections. " +
			"The first numbers are current values, the others are sums since the stack's start. Numbers that are 0 everywhere are omitted.",
	}
	command.Flags().BoolVar(&all, "all", false, "also show numbers that are 0")
	a.outputFlag(command)
	command.RunE = func(c *cobra.Command, _ []string) error {
		one, err := o.one()
		if err != nil {
			return err
		}
		views, err := a.listStacks(c.Context(), &stackOptions{stack: one.Socket, directory: o.directory})
		if err != nil {
			return err
		}
		return a.show(views[0], func() {
			a.print(countersTable(views[0], all))
			a.warn(lostTexts(views))
		})
	}
	return command
}

func countersTable(view stackView, all bool) *table {
	t := &table{columns: []column{left("COUNTER")}}
	several := severalStacks(view.Each)
	for _, one := range view.Each {
		t.columns = append(t.columns, right(stackName(one.Pid, one.Number, several[one.Pid])))
	}
	t.columns = append(t.columns, left("MEANING"))
	for _, number := range view.numbers {
		if view.Counts[number.GetName()] == 0 && !all {
			continue
		}
		row := []any{number.GetName()}
		for _, one := range view.Each {
			row = append(row, one.Counts[number.GetName()])
		}
		t.add(append(row, number.GetHelp())...)
	}
	return t
}

// one returns the selected stack.
func (o *stackOptions) one() (stacks.Stack, error) {
	if o.stack != "" {
		return stacks.Named(o.directory, o.stack), nil
	}
	found, err := stacks.Find(o.directory)
	if err != nil {
		return stacks.Stack{}, err
	}
	switch len(found) {
	case 0:
		return stacks.Stack{}, errors.New(strings.Join(append([]string{noStack}, orphanTexts(stacks.Orphans("/proc"))...), "; "))
	case 1:
		return found[0], nil
	}
	var names []string
	for _, one := range found {
		names = append(names, one.Name)
	}
	return stacks.Stack{}, fmt.Errorf("%d stacks run here: name one with --stack: %s", len(found), strings.Join(names, ", "))
}
