// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// AccessAction is what a rule of an access list does with a new session.
type AccessAction uint8

// The actions; the numbers are the forwarder's.
const (
	AccessAllow AccessAction = 1
	AccessDrop  AccessAction = 2
	AccessReset AccessAction = 3 // and notify the client by a reset or an ICMP error
	AccessCount AccessAction = 4 // the next rules decide
)

// AccessActions lists all actions.
var AccessActions = []AccessAction{AccessAllow, AccessDrop, AccessReset, AccessCount}

func (a AccessAction) String() string {
	words := [...]string{"", "allow", "drop", "reset", "count"}
	if a == 0 || int(a) >= len(words) {
		return fmt.Sprintf("action-%d", uint8(a))
	}
	return words[a]
}

// PortRange is a range of ports, both ends included.
type PortRange struct{ First, Last uint16 }

func (r PortRange) String() string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// AccessRule is a rule of an access list. It matches a new session if all its conditions match.
type AccessRule struct {
	Name     string // to show; may be empty
	Action   AccessAction
	From     []netip.Prefix // the client is in one of them
	Sets     []string       // or in one of these sets; neither: any client
	Protocol Protocol       // 0: any
	Ports    []PortRange    // of the service; none: any
	LogEvery uint32         // one of so many matches is logged; 0: none
}

func (r AccessRule) equal(other AccessRule) bool {
	return r.Name == other.Name && r.Action == other.Action && r.Protocol == other.Protocol && r.LogEvery == other.LogEvery &&
		slices.Equal(r.From, other.From) && slices.Equal(r.Sets, other.Sets) && slices.Equal(r.Ports, other.Ports)
}

// Clients returns the names of sets, and prefixes.
func (r AccessRule) Clients() []string {
	clients := slices.Clone(r.Sets)
	for _, prefix := range r.From {
		clients = append(clients, prefix.String())
	}
	return clients
}

func (r AccessRule) String() string {
	text := r.Action.String()
	if from := r.Clients(); len(from) > 0 {
		text += " from " + strings.Join(from, " ")
	}
	if r.Protocol != 0 {
		text += " " + r.Protocol.String()
	}
	if len(r.Ports) > 0 {
		text += " port " + join(r.Ports)
	}
	return text
}

// AccessList decides which sessions may begin: by the first rule that matches.
type AccessList struct {
	Name      string
	Rules     []AccessRule
	Otherwise AccessAction
	Existing  ExistingSessions
}

// ExistingSessions is the action for sessions from before a change of an access list.
type ExistingSessions uint8

// Existing sessions continue, or those that the list would not allow now end.
const (
	KeepExisting ExistingSessions = iota
	EndExisting
)

// ExistingWords lists both.
var ExistingWords = []ExistingSessions{KeepExisting, EndExisting}

func (e ExistingSessions) String() string {
	if e == EndExisting {
		return "end"
	}
	return "keep"
}

// announce describes the action for existing sessions.
func (e ExistingSessions) announce() string {
	if e == EndExisting {
		return "existing sessions that the list no longer allows end"
	}
	return "existing sessions continue"
}

func (l AccessList) names(set string) bool {
	return slices.ContainsFunc(l.Rules, func(r AccessRule) bool { return slices.Contains(r.Sets, set) })
}

func (l AccessList) equal(other AccessList) bool {
	return l.Name == other.Name && l.Otherwise == other.Otherwise && l.Existing == other.Existing && slices.EqualFunc(l.Rules, other.Rules, AccessRule.equal)
}

// AccessSet is a named set of clients.
type AccessSet struct {
	Name     string
	Prefixes []netip.Prefix // as MergePrefixes returns them
	// In a configuration: the file that has the prefixes. In a table: that file has not been read so far, and
	// the forwarder keeps its data, or gets an empty set.
	File string
	Data *SetData // in a table: instead of Prefixes
}

func (s AccessSet) equal(other AccessSet) bool {
	return s.Name == other.Name && s.File == other.File && s.Data.Equal(other.Data) && slices.Equal(s.Prefixes, other.Prefixes)
}

// SetData are the prefixes of a set that has too many for a transaction.
type SetData struct {
	Digest   [sha256.Size]byte // of Bytes
	Bytes    []byte            // as forwarder.proto describes PutSetDataRequest; nil: only the forwarder has them
	Prefixes int               // 0 if Bytes is nil
}

// NewSetData packs prefixes, as MergePrefixes returns them.
func NewSetData(prefixes []netip.Prefix) *SetData {
	count4 := 0
	for count4 < len(prefixes) && prefixes[count4].Addr().Is4() {
		count4++
	}
	packed := make([]byte, 0, 8+5*count4+17*(len(prefixes)-count4))
	packed = binary.LittleEndian.AppendUint32(packed, uint32(count4))
	packed = binary.LittleEndian.AppendUint32(packed, uint32(len(prefixes)-count4))
	for _, prefix := range prefixes {
		if prefix.Addr().Is4() {
			address := prefix.Addr().As4()
			packed = append(packed, address[:]...)
		} else {
			address := prefix.Addr().As16()
			packed = append(packed, address[:]...)
		}
		packed = append(packed, byte(prefix.Bits()))
	}
	return &SetData{Digest: sha256.Sum256(packed), Bytes: packed, Prefixes: len(prefixes)}
}

