// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	pb "steelyard/internal/gen/controllerpb"

	"github.com/spf13/cobra"
)

// Groups of a controller's forwarders.

func (a *app) groupsCommand() *cobra.Command {
	command := group("group", "Make forwarders of a controller nodes that keep each other's sessions")
	set := &cobra.Command{
		Use: "set FILE", Short: "Create or change a group of forwarders", Args: args(1, 1),
		Long: "FILE (- is the standard input) names the group, its mode (pair or ecmp) and its nodes: docs/controller.md. The controller draws slot key and secret, and sends them to the agents, " +
			"which make their forwarders nodes. A forwarder that joins restarts, as its slot key changes, and its sessions end; any other change of a group keeps them. A forwarder that FILE does not " +
			"name any more leaves the group, and keeps its local addresses. Apply the services to all nodes: `steelyard apply FILE --group NAME`.",
		RunE: func(c *cobra.Command, files []string) error {
			text, err := a.readFile(files[0])
			if err != nil {
				return err
			}
			response, err := ask(c.Context(), a, a.controllers().SetGroup, &pb.SetGroupRequest{File: fileName(files[0]), Yaml: text})
			if err != nil {
				return err
			}
			a.warn(response.GetWarnings())
			if response.GetChanged() {
				fmt.Fprintf(a.out, "Set; `steelyard describe group %s` shows its nodes.\n", response.GetName())
			} else {
				fmt.Fprintln(a.out, "Nothing to change.")
			}
			return nil
		},
	}
	rotate := &cobra.Command{
		Use: "rotate NAME", Short: "Replace the secret that encrypts the sessions between a group's nodes", Args: args(1, 1),
		Long: "In three steps, each of which begins when all nodes apply the one before: all nodes accept the new secret; it encrypts; after two minutes the former one is removed. No session ends. " +
			"Each step upgrades the forwarders to themselves. A step waits for nodes that are away: `steelyard describe group` names them.",
		RunE: func(c *cobra.Command, names []string) error {
			response, err := ask(c.Context(), a, a.controllers().RotateGroup, &pb.RotateGroupRequest{Name: names[0]})
			if err == nil {
				fmt.Fprintf(a.out, "Secret %d replaces the present one; `steelyard describe group %s` shows what that waits for.\n", response.GetSecret(), names[0])
			}
			return err
		},
	}
	remove := &cobra.Command{
		Use: "remove NAME", Short: "Remove a group: its forwarders keep their services, and no longer each other's sessions", Args: args(1, 1),
		RunE: func(c *cobra.Command, names []string) error {
			_, err := ask(c.Context(), a, a.controllers().RemoveGroup, &pb.RemoveGroupRequest{Name: names[0]})
			return err
		},
	}
	command.AddCommand(set, rotate, remove)
	return command
}

type groupView struct {
	Name      string          `json:"name"`
	Mode      string          `json:"mode"`
	NextHops  []string        `json:"next_hops"`
	Locals    []string        `json:"local_addresses"`
	Nodes     []groupNodeView `json:"nodes"`
	Secrets   []uint32        `json:"secrets"` // numbers
	Rotation  string          `json:"rotation"`
	Problem   string          `json:"problem"`
	Takeovers []auditView     `json:"takeovers"` // of `describe group`: the last ones
}

type groupNodeView struct {
	Forwarder string          `json:"forwarder"`
	Node      uint32          `json:"node"`
	Sync      string          `json:"sync"`
	NextHops  []string        `json:"next_hops"`
	Locals    []string        `json:"local_addresses"`
	State     string          `json:"state"`
	Error     string          `json:"error"`
	Peers     []groupPeerView `json:"peers"`
}

type groupPeerView struct {
	Node  uint32 `json:"node"`
	State string `json:"state"`
	Kept  uint64 `json:"kept"`
}

func viewGroup(g *pb.Group) groupView {
	v := groupView{Name: g.GetName(), Mode: "pair", NextHops: listed(g.GetNextHops()), Locals: listed(g.GetLocalAddresses()), Nodes: []groupNodeView{},
		Secrets: append([]uint32{}, g.GetSecrets()...), Rotation: g.GetRotation(), Problem: g.GetProblem(), Takeovers: []auditView{}}
	if g.GetMode() == pb.GroupMode_GROUP_MODE_ECMP {
		v.Mode = "ecmp"
	}
	for _, n := range g.GetNodes() {
		node := groupNodeView{Forwarder: n.GetForwarder(), Node: n.GetNode(), Sync: n.GetSync(), NextHops: listed(n.GetNextHops()),
			Locals: listed(n.GetLocalAddresses()), State: n.GetState(), Error: n.GetError(), Peers: []groupPeerView{}}
		for _, peer := range n.GetPeers() {
			node.Peers = append(node.Peers, groupPeerView{peer.GetNode(), peer.GetState(), peer.GetKept()})
		}
		v.Nodes = append(v.Nodes, node)
	}
	return v
}

// listed returns a list that is never null in JSON.
func listed(words []string) []string { return append([]string{}, words...) }

func (v *groupView) serving() int {
	n := 0
	for _, node := range v.Nodes {
		if node.State == "serves" || node.State == "master" {
			n++
		}
	}
	return n
}

