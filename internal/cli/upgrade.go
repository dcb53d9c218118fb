// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"steelyard/internal/dpclient"

	"github.com/spf13/cobra"
)

// upgradeTimeout is longer than a forwarder waits for its successor.
const upgradeTimeout = 90 * time.Second

func (a *app) upgradeCommand() *cobra.Command {
	var socket, binary string
	command := &cobra.Command{
		Use: "upgrade [-- OPTION...]", Short: "Replace the running forwarder with another build and keep its sessions",
		Long: "The running forwarder starts the new one, which prepares itself and then takes over sessions and ports. No connection ends, " +
			"and packets wait for some milliseconds. If the new forwarder fails, the old one continues, or starts again with its sessions, " +
			"and the command prints the reason. The command needs no agent. A running agent reconnects to the new forwarder automatically.\n\n" +
			"OPTIONs are all options of the new forwarder. Without -- it has the options of the old one. --instance, --state, " +
			"--socket and --no-huge must stay the same. Without --timeout the command waits for 90 seconds. Interrupting it " +
			"does not stop the upgrade.",
		Example: "  steelyard upgrade\n  steelyard upgrade --binary ./steelyard-forwarder -- --port eth0 --workers 4",
	}
	command.Args = func(c *cobra.Command, given []string) error {
		if outside := c.ArgsLenAtDash(); outside > 0 || (outside < 0 && len(given) > 0) {
			return fmt.Errorf("%q: write options of the new forwarder after --: usage: %s", given[0], c.UseLine())
		}
		return nil
	}
	a.forwarderFlag(command, &socket)
	command.Flags().StringVar(&binary, "binary", "", "`file` of the new forwarder; default: the path from which the running one was started")
	a.outputFlag(command)
	command.RunE = func(c *cobra.Command, options []string) error {
		wanted := dpclient.Upgrade{}
		if binary != "" {
			var err error
			if wanted.Binary, err = filepath.Abs(binary); err != nil {
				return err
			}
		}
		if c.ArgsLenAtDash() == 0 {
			if len(options) == 0 {
				return errors.New("no options after --: write all options of the new forwarder, or leave out -- to keep the old ones")
			}
			wanted.Options = options
		}
		timeout := a.timeout
		if !c.Flags().Changed("timeout") {
			timeout = upgradeTimeout
		}
		return a.upgrade(c.Context(), socket, wanted, timeout)
	}
	return command
}

type upgradeView struct {
	OldBuild string `json:"old_build"`
	OldPID   uint32 `json:"old_pid"`
	Build    string `json:"build"`
	PID      uint32 `json:"pid"`
	Sessions uint64 `json:"sessions"`
	GapNs    uint64 `json:"gap_ns"`
}

func (a *app) upgrade(ctx context.Context, socket string, wanted dpclient.Upgrade, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	forwarder, err := dpclient.Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer forwarder.Close()
	old, err := forwarder.Status(ctx)
	if err != nil {
		return err
	}
	result, err := forwarder.Upgrade(ctx, wanted)
	var refusal *dpclient.Error
	switch {
	case errors.As(err, &refusal):
		return fmt.Errorf("not upgraded: %s", refusal.Text)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %s: see `steelyard get status` and `journalctl -u steelyard-forwarder`", timeout)
	case errors.Is(err, context.Canceled):
		return err
	case err != nil:
		return fmt.Errorf("it is unknown whether the upgrade succeeded: %w: see `steelyard get status`", err)
	}
	view := upgradeView{old.GetBuild(), old.GetPid(), result.GetBuild(), result.GetPid(), result.GetSessions(), result.GetGapNs()}
	return a.show(view, func() {
		fmt.Fprintf(a.out, "Upgraded %s (pid %d) to %s (pid %d): %s kept, %.1f ms without packets.\n",
			view.OldBuild, view.OldPID, view.Build, view.PID, plural(int(view.Sessions), "session"), float64(view.GapNs)/1e6)
	})
}

// printAdoption prints the result of adopting the previous forwarder's sessions.
func (a *app) printAdoption(v *adoptionView) {
	if v == nil || (v.Source == "new" && v.Refused == "") {
		return
	}
	if v.Refused != "" {
		a.pair("Adopted", a.paint(cell{"nothing", yellow})+": "+v.Refused)
		return
	}
	from := map[string]string{
		"crashed": "a forwarder that was killed", "stopped": "a forwarder that was stopped", "handed-over": "an upgrade",
	}[v.Source]
	text := fmt.Sprintf("%s from %s", plural(int(v.Results["kept"]), "session"), from)
	if v.AwayNs > 0 && v.Source != "handed-over" { // a killed forwarder's last sign of life is up to a second before its end
		text += fmt.Sprintf(", last seen alive %.1f s before", float64(v.AwayNs)/1e9)
	}
	if took := float64(v.DurationNs) / 1e6; took < 0.1 {
		text += "; adopted at once"
	} else {
		text += fmt.Sprintf("; adopted in %.1f ms", took)
	}
	var ended []string
	for _, name := range slices.Sorted(maps.Keys(v.Results)) {
		if n := v.Results[name]; n > 0 && name != "kept" {
			ended = append(ended, fmt.Sprintf("%d %s", n, name))
		}
	}
	if len(ended) > 0 {
		text += "; ended: " + strings.Join(ended, ", ")
	}
	a.pair("Adopted", text)
}

// printPhases prints the phases of the forwarder's start that took at least a millisecond.
func (a *app) printPhases(phases []phaseView) {
	if len(phases) == 0 {
		return
	}
	var wall, cpu, queued, waited uint64
	var parts []string
	for _, p := range phases {
		if p.Name == "wait" { // the other forwarder did the work meanwhile
			waited = p.WallNs
			continue
		}
		wall, cpu, queued = wall+p.WallNs, cpu+p.CPUNs, queued+p.QueuedNs
		if p.WallNs >= 1e6 {
			parts = append(parts, fmt.Sprintf("%s %.0f", p.Name, float64(p.WallNs)/1e6))
		}
	}
	text := fmt.Sprintf("%.0f ms: %.0f ms computing, %.0f ms waiting for a CPU", float64(wall)/1e6, float64(cpu)/1e6, float64(queued)/1e6)
	if waited > 0 {
		text += fmt.Sprintf("; %.0f ms waiting for the other forwarder", float64(waited)/1e6)
	}
	a.pair("Start", text+"\n(ms) "+strings.Join(parts, ", "))
}
