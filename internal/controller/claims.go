// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"strings"

	"steelyard/internal/cluster"
	"steelyard/internal/config"
	"steelyard/internal/model"
)

// Ownership of addresses: docs/design/0054-ownership-and-egress.md. A project claims a VIP or a server when a change adds it to one of the project's
// files. Claims are checked against the files of all projects at all forwarders.

// uses are the addresses that one file uses.
type uses struct {
	keys    map[model.ServiceKey]bool
	servers map[netip.Addr]bool // true: of a service with mode nat
	own     map[netip.Addr]bool // of the forwarder itself: local addresses, next hops and SNAT pools
	inside  map[netip.Prefix]bool
}

func usesOf(config *model.Config, has func(*model.Service) bool) *uses {
	u := &uses{keys: map[model.ServiceKey]bool{}, servers: map[netip.Addr]bool{}, own: map[netip.Addr]bool{}, inside: map[netip.Prefix]bool{}}
	for i := range config.Services {
		service := &config.Services[i]
		if !has(service) {
			continue
		}
		u.keys[service.Key] = true
		for _, server := range service.Servers {
			address := server.Address.Addr()
			u.servers[address] = u.servers[address] || service.Mode == model.NAT
		}
	}
	for _, list := range [][]netip.Addr{config.LocalAddresses, config.PeerLocals, config.NextHops} {
		for _, address := range list {
			u.own[address] = true
		}
	}
	for _, rule := range config.SNAT {
		for _, address := range rule.Pool {
			u.own[address] = true
		}
		for _, prefix := range rule.Inside {
			u.inside[prefix] = true
		}
	}
	return u
}

// without returns the addresses of u that other lacks.
func (u *uses) without(other *uses) *uses {
	fresh := &uses{keys: maps.Clone(u.keys), servers: maps.Clone(u.servers), own: maps.Clone(u.own), inside: maps.Clone(u.inside)}
	maps.DeleteFunc(fresh.keys, func(key model.ServiceKey, _ bool) bool { return other.keys[key] })
	maps.DeleteFunc(fresh.servers, func(address netip.Addr, nat bool) bool {
		before, had := other.servers[address]
		return had && (before || !nat)
	})
	maps.DeleteFunc(fresh.own, func(address netip.Addr, _ bool) bool { return other.own[address] })
	maps.DeleteFunc(fresh.inside, func(prefix netip.Prefix, _ bool) bool { return other.inside[prefix] })
	return fresh
}

// same reports whether two files use the same services and servers.
func (u *uses) same(other *uses) bool {
	return maps.Equal(u.keys, other.keys) && maps.Equal(u.servers, other.servers)
}

func (u *uses) empty() bool {
	return len(u.keys) == 0 && len(u.servers) == 0 && len(u.own) == 0 && len(u.inside) == 0
}

// holding is a project's use of an address.
type holding struct {
	project, at string // at: the file, for messages
	nat         bool
}

// usesOfOthers are the addresses in the files of other projects.
type usesOfOthers struct {
	files   int
	newest  int64 // revision
	vips    map[netip.Addr]holding
	servers map[netip.Addr][]holding
	own     map[netip.Addr]holding // of forwarders
}

// claimed are the addresses of other projects, against which a project's claims are checked.
type claimed struct {
	*usesOfOthers
	entry    cluster.Entry // of keyClaims
	revision int64
	requests map[netip.Addr]holder // of all projects
	control  map[netip.Addr]string
}

// claims are the preconditions under which a change may claim its addresses.
type claims struct {
	of         *claimed
	write, nat bool
}

// claimsOf joins the preconditions of the plans of one computation.
func claimsOf(plans []*plan) *claims {
	var all *claims
	for _, p := range plans {
		switch {
		case p.claims == nil:
		case all == nil:
			all = &claims{p.claims.of, p.claims.write, p.claims.nat}
		default:
			all.write, all.nat = all.write || p.claims.write, all.nat || p.claims.nat
		}
	}
	return all
}

