// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"steelyard/internal/model"
)

const shapingHead = `version: 1
local_addresses: [10.1.0.10]
services:
  - { name: web, vip: 10.0.0.80, port: 80, servers: [{ address: 10.1.0.11, port: 8080 }] }
  - { name: api, vip: 10.0.0.80, port: 443, servers: [{ address: 10.1.0.11, port: 8443 }] }
  - { name: dns, vip: 10.0.0.81, port: 53, protocol: udp, servers: [{ address: 10.1.0.11, port: 53 }] }
tenants:
  - { name: acme, services: [web, api] }
  - { name: blue, vips: [10.0.0.81] }
  - { name: both, services: [web], vips: [10.0.0.81] }
`

const shapingText = shapingHead + `shaping:
  - port: eth0
    rate: 1G
    classes:
      - { name: voice, dscp: [ef, 44], priority: 0, maximum: 100M, queue: 64 }
      - { name: video, dscp: [af41, af42], priority: 3, weight: 4, guaranteed: 10M, early_drops: {} }
      - { name: rest, early_drops: { from: 10%, to: 50%, probability: 5% } }
    tenants:
      - { tenant: acme, guaranteed: 300M, maximum: 600M, weight: 2 }
      - { tenant: blue }
    services:
      - { service: web, guaranteed: 200M, class: voice }
      - { service: dns, guaranteed: 20M, maximum: 50M, weight: 3 }
  - { port: eth1, rate: 10M, burst: 64kB, count: l3 }
`

func TestShaping(t *testing.T) {
	config, err := Parse("f", []byte(shapingText))
	if err != nil {
		t.Fatal(err)
	}
	key := func(name string) []model.ServiceKey {
		for _, service := range config.Services {
			if service.Name == name {
				return []model.ServiceKey{service.Key}
			}
		}
		return nil
	}
	only := []model.ShapingService{{Weight: 1}}
	want := []model.Shaping{{
		Port: "eth0", Rate: 1e9, Burst: 250_000, Layer: model.LimitL1,
		Classes: []model.ShapingClass{
			{Name: "voice", DSCP: []model.DSCP{44, 46}, Weight: 1, Queue: 64, Maximum: 1e8},
			{Name: "video", DSCP: []model.DSCP{34, 36}, Priority: 3, Weight: 4, Queue: 256, Guaranteed: 1e7,
				Early: model.ShapingEarly{From: 25, To: 75, Percent: 10}},
			{Name: "rest", Priority: 7, Weight: 1, Queue: 256, Early: model.ShapingEarly{From: 10, To: 50, Percent: 5}},
		},
		Tenants: []model.ShapingTenant{
			{Weight: 1, Services: only},
			{Name: "acme", Guaranteed: 3e8, Maximum: 6e8, Weight: 2, Services: []model.ShapingService{
				{Weight: 1, Services: key("api")},
				{Name: "web", Guaranteed: 2e8, Weight: 1, Class: "voice", Services: key("web")},
			}},
			{Name: "blue", Guaranteed: 2e7, Weight: 1, Services: []model.ShapingService{
				{Weight: 1, VIPs: []netip.Addr{netip.MustParseAddr("10.0.0.81")}},
				{Name: "dns", Guaranteed: 2e7, Maximum: 5e7, Weight: 3, Services: key("dns")},
			}},
		},
	}, {
		Port: "eth1", Rate: 1e7, Burst: 64_000, Layer: model.LimitL3,
		Classes: []model.ShapingClass{{Name: "default", Priority: 7, Weight: 1, Queue: 256}},
		Tenants: []model.ShapingTenant{{Weight: 1, Services: only}},
	}}
	if got := config.ResolveShaping(); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

// A tenant that only shaping names has its use.
func TestWarningsOfShaping(t *testing.T) {
	text := strings.Replace(shapingText, "  - { name: both, services: [web], vips: [10.0.0.81] }\n", "", 1)
	config, err := Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := Warnings("f", []byte(text), config); len(got) > 0 {
		t.Errorf("%v", got)
	}
}

func TestBadShaping(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"{ port: eth0 }", "shaping[0]: `rate` is missing"},
		{"{ rate: 1G }", "`port` is missing"},
		{"{ port: eth0, rate: 1k }", "1k is out of range: use 8k to 400G"},
		{"{ port: eth0, rat: 1G }", "did you mean `rate`?"},
		{"{ port: eth0, rate: 1G, burst: 100B }", "100 is out of range: use 4096 to 100GB"},
		{"{ port: eth0, rate: 1G, burst: 64k }", "has bytes here: write 64kB"},
		{"{ port: eth0, rate: 1G, classes: [{ name: a, priority: 8 }] }", "shaping[0].classes[0].priority: 8 is out of range"},
		{"{ port: eth0, rate: 1G, classes: [{ name: a, dscp: [ef, 46] }] }", "shaping[0].classes[0].dscp[1]: ef is in line 12 already"},
		{"{ port: eth0, rate: 1G, classes: [{ name: a }, { name: a }] }", `a class in line 12 is named "a" too`},
		{"{ port: eth0, rate: 1G, classes: [{ name: a, early_drops: { from: 80% } }] }", "`from` must be below `to`"},
		{"{ port: eth0, rate: 1G, tenants: [{ tenant: acne }] }", `there is no tenant "acne": did you mean acme?`},
		{"{ port: eth0, rate: 1G, services: [{ service: wed }] }", `there is no service "wed": did you mean web?`},
		{"{ port: eth0, rate: 1G, classes: [{ name: voice }], services: [{ service: web, class: voce }] }", `the port has no class "voce": did you mean voice?`},
		{"{ port: eth0, rate: 1G, services: [{ service: web, guaranteed: 2M, maximum: 1M }] }", "the guaranteed rate, 2 Mbit/s, is above the maximum, 1 Mbit/s"},
		{"{ port: eth0, rate: 1G, tenants: [{ tenant: acme, guaranteed: 600M }, { tenant: blue, guaranteed: 500M }] }",
			"shaping[0].tenants[1].guaranteed: up to this tenant 1.1 Gbit/s are guaranteed, the port has 1 Gbit/s"},
		{"{ port: eth0, rate: 1G, tenants: [{ tenant: acme, guaranteed: 100M }], services: [{ service: web, guaranteed: 60M }, { service: api, guaranteed: 60M }] }",
			"shaping[0].services[1].guaranteed: up to this service 120 Mbit/s are guaranteed, acme has 100 Mbit/s"},
		{"{ port: eth0, rate: 1G, tenants: [{ tenant: acme, guaranteed: 900M }], services: [{ service: dns, guaranteed: 200M }] }",
			"shaping[0].services[0].guaranteed: up to this service, tenants and services are guaranteed 1.1 Gbit/s, the port has 1 Gbit/s"},
		{"{ port: eth0, rate: 1G, tenants: [{ tenant: acme }, { tenant: both }] }", "both has the service web, as acme has"},
		{"{ port: eth0, rate: 1G, tenants: [{ tenant: blue }, { tenant: both }] }", "both has the VIP 10.0.0.81, as blue has"},
		{"{ port: eth0, rate: 1G }\n  - { port: eth0, rate: 2G }", "shaping[1].port: eth0 is shaped in line 12 already"},
	} {
		_, err := Parse("f", []byte(shapingHead+"shaping:\n  - "+test.text+"\n"))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", test.text, err, test.want)
		}
	}
}

