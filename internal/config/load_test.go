// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	"steelyard/internal/model"
)

func loadFile(load, server, health string) []byte {
	return []byte("version: 1\nlocal_addresses: [10.1.0.10]\nservices:\n  - name: web\n    vip: 10.0.0.80\n    port: 80\n    health: " + health +
		"\n    load: " + load + "\n    servers: [{ address: 10.1.0.21, port: 80" + server + " }]\n")
}

func TestLoad(t *testing.T) {
	const tcp = "{ type: tcp }"
	for _, c := range []struct {
		load, server string
		want         model.Load
		own          model.ServerLoad
	}{
		{"{ type: none }", "", model.Load{}, model.ServerLoad{}},
		{"{ type: node }", ", load: { port: 9101 }", model.Load{Type: model.LoadNode, Path: "/metrics", Full: 1, Interval: 5 * time.Second, Timeout: 2 * time.Second},
			model.ServerLoad{Port: 9101}},
		{"{ type: orca, port: 81, metric: named_metrics.queue, full: 64, interval: 1s }", ", load: { type: none }",
			model.Load{Type: model.LoadORCA, Port: 81, Path: "/orca", Metric: "named_metrics.queue", Full: 64, Interval: time.Second, Timeout: time.Second},
			model.ServerLoad{Off: true}},
		{"{ type: prometheus, url: 'http://p:9090', query: 'busy{i=\"$instance\"}', full: 100 }", ", load: { instance: a:9100 }",
			model.Load{Type: model.LoadPrometheus, URL: "http://p:9090", Query: `busy{i="$instance"}`, Full: 100, Interval: 5 * time.Second, Timeout: 2 * time.Second},
			model.ServerLoad{Instance: "a:9100"}},
	} {
		config, err := Parse("steelyard.yaml", loadFile(c.load, c.server, tcp))
		if err != nil {
			t.Errorf("%s: %v", c.load, err)
			continue
		}
		if got := config.Services[0]; got.Load != c.want || got.Servers[0].Load != c.own {
			t.Errorf("%s: %+v, %+v", c.load, got.Load, got.Servers[0].Load)
		}
	}
	for _, c := range []struct{ load, server, health, want string }{
		{"{ port: 9100 }", "", tcp, "load: `type` is missing"},
		{"{ type: health }", "", tcp, "set `health.type: http`"},
		{"{ type: health, interval: 1s }", "", "{ type: http }", "does not use this"},
		{"{ type: node, full: 100 }", "", tcp, "does not use this"},
		{"{ type: node, query: up }", "", tcp, "does not use this"},
		{"{ type: prometheus, query: up }", "", tcp, "needs `url` and `query`"},
		{"{ type: prometheus, query: up, url: p:9090 }", "", tcp, "is not a URL"},
		{"{ type: prometheus, query: up, url: 'http://u:p@p:9090' }", "", tcp, "has a user"},
		{"{ type: orca, metric: cpu }", "", tcp, "is not a metric"},
		{"{ type: orca, full: 0 }", "", tcp, "not a number above 0"},
		{"{ type: orca, interval: 1s, timeout: 2s }", "", tcp, "longer than the interval"},
		{"{ type: orca }", ", load: { instance: a }", tcp, "only `type: prometheus`"},
		{"{ type: orca }", ", load: { type: node }", tcp, `"node" is unknown: use none`},
		{"{ type: none }", ", load: { port: 1 }", tcp, "the service has no `load`"},
		{"{ type: prometheus, url: 'http://p', query: up }", `, load: { instance: 'a"}' }`, tcp, "is not an instance"},
	} {
		_, err := Parse("steelyard.yaml", loadFile(c.load, c.server, c.health))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s%s: %v", c.load, c.server, err)
		}
	}
}

// diff says what changes in sources, which no forwarder has.
func TestLoadIsDescribed(t *testing.T) {
	parse := func(load, server string) *model.Config {
		config, err := Parse("steelyard.yaml", loadFile(load, server, "{ type: tcp }"))
		if err != nil {
			t.Fatal(err)
		}
		return config
	}
	none, node := parse("{ type: none }", ""), parse("{ type: node }", "")
	moved := parse("{ type: node, port: 9101 }", ", load: { port: 9102 }")
	for _, c := range []struct {
		before, after *model.Config
		want          string
	}{
		{none, node, "add load of web type node, path /metrics, interval 5s, timeout 2s"},
		{node, none, "remove load of web "},
		{node, moved, "change load of web port none -> 9101; change load of server 10.1.0.21:80 of web port none -> 9102"},
	} {
		var parts []string
		for _, d := range model.DescribeSettings(c.before, c.after) {
			parts = append(parts, d.Action+" "+d.Object+" "+d.Detail)
		}
		if got := strings.Join(parts, "; "); got != c.want {
			t.Errorf("%q, not %q", got, c.want)
		}
	}
}
