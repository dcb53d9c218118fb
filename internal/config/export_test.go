// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"strings"
	"testing"

	"steelyard/internal/model"
)

func TestSFlow(t *testing.T) {
	head := "version: 1\nservices: []\n"
	for text, want := range map[string]model.SFlow{
		"": {},
		"export: { sflow: { collector: \"192.0.2.1:6343\" } }": {
			Collector: netip.MustParseAddrPort("192.0.2.1:6343"), Sampling: 1000, Drops: 100},
		"export: { sflow: { collector: \"[2001:db8::1]:9\", sampling: 1, drops: 0, agent_address: 192.0.2.9 } }": {
			Collector: netip.MustParseAddrPort("[2001:db8::1]:9"), Sampling: 1, AgentAddress: netip.MustParseAddr("192.0.2.9")},
	} {
		config, err := Parse("steelyard.yaml", []byte(head+text))
		if err != nil || config.SFlow != want {
			t.Errorf("%s: %+v, %v", text, config, err)
		}
	}
	for text, want := range map[string]string{
		"{ sampling: 9 }":                                           "export.sflow: `collector` is missing",
		"{ collector: 192.0.2.1 }":                                  "has no port: write 192.0.2.1:6343",
		"{ collector: \"collector:6343\" }":                         "is not an address with a port: write one like 192.0.2.1:6343",
		"{ collector: \"192.0.2.1:0\" }":                            "is not an address with a port",
		"{ collector: \"0.0.0.0:6343\" }":                           "is no host's address",
		"{ collector: \"192.0.2.1:6343\", sampling: 20000000 }":     "20000000 is out of range: use 0 to 16777216",
		"{ collector: \"192.0.2.1:6343\", sampling: 0, drops: 0 }":  "nothing to export: remove `sflow`",
		"{ collector: \"192.0.2.1:6343\", agent_address: 0.0.0.0 }": "unspecified",
		"{ collector: \"192.0.2.1:6343\", interval: 5 }":            "unknown key: valid keys are collector, sampling, drops, agent_address",
	} {
		_, err := Parse("steelyard.yaml", []byte(head+"export: { sflow: "+text+" }"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
