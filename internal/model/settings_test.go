// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

func describeAll(before, after *Config) string {
	var lines []string
	for _, d := range DescribeSettings(before, after) {
		lines = append(lines, d.Action+" "+d.Object+": "+d.Detail)
	}
	return strings.Join(lines, "\n")
}

func TestSettingsOfTheAgentInWords(t *testing.T) {
	before, after := twoConfigs()
	if got := describeAll(before, after); got != "" {
		t.Errorf("of equal ones: %s", got)
	}
	http := Health{Type: HealthHTTP, Path: "/", Expect: StatusRange{200, 399}, Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3, Jitter: 10}
	for i := range before.Services {
		before.Services[i].Name, after.Services[i].Name = "web", "web"
		before.Services[i].Health, after.Services[i].Health = http, http
	}
	h := &after.Services[0].Health
	h.Path, h.Host, h.Port, h.Expect, h.Interval = "/healthz?token=secret-word", "www", 8080, StatusRange{200, 200}, time.Second
	before.Services[1].Health.Path, after.Services[1].Health.Path = "/x?token=before-that", "/x?token=after-that"
	after.Services[2].Health = Health{Type: HealthNone}
	after.Services[2].Servers[0].DrainDeadline, after.Services[2].Servers[0].Link = 10*time.Minute, "left"
	orca := Load{Type: LoadORCA, Path: "/load?token=before-that", Full: 1, Interval: time.Second, Timeout: time.Second}
	before.Services[1].Load, after.Services[1].Load = orca, orca
	after.Services[1].Load.Path = "/load?token=after-that"
	before.NextHops, after.NextHops = []netip.Addr{netip.MustParseAddr("10.0.0.2")}, []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")}
	before.AccessSets, after.AccessSets = []AccessSet{{Name: "bad", File: "/etc/a"}}, []AccessSet{{Name: "bad", File: "/etc/b"}, {Name: "new", File: "/etc/c"}}
	after.Metrics = Metrics{Listen: "127.0.0.1:9270"}
	before.SFlow = SFlow{Collector: netip.MustParseAddrPort("192.0.2.1:6343"), Sampling: 1000, Drops: 100}
	after.SFlow = before.SFlow
	after.SFlow.Drops = 0
	want := `change health of web: port the server's -> 8080, host the server's address -> www, expect 200-399 -> 200, interval 2s -> 1s, path / -> /healthz?…
change health of web: path /x?…: another query
change load of web: path /load?…: another query
change health of web: type http -> none
change server 10.1.0.21:80 of web: drain_deadline none -> 10m0s, link none -> left
change source of access set bad: /etc/a -> /etc/b
change next_hops: addresses 10.0.0.2 -> 10.0.0.2 fd00::2
add metrics: listen 127.0.0.1:9270, detail servers
change export by sFlow: drops 100 -> none`
	if got := describeAll(before, after); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	after.Metrics, before.Metrics, after.SFlow = Metrics{}, after.Metrics, SFlow{}
	if got := describeAll(before, after); !strings.HasSuffix(got, "\nremove metrics: \nremove export by sFlow: ") {
		t.Error(got)
	}
	before.NextHops = nil
	if got, want := describeAll(nil, before), "add metrics: listen 127.0.0.1:9270, detail servers\n"+
		"add export by sFlow: collector 192.0.2.1:6343, sampling 1000, drops 100"; got != want {
		t.Errorf("of the first: %s", got)
	}
}

// Every field of these settings counts, also fields that are added later.
func TestEachFieldOfASettingCounts(t *testing.T) {
	for _, pick := range []func(*Config) any{
		func(c *Config) any { return &c.Services[0].Health }, func(c *Config) any { return &c.Metrics }, func(c *Config) any { return &c.SFlow },
	} {
		of := reflect.TypeOf(pick(&Config{Services: make([]Service, 1)})).Elem()
		for i := range of.NumField() {
			before, after := twoConfigs()
			for _, config := range []*Config{before, after} {
				config.Services[0].Health = Health{Type: HealthHTTP, Path: "/"}
				config.Metrics.Listen = "127.0.0.1:9270"
				config.SFlow.Collector = netip.MustParseAddrPort("192.0.2.1:6343")
			}
			switch field := reflect.ValueOf(pick(after)).Elem().Field(i); field.Interface().(type) {
			case netip.Addr:
				field.Set(reflect.ValueOf(netip.MustParseAddr("192.0.2.9")))
			case netip.AddrPort:
				field.Set(reflect.ValueOf(netip.MustParseAddrPort("192.0.2.9:6343")))
			default:
				alter(t, field)
			}
			if describeAll(before, after) == "" {
				t.Errorf("a change of %s.%s is not seen", of.Name(), of.Field(i).Name)
			}
		}
	}
}
