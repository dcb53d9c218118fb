// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Group is a group of forwarders, as its file declares it, and as controllers store it.
type Group struct {
	Name     string       `json:"name"`
	ECMP     bool         `json:"ecmp,omitempty"`
	NextHops []netip.Addr `json:"next_hops,omitempty"` // of a pair
	Local    []netip.Addr `json:"local_addresses,omitempty"`
	Nodes    []GroupNode  `json:"nodes"`
}

// GroupNode is one of its forwarders.
type GroupNode struct {
	Forwarder string         `json:"forwarder"`
	Node      uint32         `json:"node"`
	Sync      netip.AddrPort `json:"sync"`
	NextHops  []netip.Addr   `json:"next_hops,omitempty"` // of an ECMP group
	Local     []netip.Addr   `json:"local_addresses,omitempty"`
}

// MaxGroupNodes bounds a group, so that one transaction changes all of its nodes.
const MaxGroupNodes = 8

const (
	defaultSyncPort = 8849
	maxNodeNumber   = 31
)

type groupMode string

const (
	groupPair groupMode = "pair"
	groupECMP groupMode = "ecmp"
)

func (m groupMode) String() string { return string(m) }

type rawGroup struct {
	version  value[int]
	name     value[string]
	mode     value[groupMode]
	nextHops []value[netip.Addr]
	locals   []value[netip.Addr]
	nodes    []rawGroupNode
}

type rawGroupNode struct {
	at        position
	path      string
	forwarder value[string]
	node      value[int]
	sync      value[netip.AddrPort]
	nextHops  []value[netip.Addr]
	locals    []value[netip.Addr]
}

// addressList is a field with a list of addresses.
func addressList[T any](name string, pick func(*T) *[]value[netip.Addr]) field[T] {
	return field[T]{fieldDoc{name: name, kind: "list of addresses"}, func(d *decoder, n *yaml.Node, path string, into *T) {
		readList(d, n, path, func(n *yaml.Node, path string) {
			*pick(into) = append(*pick(into), readScalar(d, n, path, parseAddress))
		})
	}}
}

var groupNodeFields = []field[rawGroupNode]{
	scalar(fieldDoc{name: "forwarder", kind: "name", required: true}, func(n *rawGroupNode) *value[string] { return &n.forwarder }, parseName),
	scalar(fieldDoc{name: "node", kind: fmt.Sprintf("number, 1 to %d", maxNodeNumber), required: true},
		func(n *rawGroupNode) *value[int] { return &n.node }, parseNumber(1, maxNodeNumber)),
	scalar(fieldDoc{name: "sync", kind: "address, or with a port ADDRESS:PORT", required: true},
		func(n *rawGroupNode) *value[netip.AddrPort] { return &n.sync }, parseSyncAddress),
	addressList("next_hops", func(n *rawGroupNode) *[]value[netip.Addr] { return &n.nextHops }),
	addressList("local_addresses", func(n *rawGroupNode) *[]value[netip.Addr] { return &n.locals }),
}

var groupFields = []field[rawGroup]{
	scalar(fieldDoc{name: "version", kind: "1", required: true}, func(g *rawGroup) *value[int] { return &g.version }, parseNumber(1, 1)),
	scalar(fieldDoc{name: "group", kind: "name", required: true}, func(g *rawGroup) *value[string] { return &g.name }, parseName),
	scalar(fieldDoc{name: "mode", kind: "pair or ecmp", required: true}, func(g *rawGroup) *value[groupMode] { return &g.mode }, parseWord(groupPair, groupECMP)),
	addressList("next_hops", func(g *rawGroup) *[]value[netip.Addr] { return &g.nextHops }),
	addressList("local_addresses", func(g *rawGroup) *[]value[netip.Addr] { return &g.locals }),
	mappings(fieldDoc{name: "nodes", required: true}, func(g *rawGroup) *[]rawGroupNode { return &g.nodes },
		func(at position, path string) rawGroupNode { return rawGroupNode{at: at, path: path} }, groupNodeFields),
}

func parseSyncAddress(text string) (netip.AddrPort, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		text = netip.AddrPortFrom(address, defaultSyncPort).String()
	}
	to, err := netip.ParseAddrPort(text)
	if err != nil || to.Port() == 0 || to.Addr().Zone() != "" || to.Addr().IsUnspecified() || to.Addr().IsMulticast() {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address of a host: write ADDRESS, ADDRESS:PORT or [IPv6 ADDRESS]:PORT", text)
	}
	return netip.AddrPortFrom(to.Addr().Unmap(), to.Port()), nil
}

// groupChecker finds what a group's file has twice.
type groupChecker struct {
	*decoder
	seen map[string]position
}

// once fails if the file has a value for the second time. Returns false if the file does not set it.
func (c *groupChecker) once(what, text string, at position, path string) {
	if first, ok := c.seen[what+text]; ok {
		c.fail(at, path, "%s is already in line %d: remove one", text, first.line)
		return
	}
	c.seen[what+text] = at
}

func (c *groupChecker) addresses(list []value[netip.Addr], what string) []netip.Addr {
	var all []netip.Addr
	for _, one := range list {
		if one.set {
			c.once(what, one.v.String(), one.at, one.path)
			all = append(all, one.v)
		}
	}
	return all
}

// oneOfEach fails if two next hops of one list have the same family.
func (c *groupChecker) oneOfEach(list []value[netip.Addr]) {
	seen := map[bool]position{}
	for _, one := range list {
		if first, ok := seen[one.v.Is4()]; ok && one.set {
			c.fail(one.at, one.path, "%s is the second one of its family, after line %d: remove one", one.v, first.line)
		}
		seen[one.v.Is4()] = one.at
	}
}

