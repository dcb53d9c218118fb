// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// What Addresses reads of a project's file is what the merged file has of the project, however the file is written: else a project could hide addresses
// from the others, or have some without claiming them. And no service gets another project's name.
func TestFileMeansTheSameAloneAndMerged(t *testing.T) {
	const base = "version: 1\nlocal_addresses: [10.1.0.200, fd00:1::200]\nx-v: &v { name: stolen, vip: 10.9.9.9 }\ndefaults: { health: { type: none } }\nservices: []\n"
	const other = "version: 1\nx-v: &v { name: z, vip: 10.9.9.8 }\nservices:\n  - { name: s, vip: 10.8.0.80, port: 80, servers: [ { address: 10.1.0.31 } ] }\n"
	const rest = "port: 80, servers: [ { address: 10.1.0.21 } ] }"
	for text, good := range map[string]bool{
		"- { name: b.s, vip: 10.8.0.1, " + rest:                                                                                                 true,
		"- { <<: { name: b.s }, vip: 10.8.0.1, " + rest:                                                                                         true,
		"- { <<: [ { vip: 10.8.0.2 }, { name: b.s, vip: 10.8.0.3 } ], " + rest:                                                                  true,
		"- { <<: { <<: { name: b.s } }, vip: 10.8.0.1, " + rest:                                                                                 true,
		"- { !!merge <<: { name: b.s }, vip: 10.8.0.1, " + rest:                                                                                 true,
		"- { \"<<\": { name: b.s }, vip: 10.8.0.1, " + rest:                                                                                     false,
		"- { !!merge x: { name: b.s }, vip: 10.8.0.1, " + rest:                                                                                  false,
		"- { ? &k name : b.s, vip: 10.8.0.1, " + rest + "\n  - { ? *k : b.t, vip: 10.8.0.2, " + rest:                                            false,
		"- { ? &k vip : 10.8.0.1, name: s, " + rest + "\n  - { ? *k : 10.8.0.2, name: t, " + rest:                                               false,
		"- { name: s, vip: 10.8.0.1, ? &mode protocol : tcp, " + rest + "\n  - { name: t, vip: 10.8.0.2, ? *mode : nat, " + rest:                false,
		"- { name: s, name: b.t, vip: 10.8.0.1, " + rest:                                                                                        false,
		"- { ? [name] : b.s, name: s, vip: 10.8.0.1, " + rest:                                                                                   false,
		"- { name: !!binary Yi5z, vip: 10.8.0.1, " + rest:                                                                                       true,
		"- { name: !foo b.s, vip: !bar 10.8.0.1, " + rest:                                                                                       true,
		"- { name: \"s\\nb.t\", vip: 10.8.0.1, " + rest:                                                                                         false,
		"- { name: s, vip: \"::ffff:10.8.0.80\", " + rest:                                                                                       false,
		"- { name: s, vip: 10.8.0.080, " + rest:                                                                                                 false,
		"- { name: s, vip: \"fd00:8::1%eth0\", " + rest:                                                                                         false,
		"- &x { name: s, vip: 10.8.0.1, " + rest + "\n  - { <<: *x, name: t, vip: 10.8.0.2 }":                                                   true,
		"- { name: s, vip: 10.8.0.1, port: 80, servers: &l [ { address: 10.1.0.21 } ] }\n  - { name: t, vip: 10.8.0.2, port: 80, servers: *l }": true,
		"# c\r  - { name: s, vip: 10.8.0.1, " + rest:                                                                                            true,
		"- # c\u0085  - { name: b.q, vip: 10.8.0.9, " + rest + "\n    { name: s, vip: 10.8.0.1, " + rest:                                        false,
		"- name: s # c\u2029services: []\n    vip: 10.8.0.1\n    port: 80\n    servers: []":                                                     false,
		"- name: s\n    vip: 10.8.0.1\n    port: 80\n    health: { path: \"/x\\n  - q\" }\n    servers: []":                                     false,
	} {
		text = "version: 1\nservices:\n  " + text + "\n"
		merged, err := Merge([]byte(base), []Part{{"a", []byte(text)}, {"b", []byte(other)}})
		if err == nil {
			_, err = Parse("merged", merged)
		}
		if (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
		if err != nil {
			continue
		}
		whole, _ := Parse("merged", merged)
		alone, beside := map[string]bool{}, map[string]bool{}
		for _, service := range Addresses([]byte(text)).Services {
			alone[fmt.Sprint(service.Key, service.Mode, service.Servers[0].Address.Addr())] = true
		}
		for _, service := range whole.Services {
			switch project, _, _ := strings.Cut(service.Name, "."); project {
			case "a":
				beside[fmt.Sprint(service.Key, service.Mode, service.Servers[0].Address.Addr())] = true
			case "b":
				if service.Name != "b.s" || service.Key.VIP.String() != "10.8.0.80" {
					t.Errorf("%s: %s has %v", text, service.Name, service.Key)
				}
			default:
				t.Errorf("%s: %s belongs to no project", text, service.Name)
			}
		}
		if !maps.Equal(alone, beside) {
			t.Errorf("%s: alone %v, merged %v", text, alone, beside)
		}
	}
}
