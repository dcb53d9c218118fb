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
      - { name: voice, dscp: [ef, 44], priority: 0, maximum: 300M, queue: 64 }
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
			{Name: "voice", DSCP: []model.DSCP{44, 46}, Weight: 1, Queue: 64, Maximum: 3e8},
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
		{"{ port: eth0, rate: 1G, classes: [{ name: a, guaranteed: 600M }, { name: b, guaranteed: 500M }] }",
			"shaping[0].classes[1].guaranteed: up to this class 1.1 Gbit/s are guaranteed in each service, the port has 1 Gbit/s"},
		{"{ port: eth0, rate: 1G, classes: [{ name: a, guaranteed: 60M }, { name: b, guaranteed: 50M }], tenants: [{ tenant: acme, maximum: 100M }] }",
			"shaping[0].tenants[0].maximum: classes are guaranteed 110 Mbit/s in each service, above this maximum, 100 Mbit/s: raise it"},
		{"{ port: eth0, rate: 1G, classes: [{ name: a, guaranteed: 60M }, { name: b, guaranteed: 50M }], services: [{ service: web, maximum: 100M }] }",
			"shaping[0].services[0].maximum: classes are guaranteed 110 Mbit/s in this service, above its maximum, 100 Mbit/s: raise it"},
		{"{ port: eth0, rate: 1G, classes: [{ name: a, guaranteed: 60M }, { name: b, guaranteed: 50M }], services: [{ service: web, maximum: 55M, class: a }] }",
			"shaping[0].services[0].maximum: classes are guaranteed 60 Mbit/s in this service, above its maximum, 55 Mbit/s"},
		{"{ port: eth0, rate: 1G, classes: [{ name: a, maximum: 60M }, { name: b }], services: [{ service: web, guaranteed: 70M, class: a }] }",
			"shaping[0].services[0].guaranteed: the guaranteed rate, 70 Mbit/s, cannot be reached, as its packets are of class a, whose maximum is 60 Mbit/s: lower it"},
		{"{ port: eth0, rate: 1G, classes: [{ name: a, maximum: 60M }, { name: b, maximum: 5M }], services: [{ service: web, guaranteed: 70M }] }",
			"shaping[0].services[0].guaranteed: the guaranteed rate, 70 Mbit/s, cannot be reached, as its classes have at most 65 Mbit/s together"},
		{"{ port: eth0, rate: 1G, tenants: [{ tenant: acme, maximum: 100M }], services: [{ service: web, guaranteed: 60M }, { service: api, guaranteed: 60M }] }",
			"shaping[0].services[1].guaranteed: up to this service 120 Mbit/s are guaranteed, acme has 100 Mbit/s"},
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

