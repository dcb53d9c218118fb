// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"
)

// largeFile has the given number of checked services with three servers each, and a VIP for every ten.
func largeFile(services int) []byte {
	var text strings.Builder
	text.WriteString("version: 1\nlocal_addresses: [10.1.0.200, 10.1.0.201]\nservices:\n")
	for i := range services {
		vip := i / 10
		fmt.Fprintf(&text, "  - name: service-%d\n    vip: 10.64.%d.%d\n    port: %d\n    scheduler: wrr\n",
			i, vip/250, vip%250+1, 8000+i%10)
		text.WriteString("    health: { type: http, path: /healthz, interval: 10s }\n    servers:\n")
		for server := range 3 {
			at := 3*i + server
			fmt.Fprintf(&text, "      - { address: 10.%d.%d.%d, port: 8080, weight: %d }\n",
				128+at/62500, at/250%250, at%250+1, 1+server)
		}
	}
	return []byte(text.String())
}

func BenchmarkParse(b *testing.B) {
	data := largeFile(20000)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("large.yaml", data); err != nil {
			b.Fatal(err)
		}
	}
}

// One server's weight changes in each iteration.
func BenchmarkParseChange(b *testing.B) {
	texts := [2][]byte{largeFile(20000)}
	texts[1] = []byte(strings.Replace(string(texts[0]), "weight: 2 }", "weight: 9 }", 1))
	p, n := &Parser{}, 0
	for b.Loop() {
		if _, err := p.Parse("large.yaml", texts[n%2]); err != nil {
			b.Fatal(err)
		}
		if n++; n == 1 {
			b.ResetTimer() // the whole file was parsed once
		}
	}
}
