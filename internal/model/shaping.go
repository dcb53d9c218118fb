// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
)

// ShapingEarly configures drops before a queue is full, in percent of its length; comparable.
type ShapingEarly struct {
	From, To, Percent uint8 // Percent 0: never
}

// ShapingClass is a class of packets; each service has a queue for it.
type ShapingClass struct {
	Name       string
	DSCP       []DSCP // sorted
	Priority   uint8  // 0 is sent first
	Weight     uint8
	Queue      uint32 // packets
	Guaranteed uint64 // bits/s of each service; 0: none
	Maximum    uint64
	Early      ShapingEarly
}

// ShapingService is a service as a port shapes it, or others together.
type ShapingService struct {
	Name       string // empty: the tenant's others
	Guaranteed uint64
	Maximum    uint64
	Weight     uint8
	Class      string // of all packets; empty: by DSCP
	Services   []ServiceKey
	VIPs       []netip.Addr
}

// ShapingTenant is a tenant as a port shapes it; without a name: all others.
type ShapingTenant struct {
	Name       string
	Guaranteed uint64
	Maximum    uint64
	Weight     uint8
	Services   []ShapingService // at least one
}

// Shaping configures how a forwarder shapes the packets sent on a port. Packets that belong nowhere else are the
// first tenant's first service's; those without a class are the last one's.
type Shaping struct {
	Port    string
	Rate    uint64 // bits/s
	Burst   uint64 // bytes
	Layer   LimitLayer
	Classes []ShapingClass
	Tenants []ShapingTenant
}

func (s Shaping) equal(other Shaping) bool {
	return reflect.DeepEqual(s, other)
}

// ConfigShaping is the shaping of a port in the user's configuration. Services lists those that have a
// rate, a weight or a class of their own.
type ConfigShaping struct {
	Port     string
	Rate     uint64
	Burst    uint64
	Layer    LimitLayer
	Classes  []ShapingClass
	Tenants  []ConfigShapingTenant
	Services []ConfigShapingService
}

// ConfigShapingTenant is a tenant by its name.
type ConfigShapingTenant struct {
	Tenant     string
	Guaranteed uint64
	Maximum    uint64
	Weight     uint8
}

// ConfigShapingService is a service by its name.
type ConfigShapingService struct {
	Service    string
	Guaranteed uint64
	Maximum    uint64
	Weight     uint8
	Class      string
}

// ResolveShaping returns a configuration's shaping with keys in place of names.
func (c *Config) ResolveShaping() []Shaping {
	if len(c.Shaping) == 0 {
		return nil
	}
	keys, tenants := c.byName()
	all := make([]Shaping, 0, len(c.Shaping))
	for i := range c.Shaping {
		all = append(all, c.Shaping[i].resolve(keys, tenants))
	}
	return all
}

// resolve builds the tree: the others first, then the tenants, each with its own others first.
func (s *ConfigShaping) resolve(keys map[string]ServiceKey, tenants map[string]*Tenant) Shaping {
	shaping := Shaping{Port: s.Port, Rate: s.Rate, Burst: s.Burst, Layer: s.Layer, Classes: s.Classes,
		Tenants: []ShapingTenant{{Weight: 1, Services: []ShapingService{{Weight: 1}}}}}
	own := make(map[string]bool, len(s.Services))
	for _, service := range s.Services {
		own[service.Service] = true
	}
	byName, byVIP := map[string]int{}, map[netip.Addr]int{} // numbers of tenants
	for _, one := range s.Tenants {
		at := len(shaping.Tenants)
		others := ShapingService{Weight: 1}
		if tenant := tenants[one.Tenant]; tenant != nil {
			for _, name := range tenant.Services {
				byName[name] = at
				if key, ok := keys[name]; ok && !own[name] {
					others.Services = append(others.Services, key)
				}
			}
			for _, vip := range tenant.VIPs {
				byVIP[vip] = at
				others.VIPs = append(others.VIPs, vip)
			}
		}
		slices.SortFunc(others.Services, ServiceKey.Compare)
		slices.SortFunc(others.VIPs, netip.Addr.Compare)
		shaping.Tenants = append(shaping.Tenants, ShapingTenant{Name: one.Tenant, Guaranteed: one.Guaranteed,
			Maximum: one.Maximum, Weight: one.Weight, Services: []ShapingService{others}})
	}
	for _, one := range s.Services {
		key, ok := keys[one.Service]
		if !ok {
			continue
		}
		at, named := byName[one.Service]
		if !named {
			at = byVIP[key.VIP] // or 0, the others
		}
		tenant := &shaping.Tenants[at]
		tenant.Services = append(tenant.Services, ShapingService{Name: one.Service, Guaranteed: one.Guaranteed,
			Maximum: one.Maximum, Weight: one.Weight, Class: one.Class, Services: []ServiceKey{key}})
	}
	for i := range shaping.Tenants {
		shaping.Tenants[i].guarantee()
	}
	return shaping
}

// guarantee sets the rate of a tenant without a guaranteed rate to the sum of its services, which could not be guaranteed otherwise.
func (t *ShapingTenant) guarantee() {
	if t.Guaranteed > 0 {
		return
	}
	for _, service := range t.Services {
		t.Guaranteed += service.Guaranteed
	}
}

func diffShaping(from, to *Table) (puts, gone []Change) {
	for _, port := range sortedNames(to.Shaping) {
		if old, ok := from.Shaping[port]; !ok || !old.equal(to.Shaping[port]) {
			puts = append(puts, Change{Kind: PutShaping, Shaping: to.Shaping[port]})
		}
	}
	for _, port := range sortedNames(from.Shaping) {
		if _, ok := to.Shaping[port]; !ok {
			gone = append(gone, Change{Kind: DeleteShaping, Shaping: Shaping{Port: port}})
		}
	}
	return puts, gone
}

