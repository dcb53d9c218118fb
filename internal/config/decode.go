// SPDX-License-Identifier: Apache-2.0

// Package config parses the agent's YAML file. The schema (schema.go) is declared once; it drives both the decoding and the reference in
// docs/configuration.md. One pass finds every error of a file, with line and column. A file with any error is refused as a whole.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"steelyard/internal/model"

	"go.yaml.in/yaml/v4"
)

// MaxFileBytes is the largest file; 20 000 services of ten servers need 16 MB.
const MaxFileBytes = 64 << 20

// Further limits: those services have 1 000 000 values, and aliases must not multiply values without limit.
const (
	maxValues = 2 << 20
	maxErrors = 10000 // more would not help
)

// Error is one mistake in a file.
type Error struct {
	File         string
	Line, Column int
	Path         string // "services[0].port"; empty: the file itself
	Text         string // what is wrong, and the remedy
}

func (e Error) Error() string {
	place := fmt.Sprintf("%s:%d:%d: ", e.File, e.Line, e.Column)
	if e.Path != "" {
		place += e.Path + ": "
	}
	return place + e.Text
}

// Errors are all mistakes of a file, in the file's order.
type Errors []Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

type position struct{ line, column int32 }

func positionOf(n *yaml.Node) position {
	return position{int32(n.Line), int32(n.Column)}
}

// value is a value of the file, with its position. A file has hundreds of thousands of servers with a dozen values each, so small fields come
// last.
type value[V any] struct {
	path string
	at   position
	v    V
	set  bool
}

// or returns the value, or def's value if the file does not set it.
func (v value[V]) or(def V) V {
	if v.set {
		return v.v
	}
	return def
}

// over returns v, or the fallback if the file does not set v.
func (v value[V]) over(fallback value[V]) value[V] {
	if v.set {
		return v
	}
	return fallback
}

// decoder decodes a file's nodes and collects the errors.
type decoder struct {
	file   string
	errs   Errors
	values int
	// Uses of former names of keys.
	deprecated []model.Warning
	// Keys that misspelt ones probably mean, by path, and the mappings that contain misspelt keys: missing keys there follow from that error.
	meant    map[string]bool
	misspelt map[string]bool
}

// noteMisspelt records that a key of the mapping at path probably means another one.
func (d *decoder) noteMisspelt(path, meant string) {
	if d.meant == nil {
		d.meant, d.misspelt = map[string]bool{}, map[string]bool{}
	}
	d.meant[join(path, meant)], d.misspelt[path] = true, true
}

