// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"net/netip"
	"testing"

	"steelyard/internal/model"
)

func TestTexts(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.0.0.80"), netip.MustParseAddr("fd00::80")
	for want, ref := range map[string]model.ServerRef{
		"tcp/10.0.0.80:80/10.1.0.21:8080":     {Service: model.ServiceKey{Protocol: model.TCP, VIP: v4, Port: 80}, Address: netip.MustParseAddrPort("10.1.0.21:8080")},
		"udp/[fd00::80]:53/[fd00:1::1]:53":    {Service: model.ServiceKey{Protocol: model.UDP, VIP: v6, Port: 53}, Address: netip.MustParseAddrPort("[fd00:1::1]:53")},
		"tcp/10.0.0.80:8000-8099/10.1.0.21:*": {Service: model.ServiceKey{Protocol: model.TCP, VIP: v4, Port: 8000, LastPort: 8099}, Address: netip.MustParseAddrPort("10.1.0.21:0")},
		"udp/[fd00::80]:*/[fd00:1::1]:*":      {Service: model.ServiceKey{Protocol: model.UDP, VIP: v6}, Address: netip.MustParseAddrPort("[fd00:1::1]:0")},
	} {
		if got := Text(ref); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got, err := Parse(want); err != nil || got != ref {
			t.Errorf("%s: %v, %v", want, got, err)
		}
	}
	for _, bad := range []string{"", "tcp", "tcp/10.0.0.80:80", "icmp/10.0.0.80:80/10.1.0.21:80", "tcp/10.0.0.80/10.1.0.21:80", "tcp/10.0.0.80:080/10.1.0.21:80",
		"tcp/10.0.0.80:65536/10.1.0.21:80", "tcp/10.0.0.80:8-9-10/10.1.0.21:80", "tcp/10.0.0.80:80/10.1.0.21:80/", "tcp/[10.0.0.80]:80/10.1.0.21:80",
		"tcp/10.0.0.80:*80/10.1.0.21:80", "tcp/10.0.0.80:-/10.1.0.21:80"} {
		if ref, err := Parse(bad); err == nil {
			t.Errorf("%q is %v", bad, ref)
		}
	}
}
