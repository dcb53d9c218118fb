// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"steelyard/internal/cluster"
	"steelyard/internal/config"
	pb "steelyard/internal/gen/controllerpb"

	"connectrpc.com/connect"
)

// Groups of forwarders: docs/design/0072-groups.md.

// GroupHeader begins the header that names forwarders, if it names a group instead.
const GroupHeader = "group/"

// groupOf says of which group a forwarder is a node. The record stays when it leaves: its revision is that of the change.
type groupOf struct {
	Group string `json:"group,omitempty"`
}

// groupKeys are a group's secrets. No method returns them.
type groupKeys struct {
	SlotKey string        `json:"slot_key"`
	Secrets []groupSecret `json:"secrets"` // the first one encrypts, both are accepted
	// Step of the replacement of the secret; see rotation.go.
	Step int `json:"step,omitempty"`
}

type groupSecret struct {
	ID     uint32 `json:"id"`
	Secret string `json:"secret"`
}

func randomHex(bytes int) (string, error) {
	random := make([]byte, bytes)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	return hex.EncodeToString(random), nil
}

const slotKeyBytes, secretBytes = 16, 32

func newGroupKeys() (keys groupKeys, err error) {
	if keys.SlotKey, err = randomHex(slotKeyBytes); err != nil {
		return keys, err
	}
	secret, err := randomHex(secretBytes)
	keys.Secrets = []groupSecret{{1, secret}}
	return keys, err
}

// groupsIn decodes the groups of a snapshot, by the names of their forwarders.
func groupsIn(now cluster.Snapshot) (map[string]*config.Group, error) {
	of := map[string]*config.Group{}
	for _, entry := range now.List(keyGroups) {
		group := new(config.Group)
		if err := decodeRecord(entry, group); err != nil {
			return nil, err
		}
		for _, name := range group.Forwarders() {
			of[name] = group
		}
	}
	return of, nil
}

// nodesOf returns the names of a group's forwarders.
func (s *Server) nodesOf(ctx context.Context, name string) ([]string, error) {
	group, entry, err := read[config.Group](ctx, s.store, keyGroups+name)
	if err != nil {
		return nil, err
	}
	if entry.Revision == 0 {
		return nil, missing("there is no group %q: `steelyard get groups` lists them", name)
	}
	return group.Forwarders(), nil
}

// checkWhole fails if forwarders are some nodes of a group only: the others could not keep the sessions of services that they do not have.
func (s *Server) checkWhole(ctx context.Context, forwarders []string) error {
	now, err := s.store.Snapshot(ctx, keyGroups)
	if err != nil {
		return unavailable(err)
	}
	of, err := groupsIn(now)
	if err != nil {
		return err
	}
	for _, name := range forwarders {
		if of[name] == nil {
			continue
		}
		for _, other := range of[name].Forwarders() {
			if !slices.Contains(forwarders, other) {
				return invalid(fmt.Errorf("%s is a node of the group %s, and all nodes need the same services: use --group %s instead of --forwarder",
					name, of[name].Name, of[name].Name))
			}
		}
	}
	return nil
}

// groupChange computes the transaction that makes a group what it shall be.
type groupChange struct {
	*Server
	caller principal
	w      *work
	before cluster.Entry // the group's
	old    config.Group
	now    cluster.Snapshot
	txn    *cluster.Txn
	plans  []*plan
}

// newGroupChange reads what a change of a group depends on.
func (s *Server) newGroupChange(ctx context.Context, caller principal, name string) (*groupChange, error) {
	now, err := s.store.Snapshot(ctx, keyGroups, keyGroupOf, keyMembers, keyGroupKeys+name, keyNodes)
	if err != nil {
		return nil, unavailable(err)
	}
	c := &groupChange{Server: s, caller: caller, w: s.newWork(defaultProject), now: now, before: now.Get(keyGroups + name), txn: new(cluster.Txn)}
	c.w.groups = map[string]*config.Group{}
	if c.before.Revision != 0 {
		if err := decodeRecord(c.before, &c.old); err != nil {
			return nil, err
		}
	}
	c.txn.Unchanged(c.before)
	return c, nil
}

// place makes a forwarder a node of a group; nil: of none.
func (c *groupChange) place(forwarder string, group *config.Group) {
	entry := c.now.Get(keyGroupOf + forwarder)
	var record groupOf
	if c.w.groups[forwarder] = group; group != nil {
		record.Group = group.Name
	}
	c.txn.Unchanged(entry)
	if value := encode(record); !bytes.Equal(value, entry.Value) {
		c.txn.Put(entry.Key, value, 0)
	}
}