// Equal compares by digest.
func (d *SetData) Equal(other *SetData) bool {
	return (d == nil) == (other == nil) && (d == nil || d.Digest == other.Digest)
}

// MergePrefixes sorts prefixes by address, IPv4 first, and leaves out those that lie within another one.
// It changes the slice.
func MergePrefixes(prefixes []netip.Prefix) []netip.Prefix {
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	merged := prefixes[:0]
	for _, prefix := range prefixes {
		if len(merged) == 0 || !merged[len(merged)-1].Contains(prefix.Addr()) {
			merged = append(merged, prefix)
		}
	}
	return merged
}

// diffAccess returns the changes before services need them, and the deletions after services no longer do.
func diffAccess(from, to *Table) (puts, gone []Change) {
	for _, name := range slices.Sorted(maps.Keys(to.AccessSets)) {
		old, ok := from.AccessSets[name]
		set := to.AccessSets[name]
		if set.File != "" { // not read so far
			if ok {
				continue
			}
			set = AccessSet{Name: name, File: set.File}
		}
		if !ok || !old.equal(set) {
			puts = append(puts, Change{Kind: PutAccessSet, AccessSet: set})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(to.AccessLists)) {
		if old, ok := from.AccessLists[name]; !ok || !old.equal(to.AccessLists[name]) {
			puts = append(puts, Change{Kind: PutAccessList, AccessList: to.AccessLists[name]})
		}
	}
	if from.GlobalAccess != to.GlobalAccess {
		puts = append(puts, Change{Kind: PutGlobalAccess, AccessList: AccessList{Name: to.GlobalAccess}})
	}
	for _, name := range slices.Sorted(maps.Keys(from.AccessLists)) {
		if _, ok := to.AccessLists[name]; !ok {
			gone = append(gone, Change{Kind: DeleteAccessList, AccessList: AccessList{Name: name}})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(from.AccessSets)) {
		if _, ok := to.AccessSets[name]; !ok {
			gone = append(gone, Change{Kind: DeleteAccessSet, AccessSet: AccessSet{Name: name}})
		}
	}
	return puts, gone
}

func describeAccessSet(c Change, from *Table) Description {
	object := "access set " + c.AccessSet.Name
	if c.Kind == DeleteAccessSet {
		return Description{"remove", object, ""}
	}
	size := func(s AccessSet) string {
		switch {
		case s.File != "":
			return "empty until its file is read"
		case s.Data == nil:
			return plural(len(s.Prefixes), "prefix")
		case s.Data.Bytes == nil:
			return "another version of its file"
		default:
			return plural(s.Data.Prefixes, "prefix") + " of its file"
		}
	}
	old, ok := from.AccessSets[c.AccessSet.Name]
	if !ok {
		return Description{"add", object, size(c.AccessSet)}
	}
	text := size(old) + " -> " + size(c.AccessSet) + "; "
	ends := slices.DeleteFunc(slices.Sorted(maps.Keys(from.AccessLists)), func(name string) bool {
		return from.AccessLists[name].Existing != EndExisting || !from.AccessLists[name].names(c.AccessSet.Name)
	})
	if len(ends) > 0 {
		return Description{"change", object, text + "sessions that " + strings.Join(ends, ", ") + " no longer allows end"}
	}
	return Description{"change", object, text + KeepExisting.announce()}
}

func describeAccess(c Change, from *Table) Description {
	object := "access list " + c.AccessList.Name
	switch c.Kind {
	case DeleteAccessList:
		return Description{"remove", object, ""}
	case PutGlobalAccess:
		text := orNone(from.GlobalAccess) + " -> " + orNone(c.AccessList.Name)
		if from.AccessLists[c.AccessList.Name].Existing == EndExisting {
			text += "; " + EndExisting.announce()
		}
		return Description{"change", "access list of all services", text}
	}
	old, ok := from.AccessLists[c.AccessList.Name]
	if !ok {
		text := fmt.Sprintf("%s, otherwise %s", plural(len(c.AccessList.Rules), "rule"), c.AccessList.Otherwise)
		if c.AccessList.Existing == EndExisting {
			text += "; " + EndExisting.announce()
		}
		return Description{"add", object, text}
	}
	var parts []string
	if old.Otherwise != c.AccessList.Otherwise {
		parts = append(parts, fmt.Sprintf("otherwise %s -> %s", old.Otherwise, c.AccessList.Otherwise))
	}
	if !slices.EqualFunc(old.Rules, c.AccessList.Rules, AccessRule.equal) {
		parts = append(parts, fmt.Sprintf("%s -> %s", plural(len(old.Rules), "rule"), plural(len(c.AccessList.Rules), "rule")))
	}
	if old.Existing != c.AccessList.Existing {
		parts = append(parts, fmt.Sprintf("existing %s -> %s", old.Existing, c.AccessList.Existing))
	}
	return Description{"change", object, strings.Join(parts, ", ") + "; " + c.AccessList.Existing.announce()}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if noun == "prefix" {
		return fmt.Sprintf("%d prefixes", n)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