// guard makes a transaction fail if another project has claimed addresses since the check.
func (c *claims) guard(txn *cluster.Txn) {
	if c == nil {
		return
	}
	txn.Unchanged(c.of.entry)
	if c.write {
		txn.Put(c.of.entry.Key, nil, 0).NoneSince(keyVIPs, c.of.revision)
	}
	if c.nat { // requests claim servers without writing this key
		txn.NoneSince(keyConfigs, c.of.revision)
	}
}

// claim checks the addresses that a plan claims. Returns nil if it claims none.
func (s *Server) claim(ctx context.Context, w *work, p *plan) (*claims, error) {
	now := usesIn(w, p)
	if p.project != defaultProject && p.text != nil && !s.usesOfText(p.text).same(now) {
		return nil, invalid(fmt.Errorf("the file of the project %s means other services when it is merged with those of other projects: write it without tags, aliases and `<<`", p.project))
	}
	before, err := s.usesAt(ctx, p.own)
	if err != nil {
		return nil, err
	}
	fresh := now.without(before)
	if fresh.empty() {
		return nil, nil
	}
	if w.claimed == nil {
		if w.claimed, err = s.claimedBeside(ctx, p.project); err != nil {
			return nil, err
		}
	}
	check := claimCheck{claimed: w.claimed, project: p.project, record: p.record, operator: w.operator}
	if err := check.all(fresh); err != nil {
		return nil, err
	}
	c := &claims{of: w.claimed, write: !w.workflow || len(fresh.own) > 0}
	for _, nat := range fresh.servers {
		c.nat = c.nat || nat
	}
	for key := range fresh.keys { // the request has claimed them already
		c.write = c.write || w.claimed.requests[key.VIP].Project != p.project
	}
	c.write = c.write || c.nat
	return c, nil
}

// usesIn returns the addresses that the project uses after a plan.
func usesIn(w *work, p *plan) *uses {
	if known := w.uses[p.parsed]; known != nil {
		return known
	}
	mine := *p.parsed
	if p.project != defaultProject {
		mine.LocalAddresses, mine.PeerLocals, mine.NextHops, mine.SNAT = nil, nil, nil, nil
	}
	known := usesOf(&mine, p.has)
	if w.uses == nil {
		w.uses = map[*model.Config]*uses{}
	}
	w.uses[p.parsed] = known
	return known
}

// maxUses bounds the files whose addresses are cached.
const maxUses = 4096

// usesOfText returns the addresses of a project's file that is about to be stored. It caches them for the comparison with the next change.
func (s *Server) usesOfText(text []byte) *uses {
	key := cluster.NameOf(text)
	s.usesMu.Lock()
	known := s.uses[key]
	s.usesMu.Unlock()
	if known == nil {
		known = usesOf(config.Addresses(text), func(*model.Service) bool { return true })
		s.rememberUses(key, known)
	}
	return known
}

func (s *Server) rememberUses(key string, known *uses) {
	s.usesMu.Lock()
	defer s.usesMu.Unlock()
	if s.uses == nil || len(s.uses) >= maxUses {
		s.uses = map[string]*uses{}
	}
	s.uses[key] = known
}

// usesAt returns the addresses of a file in the store. It caches them by the file's hash.
func (s *Server) usesAt(ctx context.Context, entry cluster.Entry) (*uses, error) {
	if len(entry.Value) == 0 {
		return usesOf(&model.Config{}, nil), nil
	}
	key := string(entry.Value)
	s.usesMu.Lock()
	known := s.uses[key]
	s.usesMu.Unlock()
	if known != nil {
		return known, nil
	}
	text, err := s.store.Load(ctx, entry.Value)
	if err != nil {
		return nil, unavailable(fmt.Errorf("%s: %w", entry.Key, err))
	}
	known = usesOf(config.Addresses(text.Text), func(*model.Service) bool { return true })
	s.rememberUses(key, known)
	return known, nil
}