// BitRate returns "1.5 Mbit/s"; "" for 0.
func BitRate(n uint64) string {
	if n == 0 {
		return ""
	}
	return LimitSpec{Unit: LimitBits, PerSecond: n}.Rate()
}

// String summarizes a port's shaping: the named parts.
func (s Shaping) String() string {
	tenants, services := 0, 0
	for _, tenant := range s.Tenants {
		if tenant.Name != "" {
			tenants++
		}
		for _, service := range tenant.Services {
			if service.Name != "" {
				services++
			}
		}
	}
	counted := func(n int, one, many string) string {
		if n == 1 {
			return ", 1 " + one
		}
		return fmt.Sprintf(", %d %s", n, many)
	}
	return fmt.Sprintf("%s, burst %s, counts %s", BitRate(s.Rate), burstText(s), s.Layer) +
		counted(len(s.Classes), "class", "classes") + counted(tenants, "tenant", "tenants") + counted(services, "service", "services")
}

func burstText(s Shaping) string {
	return LimitSpec{Unit: LimitBits}.Amount(s.Burst)
}

// property is something that a description of a change names, with its value.
type property struct{ name, value string }

// changed describes the differences of two lists of the same properties: "weight 4 -> 5".
func changed(was, now []property) string {
	var parts []string
	for i := range now {
		if was[i].value != now[i].value {
			parts = append(parts, fmt.Sprintf("%s %s -> %s", now[i].name, orNone(was[i].value), orNone(now[i].value)))
		}
	}
	return strings.Join(parts, ", ")
}

// set returns the properties that are there: "weight 4, guaranteed 10 Mbit/s".
func set(all []property) string {
	var parts []string
	for _, one := range all {
		if one.value != "" {
			parts = append(parts, one.name+" "+one.value)
		}
	}
	return strings.Join(parts, ", ")
}

func ratesOf(guaranteed, maximum uint64, weight uint8) []property {
	return []property{{"weight", fmt.Sprint(weight)}, {"guaranteed", BitRate(guaranteed)}, {"maximum", BitRate(maximum)}}
}

func (c ShapingClass) properties() []property {
	early, dscp := "", ""
	if c.Early.Percent > 0 {
		early = fmt.Sprintf("%d%% from %d%% to %d%% of the queue", c.Early.Percent, c.Early.From, c.Early.To)
	}
	if len(c.DSCP) > 0 {
		dscp = listOf(c.DSCP, DSCP.String)
	}
	return slices.Concat([]property{{"priority", fmt.Sprint(c.Priority)}}, ratesOf(c.Guaranteed, c.Maximum, c.Weight),
		[]property{{"queue", fmt.Sprint(c.Queue)}, {"dscp", dscp}, {"early drops", early}})
}

func (s ShapingService) properties(names func(ServiceKey) string) []property {
	services, vips := "", ""
	if s.Name == "" && len(s.Services) > 0 { // those without an entry
		services = listOf(s.Services, names)
	}
	if s.Name == "" && len(s.VIPs) > 0 {
		vips = listOf(s.VIPs, netip.Addr.String)
	}
	return append(ratesOf(s.Guaranteed, s.Maximum, s.Weight), property{"class", s.Class}, property{"services", services}, property{"vips", vips})
}

// branches returns the properties of a port's classes, tenants and services, by their display names.
func (s Shaping) branches(names func(ServiceKey) string) map[string][]property {
	all := map[string][]property{"": {{"rate", BitRate(s.Rate)}, {"burst", burstText(s)}, {"count", s.Layer.String()}}}
	for _, class := range s.Classes {
		all["class "+class.Name] = class.properties()
	}
	for _, tenant := range s.Tenants {
		name := orOthers(tenant.Name)
		all["tenant "+name] = ratesOf(tenant.Guaranteed, tenant.Maximum, tenant.Weight)
		for _, service := range tenant.Services {
			all["service "+orOthers(service.Name)+" of "+name] = service.properties(names)
		}
	}
	return all
}

func orOthers(name string) string {
	if name == "" {
		return "(others)"
	}
	return name
}

func describeShaping(c Change, from *Table, names func(ServiceKey) string) Description {
	object := "shaping of port " + c.Shaping.Port
	if c.Kind == DeleteShaping {
		return Description{"remove", object, "packets that wait leave at once"}
	}
	old, ok := from.Shaping[c.Shaping.Port]
	if !ok {
		return Description{"add", object, c.Shaping.String()}
	}
	var parts []string
	before, after := old.branches(names), c.Shaping.branches(names)
	for _, name := range sortedNames(after) {
		was, known := before[name]
		if !known {
			if !strings.HasPrefix(name, "service (others)") { // these are listed with their tenant
				parts = append(parts, name+" added: "+set(after[name]))
			}
		} else if what := changed(was, after[name]); what != "" {
			parts = append(parts, strings.TrimPrefix(name+": "+what, ": "))
		}
	}
	for _, name := range sortedNames(before) {
		if _, stays := after[name]; !stays && !strings.HasPrefix(name, "service (others)") {
			parts = append(parts, name+" removed")
		}
	}
	if len(parts) == 0 {
		parts = []string{"the order changes"}
	}
	if more := len(parts) - maxListed; more > 0 {
		parts = append(parts[:maxListed], fmt.Sprintf("and %d more", more))
	}
	return Description{"change", object, strings.Join(parts, "; ")}
}
