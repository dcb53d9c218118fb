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
	for _, local := range raw.locals {
		if local.set {
			config.LocalAddresses = append(config.LocalAddresses, local.v)
		}
	}
	for i := range raw.services {
		if raw.services[i].vip.set {
			config.Services = append(config.Services, b.service(&raw.services[i]))
		}
	}
	return config
}
