// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"steelyard/internal/model"

	"go.yaml.in/yaml/v4"
)

// Access lists.

const (
	maxAccessLists    = 256
	maxAccessRules    = 1024
	maxCountingRules  = 15
	maxAccessPrefixes = 4096 // of a list
	maxAccessSets     = 32
	maxSetPrefixes    = 4096 // of a set in the file
)

type rawAccessList struct {
	name      value[string]
	otherwise value[model.AccessAction]
	existing  value[model.ExistingSessions]
	rules     []rawAccessRule
}

type rawAccessRule struct {
	at       position
	path     string
	name     value[string]
	action   value[model.AccessAction]
	from     []value[accessFrom]
	protocol value[model.Protocol]
	ports    []value[portRange]
	log      value[int]
}

// accessFrom is a prefix, or the name of a set.
type accessFrom struct {
	prefix netip.Prefix
	set    string
}

type rawAccessSet struct {
	name     value[string]
	at       position
	path     string
	given    bool // prefixes
	prefixes []value[netip.Prefix]
	file     value[string]
}

var accessRuleFields = []field[rawAccessRule]{
	scalar(fieldDoc{name: "name", kind: "name", def: "",
		doc: "A name of the rule, unique in its list, which metrics and `steelyard get access` show. Metrics identify a rule without a name by its " +
			"position, which changes when a rule is added before it. At most 63 bytes; neither a number nor `otherwise`."},
		func(r *rawAccessRule) *value[string] { return &r.name }, parseRuleName),
	scalar(fieldDoc{name: "action", kind: "allow, drop, reset or count", required: true,
		doc: "`allow`: the session is created. `drop`: the packet is dropped. `reset`: the packet is dropped, and TCP clients get a reset, UDP clients " +
			"an ICMP error, within a rate limit. `count`: the match is counted, and evaluation continues with the next rule; at most 15 rules of a list."},
		func(r *rawAccessRule) *value[model.AccessAction] { return &r.action }, parseWord(model.AccessActions...)),
	{fieldDoc{name: "from", kind: "list of prefixes and sets", def: "",
		doc: "Prefixes or addresses of clients, of both families, and names of `access_sets`. Without it the rule matches all clients."},
		func(d *decoder, n *yaml.Node, path string, into *rawAccessRule) {
			readList(d, n, path, func(n *yaml.Node, path string) {
				into.from = append(into.from, readScalar(d, n, path, parseAccessFrom))
			})
		}},
	scalar(fieldDoc{name: "protocol", kind: "tcp or udp", def: "", doc: "The protocol of the session. Without it the rule matches both."},
		func(r *rawAccessRule) *value[model.Protocol] { return &r.protocol }, parseWord(model.TCP, model.UDP)),
	{fieldDoc{name: "ports", kind: "list of ports and ranges", def: "",
		doc: "Ports to which the client connects, such as `[80, 8000-8099]`. Without it the rule matches all ports."},
		func(d *decoder, n *yaml.Node, path string, into *rawAccessRule) {
			readList(d, n, path, func(n *yaml.Node, path string) {
				into.ports = append(into.ports, readScalar(d, n, path, parseAccessPorts))
			})
		}},
	scalar(fieldDoc{name: "log", kind: "number, 1 to 1000000000", def: "",
		doc: "The forwarder logs one of every so many matches, at most 100 per second and worker. Without it matches are not logged."},
		func(r *rawAccessRule) *value[int] { return &r.log }, parseNumber(1, 1000000000)),
}

var accessListFields = []field[rawAccessList]{
	scalar(fieldDoc{name: "name", kind: "name", required: true,
		doc: "A unique name of at most 63 bytes: letters, digits, `.`, `_` and `-`."},
		func(l *rawAccessList) *value[string] { return &l.name }, parseName),
	scalar(fieldDoc{name: "otherwise", kind: "allow, drop or reset", def: "allow",
		doc: "The action for new sessions that no rule matches."},
		func(l *rawAccessList) *value[model.AccessAction] { return &l.otherwise },
		parseWord(model.AccessAllow, model.AccessDrop, model.AccessReset)),
	scalar(fieldDoc{name: "existing", kind: "keep or end", def: "keep",
		doc: "Existing sessions after a change of the list, of a set that it names, or of a service's `access`. `keep`: they continue. " +
			"`end`: those that the list would not allow now end within seconds, TCP connections by resets to both ends. `steelyard apply` and " +
			"`steelyard diff` warn of it, and `steelyard get access` counts the ended sessions."},
		func(l *rawAccessList) *value[model.ExistingSessions] { return &l.existing }, parseWord(model.ExistingWords...)),
	mappings(fieldDoc{name: "rules", required: true, object: accessRuleObject,
		doc: "The rules in order; the first one that matches decides. At most 1024."},
		func(f *rawAccessList) *[]rawAccessRule { return &f.rules },
		func(at position, path string) rawAccessRule { return rawAccessRule{at: at, path: path} }, accessRuleFields),
}

