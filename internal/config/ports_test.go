// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"testing"

	"steelyard/internal/model"
)

const portsFrame = "version: 1\nlocal_addresses: [10.1.0.10]\nservices:\n"

func TestManyPorts(t *testing.T) {
	config, err := Parse("f", []byte(portsFrame+
		"  - { name: all, vip: 10.0.0.80, port: all, health: { port: 80 }, servers: [{ address: 10.1.0.21 }] }\n"+
		"  - { name: range, vip: 10.0.0.80, port: 8000-8099, health: { type: none }, servers: [{ address: 10.1.0.21 }] }\n"+
		"  - { name: to-one, vip: 10.0.0.80, port: 8010 - 8019, servers: [{ address: 10.1.0.21, port: 7000 }] }\n"+
		"  - { name: one, vip: 10.0.0.80, port: 8015, servers: [{ address: 10.1.0.21 }] }\n"+
		"  - { name: dns, vip: 10.0.0.80, port: 8050-8150, protocol: udp, mode: dr, servers: [{ address: 10.1.0.21 }] }\n"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		first, last, server uint16
	}{{0, 0, 0}, {8000, 8099, 0}, {8010, 8019, 7000}, {8015, 0, 8015}, {8050, 8150, 0}} {
		service := config.Services[i]
		if service.Key.Port != want.first || service.Key.LastPort != want.last {
			t.Errorf("%s: got the ports %s", service.Name, service.Key.Ports())
		}
		if server := netip.AddrPortFrom(netip.MustParseAddr("10.1.0.21"), want.server); service.Servers[0].Address != server {
			t.Errorf("%s: got %s, want %s", service.Name, model.ServerText(service.Servers[0].Address), model.ServerText(server))
		}
	}
}

func TestBadPorts(t *testing.T) {
	const one = "  - { name: a, vip: 10.0.0.80, port: 8000-8099, health: { type: none }, servers: [{ address: 10.1.0.21 }] }\n"
	for _, test := range []struct{ services, want string }{
		{one + "  - { name: b, vip: 10.0.0.80, port: all, servers: [] }\n  - { name: c, vip: 10.0.0.80, port: 1-65535, servers: [] }\n",
			"f:6:38: services[2].port: tcp 10.0.0.80:1-65535 has the same ports as tcp 10.0.0.80:*, in line 5: put all servers into one"},
		{one + "  - { name: b, vip: 10.0.0.80, port: 8050-8150, servers: [] }\n",
			"f:5:38: services[1].port: tcp 10.0.0.80:8050-8150 overlaps with tcp 10.0.0.80:8000-8099, in line 4: put one range within the other, or separate them"},
		{one + "  - { name: b, vip: 10.0.0.80, port: 8000-8099, servers: [] }\n",
			"f:5:21: services[1].vip: tcp 10.0.0.80:8000-8099 is already a service, in line 4: put all its servers into one"},
		{"  - { name: a, vip: 10.0.0.80, port: 8099-8000, servers: [] }\n",
			"f:4:38: services[0].port: 8099-8000 is no range: write the lower port first, and one port alone as 8099"},
		{"  - { name: a, vip: 10.0.0.80, port: 8000-70000, servers: [] }\n",
			"f:4:38: services[0].port: 70000 is out of range: use 1 to 65535"},
		{"  - { name: a, vip: 10.0.0.80, port: some, servers: [] }\n",
			`f:4:38: services[0].port: "some" is not a port: write a number, a range like 8000-8099, or all`},
		{"  - { name: a, vip: 10.0.0.80, port: -1, servers: [] }\n",
			"f:4:38: services[0].port: -1 is out of range: use 1 to 65535"},
		{"  - { name: a, vip: 10.0.0.80, port: all, servers: [{ address: 10.1.0.21 }] }\n",
			"f:4:38: services[0].port: checks need one port: name it as `port` in `health`, or use `type: none` there"},
		{"  - { name: a, vip: 10.0.0.80, port: all, mode: dr, health: { port: 80 }, servers: [{ address: 10.1.0.21, port: 80 }] }\n",
			"f:4:113: services[0].servers[0].port: dr translates no ports, so the server must listen on those that clients connect to: remove this line, or use fnat"},
		{"  - { name: a, vip: 10.0.0.80, port: all, health: { port: 80 }, servers: [{ address: 10.1.0.21 }, { address: 10.1.0.21 }] }\n",
			"f:4:110: services[0].servers[1].address: 10.1.0.21:* is already a server of this service, in line 4: remove one"},
	} {
		_, err := Parse("f", []byte(portsFrame+test.services))
		if err == nil || err.Error() != test.want {
			t.Errorf("got  %v\nwant %s", err, test.want)
		}
	}
}