// claimedBeside reads the addresses of all other projects, from the files of all forwarders and from requests.
func (s *Server) claimedBeside(ctx context.Context, project string) (*claimed, error) {
	now, err := s.store.Snapshot(ctx, keyClaims, keyConfigs, keyPrevious, keyVIPs, keyControllers, keyOwners)
	if err != nil {
		return nil, unavailable(err)
	}
	files, err := s.filesBeside(ctx, project, now)
	if err != nil {
		return nil, err
	}
	c := &claimed{entry: now.Get(keyClaims), revision: now.Revision, usesOfOthers: files, requests: map[netip.Addr]holder{},
		control: controlAddresses(now)}
	for _, entry := range now.List(keyVIPs) {
		var has holder
		if err := decodeRecord(entry, &has); err != nil {
			return nil, err
		}
		if vip, err := netip.ParseAddr(nameOf(entry.Key, keyVIPs)); err == nil {
			c.requests[vip] = has
		}
	}
	return c, nil
}

// filesBeside joins the addresses in the files of other projects. The result is cached until one of the files changes.
func (s *Server) filesBeside(ctx context.Context, project string, now cluster.Snapshot) (*usesOfOthers, error) {
	all := &usesOfOthers{vips: map[netip.Addr]holding{}, servers: map[netip.Addr][]holding{}, own: map[netip.Addr]holding{}}
	var files []cluster.Entry
	for _, root := range []string{keyConfigs, keyPrevious} { // the desired files, and those that a rollback restores
		for _, entry := range now.List(root) {
			if _, other, _ := strings.Cut(nameOf(entry.Key, root), "/"); other != project {
				files = append(files, entry)
				all.newest = max(all.newest, entry.Revision)
			}
		}
	}
	all.files = len(files)
	s.usesMu.Lock()
	known := s.beside[project]
	s.usesMu.Unlock()
	if known != nil && known.files == all.files && known.newest == all.newest {
		return known, nil
	}
	seen := map[string]bool{} // a hundred forwarders may have the same file
	for _, entry := range files {
		_, place, _ := strings.Cut(entry.Key, "/")
		forwarder, other, _ := strings.Cut(place, "/")
		if key := other + "\x00" + string(entry.Value); !seen[key] {
			seen[key] = true
			u, err := s.usesAt(ctx, entry)
			if err != nil {
				return nil, err
			}
			all.add(u, other, "at "+forwarder)
		}
	}
	s.usesMu.Lock()
	defer s.usesMu.Unlock()
	if s.beside == nil || len(s.beside) >= maxParsers {
		s.beside = map[string]*usesOfOthers{}
	}
	s.beside[project] = all
	return all, nil
}

func (o *usesOfOthers) add(u *uses, other, at string) {
	for key := range u.keys {
		o.vips[key.VIP] = holding{project: other, at: at}
	}
	for address, nat := range u.servers {
		o.servers[address] = append(o.servers[address], holding{other, at, nat})
	}
	for address := range u.own {
		o.own[address] = holding{project: other, at: at}
	}
}

// controlAddresses returns the addresses of controllers, and of agents that are connected to any of them. If a controller's URL has a host name, its
// address is the one that agents have connected to.
func controlAddresses(now cluster.Snapshot) map[netip.Addr]string {
	found := map[netip.Addr]string{}
	for _, entry := range now.List(keyOwners) {
		var one owner
		if decodeRecord(entry, &one) == nil {
			found[one.Agent] = "the agent of " + nameOf(entry.Key, keyOwners)
			found[one.At] = "a controller"
		}
	}
	for _, entry := range now.List(keyControllers) {
		var one owner
		if decodeRecord(entry, &one) != nil {
			continue
		}
		if to, err := url.Parse(one.URL); err == nil {
			if address, err := netip.ParseAddr(to.Hostname()); err == nil {
				found[address.Unmap()] = "a controller"
			}
		}
	}
	delete(found, netip.Addr{}) // owners written by older versions have no address
	return found
}
