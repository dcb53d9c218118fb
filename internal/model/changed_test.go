// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"reflect"
	"testing"
)

func twoConfigs() (before, after *Config) {
	make := func() *Config {
		config := &Config{LocalAddresses: []netip.Addr{netip.MustParseAddr("10.1.0.200")}}
		for i := range uint16(3) {
			config.Services = append(config.Services, Service{
				Name: "s", Key: ServiceKey{Protocol: TCP, VIP: netip.MustParseAddr("10.0.0.80"), Port: 80 + i},
				Servers: []Server{{Address: netip.MustParseAddrPort("10.1.0.21:80"), Weight: 1}},
			})
		}
		return config
	}
	return make(), make()
}

func TestChangedServices(t *testing.T) {
	before, after := twoConfigs()
	if changed, ok := ChangedServices(before, after); !ok || len(changed) != 0 {
		t.Errorf("of equal ones: %v, %v", changed, ok)
	}
	gone := after.Services[2].Key
	after.Services = after.Services[:2]
	after.Services[1].Servers[0].Weight = 7
	more := after.Services[0]
	more.Key.Port = 443
	after.Services = append(after.Services, more)
	changed, ok := ChangedServices(before, after)
	want := map[ServiceKey]struct{}{gone: {}, after.Services[1].Key: {}, more.Key: {}}
	if !ok || !reflect.DeepEqual(changed, want) {
		t.Errorf("%v, %v; want %v", changed, ok, want)
	}
	after.LocalAddresses = nil
	if _, ok := ChangedServices(before, after); ok {
		t.Error("local addresses differ too")
	}
	before, after = twoConfigs()
	after.PeerLocals = []netip.Addr{netip.MustParseAddr("10.1.0.201")}
	if _, ok := ChangedServices(before, after); ok {
		t.Error("local addresses of peers differ too")
	}
}

// Every field of a service counts as a change, also fields that are added later.
func TestEachFieldOfAServiceCounts(t *testing.T) {
	kind := reflect.TypeFor[Service]()
	for i := range kind.NumField() {
		before, after := twoConfigs()
		field := reflect.ValueOf(&after.Services[0]).Elem().Field(i)
		alter(t, field)
		if changed, _ := ChangedServices(before, after); len(changed) == 0 {
			t.Errorf("a change of %s is not seen", kind.Field(i).Name)
		}
	}
}

// alter changes a value, or the first of its parts that it can change.
func alter(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(v.Uint() + 1)
	case reflect.Slice:
		v.Set(reflect.Zero(v.Type()))
	case reflect.Struct, reflect.Array:
		part := v.Index
		if v.Kind() == reflect.Struct {
			part = v.Field
		}
		alter(t, part(0))
	default:
		t.Fatalf("a field of kind %s", v.Kind())
	}
}
