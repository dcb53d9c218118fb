// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// SNAT is a rule: packets from inside hosts to other hosts leave with an address of the pool.
type SNAT struct {
	Name     string
	Inside   []netip.Prefix
	Pool     []netip.Addr
	Timeouts Timeouts
}

// equal reports whether two rules are the same; the order of entries does not matter.
func (r SNAT) equal(other SNAT) bool {
	sorted := func(r SNAT) ([]netip.Prefix, []netip.Addr) {
		return slices.SortedFunc(slices.Values(r.Inside), netip.Prefix.Compare),
			slices.SortedFunc(slices.Values(r.Pool), netip.Addr.Compare)
	}
	inside, pool := sorted(r)
	otherInside, otherPool := sorted(other)
	return r.Timeouts == other.Timeouts && slices.Equal(inside, otherInside) && slices.Equal(pool, otherPool)
}

// diffSNAT returns the deletions that must come first, and the additions. A rule whose address changes its role is recreated.
func diffSNAT(from, to *Table, roles map[netip.Addr]role) (gone, puts []Change) {
	for _, name := range slices.Sorted(maps.Keys(from.SNAT)) {
		_, stays := to.SNAT[name]
		moves := slices.ContainsFunc(from.SNAT[name].Pool, func(a netip.Addr) bool {
			return roles[a] != roleNone && roles[a] != rolePool
		})
		if !stays || moves {
			gone = append(gone, Change{Kind: DeleteSNAT, SNAT: SNAT{Name: name}})
		}
		if stays && moves {
			puts = append(puts, Change{Kind: PutSNAT, SNAT: to.SNAT[name]})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(to.SNAT)) {
		old, ok := from.SNAT[name]
		again := slices.ContainsFunc(puts, func(c Change) bool { return c.SNAT.Name == name })
		if !again && (!ok || !old.equal(to.SNAT[name])) {
			puts = append(puts, Change{Kind: PutSNAT, SNAT: to.SNAT[name]})
		}
	}
	return gone, puts
}

func describeSNAT(c Change, from *Table) Description {
	object := "snat " + c.SNAT.Name
	if c.Kind == DeleteSNAT {
		return Description{"remove", object, "its sessions end"}
	}
	old, ok := from.SNAT[c.SNAT.Name]
	if !ok {
		return Description{"add", object, fmt.Sprintf("%s from %s", join(c.SNAT.Inside), join(c.SNAT.Pool))}
	}
	parts := slices.Concat(describeSet("inside", old.Inside, c.SNAT.Inside), describeSet("pool", old.Pool, c.SNAT.Pool))
	for i := range c.SNAT.Timeouts {
		if old.Timeouts[i] != c.SNAT.Timeouts[i] {
			parts = append(parts, fmt.Sprintf("timeout %s %d -> %d", Timeout(i), old.Timeouts[i], c.SNAT.Timeouts[i]))
		}
	}
	return Description{"change", object, strings.Join(parts, ", ")}
}

func join[T fmt.Stringer](list []T) string {
	parts := make([]string, len(list))
	for i, one := range list {
		parts[i] = one.String()
	}
	return strings.Join(parts, " ")
}

// describeSet describes the additions to a list and the removals from it.
func describeSet[T interface {
	comparable
	fmt.Stringer
}](what string, old, now []T) []string {
	var parts []string
	for _, one := range old {
		if !slices.Contains(now, one) {
			parts = append(parts, fmt.Sprintf("%s -%s", what, one))
		}
	}
	for _, one := range now {
		if !slices.Contains(old, one) {
			parts = append(parts, fmt.Sprintf("%s +%s", what, one))
		}
	}
	return parts
}
