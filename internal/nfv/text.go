// SPDX-License-Identifier: Apache-2.0

package nfv

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"steelyard/internal/config"
	pb "steelyard/internal/gen/nfvpb"

	"go.yaml.in/yaml/v4"
)

// maxSettings bounds the further keys of a service, and of a server.
const maxSettings = 16 << 10

// Text returns the file of a project at a forwarder.
func Text(services []*pb.Balancing) ([]byte, error) {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, b := range services {
		for n, v := range Services(b) {
			node, err := serviceNode(b, v, ServiceName(b, n))
			if err != nil {
				return nil, err
			}
			list.Content = append(list.Content, node)
		}
	}
	if len(services) == 0 {
		list.Style = yaml.FlowStyle
	}
	root := mapping()
	put(root, "version", scalar("1"))
	put(root, "services", list)
	var out bytes.Buffer
	out.WriteString("# Written by the workflow of NFV.\n")
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return nil, err
	}
	return out.Bytes(), encoder.Close()
}

func serviceNode(b *pb.Balancing, v *pb.VirtualService, name string) (*yaml.Node, error) {
	service := mapping()
	put(service, "name", text(name))
	put(service, "vip", text(v.GetVip()))
	put(service, "port", scalar(strconv.Itoa(int(v.GetVport()))))
	put(service, "protocol", text(v.GetProtocol()))
	if err := add(service, b.GetSettings(), "servers"); err != nil {
		return nil, fmt.Errorf("settings of %s: %w", b.GetId(), err)
	}
	if err := add(service, v.GetSettings(), "servers"); err != nil {
		return nil, fmt.Errorf("settings of %s: %w", name, err)
	}
	servers := &yaml.Node{Kind: yaml.SequenceNode}
	for _, r := range v.GetRealServices() {
		server := mapping()
		put(server, "address", text(r.GetDip()))
		put(server, "port", scalar(strconv.Itoa(int(r.GetDport()))))
		put(server, "weight", scalar(strconv.Itoa(int(r.GetWeight()))))
		if err := add(server, r.GetSettings()); err != nil {
			return nil, fmt.Errorf("settings of %s of %s: %w", r.GetDip(), b.GetId(), err)
		}
		servers.Content = append(servers.Content, server)
	}
	if len(servers.Content) == 0 {
		servers.Style = yaml.FlowStyle
	}
	put(service, "servers", servers)
	return service, nil
}

func mapping() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode} }

func scalar(value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: value} }

// text is a scalar that YAML does not read as a number.
func text(value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
}

func put(to *yaml.Node, key string, value *yaml.Node) {
	to.Content = append(to.Content, text(key), value)
}

// add puts the keys of a mapping into another one, which must not have them.
func add(to *yaml.Node, settings string, reserved ...string) error {
	if settings == "" {
		return nil
	}
	if len(settings) > maxSettings {
		return fmt.Errorf("more than %d bytes", maxSettings)
	}
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(settings), &document); err != nil {
		return fmt.Errorf("not YAML: %w", err)
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return errors.New("these are keys with values, as a configuration file has them")
	}
	for i := 0; i < len(to.Content); i += 2 {
		reserved = append(reserved, to.Content[i].Value)
	}
	list := document.Content[0].Content
	for i := 0; i+1 < len(list); i += 2 {
		if slices.Contains(reserved, list[i].Value) {
			return fmt.Errorf("`%s` is a field of the request itself", list[i].Value)
		}
	}
	to.Content = append(to.Content, list...)
	return nil
}

// Check parses a request as a complete file, to reject an invalid one at once. It does not check references to the forwarder's own file.
func Check(b *pb.Balancing) error {
	data, err := Text([]*pb.Balancing{b})
	if err != nil {
		return err
	}
	// Local addresses from benchmark networks: the forwarder's are not known yet.
	base := []byte("version: 1\nlocal_addresses: [198.18.255.254, 2001:2::fffe]\nservices: []\n")
	merged, err := config.Merge(base, []config.Part{{Name: b.GetProject(), Text: data}})
	if err != nil {
		return err
	}
	_, err = config.Parse(b.GetId(), merged)
	var list config.Errors
	if errors.As(err, &list) {
		list = slices.DeleteFunc(list, func(e config.Error) bool { return hasSuffix(e.Path, ".access") })
		if len(list) == 0 {
			return nil
		}
		return list
	}
	return err
}

func hasSuffix(path, suffix string) bool {
	return len(path) >= len(suffix) && path[len(path)-len(suffix):] == suffix
}
