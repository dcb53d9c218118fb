// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"steelyard/internal/dpclient"

	"github.com/spf13/cobra"
)

const (
	// roleTimeout covers a restart of the forwarder.
	roleTimeout = 10 * time.Second
	// absentPause is the time between attempts to connect to a forwarder that restarts.
	absentPause = 100 * time.Millisecond
)

// noPeers is the remedy of a forwarder without peers.
const noPeers = "start it with " + dpclient.PeerOptions + ", see docs/high-availability.md"

type roleView struct {
	Node   uint32 `json:"node"`
	Role   string `json:"role"`             // "master" or "backup"
	Before string `json:"before,omitempty"` // absent: the role was only read
	Waits  string `json:"waits,omitempty"`  // until when the role that was set does not apply
}

func (a *app) roleCommand() *cobra.Command {
	var socket string
	var now, check bool
	command := &cobra.Command{
		Use: "role [master|backup]", Short: "Show or set this node's role among the nodes that keep its sessions", Args: args(0, 1),
		ValidArgs: []string{"master", "backup"},
		Long: "The master claims the VIPs and local addresses and serves. A backup keeps the master's sessions, and its host answers for none of these " +
			"addresses. A node that becomes master announces the addresses by gratuitous ARP and neighbour advertisements. The forwarder saves the role " +
			"and has it again after a restart; at first it is a backup. Setting the role that it has changes nothing.\n\n" +
			"No change loses sessions: a node becomes master when it has the sessions of its live peer, verified by digests, and a master becomes backup when " +
			"its live peer has them. Sessions that a node cannot keep, as `steelyard describe peer` shows, are not waited for. A node without a live peer changes at once, " +
			"and any node with --now. A node that would serve while no other node does waits for 15 seconds at most.\n\n" +
			"The command is for scripts of keepalived (docs/high-availability.md). It needs no agent, and waits for up to --timeout (10 seconds by default) " +
			"for a forwarder that restarts.",
		Example: "  steelyard role\n  steelyard role master\n  steelyard role --check",
	}
	a.forwarderFlag(command, &socket)
	a.outputFlag(command)
	command.Flags().BoolVar(&now, "now", false, "change the role at once, even if sessions are lost")
	command.Flags().BoolVar(&check, "check", false, "fail unless this node serves, or has all sessions of its peers: for keepalived's track script. Does not wait for a forwarder")
	command.RunE = func(c *cobra.Command, words []string) error {
		if check {
			if len(words) > 0 || now {
				return errors.New("--check sets no role: use it alone")
			}
			return a.checkRole(c.Context(), socket)
		}
		if now && len(words) == 0 {
			return errors.New("--now needs a role: master or backup")
		}
		if !c.Flags().Changed("timeout") {
			a.timeout = roleTimeout
		}
		if len(words) == 0 {
			return a.getRole(c.Context(), socket)
		}
		for _, role := range []dpclient.Role{dpclient.RoleMaster, dpclient.RoleBackup} {
			if words[0] == dpclient.RoleWord(role) {
				return a.setRole(c.Context(), socket, role, now)
			}
		}
		return fmt.Errorf("%q is not a role: use master or backup", words[0])
	}
	return command
}

// forwarderFlag adds the socket of this host's forwarder to a command that needs no agent.
func (a *app) forwarderFlag(command *cobra.Command, socket *string) {
	command.Flags().StringVar(socket, "forwarder", dpclient.DefaultSocket, "the forwarder's `socket`")
}

func (a *app) getRole(ctx context.Context, socket string) error {
	var list *dpclient.PeerList
	err := a.awaitForwarder(ctx, socket, func(ctx context.Context, client *dpclient.Client) (err error) {
		list, err = rolePeers(ctx, client)
		return err
	})
	if err != nil {
		return err
	}
	view := roleView{Node: list.GetNode(), Role: dpclient.RoleWord(list.GetRole()), Waits: dpclient.RoleWaits(list)}
	return a.show(view, func() {
		fmt.Fprintln(a.out, view.Role)
		if view.Waits != "" {
			fmt.Fprintf(a.out, "This node waits: %s.\n", printable(view.Waits))
		}
	})
}

