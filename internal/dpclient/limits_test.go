// SPDX-License-Identifier: Apache-2.0

package dpclient_test

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"steelyard/internal/dpclient"
	"steelyard/internal/dpclient/dptest"
	pb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/model"
)

func manyLimits() *model.Table {
	table := model.NewTable()
	web := model.ServiceKey{Protocol: model.TCP, VIP: netip.MustParseAddr("10.0.0.80"), Port: 80}
	media := model.ServiceKey{Protocol: model.UDP, VIP: netip.MustParseAddr("fd00::80"), Port: 8000, LastPort: 8099}
	for i, limit := range []model.Limit{
		{Tenant: "acme", Services: []model.ServiceKey{web, media}, VIPs: []netip.Addr{netip.MustParseAddr("10.0.0.81"), netip.MustParseAddr("fd00::81")},
			Spec: model.LimitSpec{Unit: model.LimitBits, PerSecond: 400e9, Burst: 1e11, Layer: model.LimitL1, Direction: model.LimitToClients, Action: model.LimitDrop}},
		{Servers: []model.ServerRef{{Service: web, Address: netip.MustParseAddrPort("10.1.0.11:8080")}, {Service: media, Address: netip.MustParseAddrPort("[fd00::11]:0")}},
			Spec: model.LimitSpec{Unit: model.LimitPackets, PerSecond: 5, Burst: 6, Direction: model.LimitBoth, Action: model.LimitMark, Mark: 14,
				Engine: model.EngineLightLock, Batch: 2}},
		{Spec: model.LimitSpec{Unit: model.LimitSessions, PerSecond: 500, Burst: 16, Action: model.LimitDrop, Engine: model.EngineLock,
			ByClient: true, Prefix4: 24, Prefix6: 56, MaxClients: 1 << 20},
			Within: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}},
	} {
		limit.Name = fmt.Sprint("l", i)
		table.Limits[limit.Name] = limit
	}
	return table
}

func TestLimitsGoThereAndBack(t *testing.T) {
	f := dptest.New(t)
	client := dial(t, f)
	want := manyLimits()
	if _, err := client.Apply(t.Context(), model.Diff(model.NewTable(), want)); err != nil {
		t.Fatal(err)
	}
	got, _, err := client.ReadTable(t.Context())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\ngot  %+v\nwant %+v", err, got.Limits, want.Limits)
	}
	if _, err := client.Apply(t.Context(), model.Diff(want, model.NewTable())); err != nil {
		t.Fatal(err)
	}
	if got, _, err := client.ReadTable(t.Context()); err != nil || len(got.Limits) != 0 {
		t.Errorf("%v, %+v", err, got.Limits)
	}
}

func TestLimitsWithoutValuesHaveDefaults(t *testing.T) {
	got, err := dpclient.LimitFromWire(&pb.Limit{Name: "l", Unit: pb.LimitUnit_LIMIT_UNIT_BITS, PerSecond: 8000, Burst: 9,
		Clients: &pb.LimitClients{}, Dscp: 3, Batch: 4})
	want := model.LimitSpec{Unit: model.LimitBits, PerSecond: 8000, Burst: 9, Layer: model.LimitL3, Direction: model.LimitBoth,
		Action: model.LimitDrop, ByClient: true, Prefix4: 32, Prefix6: 64, MaxClients: 65536}
	if err != nil || got.Spec != want {
		t.Errorf("%+v, %v", got.Spec, err)
	}
	got, err = dpclient.LimitFromWire(&pb.Limit{Name: "l", Unit: pb.LimitUnit_LIMIT_UNIT_SESSIONS, Layer: pb.LimitLayer_LIMIT_LAYER_L3,
		Direction: pb.LimitDirection_LIMIT_DIRECTION_BOTH})
	if err != nil || got.Spec != (model.LimitSpec{Unit: model.LimitSessions, Action: model.LimitDrop}) {
		t.Errorf("%+v, %v", got.Spec, err)
	}
	for _, bad := range []*pb.Limit{{Vips: [][]byte{{1}}}, {Services: []*pb.ServiceKey{{}}}, {Servers: []*pb.ServerKey{{}}},
		{Clients: &pb.LimitClients{Within: []*pb.Prefix{{Address: []byte{10, 0, 0, 0}, Length: 33}}}}} {
		if _, err := dpclient.LimitFromWire(bad); err == nil {
			t.Errorf("%v is read", bad)
		}
	}
}

func TestEachLimit(t *testing.T) {
	f := dptest.New(t)
	f.Page = 2
	client := dial(t, f)
	if _, err := client.Apply(t.Context(), model.Diff(model.NewTable(), manyLimits())); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		worst int
		want  string
	}{{"", 0, "l0 0 l1 0 l2 0 "}, {"l2", 1, "l2 1 "}} {
		got := ""
		err := client.EachLimit(t.Context(), test.name, test.worst, func(stats *pb.LimitStats) error {
			got += fmt.Sprint(stats.GetLimit().GetName(), " ", len(stats.GetWorst()), " ")
			return nil
		})
		if err != nil || got != test.want {
			t.Errorf("%+v: %q, %v", test, got, err)
		}
	}
	err := client.EachLimit(t.Context(), "none", 0, func(*pb.LimitStats) error { return nil })
	var refusal *dpclient.Error
	if !errors.As(err, &refusal) || !refusal.Refused() {
		t.Error(err)
	}
}

// A limit that is added before the next page moves the others: none comes twice.
func TestEachLimitWhileOneIsAdded(t *testing.T) {
	f := dptest.New(t)
	f.Page = 2
	client, other := dial(t, f), dial(t, f)
	table := manyLimits()
	if _, err := client.Apply(t.Context(), model.Diff(model.NewTable(), table)); err != nil {
		t.Fatal(err)
	}
	got := ""
	err := client.EachLimit(t.Context(), "", 0, func(stats *pb.LimitStats) error {
		if got += stats.GetLimit().GetName() + " "; got != "l0 l1 " {
			return nil
		}
		more := manyLimits()
		first := more.Limits["l1"]
		first.Name = "first"
		more.Limits["first"] = first
		_, err := other.Apply(t.Context(), model.Diff(table, more))
		return err
	})
	if err != nil || got != "l0 l1 l2 " {
		t.Errorf("%q, %v", got, err)
	}
}

// The fake refuses what the forwarder has no room for.
func TestLimitsHaveTotals(t *testing.T) {
	client := dial(t, dptest.New(t))
	limit := manyLimits().Limits["l2"] // 1 << 20 buckets
	table := model.NewTable()
	table.Limits[limit.Name] = limit
	if _, err := client.Apply(t.Context(), model.Diff(model.NewTable(), table)); err != nil {
		t.Fatal(err)
	}
	limit.Name, limit.Spec.MaxClients = "more", 1
	table.Limits = map[string]model.Limit{limit.Name: limit}
	if _, err := client.Apply(t.Context(), model.Diff(model.NewTable(), table)); err == nil {
		t.Error("more buckets than there are")
	}
}
