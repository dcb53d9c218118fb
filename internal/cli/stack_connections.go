// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	pb "steelyard/internal/gen/stackpb"

	"github.com/spf13/cobra"
)

// connectionView is a connection of the stack, or a listener.
type connectionView struct {
	Stack         uint32 `json:"stack"` // oneStackView.Number
	Pid           uint32 `json:"pid"`
	State         string `json:"state"`
	Local         string `json:"local"`
	Peer          string `json:"peer"`
	Unread        uint32 `json:"unread"` // bytes; of a listener: connections that wait for accept
	Unsent        uint32 `json:"unsent"` // unacknowledged bytes; of a listener: its backlog
	RTT           uint32 `json:"rtt_us"`
	Window        uint32 `json:"window"` // congestion window, bytes
	Retransmitted uint32 `json:"retransmitted"`
	Sent          uint64 `json:"sent"`
	Received      uint64 `json:"received"`
}

const maxConnections = 30000 // per answer

func (a *app) stackConnectionsCommand(o *stackOptions) *cobra.Command {
	limit := uint32(1000)
	command := &cobra.Command{
		Use: "connections", Aliases: []string{"connection", "ss"}, Short: "Show listeners and connections of a program, as ss does for Linux's", Args: args(0, 0),
		Long: "UNREAD are bytes that the program has not read, UNSENT bytes that its peer has not acknowledged; for a listener these are connections that wait " +
			"for accept(), and its backlog. RTT is smoothed, WINDOW is the congestion window in bytes. SENT and RECEIVED are bytes of payload.",
	}
	command.Flags().Uint32Var(&limit, "limit", limit, fmt.Sprintf("maximum `number`, up to %d", maxConnections))
	a.outputFlag(command)
	command.RunE = func(c *cobra.Command, _ []string) error {
		if limit < 1 || limit > maxConnections {
			return fmt.Errorf("--limit %d: use 1 to %d", limit, maxConnections)
		}
		return a.stackConnections(c.Context(), o, limit)
	}
	return command
}

func (a *app) stackConnections(ctx context.Context, o *stackOptions, limit uint32) error {
	one, err := o.one()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	response, err := one.Ask(ctx, &pb.Request{Body: &pb.Request_Connections{Connections: &pb.ListConnections{Limit: limit}}})
	if err != nil {
		return err
	}
	got := response.GetConnections()
	views := viewsOfConnections(got.GetConnections())
	if got.GetMore() {
		a.warn([]string{fmt.Sprintf("%s: there are more: --limit shows up to %d", one.Name, maxConnections)})
	}
	if got.GetLate() {
		a.warn([]string{fmt.Sprintf("%s: there are more, and its stacks took too long to report them", one.Name)})
	}
	if silent := got.GetSilent(); len(silent) > 0 {
		a.warn([]string{fmt.Sprintf("%s: connections are missing: %s", one.Name, silentText(silent))})
	}
	return a.show(views, func() { a.print(connectionsTable(views)) })
}

// viewsOfConnections sorts listeners first, then connections by local address and peer.
func viewsOfConnections(from []*pb.Connection) []connectionView {
	slices.SortStableFunc(from, func(x, y *pb.Connection) int {
		return cmp.Or(cmp.Compare(order(x), order(y)),
			socketOf(x.GetLocal(), x.GetLocalPort()).Compare(socketOf(y.GetLocal(), y.GetLocalPort())),
			socketOf(x.GetPeer(), x.GetPeerPort()).Compare(socketOf(y.GetPeer(), y.GetPeerPort())), cmp.Compare(x.GetStack(), y.GetStack()))
	})
	views := []connectionView{}
	for _, c := range from {
		views = append(views, connectionView{Stack: c.GetStack(), Pid: c.GetPid(), State: c.GetState(), Local: localText(c),
			Peer: socketText(c.GetPeer(), c.GetPeerPort()), Unread: c.GetUnread(), Unsent: c.GetUnsent(), RTT: c.GetRttUs(), Window: c.GetWindow(),
			Retransmitted: c.GetRetransmitted(), Sent: c.GetSent(), Received: c.GetReceived()})
	}
	return views
}

// order sorts listeners first.
func order(c *pb.Connection) int {
	if c.GetState() == "listen" {
		return 0
	}
	return 1
}

func socketOf(address []byte, port uint32) netip.AddrPort {
	from, _ := netip.AddrFromSlice(address)
	return netip.AddrPortFrom(from, uint16(port))
}

// localText distinguishes listeners at all IPv6 addresses from those at all addresses of both families.
func localText(c *pb.Connection) string {
	if c.GetOnlyV6() && len(c.GetLocal()) == 0 {
		return endpoint("::", c.GetLocalPort())
	}
	return socketText(c.GetLocal(), c.GetLocalPort())
}

// socketText writes *:PORT for any address, as ss does.
func socketText(address []byte, port uint32) string {
	return endpoint(cmp.Or(addressText(address), "*"), port)
}

func connectionsTable(views []connectionView) *table {
	each := make([]oneStackView, len(views))
	for i, c := range views {
		each[i] = oneStackView{Number: c.Stack, Pid: c.Pid}
	}
	several := severalStacks(each)
	t := &table{columns: []column{right("PID"), left("STATE"), right("UNREAD"), right("UNSENT"), left("LOCAL"), left("PEER"), right("RTT"), right("WINDOW"),
		right("RETRANSMITTED"), right("SENT"), right("RECEIVED")}}
	for _, c := range views {
		if c.State == "listen" {
			t.add(stackName(c.Pid, c.Stack, several[c.Pid]), c.State, c.Unread, c.Unsent, c.Local, c.Peer, "", "", "", "", "")
			continue
		}
		t.add(stackName(c.Pid, c.Stack, several[c.Pid]), c.State, c.Unread, c.Unsent, c.Local, c.Peer, time.Duration(c.RTT)*time.Microsecond, c.Window, c.Retransmitted, c.Sent, c.Received)
	}
	return t
}
