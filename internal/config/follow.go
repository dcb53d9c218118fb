// SPDX-License-Identifier: Apache-2.0

package config

import "strings"

// A mistake can cause misleading errors in later checks. These functions decide which checks still make sense, so that one pass reports every mistake,
// and no consequences of another one.

// namesLead reports whether references to services and tenants can be checked: no service or tenant has a mistake in a property that limits and
// shaping use.
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

// mistaken returns the list elements with a mistake, such as "limits[3]".
func (b *builder) mistaken() map[string]bool {
	elements := map[string]bool{}
	for i := range b.errs {
		element, _, _ := strings.Cut(b.errs[i].Path, "]")
		elements[element+"]"] = true
	}
	return elements
}
