// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// column is a column of a table; numbers are right-aligned.
type column struct {
	title string
	right bool
}

func left(title string) column  { return column{title, false} }
func right(title string) column { return column{title, true} }

// table is aligned text; cells may have colours.
type table struct {
	columns []column
	rows    [][]cell
}

type cell struct {
	text  string
	paint string // an ANSI colour, or ""
}

const (
	green  = "32"
	yellow = "33"
	red    = "31"
	dim    = "2"
)

func (t *table) add(cells ...any) {
	row := make([]cell, len(cells))
	for i, c := range cells {
		if painted, ok := c.(cell); ok {
			row[i] = painted
		} else {
			row[i] = cell{text: fmt.Sprint(c)}
		}
		row[i].text = printable(row[i].text)
		if row[i].text == "" {
			row[i].text = "-"
		}
	}
	t.rows = append(t.rows, row)
}

// printable replaces control characters, which the terminal would interpret: some answers come from untrusted hosts, and an interface may have any name.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' { // cobra's suggestions
			return ' '
		}
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, text)
}

// print writes the table with two spaces between columns and no trailing spaces.
func (a *app) print(t *table) {
	widths := make([]int, len(t.columns))
	head := make([]cell, len(t.columns))
	for i, c := range t.columns {
		head[i] = cell{text: c.title}
	}
	all := append([][]cell{head}, t.rows...)
	for _, row := range all {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	for _, row := range all {
		var line strings.Builder
		for i, c := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text))
			if t.columns[i].right {
				line.WriteString(pad)
				pad = ""
			}
			line.WriteString(a.paint(c))
			if i+1 < len(row) {
				line.WriteString(pad + "  ")
			}
		}
		fmt.Fprintln(a.out, line.String())
	}
}

func (a *app) paint(c cell) string {
	if !a.color || c.paint == "" {
		return c.text
	}
	return "\x1b[" + c.paint + "m" + c.text + "\x1b[0m"
}

// show prints view as JSON, or calls table.
func (a *app) show(view any, table func()) error {
	if a.output == "json" {
		encoder := json.NewEncoder(a.out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(view)
	}
	if a.output == "yaml" {
		return a.writeYAML(view)
	}
	table()
	return nil
}

// line prints one item of a stream: as a line of JSON, a YAML document, or a line of text.
func (a *app) line(view any, text func() string) {
	switch a.output {
	case "json":
		_ = json.NewEncoder(a.out).Encode(view) // views are plain values, so encoding cannot fail
	case "yaml":
		fmt.Fprintln(a.out, "---")
		_ = a.writeYAML(view)
	default:
		fmt.Fprintln(a.out, strings.TrimSpace(text()))
	}
}

// writeYAML writes the JSON view as YAML, with the same names in the same order.
func (a *app) writeYAML(view any) error {
	data, err := json.Marshal(view)
	if err != nil {
		return err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(data, &node); err != nil { // JSON is YAML
		return err
	}
	plain(&node)
	encoder := yaml.NewEncoder(a.out)
	encoder.SetIndent(2)
	if err := encoder.Encode(&node); err != nil {
		return err
	}
	return encoder.Close()
}

// plain removes the quotes and brackets of JSON where YAML needs none.
func plain(n *yaml.Node) {
	if len(n.Content) > 0 || n.Kind == yaml.ScalarNode {
		n.Style = 0
	}
	for _, child := range n.Content {
		plain(child)
	}
}

func (a *app) warn(warnings []string) {
	for _, warning := range warnings {
		fmt.Fprintf(a.err, "steelyard: warning: %s\n", printable(warning))
	}
}

func paintState(state string) cell {
	colors := map[string]string{"up": green, "down": red, "drain": yellow, "kill": red}
	return cell{state, colors[state]}
}
