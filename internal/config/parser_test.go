// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// fresh returns how many services were decoded to read one file after another.
func fresh(t *testing.T, p *Parser, text string) int {
	t.Helper()
	before := p.last.byText
	if _, err := p.Parse("f.yaml", []byte(text)); err != nil {
		t.Fatal(err)
	}
	count := 0
	for text := range p.last.byText {
		if before[text] == nil {
			count++
		}
	}
	return count
}

func TestOnlyServicesThatHaveChangedAreDecoded(t *testing.T) {
	text := string(largeFile(50))
	p := &Parser{}
	fresh(t, p, text)
	first := p.last.config
	changed := strings.Replace(text, "weight: 2 }", "weight: 9 }", 1)
	if n := fresh(t, p, changed); n != 1 {
		t.Errorf("%d services decoded for one weight", n)
	}
	if got := p.last.config.Services[0].Servers[1].Weight; got != 9 {
		t.Errorf("weight %d, want 9", got)
	}
	if &first.Services[1].Servers[0] != &p.last.config.Services[1].Servers[0] {
		t.Error("what has not changed was decoded again")
	}
	// Settings that services have in common affect all of them.
	common := strings.Replace(changed, "services:", "defaults: { scheduler: rr }\nservices:", 1)
	if _, err := p.Parse("f.yaml", []byte(common)); err != nil {
		t.Fatal(err)
	}
	if &first.Services[1].Servers[0] == &p.last.config.Services[1].Servers[0] {
		t.Error("the defaults have changed, and the services have not")
	}
}

// After any change of a file, a Parser returns the same result and errors as Parse.
func TestParserAgreesWithParse(t *testing.T) {
	bases := []string{
		string(largeFile(12)),
		strings.ReplaceAll(string(largeFile(12)), "\n  ", "\n"), // items at the key's indentation
		string(largeFile(12)) + "snat:\n  - { name: out, inside: [10.7.0.0/16], pool: [10.7.9.9] }\nmetrics:\n  listen: 127.0.0.1:9\n",
	}
	pieces := []string{"  - name: service-3", "# note", "", "---", "    vip: 10.64.0.1", "    port: 8000-8010", "    port: all",
		"    servers: []", "metrics: { listen: \"127.0.0.1:1\" }", "    x: \"a", "    health: &a { type: none }", "    health: *a",
		"  -", "- name: b", "services:", "      - { address: 10.64.0.1, port: 1 }", "      - { address: 10.1.0.200, port: 1 }",
		"\t- name: tab", "    description: |", "      - { address: 10.99.0.1, port: 1, weight: 3 }", "local_addresses: [10.1.0.7]"}
	same := 0
	for seed := range uint64(1500) {
		rng := rand.New(rand.NewPCG(seed, 0))
		text := bases[rng.IntN(len(bases))]
		p := &Parser{}
		if _, err := p.Parse("f.yaml", []byte(text)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			lines := strings.Split(text, "\n")
			for range 1 + rng.IntN(2) {
				at := rng.IntN(len(lines))
				switch rng.IntN(5) {
				case 0:
					lines = slices.Delete(lines, at, at+1)
				case 1:
					lines = slices.Insert(lines, at, pieces[rng.IntN(len(pieces))])
				case 2:
					lines[at] = strings.ReplaceAll(lines[at], fmt.Sprint(rng.IntN(10)), fmt.Sprint(rng.IntN(10)))
				case 3:
					lines = slices.Insert(lines, at, lines[rng.IntN(len(lines))])
				case 4:
					other := rng.IntN(len(lines))
					lines[at], lines[other] = lines[other], lines[at]
				}
			}
			next := strings.Join(lines, "\n")
			want, wantErr := Parse("f.yaml", []byte(next))
			got, gotErr := p.Parse("f.yaml", []byte(next))
			if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) || !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: got %v, %v\nwant %v, %v\nof:\n%s", seed, got, gotErr, want, wantErr, next)
			}
			if wantErr == nil {
				text, same = next, same+1
			}
		}
	}
	if same < 500 {
		t.Errorf("only %d good files among those tried", same)
	}
}

func TestATimeoutIsNotLongerThanTheInterval(t *testing.T) {
	const frame = "version: 1\nlocal_addresses: [10.1.0.200]\ndefaults: { health: { %s } }\nservices:\n" +
		"  - { name: a, vip: 10.0.0.80, port: 80, health: { %s }, servers: [{ address: 10.1.0.21 }] }\n" +
		"  - { name: b, vip: 10.0.0.80, port: 81, servers: [{ address: 10.1.0.21 }] }\n"
	for _, c := range []struct {
		defaults, own string
		errors        int
		timeout       string // the first service's
	}{
		{"rise: 2", "rise: 2", 0, "1s"},
		{"rise: 2", "interval: 200ms", 0, "200ms"}, // the default is not longer than that
		{"rise: 2", "interval: 1s, timeout: 1s", 0, "1s"},
		{"rise: 2", "interval: 1s, timeout: 1001ms", 1, ""},
		{"timeout: 2s", "interval: 1s", 1, ""},
		{"interval: 1s, timeout: 2s", "rise: 3", 1, ""}, // once, for both services
		{"interval: 1s, timeout: 2s", "timeout: 1s", 1, ""},
	} {
		config, err := Parse("f.yaml", fmt.Appendf(nil, frame, c.defaults, c.own))
		var mistakes Errors
		if errors.As(err, &mistakes); len(mistakes) != c.errors {
			t.Errorf("%s, %s: %v", c.defaults, c.own, err)
		}
		if err == nil && config.Services[0].Health.Timeout.String() != c.timeout {
			t.Errorf("%s, %s: timeout %s", c.defaults, c.own, config.Services[0].Health.Timeout)
		}
	}
}
