// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"math"
	"time"

	"steelyard/internal/dpclient"

	"github.com/spf13/cobra"
)

// peerView is a node with which the forwarder synchronises its sessions.
type peerView struct {
	Node     uint32 `json:"node"`
	Name     string `json:"name"`
	Address  string `json:"address"`
	State    string `json:"state"` // "alive", "silent", "unknown", "other-key" or "other-version"
	Role     string `json:"role"`  // as the peer reported it last; "serves": of an ECMP group
	SilentMs uint64 `json:"silent_ms"`
	RTTUs    uint64 `json:"rtt_us"` // 0: not measured
	// This node's sessions there.
	Slots         uint32 `json:"slots"`
	Offered       uint64 `json:"offered"`
	Present       uint64 `json:"present"` // verified by equal digests
	Refused       uint64 `json:"refused"`
	Waiting       uint64 `json:"waiting"` // changes
	LagMs         uint64 `json:"lag_ms"`
	Copying       uint32 `json:"copying"` // slots
	Copied        uint64 `json:"copied"`
	Retransmitted uint64 `json:"retransmitted"`
	// Its sessions here.
	Kept     uint64 `json:"kept"`
	Verified uint32 `json:"verified"` // slots
	// Slots in which sessions may be missing: of the peer here, of this node there.
	UnverifiedHere  uint32 `json:"unverified_here"`
	UnverifiedThere uint32 `json:"unverified_there"`
	Faults          uint64 `json:"faults"`
	// In an ECMP group: packets passed on to it, which may have their sessions, and by it.
	RelayedOut uint64            `json:"relayed_out"`
	RelayedIn  uint64            `json:"relayed_in"`
	Problems   []peerProblemView `json:"problems"`
	// Only in `describe`.
	Refusals []dropView `json:"refusals,omitempty"` // here, of all peers
	ThisNode *nodeView  `json:"this_node,omitempty"`
}

type peerProblemView struct {
	Text   string `json:"text"`
	Remedy string `json:"remedy"`
}

// nodeView is this node among its peers.
type nodeView struct {
	Node    uint32     `json:"node"`
	Address string     `json:"address"`
	Role    string     `json:"role"`
	Waits   string     `json:"waits,omitempty"` // until when the role that was set does not apply
	Offered uint64     `json:"offered"`
	Unsent  uint64     `json:"unsent"`
	Drops   []dropView `json:"drops"` // datagrams
}

// roleOf returns the role as commands show it: all nodes of an ECMP group serve.
func roleOf(list *dpclient.PeerList, role dpclient.Role) string {
	if list.GetEcmp() {
		return "serves"
	}
	return dpclient.RoleWord(role)
}

func viewPeer(list *dpclient.PeerList, peer *dpclient.Peer, problems []dpclient.PeerProblem) peerView {
	view := peerView{
		Node: peer.GetNode(), Name: peer.GetName(), Address: peer.GetAddress(), State: dpclient.PeerStateWord(peer.GetState()),
		Role: roleOf(list, peer.GetRole()), SilentMs: peer.GetSilentMs(), RTTUs: peer.GetRttUs(),
		Slots: peer.GetSlots(), Offered: peer.GetOffered(), Present: peer.GetPresent(), Refused: peer.GetRefused(), Waiting: peer.GetWaiting(),
		LagMs: peer.GetLagMs(), Copying: peer.GetCopying(), Copied: peer.GetCopied(), Retransmitted: peer.GetRetransmitted(),
		Kept: peer.GetKept(), Verified: peer.GetVerified(), Faults: peer.GetFaults(),
		UnverifiedHere: peer.GetUnverifiedHere(), UnverifiedThere: peer.GetUnverifiedThere(),
		RelayedOut: peer.GetRelayedOut(), RelayedIn: peer.GetRelayedIn(), Problems: []peerProblemView{},
	}
	for _, problem := range problems {
		if problem.Node == view.Node || problem.Node == 0 {
			view.Problems = append(view.Problems, peerProblemView{problem.Text, problem.Remedy})
		}
	}
	return view
}

func viewNode(list *dpclient.PeerList) *nodeView {
	return &nodeView{list.GetNode(), list.GetAddress(), roleOf(list, list.GetRole()), dpclient.RoleWaits(list), list.GetOffered(), list.GetUnsent(),
		viewCounted(list.GetDrops())}
}