// follows reports whether an error at path may follow from a misspelt key there or in a mapping around it. The file itself is excluded: callers
// check its keys one by one.
func (d *decoder) follows(path string) bool {
	for len(d.misspelt) > 0 && path != "" {
		if d.misspelt[path] {
			return true
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return false
}

func (d *decoder) fail(at position, path, format string, args ...any) {
	if len(d.errs) == maxErrors {
		return
	}
	d.errs = append(d.errs, Error{d.file, int(at.line), int(at.column), path, fmt.Sprintf(format, args...)})
}

// result returns the errors in the file's order, or nil.
func (d *decoder) result() error {
	if len(d.errs) == 0 {
		return nil
	}
	slices.SortStableFunc(d.errs, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return d.errs
}

// fieldDoc is the reference's description of a field.
type fieldDoc struct {
	name     string
	kind     string // "address", "duration", …
	def      string // default, as written in a file; empty: none
	required bool
	doc      string
	object   *objectDoc // the fields below, for mappings and lists of mappings
	former   string     // the key's name before, accepted with a warning until 1.0; not in services, which are decoded one by one
}

// objectDoc is the reference's description of a mapping.
type objectDoc struct {
	title  string // of its section, unique: "tenants", "tenants of shaping"
	doc    string
	fields []fieldDoc
}

// field is a field of the mapping that is decoded into a T.
type field[T any] struct {
	fieldDoc
	read func(d *decoder, n *yaml.Node, path string, into *T)
}

func docsOf[T any](title, doc string, fields []field[T]) *objectDoc {
	object := &objectDoc{title: title, doc: doc}
	for _, f := range fields {
		object.fields = append(object.fields, f.fieldDoc)
	}
	return object
}

// parse reads the file's only document.
func (d *decoder) parse(data []byte) *yaml.Node {
	if len(data) > MaxFileBytes {
		d.fail(position{1, 1}, "", "the file has %d bytes, at most %d are read: split the services "+
			"over several forwarders", len(data), MaxFileBytes)
		return nil
	}
	if countNodes(data) > maxNodes {
		d.fail(position{1, 1}, "", "the file may have more than %d values and keys: split the services "+
			"over several forwarders", maxNodes)
		return nil
	}
	loader, err := newLoader(data)
	if err != nil {
		d.failSyntax(data, err)
		return nil
	}
	var document, second yaml.Node
	if err := loader.Load(&document); err != nil {
		if errors.Is(err, io.EOF) {
			d.fail(position{1, 1}, "", "the file is empty: begin it with `version: 1`")
		} else {
			d.failSyntax(data, err)
		}
		return nil
	}
	if err := loader.Load(&second); err == nil {
		d.fail(positionOf(&second), "", "the file has a second document: write one document, without `---` in between")
	} else if !errors.Is(err, io.EOF) {
		d.failSyntax(data, err)
	}
	root := &document
	if document.Kind == yaml.DocumentNode && len(document.Content) == 1 {
		root = document.Content[0]
	}
	if at := excessiveAlias(root); at != nil {
		d.failMultiplied(at)
		return nil
	}
	return root
}

func (d *decoder) failSyntax(data []byte, err error) {
	at, text := position{1, 1}, err.Error()
	var load *yaml.LoadError
	if errors.As(err, &load) {
		at = position{int32(max(load.Mark.Line, 1)), int32(max(load.Mark.Column, 1))}
		text = load.Message
	}
	if line := lineOf(data, int(at.line)); bytes.HasPrefix(bytes.TrimLeft(line, " "), []byte("\t")) {
		d.fail(at, "", "line %d begins with a tab: indent with spaces", at.line)
		return
	}
	d.fail(at, "", "not YAML: %s: check the indentation and quoting here and in the line before", text)
}

// lineOf returns a line of a text; the first one has the number 1.
func lineOf(data []byte, number int) []byte {
	for range number - 1 {
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	return line
}

// enter follows an alias, and counts the decoded values.
func (d *decoder) enter(n *yaml.Node) *yaml.Node {
	d.values++
	if d.values == maxValues+1 {
		d.errs = nil
		d.failMultiplied(n)
	}
	return target(n)
}

func (d *decoder) failMultiplied(n *yaml.Node) {
	d.fail(positionOf(n), "", "more than %d values: do not multiply them by aliases", maxValues)
}

func (d *decoder) full() bool {
	return d.values > maxValues
}

// readObject decodes a mapping.
func readObject[T any](d *decoder, n *yaml.Node, path string, fields []field[T], into *T) {
	at := positionOf(n)
	n = d.enter(n)
	if n.Kind != yaml.MappingNode {
		d.fail(at, path, "%s found, a mapping is needed: write `%s: …` and so on below it",
			describeNode(n), fields[0].name)
		return
	}
	seen := map[string]position{}
	entries := d.entries(n, path)
	for i := 0; i+1 < len(entries) && !d.full(); i += 2 {
		key, content := entries[i], entries[i+1]
		if key.Kind != yaml.ScalarNode {
			d.fail(positionOf(key), path, "a key must be a plain word, not %s", describeNode(key))
			continue
		}
		if isNote(path, key.Value) {
			continue
		}
		below := join(path, model.HideQuery(key.Value))
		index := slices.IndexFunc(fields, func(f field[T]) bool { return f.name == key.Value || f.former == key.Value && key.Value != "" })
		if index < 0 {
			meant, text := suggest(key.Value, fields)
			if meant != "" {
				d.noteMisspelt(path, meant)
			}
			d.fail(positionOf(key), below, "unknown key%s", text)
			continue
		}
		name := fields[index].name
		if first, ok := seen[name]; ok {
			d.fail(positionOf(key), below, "duplicate key, first in line %d: remove one", first.line)
			continue
		}
		seen[name] = positionOf(key)
		if name != key.Value {
			d.deprecated = append(d.deprecated, model.Warning{Path: below,
				Text: fmt.Sprintf("this key is deprecated and will be removed in 1.0: rename it to `%s`", name)})
		}
		fields[index].read(d, content, below, into)
	}
	for _, f := range fields {
		if _, ok := seen[f.name]; !f.required || ok || d.meant[join(path, f.name)] {
			continue
		}
		if _, err := strconv.Atoi(f.kind); err == nil { // the only valid value
			d.fail(at, path, "`%s` is missing: add `%s: %s`", f.name, f.name, f.kind)
			continue
		}
		d.fail(at, path, "`%s` is missing: add `%s: …` (%s)", f.name, f.name, f.kind)
	}
}

// readList calls read with every item of a list.
func readList(d *decoder, n *yaml.Node, path string, read func(n *yaml.Node, path string)) {
	at := positionOf(n)
	n = d.enter(n)
	if n.Kind != yaml.SequenceNode {
		d.fail(at, path, "%s found, a list is needed: write `[…]` or lines that begin with `- `", describeNode(n))
		return
	}
	for i, item := range n.Content {
		if d.full() {
			return
		}
		read(item, fmt.Sprintf("%s[%d]", path, i))
	}
}

// readScalar decodes one value with its parser. The parser's error names the fault and the remedy.
func readScalar[V any](d *decoder, n *yaml.Node, path string, parse func(string) (V, error)) value[V] {
	at := positionOf(n)
	n = d.enter(n)
	if n.Kind != yaml.ScalarNode {
		d.fail(at, path, "%s found, a single value is needed", describeNode(n))
		return value[V]{}
	}
	if n.Tag == "!!null" {
		d.fail(at, path, "no value: add one, or remove the key")
		return value[V]{}
	}
	v, err := parse(n.Value)
	if err != nil {
		d.fail(at, path, "%s", model.HideQueryIn(err.Error(), n.Value))
		return value[V]{}
	}
	return value[V]{v: v, at: at, path: path, set: true}
}

// scalar is a field with a single value.
func scalar[T, V any](doc fieldDoc, pick func(*T) *value[V], parse func(string) (V, error)) field[T] {
	return field[T]{doc, func(d *decoder, n *yaml.Node, path string, into *T) {
		*pick(into) = readScalar(d, n, path, parse)
	}}
}

// nested is a field with a mapping.
func nested[T, U any](doc fieldDoc, pick func(*T) *U, fields []field[U]) field[T] {
	return field[T]{doc, func(d *decoder, n *yaml.Node, path string, into *T) {
		readObject(d, n, path, fields, pick(into))
	}}
}

// mappings is a field with a list of mappings. begin creates an element for the mapping at a position.
func mappings[T, U any](doc fieldDoc, list func(*T) *[]U, begin func(at position, path string) U, fields []field[U]) field[T] {
	doc.kind = "list of mappings"
	return field[T]{doc, func(d *decoder, n *yaml.Node, path string, into *T) {
		// Growing it step by step would need several times the memory of a long list.
		*list(into) = make([]U, 0, min(countMappings(n), max(0, maxValues-d.values)))
		readList(d, n, path, func(n *yaml.Node, path string) {
			one := begin(positionOf(n), path)
			readObject(d, n, path, fields, &one)
			if isMapping(n) { // anything else was reported
				*list(into) = append(*list(into), one)
			}
		})
	}}
}

func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

func isMapping(n *yaml.Node) bool {
	return target(n).Kind == yaml.MappingNode
}

// countMappings returns the number of mappings in a list.
func countMappings(n *yaml.Node) int {
	count := 0
	for _, item := range target(n).Content {
		if isMapping(item) {
			count++
		}
	}
	return count
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func describeNode(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			return "nothing"
		}
		return fmt.Sprintf("%.40q", model.HideQuery(n.Value))
	}
	return "something else"
}

// suggest returns the key that was probably meant, or "", and an error text with that key, or with all valid keys.
func suggest[T any](key string, fields []field[T]) (meant, text string) {
	names := make([]string, len(fields))
	best, bestDistance := "", 3
	for i, f := range fields {
		names[i] = f.name
		if distance := editDistance(key, f.name); distance < bestDistance {
			best, bestDistance = f.name, distance
		}
	}
	if best != "" {
		return best, fmt.Sprintf(": did you mean `%s`?", best)
	}
	return "", ": valid keys are " + strings.Join(names, ", ")
}

// editDistance counts the insertions, deletions and replacements from a to b; long words get a large value.
func editDistance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
