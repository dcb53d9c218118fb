// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strconv"
	"strings"

	"steelyard/internal/model"

	"go.yaml.in/yaml/v4"
)

// Place returns the position of a value in a file, as the beginning of a message: "web.yaml:6:10: services[0].vip: ". Returns the path alone if the
// file lacks the value. It parses the file again, so use it for rare messages only.
func Place(file string, data []byte, path string) string {
	d := &decoder{file: file}
	return placeIn(file, d.parse(data), path)
}

func placeIn(file string, root *yaml.Node, path string) string {
	n := root
	for rest := path; n != nil && rest != ""; {
		n, rest = below(n, rest)
	}
	if n == nil {
		return path + ": "
	}
	return fmt.Sprintf("%s:%d:%d: %s: ", file, n.Line, n.Column, path)
}

// below follows the first step of a path. Returns the rest of the path.
func below(n *yaml.Node, path string) (at *yaml.Node, rest string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if index, ok := strings.CutPrefix(path, "["); ok {
		index, rest, _ = strings.Cut(index, "]")
		i, err := strconv.Atoi(index)
		if err != nil || n.Kind != yaml.SequenceNode || i >= len(n.Content) {
			return nil, ""
		}
		return n.Content[i], strings.TrimPrefix(rest, ".")
	}
	end := strings.IndexAny(path+".", ".[")
	key, rest := path[:end], strings.TrimPrefix(path[end:], ".")
	if n.Kind != yaml.MappingNode {
		return nil, ""
	}
	entries := new(decoder).entries(n, path) // the file was parsed before, so it is within bounds
	for i := 0; i+1 < len(entries); i += 2 {
		if entries[i].Value == key {
			return entries[i+1], rest
		}
	}
	return nil, ""
}

// Warnings returns a configuration's warnings, each with its place in the file.
func Warnings(file string, data []byte, config *model.Config) []string {
	warnings := config.Warnings()
	if len(warnings) == 0 {
		return nil
	}
	d := &decoder{file: file}
	root := d.parse(data)
	texts := make([]string, len(warnings))
	for i, warning := range warnings {
		texts[i] = placeIn(file, root, warning.Path) + warning.Text
	}
	return texts
}