// ParseGroup parses and checks the file of a group. All errors have their place and the remedy.
func ParseGroup(file string, data []byte) (*Group, error) {
	d := &decoder{file: file}
	root := d.parse(data)
	if root == nil {
		return nil, d.result()
	}
	var raw rawGroup
	readObject(d, root, "", groupFields, &raw)
	c := &groupChecker{d, map[string]position{}}
	group := &Group{Name: raw.name.v, ECMP: raw.mode.v == groupECMP}
	group.NextHops, group.Local = c.addresses(raw.nextHops, "hop"), c.addresses(raw.locals, "local")
	c.oneOfEach(raw.nextHops)
	for i := range raw.nodes {
		group.Nodes = append(group.Nodes, c.node(&raw.nodes[i], group, raw.mode.set))
	}
	at := positionOf(root)
	if n := len(raw.nodes); len(d.errs) == 0 && raw.mode.set {
		switch {
		case group.ECMP && len(raw.nextHops)+len(raw.locals) > 0:
			d.fail(at, "", "in `mode: ecmp` each node has its own `next_hops` and `local_addresses`: move them into `nodes`")
		case !group.ECMP && n != 2:
			d.fail(at, "nodes", "a pair has two nodes, not %d: use `mode: ecmp` for more", n)
		case n < 2 || n > MaxGroupNodes:
			d.fail(at, "nodes", "a group has 2 to %d nodes, not %d", MaxGroupNodes, n)
		}
	}
	return group, d.result()
}

func (c *groupChecker) node(raw *rawGroupNode, group *Group, known bool) GroupNode {
	node := GroupNode{Forwarder: raw.forwarder.v, Node: uint32(raw.node.v), Sync: raw.sync.v,
		NextHops: c.addresses(raw.nextHops, "hop"), Local: c.addresses(raw.locals, "local")}
	if raw.forwarder.set {
		c.once("forwarder", raw.forwarder.v, raw.forwarder.at, raw.forwarder.path)
	}
	if raw.node.set {
		c.once("node", fmt.Sprint(raw.node.v), raw.node.at, raw.node.path)
	}
	if raw.sync.set {
		c.once("sync", raw.sync.v.Addr().String(), raw.sync.at, raw.sync.path)
		if first := group.Nodes; len(first) > 0 && first[0].Sync.IsValid() && first[0].Sync.Addr().Is4() != raw.sync.v.Addr().Is4() {
			c.fail(raw.sync.at, raw.sync.path, "%s is of another family than %s: use one for all nodes", raw.sync.v.Addr(), first[0].Sync.Addr())
		}
	}
	c.oneOfEach(raw.nextHops)
	if known && !group.ECMP && len(raw.nextHops)+len(raw.locals) > 0 {
		c.fail(raw.at, raw.path, "in `mode: pair` both nodes have the same `next_hops` and `local_addresses`: move them out of `nodes`")
	}
	return node
}

// Of returns a forwarder's node; nil: it has none.
func (g *Group) Of(forwarder string) *GroupNode {
	for i := range g.Nodes {
		if g.Nodes[i].Forwarder == forwarder {
			return &g.Nodes[i]
		}
	}
	return nil
}

// Forwarders returns the names of all nodes.
func (g *Group) Forwarders() []string {
	names := make([]string, len(g.Nodes))
	for i := range g.Nodes {
		names[i] = g.Nodes[i].Forwarder
	}
	return names
}

// addresses returns what the group writes into a forwarder's file, by key.
func (g *Group) addresses(forwarder string) (keys []string, lists [][]netip.Addr) {
	own, hops, peers := g.Local, g.NextHops, []netip.Addr(nil)
	if g.ECMP {
		for i := range g.Nodes {
			if node := &g.Nodes[i]; node.Forwarder == forwarder {
				own, hops = node.Local, node.NextHops
			} else {
				peers = append(peers, node.Local...)
			}
		}
	}
	for _, one := range []struct {
		key  string
		list []netip.Addr
	}{{"local_addresses", own}, {"peer_local_addresses", peers}, {"next_hops", hops}} {
		if len(one.list) > 0 {
			keys, lists = append(keys, one.key), append(lists, one.list)
		}
	}
	return keys, lists
}

// Extend returns a forwarder's file with the addresses that the group has for it. The file must not have these keys.
func (g *Group) Extend(file string, text []byte, forwarder string) ([]byte, error) {
	keys, lists := g.addresses(forwarder)
	d := &decoder{file: file}
	root := d.parse(text)
	if root == nil {
		return nil, d.result()
	}
	for _, key := range keys {
		if n := entryOf(root, key); n != nil {
			d.fail(positionOf(n), key, "the group %s has this key for its nodes: remove it here, and change it by `steelyard group set`", g.Name)
		}
	}
	if err := d.result(); err != nil || len(keys) == 0 {
		return text, err
	}
	if root.Kind == yaml.MappingNode && root.Style&yaml.FlowStyle == 0 && root.Column == 1 { // positions in the file stay as they are
		out := append(bytes.TrimRight(bytes.Clone(text), "\n"), '\n')
		for i, key := range keys {
			out = fmt.Appendf(out, "%s: [%s]\n", key, quoted(lists[i]))
		}
		return out, nil
	}
	for i, key := range keys {
		var list yaml.Node
		if err := list.Encode(lists[i]); err != nil {
			return nil, err
		}
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, &list)
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	if err := encoder.Encode(root); err != nil {
		return nil, err
	}
	return out.Bytes(), encoder.Close()
}

func quoted(list []netip.Addr) string {
	words := make([]string, len(list))
	for i, address := range list {
		words[i] = fmt.Sprintf("%q", address)
	}
	return strings.Join(words, ", ")
}
