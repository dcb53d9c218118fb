// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

func TestWarningsOfBursts(t *testing.T) {
	limit := func(rate, burst string) string {
		return "limits:\n  - { name: a, " + rate + ", burst: " + burst + " }\n"
	}
	port := func(rate, burst string) string {
		return "shaping:\n  - { port: eth0, rate: " + rate + ", burst: " + burst + " }\n"
	}
	for _, test := range []struct{ text, want string }{
		{limit("bits_per_second: 1G", "8kB"), "f:4:44: limits[0].burst: a burst of 8 kB is 1 Gbit/s times 64µs: packets arrive in bunches, " +
			"so even senders within the rate lose some, and TCP stays far below it: use at least 1.25MB, which is 10ms of the rate, or remove `burst` for the default, 250ms"},
		{limit("bits_per_second: 1G", "1249kB"), "times 9.99ms"},
		{limit("bits_per_second: 1G", "1250kB"), ""},
		{limit("bits_per_second: 8k", "1500"), ""},
		{limit("bits_per_second: 400G", "1MB"), "use at least 500MB,"},
		{limit("bits_per_second: 1234567890", "1MB"), "use at least 1.55MB,"},
		{limit("packets_per_second: 10k", "99"), "a burst of 99 packets is 10k packets/s times 9.9ms"},
		{limit("packets_per_second: 10k", "100"), ""},
		{limit("packets_per_second: 20", "1"), ""},
		{limit("new_sessions_per_second: 5k", "10"), "a burst of 10 sessions is 5k new sessions/s times 2ms: new sessions arrive in bunches, " +
			"so some are refused although fewer begin than the rate allows: use at least 50,"},
		{port("1G", "4096B"), "f:4:36: shaping[0].burst: a burst of 4.096 kB is 1 Gbit/s times 32.7µs: after a late wake-up of its worker " +
			"the port cannot catch up beyond the burst, so it sends less than the rate: use at least 62.5kB, which is 500µs of the rate, or remove `burst`"},
		{port("1G", "62.5kB"), ""},
		{port("50M", "4096B"), ""},
	} {
		text := "version: 1\nservices: []\n" + test.text
		config, err := Parse("f", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		got := strings.Join(Warnings("f", []byte(text), config), "\n")
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) || strings.Contains(got, "\n") {
			t.Errorf("%s: %s\nwant %s", test.text, got, test.want)
		}
	}
}
