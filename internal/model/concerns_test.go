// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"slices"
	"testing"
)

func TestWhatConcernsAService(t *testing.T) {
	vip, other := netip.MustParseAddr("10.0.0.80"), netip.MustParseAddr("10.0.0.81")
	web, dns, api := ServiceKey{TCP, vip, 80, 0}, ServiceKey{UDP, other, 53, 0}, ServiceKey{TCP, vip, 443, 0}
	server := netip.MustParseAddrPort("10.1.0.11:80")
	config := &Config{
		Services: []Service{{Name: "web", Key: web}, {Name: "dns", Key: dns}, {Name: "api", Key: api}},
		Tenants:  []Tenant{{Name: "acme", Services: []string{"web"}}, {Name: "blue", VIPs: []netip.Addr{vip, other}}},
		Limits: []ConfigLimit{{Name: "all"}, {Name: "web", Of: LimitTarget{Services: []string{"web"}}}, {Name: "vip", Of: LimitTarget{VIPs: []netip.Addr{vip}}},
			{Name: "acme", Of: LimitTarget{Tenant: "acme"}}, {Name: "server", Of: LimitTarget{Server: NamedServer{"dns", server}}}},
		Shaping: []ConfigShaping{{Port: "eth0", Tenants: []ConfigShapingTenant{{Tenant: "acme"}, {Tenant: "blue"}},
			Services: []ConfigShapingService{{Service: "dns", Class: "voice"}}}, {Port: "eth1"}},
	}
	for _, test := range []struct {
		key              ServiceKey
		limits           []string
		tenant, as, last string
	}{
		{web, []string{"all", "web", "vip", "acme"}, "acme", "", ""},
		{dns, []string{"all", "server"}, "blue", "dns", "voice"},
		{api, []string{"all", "vip"}, "blue", "", ""},
	} {
		var names []string
		for _, limit := range config.LimitsOf(test.key) {
			names = append(names, limit.Name)
		}
		ports := config.ResolveShaping()
		tenant, service := ports[0].Of(test.key)
		if !slices.Equal(names, test.limits) || tenant.Name != test.tenant || service.Name != test.as || service.Class != test.last {
			t.Errorf("%s: %v, %s, %+v", test.key, names, tenant.Name, service)
		}
		if tenant, service := ports[1].Of(test.key); tenant.Name != "" || service.Name != "" {
			t.Errorf("%s at eth1: %s, %+v", test.key, tenant.Name, service)
		}
	}
}
