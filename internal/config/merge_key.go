// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// mergeKey is YAML's key for entries from other mappings: `<<: *defaults`, or a list of these. The mapping's own entries win, then those of the first
// mapping in the list.
const mergeKey = "<<"

// isNote reports whether a key at the top level only holds anchors: `x-defaults: &defaults { … }`. Its value is decoded where an alias names it.
func isNote(path, key string) bool { return path == "" && strings.HasPrefix(key, "x-") }

func isMergeKey(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && key.Value == mergeKey && key.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0
}

// entries returns the keys and values of a mapping, its own ones before merged ones. It counts the visited entries, so that merges cannot multiply
// without limit.
func (d *decoder) entries(n *yaml.Node, path string) []*yaml.Node {
	if !slices.ContainsFunc(n.Content, isMergeKey) { // the common case; a value "<<" is harmless
		return n.Content
	}
	var own, merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if isMergeKey(n.Content[i]) {
			merged = d.merge(merged, n.Content[i+1], path, maxDepth)
		} else {
			own = append(own, n.Content[i], n.Content[i+1])
		}
	}
	has := map[string]bool{}
	for i := 0; i < len(own); i += 2 {
		has[own[i].Value] = true
	}
	for i := 0; i < len(merged); i += 2 {
		if name := merged[i].Value; !has[name] {
			has[name] = true
			own = append(own, merged[i], merged[i+1])
		}
	}
	return own
}

// merge appends the entries of a merge key's value: a mapping, or a list of mappings, which may merge others.
func (d *decoder) merge(into []*yaml.Node, value *yaml.Node, path string, depth int) []*yaml.Node {
	from := d.enter(value)
	switch {
	case d.full():
	case depth == 0:
		d.fail(positionOf(value), path, "`<<` merges more than %d deep, or a mapping with itself: write the keys out", maxDepth)
	case from.Kind == yaml.SequenceNode:
		for _, item := range from.Content {
			into = d.merge(into, item, path, depth-1)
		}
	case from.Kind != yaml.MappingNode:
		d.fail(positionOf(value), path, "%s found after `<<`: name a mapping, as `<<: *defaults` for `x-defaults: &defaults { … }`", describeNode(from))
	default:
		var deeper []*yaml.Node
		for i := 0; i+1 < len(from.Content) && !d.full(); i += 2 {
			if isMergeKey(from.Content[i]) {
				deeper = d.merge(deeper, from.Content[i+1], path, depth-1)
				continue
			}
			d.values++
			into = append(into, from.Content[i], from.Content[i+1])
		}
		into = append(into, deeper...)
	}
	return into
}

// excessiveAlias returns the alias at which the values of a file, each as often as aliases name it, become more than maxValues; nil if they do not.
// Decoding counts them too (enter), and also what merges name, but only after it has allocated most of them.
func excessiveAlias(root *yaml.Node) *yaml.Node {
	known := map[*yaml.Node]int{} // values below anchors; 0 while they are being counted
	var last, excessive *yaml.Node
	var count func(n *yaml.Node, isRoot bool) int
	count = func(n *yaml.Node, isRoot bool) int {
		if values, is := known[n]; is {
			return values
		}
		if n.Anchor != "" {
			known[n] = 0
		}
		values := 1
		for i, child := range n.Content {
			if n.Kind == yaml.MappingNode && (i%2 == 0 || isMergeKey(n.Content[i-1]) || isRoot && isNote("", n.Content[i-1].Value)) {
				continue
			}
			if child.Kind == yaml.AliasNode {
				last = child
			}
			values += count(target(child), false)
			if values > maxValues {
				excessive = cmp.Or(excessive, last)
				values = maxValues + 1
			}
		}
		if n.Anchor != "" {
			known[n] = values
		}
		return values
	}
	count(target(root), true)
	return excessive
}

// maxExpanded bounds the nodes that expand writes.
const maxExpanded = maxValues / 4

// expand returns a copy of a node with its aliases expanded: in a merged text, an anchor would be visible in all later parts.
func (d *decoder) expand(n *yaml.Node, budget *int, depth int) *yaml.Node {
	if *budget--; *budget < 0 || depth == 0 {
		if *budget == -1 || depth == 0 {
			d.fail(positionOf(n), "", "aliases expand to more than %d values, or contain themselves: use fewer", maxExpanded)
		}
		*budget = min(*budget, -1)
		return &yaml.Node{Kind: yaml.ScalarNode}
	}
	written := *target(n)
	written.Anchor, written.Alias = "", nil
	written.Content = make([]*yaml.Node, 0, len(written.Content))
	for i, child := range target(n).Content {
		if child.Kind == yaml.AliasNode && written.Kind == yaml.MappingNode && i%2 == 0 { // a mapping is not a valid key
			d.fail(positionOf(child), "", "a key must be a plain word, not an alias")
		}
		written.Content = append(written.Content, d.expand(child, budget, depth-1))
	}
	return &written
}

// hasAlias reports whether a node has anchors or aliases.
func hasAlias(n *yaml.Node) bool {
	return n.Anchor != "" || n.Kind == yaml.AliasNode || slices.ContainsFunc(n.Content, hasAlias)
}

// writtenOut returns a node without anchors and aliases.
func (d *decoder) writtenOut(n *yaml.Node) *yaml.Node {
	if !hasAlias(n) {
		return n
	}
	budget := maxExpanded
	return d.expand(n, &budget, 2*maxDepth)
}
