// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "steelyard/internal/gen/agentpb"
	"steelyard/internal/model"

	"github.com/spf13/cobra"
)

func (a *app) getStatus(ctx context.Context) error {
	response, err := call(ctx, a, a.client().GetStatus, &pb.GetStatusRequest{})
	if err != nil {
		return err
	}
	view := viewStatus(response)
	refused := view.isRefused()
	err = a.show(view, func() {
		a.pair("Agent", fmt.Sprintf("%s, started %s", view.Build, since(view.StartedS)))
		a.printConfigStatus(view.Config, refused, view.Forwarder.AppliedGeneration)
		counts := fmt.Sprintf("%d up, %d drained", view.ServersUp, view.ServersDrained)
		if view.ServersKilled > 0 {
			counts += fmt.Sprintf(", %d killed", view.ServersKilled)
		}
		if view.ServersUnchecked > 0 {
			counts += fmt.Sprintf(", %d not checked yet", view.ServersUnchecked)
		}
		if refused && view.Forwarder.AppliedGeneration == 0 {
			counts += " (of the refused file)"
		}
		a.pair("Services", fmt.Sprintf("%d, with %s: %s", view.Services, plural(int(view.Servers), "server"), counts))
		if view.Health != nil {
			a.pair("Health", view.Health.text(a))
		}
		a.printForwarderStatus(view.Forwarder)
		for _, warning := range view.Warnings {
			a.pair("Warning", a.paint(cell{warning, yellow}))
		}
	})
	if err == nil && (refused || view.Config.Error != "") {
		return errRefused
	}
	return err
}

// isRefused reports whether the forwarder refuses the configuration that was loaded last.
func (s statusView) isRefused() bool {
	return s.Forwarder.RefusedGeneration != 0 && s.Forwarder.RefusedGeneration == s.Config.Generation
}