// viewCounted returns the reasons that have occurred.
func viewCounted(drops []*dpclient.Drop) []dropView {
	views := []dropView{}
	for _, drop := range drops {
		if drop.GetPackets() > 0 {
			views = append(views, dropView{drop.GetName(), drop.GetPackets(), drop.GetHelp()})
		}
	}
	return views
}

func viewPeers(list *dpclient.PeerList) []peerView {
	views, problems := []peerView{}, dpclient.PeerProblems(list)
	for _, peer := range list.GetPeers() {
		views = append(views, viewPeer(list, peer, problems))
	}
	return views
}

// fullName returns the peer's number and, if it is known, its host name.
func (v peerView) fullName() string {
	if v.Name == "" {
		return fmt.Sprint(v.Node)
	}
	return fmt.Sprintf("%d (%s)", v.Node, printable(v.Name))
}

func (v peerView) alive() bool { return v.State == dpclient.PeerStateWord(dpclient.PeerAlive) }

func (v peerView) stateCell() cell {
	if v.alive() {
		return cell{v.State, green}
	}
	return cell{v.State, red}
}

// roleText returns the role of a live peer; the role of any other peer is unknown.
func (v peerView) roleText() string {
	if !v.alive() {
		return "-"
	}
	return v.Role
}

// presentCell returns the share of this node's sessions that the peer has, rounded down.
func (v peerView) presentCell() cell {
	switch {
	case !v.alive() || v.Offered == 0:
		return cell{text: "-"}
	case v.Present >= v.Offered:
		return cell{"100.0%", green}
	}
	share := math.Floor(1000*float64(v.Present)/float64(v.Offered)) / 10
	return cell{fmt.Sprintf("%.1f%%", share), yellow}
}

func lagText(ms uint64) string { return shortTime(ms * uint64(time.Millisecond)) }

func (v peerView) rttText() string {
	if v.RTTUs == 0 {
		return "-"
	}
	return shortTime(v.RTTUs * uint64(time.Microsecond))
}

func (n *nodeView) text() string {
	return fmt.Sprintf("%d at %s, %s, %s for its peers", n.Node, n.Address, n.Role, plural(int(n.Offered), "session"))
}

func (a *app) getPeersCommand() *cobra.Command {
	var socket string
	command := &cobra.Command{
		Use: "peers", Aliases: []string{"peer"}, Short: "Show the nodes that keep this node's sessions, and how complete they are", Args: args(0, 0),
		Long: "PRESENT is the share of this node's sessions that the peer has, verified by equal digests; OFFERED counts these sessions. KEPT counts the peer's " +
			"sessions here. LAG: how long the oldest change has waited for the peer's acknowledgement. TO and FROM, in an ECMP group: packets that this node passed on to the peer, which may have their sessions, and the peer to it. STATE: alive; silent (for more than a second); unknown " +
			"(no datagram has arrived from it); other-key and other-version (its slot key, or its version, differs). `steelyard describe peer` has the reasons and remedies. " +
			"The command needs no agent, and shows the forwarder of this host.",
		RunE: func(c *cobra.Command, _ []string) error { return a.getPeers(c.Context(), socket) },
	}
	a.forwarderFlag(command, &socket)
	a.outputFlag(command)
	return command
}

func (a *app) readPeers(ctx context.Context, socket string) (list *dpclient.PeerList, err error) {
	err = a.atForwarder(ctx, socket, func(ctx context.Context, client *dpclient.Client) (err error) {
		list, err = client.Peers(ctx)
		return err
	})
	return list, err
}

func (a *app) getPeers(ctx context.Context, socket string) error {
	list, err := a.readPeers(ctx, socket)
	if err != nil {
		return err
	}
	views := viewPeers(list)
	return a.show(views, func() {
		if list.GetNode() == 0 {
			fmt.Fprintln(a.out, "This forwarder has no peers: "+noPeers+".")
			return
		}
		node := viewNode(list)
		fmt.Fprintf(a.out, "This node: %s\n", printable(node.text()))
		if node.Waits != "" {
			fmt.Fprintf(a.out, "This node waits: %s.\n", printable(node.Waits))
		}
		t := &table{columns: []column{right("NODE"), left("NAME"), left("ADDRESS"), left("STATE"), left("ROLE"), right("PRESENT"),
			right("OFFERED"), right("KEPT"), right("LAG"), right("RTT")}}
		if list.GetEcmp() {
			t.columns = append(t.columns, right("TO"), right("FROM"))
		}
		for _, v := range views {
			row := []any{v.Node, v.Name, v.Address, v.stateCell(), v.roleText(), v.presentCell(), v.Offered, v.Kept, lagText(v.LagMs), v.rttText()}
			if list.GetEcmp() {
				row = append(row, v.RelayedOut, v.RelayedIn)
			}
			t.add(row...)
		}
		a.print(t)
	})
}

