// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

// A number that YAML 1.1 reads as octal is refused wherever a number can be, with its place.
func TestOctalNumbersAreRefused(t *testing.T) {
	const service = "version: 1\nlocal_addresses: [10.1.0.10]\nservices:\n  - name: web\n    vip: 10.0.0.80\n    port: 80\n" +
		"    servers: [{ address: 10.1.0.21, port: 80 }]\n"
	inService := func(text string) string { return strings.Replace(service, "    port: 80\n", "    "+text+"\n", 1) }
	atServer := func(text string) string { return strings.Replace(service, "port: 80 }", text+" }", 1) }
	for file, want := range map[string]string{
		inService("port: 0120"):                                                     "6:11: services[0].port: 0120 begins with 0, which YAML 1.1 reads as an octal number: write 120",
		inService("port: 00"):                                                       "write 0",
		inService("port: +80"):                                                      "6:11: services[0].port: +80 has a sign: write 80",
		inService("port: 0080-0090"):                                                "write 80",
		inService("port: 80-0090"):                                                  "write 90",
		inService("port: 0x50"):                                                     `"0x50" is not a port`,
		inService("port: 0o120"):                                                    `"0o120" is not a port`,
		inService("port: 1_000"):                                                    `"1_000" is not a port`,
		inService("port: 8e1"):                                                      `"8e1" is not a port`,
		inService("port: 80.0"):                                                     `"80.0" is not a port`,
		inService("port: true"):                                                     `"true" is not a port`,
		inService("port: 80\n    max_sessions: 0100"):                               "7:19: services[0].max_sessions: 0100 begins with 0",
		inService("port: 80\n    slow_start: 010s"):                                 "010s begins with 0",
		inService("port: 80\n    slow_start: +10s"):                                 "+10s has a sign: write 10s",
		inService("port: 80\n    dscp: 046"):                                        "046 begins with 0",
		inService("port: 80\n    timeouts: { established: 015m }"):                  "015m begins with 0",
		inService("port: 80\n    persistence: { timeout: 1m, prefix4: 024 }"):       "024 begins with 0",
		inService("port: 80\n    client_limits: { sessions: 010 }"):                 "010 begins with 0",
		inService("port: 80\n    client_limits: { new_per_second: 010k }"):          "010",
		inService("port: 80\n    health: { type: http, expect: 0200-399 }"):         "0200",
		inService("port: 80\n    health: { jitter: 010% }"):                         "010% begins with 0",
		inService("port: 80\n    health: { rise: 03 }"):                             "03 begins with 0",
		atServer("port: 080"):                                                       "080 begins with 0",
		atServer("port: 80, weight: 010"):                                           "010 begins with 0",
		service + "limits:\n  - { name: l, packets_per_second: 0100k }\n":           "0100 begins with 0",
		service + "limits:\n  - { name: l, packets_per_second: 1k, burst: 0100 }\n": "0100 begins with 0",
		inService("port: 80\n    feedback: { gamma: 0x1p-2 }"):                      `"0x1p-2" is not a number from 0 to 1`,
		inService("port: 80\n    feedback: { gamma: 00.5 }"):                        "00.5 begins with 0",
		strings.Replace(service, "version: 1", "version: 01", 1):                    "01 begins with 0",
	} {
		_, err := Parse("f", []byte(file))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", file, err, want)
		}
	}
	for _, good := range []string{"port: 80", "port: 80\n    feedback: { gamma: 0.5 }", "port: 80\n    max_sessions: 10"} {
		if _, err := Parse("f", []byte(inService(good))); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
}