// pair prints a name and its value. Without a name, it continues the value of the previous name.
func (a *app) pair(name, text string) {
	if name != "" {
		name += ":"
	}
	fmt.Fprintf(a.out, "%-11s %s\n", name, strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", 12)))
}

// printConfigStatus shows the configuration that was loaded last. runs: the generation of the forwarder's configuration, 0: none from this agent.
func (a *app) printConfigStatus(c configStatusView, refused bool, runs uint64) {
	if c.Generation > 0 {
		text := fmt.Sprintf("%s, generation %d, loaded %s", c.File, c.Generation, since(c.LoadedS))
		switch {
		case refused && runs != 0:
			text += " " + a.paint(cell{fmt.Sprintf("(refused; generation %d runs)", runs), red})
		case refused:
			text += " " + a.paint(cell{"(refused; the forwarder keeps its configuration)", red})
		}
		a.pair("Config", text)
	} else {
		a.pair("Config", fmt.Sprintf("none; %s", c.File))
	}
	if c.Error != "" {
		a.pair("Refused", a.paint(cell{fmt.Sprintf("the file, %s:", since(c.AttemptedS)), red})+"\n"+c.Error)
	}
}

func (a *app) printForwarderStatus(f forwarderStatusView) {
	switch {
	case !f.Connected:
		a.pair("Forwarder", a.paint(cell{"not connected", red})+": "+f.Error)
		return
	case f.Error != "":
		a.pair("Forwarder", a.paint(cell{"connected, but refused", red})+": "+f.Error)
	case !f.InSync:
		a.pair("Forwarder", a.paint(cell{"connected", yellow})+", without a configuration from this agent")
	default:
		a.pair("Forwarder", a.paint(cell{"in sync", green})+fmt.Sprintf(", revision %d", f.Revision))
	}
	a.pair("", fmt.Sprintf("%s, pid %d, started %s, %s", f.Build, f.PID, since(f.StartedS), plural(int(f.Workers), "worker")))
	if f.Upgrading {
		a.pair("", a.paint(cell{"being upgraded", yellow})+": its successor is preparing")
	}
	a.printAdoption(f.Adoption)
	a.printPhases(f.Phases)
	share := 0.0
	if f.SessionCapacity > 0 {
		share = 100 * float64(f.Sessions) / float64(f.SessionCapacity)
	}
	pages := "huge pages"
	if !f.HugePages {
		pages = "no huge pages"
	}
	a.pair("Sessions", fmt.Sprintf("%d of %d (%.1f%%), %d of them embryonic or unreplied, %d MiB, %s", f.Sessions, f.SessionCapacity, share,
		f.SessionsEmbryonic, f.SessionBytes>>20, pages))
	if f.Node != 0 {
		a.pair("Role", f.roleText(a))
	}
	if d := f.EventDevice; d != nil {
		refused := cell{text: fmt.Sprintf("%d refused", d.Refused)}
		if d.Refused > 0 {
			refused.paint = yellow
		}
		a.pair("Limits", fmt.Sprintf("%d packets through %s, queue %s; %d in it, %s", d.Packets, d.Name, d.Model, d.Waiting, a.paint(refused)))
	}
	if f.RoutingRefused != "" {
		a.pair("Routing", a.paint(cell{f.RoutingRefused, red}))
	}
	for _, problem := range f.PortProblems {
		a.pair("Port", a.paint(cell{problem, red}))
	}
}

// roleText returns this node's role, and the state of each peer.
func (f forwarderStatusView) roleText(a *app) string {
	text := fmt.Sprintf("%s, node %d", f.Role, f.Node)
	for _, v := range f.Peers {
		text += fmt.Sprintf("\npeer %s: %s", v.fullName(), a.paint(v.stateCell()))
		if present := v.presentCell(); present.text != "-" {
			text += fmt.Sprintf(", has %s of %s", a.paint(present), plural(int(v.Offered), "session"))
		}
		if v.Kept > 0 {
			text += fmt.Sprintf(", %d of its sessions here", v.Kept)
		}
	}
	return text
}

func (a *app) describeCommand() *cobra.Command {
	describe := group("describe", "Show everything about a service, a server, a request, a limit, a peer or the shaping of a port")
	service := &cobra.Command{
		Use: "service NAME", Short: "Show everything about a service", Args: args(1, 1),
		RunE: func(c *cobra.Command, args []string) error { return a.describeService(c.Context(), args[0]) },
	}
	server := &cobra.Command{
		Use: "server SERVER[@SERVICE]", Short: "Show everything about a server", Args: args(1, 1),
		RunE: func(c *cobra.Command, args []string) error { return a.describeServer(c.Context(), args[0]) },
	}
	a.outputFlag(service)
	a.outputFlag(server)
	describe.AddCommand(service, server, a.describeGroupCommand(), a.describeRequestCommand(), a.describeLimitCommand(), a.describePeerCommand(), a.describeShapingCommand())
	return describe
}

func (a *app) describeService(ctx context.Context, name string) error {
	views, response, err := a.listServices(ctx, name)
	if err != nil {
		return err
	}
	a.warn(response.GetWarnings())
	s := views[0]
	if err := s.viewLimitsAndShaping(response.GetServices()[0]); err != nil {
		return err
	}
	return a.show(s, func() {
		a.pair("Name", s.Name)
		a.pair("Address", s.Protocol+" "+s.endpoint())
		a.pair("Mode", s.Mode)
		a.pair("Scheduler", s.policy.String())
		if s.Feedback != nil {
			a.pair("Feedback", s.Feedback.text())
			if s.Feedback.Warning != "" {
				a.pair("", a.paint(cell{s.Feedback.Warning, yellow}))
			}
		}
		a.pair("Health", s.Health.text())
		a.pair("Timeouts", s.Timeouts.text(s.Protocol))
		if s.Resets != nil {
			a.pair("Resets", s.policy.Resets.String())
		}
		a.pair("No server", s.unavailableText())
		if s.policy.Sync != (model.Sync{}) {
			a.pair("Sync", s.Sync)
		}
		a.pair("Traffic", s.Traffic.text())
		if len(s.Drops) > 0 {
			a.pair("Dropped", s.dropsText())
		}
		if s.policy.Clients != (model.ClientLimits{}) || s.ClientOver > 0 {
			a.pair("Clients", fmt.Sprintf("sessions of each: %s; %d refused", s.policy.Clients, s.ClientOver))
		}
		if s.Protocol == "tcp" {
			a.pair("Defence", s.defenceText(a))
		}
		a.printLimitsAndShaping(s)
		fmt.Fprintln(a.out)
		a.print(serverTable(s.Servers))
	})
}

// unavailableText describes the answers to clients while no server accepts their sessions, and their counts.
func (s serviceView) unavailableText() string {
	if s.Answered == nil {
		return s.Unavailable
	}
	return fmt.Sprintf("%s; sent %s and %s", s.Unavailable, plural(int(s.Answered.Resets), "reset"), plural(int(s.Answered.ICMP), "ICMP error"))
}

// dropsText lists drops, the most frequent reason first.
func (s serviceView) dropsText() string {
	drops := slices.Clone(s.Drops)
	slices.SortStableFunc(drops, func(x, y serviceDrop) int { return cmp.Compare(y.Packets, x.Packets) })
	lines := make([]string, 0, len(drops)+1)
	for _, drop := range drops {
		lines = append(lines, fmt.Sprintf("%s %s", plural(int(drop.Packets), "packet"), drop.Name))
	}
	return strings.Join(lines, "\n") + "\n`steelyard get drops` explains each reason"
}

// defenceText describes the state of the SYN defence, its last switch, and its counts.
func (s serviceView) defenceText(a *app) string {
	text, d := a.paint(s.defenceState()), s.Defence
	if d == nil {
		return text
	}
	if d.SinceMs != 0 {
		word := "off"
		if d.On {
			word = "on"
		}
		text += fmt.Sprintf(", switched %s %s: %s\nswitched on %s so far", word, since(d.SinceMs/1000), d.Why, plural(int(d.SwitchedOn), "time"))
	}
	if d.Answered+d.Wrong != 0 {
		text += fmt.Sprintf("\n%s answered; %s returned the answer, %d a wrong one", plural(int(d.Answered), "SYN"),
			plural(int(d.Returned), "client"), d.Wrong)
	}
	if d.HalfOpen == 1 {
		return text + "\n1 session is half open"
	}
	return text + fmt.Sprintf("\n%d sessions are half open", d.HalfOpen)
}

// text returns only the timeouts that apply to sessions of the protocol.
func (t timeoutsView) text(protocol string) string {
	if protocol == "udp" {
		return fmt.Sprintf("udp_one_way %ds, udp %ds", t.UDPOneWay, t.UDP)
	}
	return fmt.Sprintf("syn_sent %ds, syn_received %ds, established %ds, fin_wait %ds, closing %ds, time_wait %ds, reset %ds",
		t.SynSent, t.SynReceived, t.Established, t.FinWait, t.Closing, t.TimeWait, t.Reset)
}

func (h healthPolicyView) text() string {
	if h.Type == "none" {
		return "not checked"
	}
	text := h.Type
	if h.Port != 0 {
		text += fmt.Sprintf(" port %d", h.Port)
	}
	if h.Path != "" {
		text += fmt.Sprintf(" GET %s, expecting %s", h.Path, h.Expect)
	}
	if h.Host != "" {
		text += ", host " + h.Host
	}
	milliseconds := func(ms uint64) time.Duration { return time.Duration(ms) * time.Millisecond }
	text = fmt.Sprintf("%s; every %s (jitter %d%%), timeout %s, rise %d, fall %d", text, milliseconds(h.IntervalMs),
		h.JitterPercent, milliseconds(h.TimeoutMs), h.Rise, h.Fall)
	if h.LingerMs == 0 {
		text += ", ends by a reset"
	}
	return text
}

func (t *trafficView) text() string {
	if t == nil {
		return "unknown: the forwarder lacks the service"
	}
	return fmt.Sprintf("%s now, %d created\nin  %d packets, %d bytes\nout %d packets, %d bytes",
		plural(int(t.SessionsActive), "session"), t.SessionsCreated, t.PacketsIn, t.BytesIn, t.PacketsOut, t.BytesOut)
}

func (a *app) describeServer(ctx context.Context, text string) error {
	server, service, _ := strings.Cut(text, "@")
	views, response, err := a.listServices(ctx, service)
	if err != nil {
		return err
	}
	a.warn(response.GetWarnings())
	found := []serverView{}
	for _, view := range views {
		for _, s := range view.Servers {
			if s.Address == server || endpoint(s.Address, s.Port) == server {
				found = append(found, s)
			}
		}
	}
	if len(found) == 0 {
		return fmt.Errorf("no service has the server %s: see `steelyard get servers`", text)
	}
	return a.show(found, func() {
		for i, s := range found {
			if i > 0 {
				fmt.Fprintln(a.out)
			}
			a.printServer(s)
		}
	})
}

func (a *app) printServer(s serverView) {
	a.pair("Server", endpoint(s.Address, s.Port))
	a.pair("Service", s.Service)
	state := a.paint(s.stateText())
	if s.DrainedByFile {
		state += " (by the file)"
	}
	if s.DrainedByCommand {
		state += " (by `steelyard drain`)"
	}
	if s.KilledByCommand {
		state += " (by `steelyard kill`)"
	} else if s.State == "kill" {
		state += ", as its deadline has passed"
	}
	a.pair("State", state)
	a.pair("Weight", weightText(s))
	if s.MaxSessions != 0 {
		a.pair("Limit", plural(int(s.MaxSessions), "session"))
	}
	a.pair("Health", a.paint(healthSummary(s)))
	if h := s.Health; h != nil {
		a.pair("", "checked on "+h.Target)
		if h.Fallback != "" {
			a.pair("", a.paint(cell{"not on the VIP: " + h.Fallback, yellow}))
		}
	}
	if h := s.Health; h != nil && h.Undecided > 0 {
		a.pair("", a.paint(cell{fmt.Sprintf("%s in a row inconclusive: %s", plural(int(h.Undecided), "check"), h.UndecidedError), yellow}))
	}
	if h := s.Health; h != nil && h.Checked {
		a.pair("", fmt.Sprintf("last check %s, took %s", since(h.LastCheckMs/1000),
			time.Duration(h.LastDurationUs)*time.Microsecond))
		if h.LastError != "" {
			a.pair("", "last failure: "+h.LastError)
		}
		if h.ChangedMs != 0 {
			a.pair("", fmt.Sprintf("last change %s", since(h.ChangedMs/1000)))
		}
	}
	if s.UnansweredSYNs > 0 {
		a.pair("Answers", a.paint(cell{unanswered(s.UnansweredSYNs) + ": do answers return through this host?", yellow}))
	}
	a.printLoad(s.Load)
	a.printShare(s)
	a.pair("Traffic", s.Traffic.text())
}
