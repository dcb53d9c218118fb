// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"steelyard/internal/model"
)

func TestRatesAsOthersWriteThem(t *testing.T) {
	for _, test := range []struct {
		unit       model.LimitUnit
		text, want string
	}{
		{model.LimitBits, "10Mbit", `"10Mbit" is not a rate: did you mean 10M?`},
		{model.LimitBits, "10Mbit/s", "did you mean 10M?"},
		{model.LimitBits, "10 Mbit/s", "did you mean 10M?"},
		{model.LimitBits, "10 M", "did you mean 10M?"},
		{model.LimitBits, "10M/s", "did you mean 10M?"},
		{model.LimitBits, "10 mbps", "did you mean 10M?"},
		{model.LimitBits, "800 Kb/s", "did you mean 800k?"},
		{model.LimitBits, "1,5G", "did you mean 1.5G?"},
		{model.LimitBits, "1_000_000", "did you mean 1M?"},
		{model.LimitBits, "1 500 000 bits per second", "did you mean 1.5M?"},
		{model.LimitBits, "2.5e6", "did you mean 2.5M?"},
		{model.LimitBits, "0.1T", "did you mean 100G?"},
		{model.LimitBits, "10MB/s", `"10MB/s" are bytes, and the rate counts bits: did you mean 80M?`},
		{model.LimitBits, "100 kBps", "did you mean 800k?"},
		{model.LimitBits, "10Mibit/s", "has a binary prefix"},
		{model.LimitBits, "10Mi", "has a binary prefix"},
		{model.LimitBits, "10ibit", "is not a rate: write a number"},
		{model.LimitBits, "100kpps", "are packets, and the rate counts bits"},
		{model.LimitBits, "fast", "is not a rate: write a number"},
		{model.LimitBits, "0.5bit", "is not a rate: write a number"},
		{model.LimitPackets, "1.5Mpps", "did you mean 1.5M?"},
		{model.LimitPackets, "500/s", "did you mean 500?"},
		{model.LimitPackets, "500 packets/s", "did you mean 500?"},
		{model.LimitPackets, "10Mbit/s", "are bits, and the rate counts packets"},
		{model.LimitSessions, "200 cps", "did you mean 200?"},
		{model.LimitSessions, "2k sessions/s", "did you mean 2k?"},
	} {
		if _, err := parseRate(test.unit)(test.text); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v\nwant %s", test.text, err, test.want)
		}
	}
}

// What a hint suggests is accepted.
func TestHintsAreValidValues(t *testing.T) {
	for _, number := range []string{"1", "12", "1.5", "250", "1024", "9999.999"} {
		for _, prefix := range []string{"k", "K", "m", "M", "g", "G"} {
			for _, unit := range []string{" ", "bit", " bit/s", "bps", "B/s"} {
				text := number + prefix + unit
				_, err := parseRate(model.LimitBits)(text)
				if err == nil {
					t.Fatalf("%q is a rate", text)
				}
				_, meant, found := strings.Cut(err.Error(), "did you mean ")
				if !found {
					t.Errorf("%q: %v", text, err)
					continue
				}
				if _, _, err := parseDecimal(strings.TrimSuffix(meant, "?")); err != nil {
					t.Errorf("%q: %s: %v", text, meant, err)
				}
			}
		}
	}
}

func TestQuantitiesAsOthersWriteThem(t *testing.T) {
	for text, want := range map[string]string{
		"64 kB":       `"64 kB" is not an amount: did you mean 64kB?`,
		"64KB":        "did you mean 64kB?",
		"64kb":        "did you mean 64kB?",
		"64kbyte":     "did you mean 64kB?",
		"2 MBytes":    "did you mean 2MB?",
		"1500 bytes":  "did you mean 1500B?",
		"64kbit":      `"64kbit" are bits, and bytes are counted here: did you mean 8kB?`,
		"64KiB":       `"64KiB" has a binary unit`,
		"64Ki":        "has a binary unit",
		"500 packets": "did you mean 500?",
		"2 k":         "did you mean 2k?",
		"250ms":       "is not an amount: write bytes like 64kB",
		"much":        "is not an amount: write bytes like 64kB",
	} {
		if _, err := parseQuantity(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", text, err, want)
		}
	}
}
