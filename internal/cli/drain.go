// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "steelyard/internal/gen/agentpb"

	"github.com/spf13/cobra"
)

const serverArgument = "SERVER is an address, or an address with a port. Without @SERVICE the command applies to all services with this server. "

func (a *app) drainCommand() *cobra.Command {
	var undo, wait bool
	var deadline time.Duration
	command := &cobra.Command{
		Use: "drain SERVER[@SERVICE]", Short: "Stop new sessions to a server; existing ones continue", Args: args(1, 1),
		Long: serverArgument +
			"A drain survives restarts of the agent and the forwarder, until --undo or until the server is removed from the file; through a controller, " +
			"it also survives the replacement of the host, and moves with a requested service. " +
			"With --deadline, remaining sessions end after this time with resets to both ends, as with `steelyard kill`. Repeating --deadline " +
			"restarts the time.",
		Example: "  steelyard drain 10.1.0.21@web --wait\n  steelyard drain 10.1.0.21 --deadline 10m\n  steelyard drain [fd00::21]:8080 --undo",
	}
	command.AddCommand(a.drainNodeCommand())
	flags := command.Flags()
	flags.BoolVar(&undo, "undo", false, "end a drain or a kill")
	flags.BoolVar(&wait, "wait", false, "wait until the last session has ended, and report the number of remaining ones every 10s; --timeout does not apply")
	flags.DurationVar(&deadline, "deadline", 0, "reset the remaining sessions after this `duration`, such as 10m")
	command.MarkFlagsMutuallyExclusive("undo", "wait")
	command.MarkFlagsMutuallyExclusive("undo", "deadline")
	command.RunE = func(c *cobra.Command, args []string) error {
		if flags.Changed("deadline") && deadline < time.Second {
			return errors.New("--deadline is too short: use 1s or more, or end sessions at once by `steelyard kill`")
		}
		request := &pb.SetDrainRequest{Drain: !undo, DeadlineMs: uint64(deadline.Milliseconds())}
		verb, already := "draining", "already drained"
		switch {
		case undo:
			verb, already = "no longer drained", "was not drained"
		case deadline != 0:
			verb = "draining, sessions end in " + brief(deadline)
		}
		return a.setDrain(c.Context(), args[0], request, verb, already, wait)
	}
	return command
}

func (a *app) killCommand() *cobra.Command {
	var undo bool
	command := &cobra.Command{
		Use: "kill SERVER[@SERVICE]", Short: "End a server's sessions now, and stop new ones", Args: args(1, 1),
		Long: serverArgument +
			"Both ends of its TCP sessions, including idle ones, get a reset. " +
			"A kill survives restarts of the agent and the forwarder, until --undo or until the server is removed from the file.",
		Example: "  steelyard kill 10.1.0.21@web\n  steelyard kill 10.1.0.21 --undo",
	}
	command.Flags().BoolVar(&undo, "undo", false, "allow new sessions again; also ends a drain")
	command.RunE = func(c *cobra.Command, args []string) error {
		if undo {
			return a.setDrain(c.Context(), args[0], &pb.SetDrainRequest{}, "no longer killed", "was not killed", false)
		}
		return a.setDrain(c.Context(), args[0], &pb.SetDrainRequest{Drain: true, Kill: true}, "killed", "already killed", false)
	}
	return command
}

// setDrain sends the request and prints the outcome for each server.
func (a *app) setDrain(ctx context.Context, argument string, request *pb.SetDrainRequest, verb, already string, wait bool) error {
	request.Server, request.Service, _ = strings.Cut(argument, "@")
	response, err := call(ctx, a, a.client().SetDrain, request)
	if err != nil {
		return err
	}
	a.warn(response.GetWarnings())
	for _, name := range response.GetServers() {
		text := verb
		if slices.Contains(response.GetUnchanged(), name) {
			text = already
		}
		fmt.Fprintf(a.out, "%s: %s\n", name, text)
	}
	if wait {
		err = a.awaitDrained(ctx, request.GetService(), response.GetServers())
		if ctx.Err() != nil && err != nil {
			return &interruptMessage{fmt.Sprintf("interrupted; the drain continues without this command: `steelyard get servers` shows the remaining sessions, "+
				"`steelyard drain %s --undo` ends the drain", argument)}
		}
		return err
	}
	return nil
}

// brief formats a duration: 90s as 1m30s, 10m0s as 10m.
func brief(d time.Duration) string {
	text := d.Round(time.Second).String()
	if text, ok := strings.CutSuffix(text, "m0s"); ok {
		text += "m"
		if hours, ok := strings.CutSuffix(text, "h0m"); ok {
			return hours + "h"
		}
		return text
	}
	return text
}

// isDrained reports whether a server is drained, even if it is also down.
func (s serverView) isDrained() bool {
	return s.State == "drain" || s.State == "down" && (s.DrainedByFile || s.DrainedByCommand)
}

// stateText returns a server's state, and the remaining time of its drain.
func (s serverView) stateText() cell {
	c := paintState(s.State)
	if s.State == "down" && s.isDrained() {
		c.text += ", drained"
	}
	if s.isDrained() && s.KilledMs != 0 {
		c.text += ", " + brief(max(0, time.Until(time.UnixMilli(int64(s.KilledMs))))) + " left"
	}
	return c
}

// Intervals of a wait: of its queries, and of its reports.
const (
	drainPoll   = 500 * time.Millisecond
	drainReport = 10 * time.Second
)

// awaitDrained waits until the servers have no sessions. It fails if a server disappears, or gets new sessions again.
func (a *app) awaitDrained(ctx context.Context, service string, names []string) error {
	ticker := time.NewTicker(drainPoll)
	defer ticker.Stop()
	pending := map[string]bool{}
	reported := time.Now()
	for _, name := range names {
		pending[name] = true
	}
	for {
		views, _, err := a.listServices(ctx, service)
		if err != nil {
			return err
		}
		known := map[string]bool{}
		for _, view := range views {
			for _, server := range view.Servers {
				name := endpoint(server.Address, server.Port) + "@" + server.Service
				known[name] = true
				if pending[name] && !server.DrainedByFile && !server.DrainedByCommand && !server.KilledByCommand {
					return fmt.Errorf("%s is no longer drained: another command or the file ended its drain", name)
				}
				if pending[name] && (server.isDrained() || server.State == "kill") && server.Traffic != nil && server.Traffic.SessionsActive == 0 {
					delete(pending, name)
					fmt.Fprintf(a.out, "%s: drained\n", name)
				}
			}
		}
		for name := range pending {
			if !known[name] {
				return fmt.Errorf("%s is no longer in the configuration", name)
			}
		}
		if len(pending) == 0 {
			return nil
		}
		if time.Since(reported) >= drainReport {
			reported = time.Now()
			a.reportPending(views, pending)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reportPending prints the pending servers to standard error.
func (a *app) reportPending(views []serviceView, pending map[string]bool) {
	for _, view := range views {
		for _, server := range view.Servers {
			name := endpoint(server.Address, server.Port) + "@" + server.Service
			switch {
			case !pending[name]:
			case server.Traffic == nil:
				fmt.Fprintf(a.err, "steelyard: waiting for %s: the forwarder does not report its sessions\n", name)
			default:
				fmt.Fprintf(a.err, "steelyard: waiting for %s: %s left\n", name, plural(int(server.Traffic.SessionsActive), "session"))
			}
		}
	}
}
