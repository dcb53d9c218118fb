// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v4"
)

func countBelow(n *yaml.Node) int {
	count := 1
	for _, child := range n.Content {
		count += countBelow(child)
	}
	return count
}

// However a file multiplies nodes, countNodes finds at least half of them.
var repeated = map[string]string{
	"list":               "1,",
	"list of mappings":   "{a: b},",
	"pairs":              `"a":1,`,
	"mapping":            "a,",
	"lines":              "k: v\n",
	"nested in a line":   "- - - - - - - - - - a\n",
	"complex keys":       "? a\n",
	"keys without space": "{\"a\":{\"b\":1}},",
	"tabs":               "-\ta\n",
	"carriage returns":   "- a\r",
	"empty lists":        "[],",
}

var around = map[string][2]string{
	"list": {"[", "]"}, "list of mappings": {"[", "]"}, "pairs": {"[", "]"}, "mapping": {"{", "}"},
	"keys without space": {"[", "]"}, "empty lists": {"[", "]"},
}

func TestNodesAreCountedWithoutParsing(t *testing.T) {
	for name, item := range repeated {
		text := []byte(around[name][0] + strings.Repeat(item, 1000) + around[name][1])
		loader, err := newLoader(text)
		if err != nil {
			t.Fatal(err)
		}
		var document yaml.Node
		if err := loader.Load(&document); err != nil {
			t.Logf("%s: not YAML: %v", name, err)
			continue
		}
		if counted, built := countNodes(text), countBelow(&document); counted*2 < built {
			t.Errorf("%s: %d counted, %d built", name, counted, built)
		}
	}
}

// Each is refused before it takes more memory than a large honest file.
func TestBombsAreRefusedBeforeTheyAreParsed(t *testing.T) {
	for name, item := range repeated {
		data := []byte(around[name][0] + strings.Repeat(item, 16<<20/len(item)) + around[name][1])
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		config, err := Parse("bomb", data)
		runtime.ReadMemStats(&after)
		if err == nil || config != nil || !strings.Contains(err.Error(), "more than 2621440 values and keys") {
			t.Errorf("%s: %.200v", name, err)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
			t.Errorf("%s: %d bytes were allocated to refuse it", name, grown)
		}
	}
}

func TestDepthIsLimited(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("[", 1000) + strings.Repeat("]", 1000),
		strings.Repeat("{a: ", 1000) + "1" + strings.Repeat("}", 1000),
		strings.Repeat("- ", 1000) + "a\n",
		strings.Repeat("[", 1000),
	} {
		_, err := Parse("deep", []byte(text))
		if err == nil || !strings.Contains(err.Error(), "nested more than 16 deep") {
			t.Errorf("%.20s: %.200v", text, err)
		}
	}
}