// checkRole fails if another node should rather serve.
func (a *app) checkRole(ctx context.Context, socket string) error {
	return a.atForwarder(ctx, socket, func(ctx context.Context, client *dpclient.Client) error {
		list, err := rolePeers(ctx, client)
		if err != nil {
			return err
		}
		if why := dpclient.Incomplete(list); why != "" {
			return errors.New(printable(why))
		}
		view := roleView{Node: list.GetNode(), Role: dpclient.RoleWord(list.GetRole())}
		return a.show(view, func() { fmt.Fprintf(a.out, "This node is %s, and has all sessions.\n", view.Role) })
	})
}

func (a *app) setRole(ctx context.Context, socket string, role dpclient.Role, now bool) error {
	view := roleView{Role: dpclient.RoleWord(role)}
	err := a.awaitForwarder(ctx, socket, func(ctx context.Context, client *dpclient.Client) error {
		list, err := rolePeers(ctx, client)
		if err != nil {
			return err
		}
		result, err := client.SetRole(ctx, role, now)
		view.Node, view.Before = list.GetNode(), dpclient.RoleWord(result.GetBefore())
		if err != nil || result.GetRole() == role || result.GetRole() == dpclient.RoleUnknown { // an earlier version never waits
			return err
		}
		view.Role = dpclient.RoleWord(result.GetRole())
		if list, err = client.Peers(ctx); err == nil {
			view.Waits = dpclient.RoleWaits(list)
		}
		return err
	})
	if err != nil {
		return err
	}
	return a.show(view, func() {
		if view.Waits != "" {
			fmt.Fprintf(a.out, "Still %s: %s.\n", view.Role, printable(view.Waits))
			return
		}
		if view.Before == view.Role {
			fmt.Fprintf(a.out, "Already %s.\n", view.Role)
			return
		}
		fmt.Fprintf(a.out, "Now %s, before %s.\n", view.Role, view.Before)
	})
}

// rolePeers requests this node's role and peers, and fails if it has none.
func rolePeers(ctx context.Context, client *dpclient.Client) (*dpclient.PeerList, error) {
	list, err := client.Peers(ctx)
	if err == nil && list.GetNode() == 0 {
		err = errors.New("this forwarder has no peers, so it has no role and always serves: " + noPeers)
	}
	return list, err
}

// atForwarder calls f with a connection to this host's forwarder.
func (a *app) atForwarder(ctx context.Context, socket string, f func(context.Context, *dpclient.Client) error) error {
	if err := a.onThisHost(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	client, err := dpclient.Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer client.Close()
	err = f(ctx, client)
	if refusal := (*dpclient.Error)(nil); errors.As(err, &refusal) && refusal.Unknown() {
		return errors.New("this forwarder is of a version without peers: `steelyard upgrade` replaces it by the installed one")
	}
	return err
}

// awaitForwarder is atForwarder, repeated while no forwarder answers, as during a restart: up to --timeout.
func (a *app) awaitForwarder(ctx context.Context, socket string, f func(context.Context, *dpclient.Client) error) error {
	patience := time.After(a.timeout)
	for {
		err := a.atForwarder(ctx, socket, f)
		if !errors.Is(err, dpclient.ErrAbsent) {
			return err
		}
		select {
		case <-time.After(absentPause):
		case <-patience:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// onThisHost fails if a controller's context is chosen: the command would reach another forwarder than the user expects.
func (a *app) onThisHost() error {
	if a.context == localContext { // whatever the user's file of contexts says
		return nil
	}
	_, name, _, err := a.chosen()
	if err == nil && name != "" {
		err = fmt.Errorf("the context %s is a controller's, and this command is for the forwarder of the host that it runs on: "+
			"run it there, with --context local", name)
	}
	return err
}
