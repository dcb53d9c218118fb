// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"

	"steelyard/internal/model"
)

// Addresses returns the services, SNAT rules, local addresses and next hops of a file, as Parse does, but does not check them. The file may be a
// part of another one, and refer to entries that only that one has.
func Addresses(data []byte) *model.Config {
	d := &decoder{}
	root := d.parse(data)
	if root == nil {
		return &model.Config{}
	}
	var raw rawFile
	readObject(d, root, "", fileFields, &raw)
	b := &builder{decoder: d, raw: &raw, unchecked: true, names: map[string]position{}, keys: map[model.ServiceKey]position{},
		ranges: map[netip.Addr][]rangeAt{}, access: map[string]position{}, sets: map[string]position{},
		locals: map[netip.Addr]position{}, servers: map[netip.Addr]position{}}
	config := &model.Config{NextHops: b.nextHops(), SNAT: b.snat()}
	config.LocalAddresses, config.PeerLocals = b.localAddresses()
	for i := range raw.services {
		if raw.services[i].vip.set {
			config.Services = append(config.Services, b.service(&raw.services[i]))
		}
	}
	return config
}

// localAddresses returns the local addresses of this node and those of its peers, and notes the families of its own ones.
func (b *builder) localAddresses() (own, peers []netip.Addr) {
	if b.meant["local_addresses"] { // do not also report both families as missing
		b.has4, b.has6 = true, true
	}
	for _, local := range b.raw.locals {
		if !local.set { // already reported; do not also report its family as missing
			b.has4, b.has6 = true, true
		} else if b.addLocal(local) {
			b.has4, b.has6 = b.has4 || local.v.Is4(), b.has6 || local.v.Is6()
			own = append(own, local.v)
		}
	}
	for _, local := range b.raw.peers {
		if local.set && b.addLocal(local) {
			peers = append(peers, local.v)
		}
	}
	return own, peers
}

// addLocal returns false if the address is in either list already.
func (b *builder) addLocal(local value[netip.Addr]) bool {
	if first, ok := b.locals[local.v]; ok {
		b.fail(local.at, local.path, "%s is already in line %d: remove one", local.v, first.line)
		return false
	}
	if len(b.locals) == maxLocalAddresses {
		b.fail(local.at, local.path, "%d local addresses, at most %d are possible: remove some",
			len(b.raw.locals)+len(b.raw.peers), maxLocalAddresses)
	}
	b.locals[local.v] = local.at
	return true
}
