// SPDX-License-Identifier: Apache-2.0

package config

import "strings"

// A mistake can make other checks speak of what is not there. These tell which checks still make sense, so that one pass
// reports every mistake, and nothing that only follows from another one.

// namesLead reports whether services and tenants are as they are named: none of them has a mistake in what limits and
// shaping ask of it.
func (b *builder) namesLead() bool {
	if b.unnamed || b.meant["services"] || b.meant["tenants"] {
		return false
	}
	for i := range b.errs {
		path := b.errs[i].Path
		if path == "" || path == "services" || strings.HasPrefix(path, "tenants") {
			return false
		}
		if service, key, below := strings.Cut(path, "]."); strings.HasPrefix(service, "services[") {
			if !below || key == "name" || key == "vip" || b.meant[service+"].vip"] || b.meant[service+"].name"] {
				return false
			}
		}
	}
	return true
}

// mistaken returns the elements of lists, "limits[3]", that have a mistake.
func (b *builder) mistaken() map[string]bool {
	elements := map[string]bool{}
	for i := range b.errs {
		element, _, _ := strings.Cut(b.errs[i].Path, "]")
		elements[element+"]"] = true
	}
	return elements
}
