// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"

	"go.yaml.in/yaml/v4"
)

// Part is a file whose services are added to another file.
type Part struct {
	Name string // prefix of its services' names: "shop" makes "shop.web"
	Text []byte
}

// Merge returns a file with the services of all parts after those of the base. A part has only `version`, `services`, and keys for its anchors
// (`x-…`). Its aliases are expanded, because an anchor would be visible in all later parts. The result is not checked further.
func Merge(base []byte, parts []Part) ([]byte, error) {
	if len(parts) == 0 {
		return base, nil
	}
	d := &decoder{file: "the configuration of the project default"}
	root := d.parse(base)
	if root == nil {
		return nil, d.result()
	}
	if merged := entryOf(root, mergeKey); merged != nil { // the added services would hide the merged ones
		d.fail(positionOf(merged), mergeKey, "where projects add services, the file may have no `<<` at the top: write its keys out")
		return nil, d.result()
	}
	services := entryOf(root, "services")
	if services == nil {
		services = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "services"}, services)
	}
	if services.Kind == yaml.AliasNode { // otherwise only the alias would be written
		list := d.writtenOut(services)
		for i := 1; i < len(root.Content); i += 2 {
			if root.Content[i] == services {
				root.Content[i] = list
			}
		}
		services = list
	}
	if len(d.errs) > 0 {
		return nil, d.result()
	}
	for _, part := range parts {
		more, err := part.services()
		if err != nil {
			return nil, err
		}
		services.Style = 0
		services.Content = append(services.Content, more...)
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return nil, err
	}
	return out.Bytes(), encoder.Close()
}

// services returns the part's services, with prefixed names.
func (p Part) services() ([]*yaml.Node, error) {
	d := &decoder{file: "the configuration of the project " + p.Name}
	root := d.parse(p.Text)
	if root == nil {
		return nil, d.result()
	}
	var list *yaml.Node
	for i := 0; root.Kind == yaml.MappingNode && i+1 < len(root.Content); i += 2 {
		switch key := root.Content[i]; key.Value {
		case "version":
		case "services":
			if list != nil {
				d.fail(positionOf(key), key.Value, "duplicate key: remove one")
			}
			list = root.Content[i+1]
		default:
			if isNote("", key.Value) {
				continue
			}
			d.fail(positionOf(key), key.Value, "only the default project may have this key: a project has `version` and `services`")
		}
	}
	if list != nil {
		list = d.writtenOut(list)
	}
	if list == nil || list.Kind != yaml.SequenceNode {
		d.fail(positionOf(root), "services", "`services` is missing, or not a list: write `services: […]`")
		return nil, d.result()
	}
	for _, service := range list.Content {
		if name := nameOf(service); name != nil && name.Kind == yaml.ScalarNode {
			name.Value = p.Name + "." + name.Value
			name.Tag, name.Style = "!!str", 0
		}
	}
	return list.Content, d.result()
}

// entryOf returns a mapping's value for a key, or nil.
func entryOf(n *yaml.Node, key string) *yaml.Node {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// nameOf returns the node of a service's name, or nil. A merged name is copied into the service, because each service of a part is renamed.
func nameOf(service *yaml.Node) *yaml.Node {
	if own := entryOf(service, "name"); own != nil || service.Kind != yaml.MappingNode {
		return own
	}
	entries := new(decoder).entries(service, "")
	for i := 0; i+1 < len(entries); i += 2 {
		if entries[i].Value == "name" {
			own := *entries[i+1]
			service.Content = append(service.Content, entries[i], &own)
			return &own
		}
	}
	return nil
}
