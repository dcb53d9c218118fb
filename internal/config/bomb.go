// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// Limits of what the YAML library builds before the decoder sees it. A node takes some 500 bytes, and
// 20 000 services of ten servers have about 2 000 000.
const (
	maxNodes = 5 << 19
	maxDepth = 16 // a good file has 6
)

// Weight returns a text's parsing cost in memory, relative to that of the largest file: at most 1.
func Weight(text []byte) float64 { return min(1, float64(countNodes(text))/maxNodes) }

// countNodes returns an upper estimate of the nodes of a text, without parsing it. It counts everything that begins a node: line ends, `[`, `{`, `,`,
// and the indicators `- `, `? ` and `: `. A comma in braces counts twice, because `{a, b}` has a value for each key. Quotes and comments are not
// recognized, so a text consisting mostly of these gets a higher estimate, by the number of such characters in it.
func countNodes(text []byte) int {
	count, braces := 1, 0
	for i, c := range text {
		switch c {
		case '\n', '\r', '[':
			count++
		case '{':
			count++
			braces++
		case '}':
			braces = max(braces-1, 0)
		case ',':
			count++
			if braces > 0 {
				count++
			}
		case '-', '?':
			if isBlank(text, i+1) {
				count++
			}
		case ':':
			if isBlank(text, i+1) || i > 0 && bytes.IndexByte([]byte(`"']}`), text[i-1]) >= 0 {
				count++
			}
		}
	}
	return count
}

func isBlank(text []byte, i int) bool {
	return i == len(text) || text[i] == ' ' || text[i] == '\t'
}

// newLoader returns a loader that rejects deeply nested texts.
func newLoader(data []byte) (*yaml.Loader, error) {
	limits := loaderlimits.New(loaderlimits.DepthFunc(func(depth int, _ *loaderlimits.DepthContext) error {
		if depth > maxDepth {
			return fmt.Errorf("nested more than %d deep", maxDepth)
		}
		return nil
	}))
	return yaml.NewLoader(bytes.NewReader(data), yaml.WithV3Defaults(), yaml.WithPlugin(limits))
}