// A part of the file that is read alone must not hide that a name is gone.
func TestShapingFollowsServices(t *testing.T) {
	parser := &Parser{}
	if _, err := parser.Parse("f", []byte(shapingText)); err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(shapingText, "name: dns,", "name: dms,", 1)
	if _, err := parser.Parse("f", []byte(changed)); err == nil || !strings.Contains(err.Error(), `no service "dns": did you mean dms?`) {
		t.Errorf("got %v", err)
	}
}

// A service that moves to another tenant's VIP must fit into what that tenant has, as in a file that is
// read for the first time.
func TestShapingFollowsVIPs(t *testing.T) {
	const text = `version: 1
local_addresses: [10.1.0.10]
services:
  - { name: web, vip: 10.0.0.80, port: 80, servers: [{ address: 10.1.0.11, port: 8080 }] }
  - { name: dns, vip: 10.0.0.81, port: 53, protocol: udp, servers: [{ address: 10.1.0.11, port: 53 }] }
tenants:
  - { name: red, vips: [10.0.0.80] }
  - { name: blue, vips: [10.0.0.81] }
shaping:
  - port: eth0
    rate: 100M
    tenants: [{ tenant: red, guaranteed: 60M }, { tenant: blue, guaranteed: 10M }]
    services: [{ service: web, guaranteed: 50M }]
`
	swapped := strings.NewReplacer("name: web, vip: 10.0.0.80", "name: dns, vip: 10.0.0.80", "name: dns, vip: 10.0.0.81", "name: web, vip: 10.0.0.81").Replace(text)
	const tooMuch = "shaping[0].services[0].guaranteed: up to this service 50 Mbit/s are guaranteed, blue has 10 Mbit/s"
	for _, test := range []struct{ name, text, want string }{
		{"to a tenant with less", strings.Replace(text, "web, vip: 10.0.0.80", "web, vip: 10.0.0.81", 1), tooMuch},
		{"names swapped", swapped, tooMuch},
		{"to no tenant", strings.Replace(text, "web, vip: 10.0.0.80", "web, vip: 10.0.0.82", 1),
			"shaping[0].services[0].guaranteed: up to this service, tenants and services are guaranteed 120 Mbit/s, the port has 100 Mbit/s"},
		{"one without a rate", strings.Replace(text, "dns, vip: 10.0.0.81", "dns, vip: 10.0.0.80", 1), ""},
		{"another port", strings.Replace(text, "port: 80,", "port: 81,", 1), ""},
	} {
		parser := &Parser{}
		if _, err := parser.Parse("f", []byte(text)); err != nil {
			t.Fatal(err)
		}
		_, err := parser.Parse("f", []byte(test.text))
		_, fresh := Parse("f", []byte(test.text))
		for _, got := range []error{err, fresh} {
			if (got == nil) != (test.want == "") || got != nil && !strings.Contains(got.Error(), test.want) {
				t.Errorf("%s: got %v, want %q", test.name, got, test.want)
			}
		}
	}
}