// What fits exactly.
func TestShapingThatFitsIsAccepted(t *testing.T) {
	for _, text := range []string{
		"{ port: eth0, rate: 1G, classes: [{ name: a, guaranteed: 600M }, { name: b, guaranteed: 400M }] }",
		"{ port: eth0, rate: 1G, classes: [{ name: a, guaranteed: 60M }, { name: b, guaranteed: 50M }], tenants: [{ tenant: acme, maximum: 110M }], services: [{ service: web, maximum: 60M, class: a }] }",
		"{ port: eth0, rate: 1G, classes: [{ name: a, maximum: 60M }, { name: b, maximum: 10M }], services: [{ service: web, guaranteed: 70M }, { service: api, guaranteed: 60M, class: a }] }",
		"{ port: eth0, rate: 1G, tenants: [{ tenant: acme, guaranteed: 100M }, { tenant: blue, guaranteed: 900M }], services: [{ service: web, guaranteed: 40M }, { service: api, guaranteed: 60M }] }",
	} {
		text = shapingHead + "shaping:\n  - " + text + "\n"
		config, err := Parse("f", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for _, warning := range Warnings("f", []byte(text), config) {
			if !strings.Contains(warning, "nothing names tenant") {
				t.Errorf("%s: %s", text, warning)
			}
		}
	}
}

// A maximum that something above does not let it have.
func TestMaximaWithoutEffectAreWarnedOf(t *testing.T) {
	const text = shapingHead + `shaping:
  - port: eth0
    rate: 1G
    classes: [{ name: a, maximum: 2G }]
    tenants: [{ tenant: acme, maximum: 300M }, { tenant: blue, maximum: 1100M }]
    services: [{ service: web, maximum: 400M }, { service: dns, maximum: 1050M }, { service: api, maximum: 300M }]
  - { port: eth1, rate: 500M, services: [{ service: web, maximum: 600M }, { service: api, maximum: 500M }] }
`
	config, err := Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"f:10:5: tenants[2]: nothing names tenant both: name it in the `tenant` of a limit or in the `shaping` of a port, or remove it",
		"f:14:35: shaping[0].classes[0].maximum: a maximum of 2 Gbit/s has no effect, as the port has 1 Gbit/s: lower it, or remove this key",
		"f:15:73: shaping[0].tenants[1].maximum: a maximum of 1.1 Gbit/s has no effect, as the port has 1 Gbit/s: lower it, or remove this key",
		"f:16:41: shaping[0].services[0].maximum: a maximum of 400 Mbit/s has no effect, as acme has 300 Mbit/s: lower it, or remove this key",
		"f:16:74: shaping[0].services[1].maximum: a maximum of 1.05 Gbit/s has no effect, as the port has 1 Gbit/s: lower it, or remove this key",
		"f:17:67: shaping[1].services[0].maximum: a maximum of 600 Mbit/s has no effect, as the port has 500 Mbit/s: lower it, or remove this key",
	}
	if got := Warnings("f", []byte(text), config); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

// One reading reports what is wrong everywhere, and nothing that follows from it.
func TestAllMistakesAreReportedAtOnce(t *testing.T) {
	const text = shapingHead + `limits:
  - { name: a, tenant: acne, bits_per_second: 10 Mbit/s, burst: 64 kB }
  - { name: a, service: web, packets_per_second: 0 }
  - { name: c, vip: 10.0.0.80, bits_per_second: 1M, clients: { max_clients: 1048576 } }
  - { name: d, bits_per_second: 1M, clients: { max_clients: 1 } }
shaping:
  - port: eth0
    rate: 1G
    classes: [{ name: x, guaranteed: 20M, maximum: 10M }, { name: y, guaranteed: 2M }]
    tenants: [{ tenant: acme, guaranteed: 100M }, { tenant: blue, guaranteed: 950M }]
    services:
      - { service: web, guaranteed: 90M, maximum: 80M, class: z }
      - { service: api, guaranteed: 20M }
      - { service: dns, maximum: 1M }
  - { port: eth0, rate: fast, services: [{ service: web, guaranteed: 2G }] }
  - { port: eth1, rate: 10M, tenants: [{ tenant: acme, guaranteed: 5M }], services: [{ service: web, guaranteed: 6M }, { service: dns, guaranteed: 7M }] }
`
	wrong := strings.Replace(text, "port: 443,", "port: none,", 1)
	for _, test := range []struct {
		text string
		want []string
	}{
		{wrong, []string{
			"5:40: services[1].port", "12:24: limits[0].tenant", "12:47: limits[0].bits_per_second", "12:65: limits[0].burst",
			"13:13: limits[1].name", "13:50: limits[1].packets_per_second", "15:61: limits[3].clients.max_clients",
			"19:38: shaping[0].classes[0].guaranteed", "20:79: shaping[0].tenants[1].guaranteed",
			"22:37: shaping[0].services[0].guaranteed", "22:63: shaping[0].services[0].class", "23:37: shaping[0].services[1].guaranteed",
			"24:34: shaping[0].services[2].maximum", "25:13: shaping[1].port", "25:25: shaping[1].rate",
			"26:114: shaping[2].services[0].guaranteed", "26:148: shaping[2].services[1].guaranteed"}},
		// Which services there are is not known: what they have together is left out.
		{strings.Replace(wrong, "name: api,", "nam: api,", 1), []string{
			"5:7: services[1].nam", "5:39: services[1].port", "12:24: limits[0].tenant", "12:47: limits[0].bits_per_second", "12:65: limits[0].burst",
			"13:13: limits[1].name", "13:50: limits[1].packets_per_second",
			"19:38: shaping[0].classes[0].guaranteed", "20:79: shaping[0].tenants[1].guaranteed",
			"22:37: shaping[0].services[0].guaranteed", "22:63: shaping[0].services[0].class",
			"24:34: shaping[0].services[2].maximum", "25:13: shaping[1].port", "25:25: shaping[1].rate"}},
	} {
		_, err := Parse("f", []byte(test.text))
		var got []string
		for _, line := range strings.Split(err.Error(), "\n") {
			parts := strings.SplitN(line, ": ", 3)
			got = append(got, strings.TrimPrefix(parts[0], "f:")+": "+parts[1])
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("got\n%v", err)
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