// References to references: a thousand million values in a few lines.
func TestAliasBombsAreRefused(t *testing.T) {
	var text strings.Builder
	text.WriteString("version: 1\na: &a [x,x,x,x,x,x,x,x]\n")
	for name := 'b'; name <= 'j'; name++ {
		text.WriteString(string(name) + ": &" + string(name) + " [" + strings.Repeat("*"+string(name-1)+",", 8) + "]\n")
	}
	text.WriteString("services: *j\nlocal_addresses: *j\nsnat: *j\n")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	config, err := Parse("bomb", []byte(text.String()))
	runtime.ReadMemStats(&after)
	if err == nil || config != nil {
		t.Errorf("%v", err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
		t.Errorf("%d bytes were allocated to refuse it", grown)
	}
	if _, err := Parse("loop", []byte("version: 1\nservices: &s\n  - servers: *s\n")); err == nil {
		t.Error("a list that contains itself is accepted")
	}
}

// Valid but for its number of values: the servers of each service are those of the first one.
func TestAliasesAreCountedBeforeTheyAreDecoded(t *testing.T) {
	servers := strings.Repeat("{ address: 10.1.0.11 }, ", 1500)
	text := "version: 1\nx-d: &d { scheduler: rr }\nservices:\n  - { <<: *d, vip: 10.0.0.80, port: 1, servers: &many [ " + servers + " ] }\n"
	text += strings.Repeat("  - { <<: *d, vip: 10.0.0.80, port: 2, servers: *many }\n", 1500)
	var err error
	took := allocated(func() { _, err = Parse("bomb", []byte(text)) })
	if err == nil || !strings.Contains(err.Error(), "do not multiply them by aliases") {
		t.Errorf("%v", err)
	}
	if took > 64<<20 {
		t.Errorf("%d bytes were allocated to refuse it", took)
	}
}

// Neither notes nor merged lists that a service overrides are values of the configuration.
func TestOverriddenMergesAreNotCounted(t *testing.T) {
	many := strings.Repeat("{ address: 10.1.0.11 }, ", 1500)
	text := "version: 1\nlocal_addresses: [10.1.0.200]\nx-d: &d { scheduler: rr, servers: [ " + many + " ] }\nservices:\n"
	for port := range 1500 {
		text += fmt.Sprintf("  - { <<: *d, name: s%d, vip: 10.0.0.80, port: %d, servers: [{ address: 10.1.0.11 }] }\n", port, port+1)
	}
	if _, err := Parse("file", []byte(text)); err != nil {
		t.Error(err)
	}
}

// A list is given no more memory than for as many values as may still come.
func TestListMemoryIsBoundedByRemainingValues(t *testing.T) {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte("["+strings.Repeat("{},", 1000)+"]"), &document); err != nil {
		t.Fatal(err)
	}
	list := mappings(fieldDoc{name: "list"}, func(into *[][100]byte) *[][100]byte { return into },
		func(position, string) [100]byte { return [100]byte{} }, nil)
	for spent, want := range map[int]int{0: 1000, maxValues - 1000: 1000, maxValues - 10: 10, maxValues: 0, maxValues + 1: 0} {
		var into [][100]byte
		list.read(&decoder{values: spent}, document.Content[0], "list", &into)
		if cap(into) > want || len(into) < want-1 {
			t.Errorf("after %d values: %d of %d, want %d", spent, len(into), cap(into), want)
		}
	}
}

// What the agent watches may be replaced by anything.
func TestLargeFilesAreNotRead(t *testing.T) {
	directory := t.TempDir()
	pipe, large, good := filepath.Join(directory, "pipe"), filepath.Join(directory, "large"), filepath.Join(directory, "good")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.WriteFile(large, nil, 0o600), os.Truncate(large, MaxFileBytes+1),
		os.WriteFile(good, []byte("version: 1\nservices: []\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		pipe: "not a regular file", directory: "not a regular file", "/dev/zero": "not a regular file",
		large: "at most 67108864 are read", good: "",
	} {
		file := &File{Path: path}
		_, err := file.Text()
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestLargestHonestFileFits(t *testing.T) {
	var text bytes.Buffer
	text.WriteString("version: 1\nlocal_addresses: [10.1.0.200, \"fd00:1::200\"]\nservices:\n")
	for range 20000 {
		text.WriteString("  - name: service-10000\n    vip: 2001:db8::10.1.2.3\n    port: 8000\n    scheduler: wrr\n" +
			"    health: { type: http, path: /healthz, interval: 10s }\n    servers:\n" +
			strings.Repeat("      - { address: \"2001:db8:1:2::10:20\", port: 8080, weight: 10 }\n", 10))
	}
	if count := countNodes(text.Bytes()); count > maxNodes {
		t.Errorf("%d nodes are counted, more than %d", count, maxNodes)
	}
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Lists are as long as they will be from the start, and have no room for what is no mapping.
func TestListsDoNotGrowStepByStep(t *testing.T) {
	var text strings.Builder
	text.WriteString("version: 1\nservices:\n  - {name: a, vip: 10.0.0.80, port: 1, servers: &many [" +
		strings.Repeat("{address: 10.1.0.1},", 2000) + "]}\n")
	for range 49 {
		text.WriteString("  - {vip: 10.0.0.80, port: 1, servers: *many}\n")
	}
	took := allocated(func() {
		if _, err := Parse("many", []byte(text.String())); err == nil {
			t.Error("its services are all the same")
		}
	})
	if took/100_000 > 1900 {
		t.Errorf("%d bytes for each of 100 000 servers", took/100_000)
	}
	numbers := "version: 1\nservices: [{vip: 10.0.0.80, port: 1, servers: [" + strings.Repeat("1,", 500_000) + "]}]\n"
	took = allocated(func() {
		if _, err := Parse("numbers", []byte(numbers)); err == nil {
			t.Error("numbers are servers")
		}
	})
	if took/500_000 > 4000 {
		t.Errorf("%d bytes for each of 500 000 numbers", took/500_000)
	}
}