var accessSetFields = []field[rawAccessSet]{
	scalar(fieldDoc{name: "name", kind: "name", required: true,
		doc: "A unique name of at most 63 bytes: letters, digits, `.`, `_` and `-`. It may not look like an address."},
		func(s *rawAccessSet) *value[string] { return &s.name }, parseSetName),
	{fieldDoc{name: "prefixes", kind: "list of prefixes", def: "",
		doc: "Prefixes or addresses of clients, of both families, in any order. At most 4096. Either `prefixes` or `file` is required."},
		func(d *decoder, n *yaml.Node, path string, into *rawAccessSet) {
			into.given = true
			readList(d, n, path, func(n *yaml.Node, path string) {
				into.prefixes = append(into.prefixes, readScalar(d, n, path, ParsePrefix))
			})
		}},
	scalar(fieldDoc{name: "file", kind: "absolute path", def: "",
		doc: "A file with one prefix per line; `#` begins a comment. The files of all sets together may have 4194304 prefixes. The file must be in the agent's `--sets` directory (default: that of its own file) and readable by the agent. " +
			"The agent reloads the file whenever it changes; if it then has an error, the set keeps its prefixes."},
		func(s *rawAccessSet) *value[string] { return &s.file }, parseSetFile),
}

var (
	accessSetObject = docsOf("access_sets", "Named sets of clients, for the rules of access lists. A client is in a set if one of the set's "+
		"prefixes has its address. A set can change without the lists that name it. See docs/access.md.", accessSetFields)
	accessRuleObject = docsOf("rules", "A rule of an access list. It matches a new session if all of its conditions match.", accessRuleFields)
	accessListObject = docsOf("access_lists", "Lists of rules that decide which new sessions begin. The forwarder checks a list once for each new session, "+
		"before it creates the session. Established sessions continue when a list changes, unless the list has `existing: end`. See docs/access.md.", accessListFields)
)

func parseSetName(text string) (string, error) {
	if _, err := netip.ParseAddr(text); err == nil {
		return "", fmt.Errorf("%s is an address: give the set a name that does not look like one", text)
	}
	return parseName(text)
}

func parseSetFile(text string) (string, error) {
	if !filepath.IsAbs(text) {
		return "", fmt.Errorf("%q is not an absolute path: write one like /etc/steelyard/blocklist.txt", text)
	}
	return filepath.Clean(text), nil
}

// parseAccessFrom accepts a prefix or the name of a set. accessLists checks that the set exists.
func parseAccessFrom(text string) (accessFrom, error) {
	prefix, err := ParsePrefix(text)
	if err == nil || strings.ContainsAny(text, "/:") {
		return accessFrom{prefix: prefix}, err
	}
	name, err := parseName(text)
	if err != nil {
		return accessFrom{}, fmt.Errorf("%q is neither a prefix such as 10.1.0.0/24 nor the name of a set", text)
	}
	return accessFrom{set: name}, nil
}

// ParsePrefix parses a prefix of clients, or an address; a prefix may cover a whole family.
func ParsePrefix(text string) (netip.Prefix, error) {
	var prefix netip.Prefix
	var err error
	if strings.Contains(text, "/") {
		prefix, err = netip.ParsePrefix(text)
	} else {
		var address netip.Addr
		address, err = netip.ParseAddr(text)
		if address.Zone() != "" {
			err = errors.New("a zone")
		}
		prefix = netip.PrefixFrom(address, address.BitLen())
	}
	if err != nil {
		return prefix, fmt.Errorf("%q is not a prefix: write one like 10.1.0.0/24 or fd00:1::/64", text)
	}
	if prefix.Addr().Is4In6() {
		return prefix, fmt.Errorf("%s is an IPv4-mapped IPv6 prefix: write it as IPv4", text)
	}
	if prefix != prefix.Masked() {
		return prefix, fmt.Errorf("%s has bits behind its length: write %s", text, prefix.Masked())
	}
	return prefix, nil
}

// parseRuleName rejects the labels that metrics use for rules without a name, and for sessions that no rule matches.
func parseRuleName(text string) (string, error) {
	if _, err := strconv.ParseUint(text, 10, 64); err == nil || text == "otherwise" {
		return "", fmt.Errorf("%q cannot be a rule's name: use another word, such as \"scanners\"", text)
	}
	return parseName(text)
}