func (a *app) describePeerCommand() *cobra.Command {
	var socket string
	command := &cobra.Command{
		Use: "peer NODE", Short: "Show everything about a node that keeps this node's sessions", Args: args(1, 1),
		Long: "NODE is a number or a host name of `steelyard get peers`. The command needs no agent, and shows the forwarder of this host.",
		RunE: func(c *cobra.Command, names []string) error { return a.describePeer(c.Context(), socket, names[0]) },
	}
	a.forwarderFlag(command, &socket)
	a.outputFlag(command)
	return command
}

func (a *app) describePeer(ctx context.Context, socket, wanted string) error {
	list, err := a.readPeers(ctx, socket)
	if err != nil {
		return err
	}
	if list.GetNode() == 0 {
		return fmt.Errorf("this forwarder has no peers: %s", noPeers)
	}
	for i, peer := range list.GetPeers() {
		if fmt.Sprint(peer.GetNode()) != wanted && peer.GetName() != wanted {
			continue
		}
		view := viewPeers(list)[i]
		view.ThisNode, view.Refusals = viewNode(list), viewCounted(list.GetRefusals())
		return a.show(view, func() { a.printPeer(view) })
	}
	return fmt.Errorf("node %s is no peer: see `steelyard get peers`", wanted)
}

func (a *app) printPeer(v peerView) {
	a.pair("Peer", v.fullName()+" at "+v.Address)
	a.pair("This node", v.ThisNode.text())
	a.pair("State", a.paint(v.stateCell()))
	a.pair("Role", v.roleText())
	a.pair("RTT", v.rttText())
	a.pair("Present", a.presentText(v))
	for _, problem := range v.Problems {
		a.pair("Problem", a.paint(cell{problem.Text, yellow})+": "+problem.Remedy)
	}
	if v.alive() && v.Present < v.Offered && len(v.Problems) == 0 {
		a.pair("Incomplete", "each slot is compared once a second: a session counts once the next comparison has verified it")
	}
	a.pair("Sent", fmt.Sprintf("lag %s, %s waiting; since the start %d in copies, %s", lagText(v.LagMs), plural(int(v.Waiting), "change"),
		v.Copied, plural(int(v.Retransmitted), "retransmission")))
	a.pair("Kept", fmt.Sprintf("%s of the peer here, %d of 256 slots verified, %s since the start", plural(int(v.Kept), "session"),
		v.Verified, plural(int(v.Faults), "difference")))
	if v.RelayedOut+v.RelayedIn > 0 {
		a.pair("Relayed", fmt.Sprintf("%s to it, %d from it, since the start", plural(int(v.RelayedOut), "packet"), v.RelayedIn))
	}
	a.printCounted("Refused", "here, of all peers", v.Refusals)
	a.printCounted("Dropped", "datagrams", v.ThisNode.Drops)
	if n := v.ThisNode.Unsent; n > 0 {
		a.pair("Not sent", fmt.Sprintf("%s: the kernel of this host did not accept them", plural(int(n), "datagram")))
	}
}

// presentText describes which of this node's sessions the peer has.
func (a *app) presentText(v peerView) string {
	switch {
	case !v.alive():
		return "unknown: no session is sent to it while it is not alive"
	case v.Offered == 0:
		return "this node has no session for it"
	}
	return fmt.Sprintf("%d of %s (%s), in %s", v.Present, plural(int(v.Offered), "session"), a.paint(v.presentCell()), plural(int(v.Slots), "slot"))
}

// printCounted prints counters by reason with their meaning.
func (a *app) printCounted(name, of string, counts []dropView) {
	if len(counts) == 0 {
		return
	}
	text := of
	for _, count := range counts {
		text += fmt.Sprintf("\n%d %s: %s", count.Packets, count.Name, count.Help)
	}
	a.pair(name, text)
}