// check fails if a forwarder cannot be a node of the group.
func (c *groupChange) check(file string, text []byte, group *config.Group) error {
	for i, name := range group.Forwarders() {
		at := config.Place(file, text, fmt.Sprintf("nodes[%d].forwarder", i))
		var known member
		entry := c.now.Get(keyMembers + name)
		if entry.Revision != 0 {
			if err := decodeRecord(entry, &known); err != nil {
				return err
			}
		}
		if known.Role != pb.Role_ROLE_FORWARDER || known.Key == "" {
			return invalid(fmt.Errorf("%sthere is no forwarder %q: `steelyard get forwarders` lists them; create a token for a new one by `steelyard token create --new-forwarder %s`",
				at, name, name))
		}
		c.txn.Unchanged(entry)
		var of groupOf
		if entry := c.now.Get(keyGroupOf + name); entry.Revision != 0 {
			if err := decodeRecord(entry, &of); err != nil {
				return err
			}
		}
		if of.Group != "" && of.Group != group.Name {
			return invalid(fmt.Errorf("%s%s is a node of the group %s: a forwarder is in one group; remove it there first", at, name, of.Group))
		}
	}
	return nil
}

// plan computes a forwarder's file anew, after its group has changed. text changes the file of the default project.
func (c *groupChange) plan(ctx context.Context, forwarder string, text func([]byte) ([]byte, error)) error {
	now, err := c.store.Snapshot(ctx, keyDesired+forwarder, keyConfigs+forwarder+"/"+defaultProject)
	if err != nil {
		return unavailable(err)
	}
	if now.Get(keyDesired+forwarder).Revision == 0 {
		return nil // its first file is extended when it is applied
	}
	var own []byte
	if entry := now.Get(keyConfigs + forwarder + "/" + defaultProject); entry.Revision != 0 && len(entry.Value) > 0 {
		large, err := c.store.Load(ctx, entry.Value)
		if err != nil {
			return unavailable(err)
		}
		own = large.Text
	}
	if own, err = text(own); err != nil {
		return invalid(err)
	}
	c.w.merged, c.w.named = nil, false // these assume one text for all forwarders
	plans, err := c.compute(ctx, c.w, []string{forwarder}, defaultProject, "forwarder "+forwarder, own)
	if err != nil {
		return err
	}
	c.w.usage = plans[0].record.Usage
	if err := c.saveTexts(ctx, c.w, plans[0]); err != nil {
		return err
	}
	if !plans[0].same() {
		c.plans = append(c.plans, plans[0])
	}
	return nil
}

// spare fails if one of the forwarders serves requests of the group: they would lose its services at once, while routes still lead to it.
func (c *groupChange) spare(ctx context.Context, forwarders []string) error {
	if len(forwarders) == 0 {
		return nil
	}
	p, _, err := c.loadPicture(ctx)
	if err != nil {
		return unavailable(err)
	}
	place := GroupHeader + c.old.Name
	ids := slices.DeleteFunc(slices.Clone(p.ids()), func(id string) bool { return p.requests[id].Forwarder != place })
	for _, name := range p.connected(place) {
		if len(ids) > 0 && slices.Contains(forwarders, name) {
			return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%s serves requests of the group %s (%s): stop its forwarder first, so that their routes lead elsewhere, or delete them by `steelyard nfv delete`",
				name, c.old.Name, strings.Join(ids, ", ")))
		}
	}
	return nil
}