func parseAccessPorts(text string) (portRange, error) {
	if text == "all" {
		return portRange{}, fmt.Errorf("for all ports leave `ports` out")
	}
	ports, err := parsePorts(text)
	if err == nil && ports.last == 0 {
		ports.last = ports.first
	}
	return ports, err
}

// accessSets builds the configuration's sets from the file's, and reports contradictions.
func (b *builder) accessSets() []model.AccessSet {
	var sets []model.AccessSet
	for i := range b.raw.sets {
		raw := &b.raw.sets[i]
		b.unique(b.sets, "set", raw.name, "")
		if i == maxAccessSets {
			b.fail(raw.name.at, raw.name.path, "%d access sets, at most %d are possible: put prefixes of one purpose into one set",
				len(b.raw.sets), maxAccessSets)
		}
		if len(raw.prefixes) > maxSetPrefixes {
			at := raw.prefixes[maxSetPrefixes]
			b.fail(at.at, at.path, "%d prefixes, at most %d are possible", len(raw.prefixes), maxSetPrefixes)
		}
		if raw.given == raw.file.set {
			b.fail(raw.at, raw.path, "a set has either `prefixes` or a `file`")
		}
		set := model.AccessSet{Name: raw.name.v, File: raw.file.v}
		for _, prefix := range raw.prefixes {
			if prefix.set {
				set.Prefixes = append(set.Prefixes, prefix.v)
			}
		}
		set.Prefixes = model.MergePrefixes(set.Prefixes)
		sets = append(sets, set)
	}
	return sets
}

// accessLists builds the configuration's lists from the file's, and reports contradictions.
func (b *builder) accessLists() []model.AccessList {
	var lists []model.AccessList
	for i := range b.raw.access {
		raw := &b.raw.access[i]
		b.unique(b.access, "list", raw.name, "")
		if i == maxAccessLists {
			b.fail(raw.name.at, raw.name.path, "%d access lists, at most %d are possible: let services share some",
				len(b.raw.access), maxAccessLists)
		}
		lists = append(lists, b.accessList(raw))
	}
	if b.raw.globalAccess.set {
		b.checkAccess(b.raw.globalAccess)
	}
	return lists
}

func (b *builder) accessList(raw *rawAccessList) model.AccessList {
	list := model.AccessList{Name: raw.name.v, Otherwise: raw.otherwise.or(model.AccessAllow), Existing: raw.existing.v}
	counting, prefixes := 0, 0
	named := map[string]position{}
	for i, one := range raw.rules {
		rule := model.AccessRule{Name: one.name.v, Action: one.action.v, Protocol: one.protocol.v, LogEvery: uint32(one.log.v)}
		b.unique(named, "rule", one.name, " in a list")
		if i == maxAccessRules {
			b.fail(one.at, one.path, "%d rules, at most %d are possible: put prefixes of one action into one rule",
				len(raw.rules), maxAccessRules)
		}
		if rule.Action == model.AccessCount {
			if counting++; counting == maxCountingRules+1 {
				b.fail(one.action.at, one.action.path, "more than %d rules of a list count: remove some", maxCountingRules)
			}
		}
		for _, from := range one.from {
			switch {
			case !from.set: // was reported
			case from.v.set == "":
				rule.From = append(rule.From, from.v.prefix)
			default:
				rule.Sets = append(rule.Sets, from.v.set)
				if _, ok := b.sets[from.v.set]; !ok && !b.meant["access_sets"] {
					b.fail(from.at, from.path, "%s is no prefix, and there is no access set of this name: add one to `access_sets`",
						strconv.Quote(from.v.set))
				}
			}
		}
		for _, ports := range one.ports {
			rule.Ports = append(rule.Ports, model.PortRange{First: ports.v.first, Last: ports.v.last})
		}
		before := prefixes
		prefixes += max(len(rule.From)+len(rule.Sets), 1) * max(len(rule.Ports), 1)
		if before <= maxAccessPrefixes && prefixes > maxAccessPrefixes {
			b.fail(one.at, one.path, "the list has more than %d combinations of prefixes and ports: use fewer", maxAccessPrefixes)
		}
		list.Rules = append(list.Rules, rule)
	}
	return list
}

// checkAccess ensures that a named list exists.
func (b *builder) checkAccess(name value[string]) {
	if _, ok := b.access[name.v]; name.set && !ok && !b.meant["access_lists"] {
		b.fail(name.at, name.path, "there is no access list %s: add one to `access_lists`", strconv.Quote(name.v))
	}
}