func (n *groupNodeView) cell() cell {
	colors := map[string]string{"serves": green, "master": green, "backup": green, "silent": red, "alone": red, "behind": yellow}
	return cell{n.State, colors[n.State]}
}

func (a *app) readGroups(ctx context.Context) ([]groupView, error) {
	response, err := ask(ctx, a, a.controllers().ListGroups, &pb.ListGroupsRequest{})
	if err != nil {
		return nil, err
	}
	views := []groupView{}
	for _, g := range response.GetGroups() {
		views = append(views, viewGroup(g))
	}
	return views, nil
}

func (a *app) getGroups(ctx context.Context) error {
	views, err := a.readGroups(ctx)
	if err != nil {
		return err
	}
	return a.show(views, func() {
		t := &table{columns: []column{left("NAME"), left("MODE"), right("NODES"), right("SERVING"), left("PROBLEM")}}
		for i := range views {
			v := &views[i]
			color := ""
			if v.Problem != "" {
				color = red
			}
			t.add(v.Name, v.Mode, len(v.Nodes), v.serving(), cell{orDash(v.Problem), color})
		}
		a.print(t)
	})
}

func (a *app) describeGroupCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "group NAME", Short: "Show everything about a group of a controller's forwarders: nodes, peers, takeovers", Args: args(1, 1),
		Long: "STATE of a node: serves (in an ECMP group), master, backup, silent (its peers no longer hear it), alone (no controller is connected to its agent), " +
			"behind (its forwarder is not a node as the group wants it: see Error). Secrets are shown by their numbers alone.",
		RunE: func(c *cobra.Command, names []string) error { return a.describeGroup(c.Context(), names[0]) },
	}
	a.outputFlag(command)
	return command
}

func (a *app) describeGroup(ctx context.Context, name string) error {
	views, err := a.readGroups(ctx)
	if err != nil {
		return err
	}
	for _, v := range views {
		if v.Name != name {
			continue
		}
		happened, err := a.readEvents(ctx, 1000)
		if err != nil {
			return err
		}
		for _, one := range happened {
			if strings.HasPrefix(one.Detail, "group "+name+":") && len(v.Takeovers) < 10 {
				v.Takeovers = append(v.Takeovers, one)
			}
		}
		return a.show(v, func() { a.printGroup(&v) })
	}
	return fmt.Errorf("there is no group %q: `steelyard get groups` lists them", name)
}

func (a *app) printGroup(v *groupView) {
	a.pair("Group", fmt.Sprintf("%s, %s, %d of %d nodes serve", v.Name, v.Mode, v.serving(), len(v.Nodes)))
	if v.Problem != "" {
		a.pair("Problem", a.paint(cell{v.Problem, red}))
	}
	if len(v.Locals) > 0 {
		a.pair("Local", strings.Join(v.Locals, ", "))
	}
	if len(v.NextHops) > 0 {
		a.pair("Next hops", strings.Join(v.NextHops, ", "))
	}
	secrets := make([]string, len(v.Secrets))
	for i, number := range v.Secrets {
		secrets[i] = fmt.Sprint(number)
	}
	a.pair("Secrets", strings.Join(secrets, ", "))
	if v.Rotation != "" {
		a.pair("Rotation", v.Rotation)
	}
	for _, node := range v.Nodes {
		if node.Error != "" {
			a.pair("Error", a.paint(cell{node.Forwarder + ": " + node.Error, yellow}))
		}
	}
	t := &table{columns: []column{right("NODE"), left("FORWARDER"), left("STATE"), left("SYNC"), left("LOCAL"), left("NEXT HOPS"), left("PEERS")}}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		var peers []string
		for _, peer := range n.Peers {
			peers = append(peers, fmt.Sprintf("%d %s", peer.Node, peer.State))
		}
		t.add(n.Node, n.Forwarder, n.cell(), n.Sync, orDash(strings.Join(n.Locals, " ")), orDash(strings.Join(n.NextHops, " ")), orDash(strings.Join(peers, ", ")))
	}
	a.print(t)
	for _, one := range v.Takeovers {
		fmt.Fprintf(a.out, "%s  %s  %s\n", one.At, one.What, one.Detail)
	}
}

// ---- events -------------------------------------------------------------------------------------

// readEvents returns what happened by itself, the newest first.
func (a *app) readEvents(ctx context.Context, limit uint32) ([]auditView, error) {
	return a.readRecords(ctx, &pb.ListAuditRequest{Limit: limit, Events: true})
}

func (a *app) getEvents(ctx context.Context, limit uint32) error {
	views, err := a.readEvents(ctx, limit)
	if err != nil {
		return err
	}
	return a.show(views, func() {
		t := &table{columns: []column{left("AT"), left("WHAT"), left("FORWARDER"), left("REPORTED BY"), left("DETAIL")}}
		for _, v := range views {
			t.add(v.At, v.What, orDash(v.Forwarder), v.Who, v.Detail)
		}
		a.print(t)
	})
}

var errGroupAndForwarder = errors.New("--group and --forwarder exclude each other: a group is all of its forwarders")
