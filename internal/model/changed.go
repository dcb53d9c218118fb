// SPDX-License-Identifier: Apache-2.0

package model

import "slices"

// equal compares two services; services of two configurations often share their servers.
func (s *Service) equal(other *Service) bool {
	if s.Name != other.Name || s.Key != other.Key || s.Mode != other.Mode || s.Policy != other.Policy ||
		s.Timeouts != other.Timeouts || s.Health != other.Health || s.Load != other.Load || s.Feedback != other.Feedback || len(s.Servers) != len(other.Servers) {
		return false
	}
	return len(s.Servers) == 0 || &s.Servers[0] == &other.Servers[0] || slices.Equal(s.Servers, other.Servers)
}

// ChangedServices returns the keys of services that differ between two configurations or exist in only
// one. It returns false if the configurations differ in more than services, limits and shaping: a Part has all of these two.
func ChangedServices(before, after *Config) (map[ServiceKey]struct{}, bool) {
	if !slices.Equal(before.LocalAddresses, after.LocalAddresses) || !slices.Equal(before.PeerLocals, after.PeerLocals) ||
		!slices.EqualFunc(before.SNAT, after.SNAT, SNAT.equal) ||
		!slices.EqualFunc(before.AccessSets, after.AccessSets, AccessSet.equal) ||
		!slices.EqualFunc(before.AccessLists, after.AccessLists, AccessList.equal) || before.GlobalAccess != after.GlobalAccess {
		return nil, false
	}
	changed := map[ServiceKey]struct{}{}
	old := make(map[ServiceKey]*Service, len(before.Services))
	for i := range before.Services {
		old[before.Services[i].Key] = &before.Services[i]
	}
	for i := range after.Services {
		service := &after.Services[i]
		if was := old[service.Key]; was == nil || !was.equal(service) {
			changed[service.Key] = struct{}{}
		}
		delete(old, service.Key)
	}
	for key := range old {
		changed[key] = struct{}{}
	}
	return changed, true
}

// Part returns the table with these services only. It shares its contents with t.
func (t *Table) Part(services map[ServiceKey]struct{}) *Table {
	part := &Table{LocalAddresses: t.LocalAddresses, Services: map[ServiceKey]*TableService{}, SNAT: t.SNAT,
		AccessSets: t.AccessSets, AccessLists: t.AccessLists, GlobalAccess: t.GlobalAccess, Limits: t.Limits, Shaping: t.Shaping}
	for key := range services {
		if service := t.Services[key]; service != nil {
			part.Services[key] = service
		}
	}
	return part
}
