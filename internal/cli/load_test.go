// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"

	pb "steelyard/internal/gen/agentpb"
)

func TestLoadOfServersIsRead(t *testing.T) {
	for _, c := range []struct {
		state         *pb.LoadState
		summary, text string
	}{
		{nil, "-", ""},
		{&pb.LoadState{Source: "node http://10.1.0.21:9100/metrics"}, "not read yet", "Load:       not read yet, by node http://10.1.0.21:9100/metrics\n"},
		{&pb.LoadState{Source: "health", Error: "no answer", Failures: 3}, "unknown", "Load:       unknown, by health\n            3 failed: no answer\n"},
		{&pb.LoadState{Load: 0.42, Rps: 12.5, ReadUnixMs: 1, AgeMs: 2100, Source: "health"}, "42%", "Load:       42%, by health, 2s ago, 12.5 requests/s\n"},
		{&pb.LoadState{Load: 0.42, ReadUnixMs: 1, AgeMs: 40100, Source: "health", Error: "no answer", Failures: 8}, "42% (40s old)",
			"Load:       42% (40s old), by health\n            8 failed: no answer\n"},
	} {
		var out bytes.Buffer
		a := &app{out: &out}
		view := viewLoad(c.state)
		if a.printLoad(view); view.summary().text != c.summary || out.String() != c.text {
			t.Errorf("%q, %q", view.summary().text, out.String())
		}
	}
	servers := []serverView{{Address: "10.1.0.21"}, {Address: "10.1.0.22"}}
	if text := (serverTable(servers)); len(text.columns) != 9 {
		t.Errorf("%v", text.columns)
	}
	servers[1].Load = &loadView{Load: 1, ReadMs: 1}
	var out bytes.Buffer
	(&app{out: &out}).print(serverTable(servers))
	if !strings.Contains(out.String(), "LOAD") || !strings.Contains(out.String(), "100%") {
		t.Error(out.String())
	}
}