// leave removes forwarders from the group. They keep their local addresses, in their own files.
func (c *groupChange) leave(ctx context.Context, forwarders []string) error {
	if err := c.spare(ctx, forwarders); err != nil {
		return err
	}
	for _, name := range forwarders {
		c.place(name, nil)
		err := c.plan(ctx, name, func(own []byte) ([]byte, error) {
			if own == nil {
				own = []byte("version: 1\nservices: []\n")
			}
			alone := config.Group{Name: c.old.Name, Local: c.old.Local, NextHops: c.old.NextHops}
			if node := c.old.Of(name); c.old.ECMP && node != nil {
				alone.Local, alone.NextHops = node.Local, node.NextHops
			}
			return alone.Extend("forwarder "+name, own, name)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// commit returns the transaction with the new files.
func (c *groupChange) commit(what, name, detail string) *cluster.Txn {
	if len(c.plans) > 0 {
		addPlans(c.txn, c.plans)
	}
	return c.record(c.txn, c.caller.String(), what, "", "", strings.TrimSuffix(name+": "+detail, ": "))
}

// SetGroup implements the service.
func (s *Server) SetGroup(ctx context.Context, request *connect.Request[pb.SetGroupRequest]) (*connect.Response[pb.SetGroupResponse], error) {
	caller, m := from(ctx), request.Msg
	if !caller.admin() {
		return nil, denied("only an admin changes groups, and %s is none", caller)
	}
	file := cmp.Or(m.GetFile(), "the group's file")
	group, err := config.ParseGroup(file, m.GetYaml())
	if err != nil {
		return nil, invalid(err)
	}
	response := &pb.SetGroupResponse{Name: group.Name}
	_, err = s.retry(ctx, func() (*cluster.Txn, error) {
		c, err := s.newGroupChange(ctx, caller, group.Name)
		if err != nil {
			return nil, err
		}
		return c.set(ctx, file, m.GetYaml(), group, response)
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(response), nil
}

func (c *groupChange) set(ctx context.Context, file string, text []byte, group *config.Group, response *pb.SetGroupResponse) (*cluster.Txn, error) {
	if err := c.check(file, text, group); err != nil {
		return nil, err
	}
	keysEntry := c.now.Get(keyGroupKeys + group.Name)
	c.txn.Unchanged(keysEntry)
	if keysEntry.Revision == 0 {
		keys, err := newGroupKeys()
		if err != nil {
			return nil, err
		}
		c.txn.Put(keysEntry.Key, encode(keys), 0)
	}
	value := encode(group)
	response.Changed = !bytes.Equal(value, c.before.Value) || c.hasOlder(group)
	if !response.Changed {
		return nil, nil
	}
	c.txn.Put(c.before.Key, value, 0)
	gone := slices.DeleteFunc(c.old.Forwarders(), func(name string) bool { return group.Of(name) != nil })
	if len(gone)+len(group.Nodes) > config.MaxGroupNodes+2 {
		return nil, invalid(fmt.Errorf("this replaces %d nodes at once: remove some first, then add the others", len(gone)))
	}
	if err := c.leave(ctx, gone); err != nil {
		return nil, err
	}
	for _, name := range group.Forwarders() {
		c.place(name, group)
		if err := c.plan(ctx, name, func(own []byte) ([]byte, error) { return own, nil }); err != nil {
			return nil, err
		}
	}
	response.Warnings = c.warnings(ctx, group)
	return c.commit("set group", group.Name, strings.Join(group.Forwarders(), ", ")), nil
}

// hasOlder reports whether a node's agent has a newer group than the store, as after a restore of etcd from a backup: the group is then written anew.
func (c *groupChange) hasOlder(group *config.Group) bool {
	return slices.ContainsFunc(group.Forwarders(), func(name string) bool {
		var now nodeStatus
		entry := c.now.Get(keyNodes + name)
		return entry.Revision != 0 && decodeRecord(entry, &now) == nil && now.Older
	})
}

// warnings names nodes whose services differ.
func (c *groupChange) warnings(ctx context.Context, group *config.Group) []string {
	var first cluster.Snapshot
	var warnings []string
	text := func(now cluster.Snapshot, forwarder string) string {
		var all string
		for _, entry := range now.List(keyConfigs + forwarder + "/") {
			all += nameOf(entry.Key, keyConfigs+forwarder+"/") + "\x00" + string(entry.Value) + "\x00"
		}
		return all
	}
	for i, name := range group.Forwarders() {
		now, err := c.store.Snapshot(ctx, keyConfigs+name+"/")
		if err != nil {
			return nil // the transaction will fail with this error
		}
		if i == 0 {
			first = now
		} else if base := group.Nodes[0].Forwarder; text(now, name) != text(first, base) {
			warnings = append(warnings, fmt.Sprintf("%s has other services than %s, so it cannot keep all sessions: apply one file to both by --group %s", name, base, group.Name))
		}
	}
	return warnings
}

// RemoveGroup implements the service.
func (s *Server) RemoveGroup(ctx context.Context, request *connect.Request[pb.RemoveGroupRequest]) (*connect.Response[pb.RemoveGroupResponse], error) {
	caller, name := from(ctx), request.Msg.GetName()
	if !caller.admin() {
		return nil, denied("only an admin changes groups, and %s is none", caller)
	}
	_, err := s.retry(ctx, func() (*cluster.Txn, error) {
		c, err := s.newGroupChange(ctx, caller, name)
		if err != nil {
			return nil, err
		}
		if c.before.Revision == 0 {
			return nil, missing("there is no group %q: `steelyard get groups` lists them", name)
		}
		if err := c.leave(ctx, c.old.Forwarders()); err != nil {
			return nil, err
		}
		c.txn.Delete(c.before.Key).Delete(keyGroupKeys + name).DeleteAll(keyTakeovers + name + "/")
		return c.commit("remove group", name, ""), nil
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.RemoveGroupResponse{}), nil
}
