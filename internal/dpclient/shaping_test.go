// SPDX-License-Identifier: Apache-2.0

package dpclient

import (
	"net/netip"
	"reflect"
	"testing"

	"steelyard/internal/model"
)

func TestShapingGoesThereAndBack(t *testing.T) {
	key := model.ServiceKey{Protocol: model.UDP, VIP: netip.MustParseAddr("fd00::80"), Port: 53}
	shaping := model.Shaping{
		Port: "eth0", Rate: 1e9, Burst: 250_000, Layer: model.LimitL2FCS,
		Classes: []model.ShapingClass{
			{Name: "voice", DSCP: []model.DSCP{44, 46}, Weight: 1, Queue: 64, Maximum: 1e8, Guaranteed: 1e6},
			{Name: "rest", Priority: 7, Weight: 9, Queue: 256, Early: model.ShapingEarly{From: 10, To: 50, Percent: 5}},
		},
		Tenants: []model.ShapingTenant{
			{Weight: 1, Services: []model.ShapingService{{Weight: 1}}},
			{Name: "acme", Guaranteed: 3e8, Maximum: 6e8, Weight: 2, Services: []model.ShapingService{
				{Weight: 1, VIPs: []netip.Addr{netip.MustParseAddr("10.0.0.81")}},
				{Name: "dns", Guaranteed: 2e8, Maximum: 5e8, Weight: 3, Class: "voice", Services: []model.ServiceKey{key}},
			}},
		},
	}
	if back, err := ShapingFromWire(ShapingToWire(shaping)); err != nil || !reflect.DeepEqual(back, shaping) {
		t.Errorf("got %+v, %v", back, err)
	}
	wire := ShapingToWire(shaping)
	wire.Tenants[1].Services[0].Vips[0] = []byte{1, 2, 3}
	if _, err := ShapingFromWire(wire); err == nil {
		t.Error("an address of three bytes is accepted")
	}
}
