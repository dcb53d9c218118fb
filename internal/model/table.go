// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Table is the present or desired contents of a forwarder.
type Table struct {
	LocalAddresses map[netip.Addr]LocalSpec
	Services       map[ServiceKey]*TableService
	SNAT           map[string]SNAT       // by name
	AccessSets     map[string]AccessSet  // by name
	AccessLists    map[string]AccessList // by name
	GlobalAccess   string                // name of the list for all services; empty: none
	Limits         map[string]Limit      // by name
	Shaping        map[string]Shaping    // by port
}

// TableService is a service in a Table.
type TableService struct {
	Spec    ServiceSpec
	Servers map[netip.AddrPort]ServerSpec
}

// ServiceSpec is a service without its key and servers; comparable.
type ServiceSpec struct {
	Name     string
	Mode     Mode
	Policy   Policy
	Timeouts Timeouts
}

// ServerSpec is a server without its address; comparable.
type ServerSpec struct {
	Weight      uint16
	State       State
	Backup      bool
	MaxSessions uint32
	CheckMark   uint32 // for its health checks on the VIP; 0: none
}

// LocalSpec is a local address without the address itself; comparable.
type LocalSpec struct {
	OfPeer bool // another node's: packets to it are accepted, new sessions never use it
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{LocalAddresses: map[netip.Addr]LocalSpec{}, Services: map[ServiceKey]*TableService{},
		SNAT: map[string]SNAT{}, AccessSets: map[string]AccessSet{}, AccessLists: map[string]AccessList{}, Limits: map[string]Limit{},
		Shaping: map[string]Shaping{}}
}

// Server returns the table's entry for one server.
func (t *Table) Server(ref ServerRef) (ServerSpec, bool) {
	service, ok := t.Services[ref.Service]
	if !ok {
		return ServerSpec{}, false
	}
	spec, ok := service.Servers[ref.Address]
	return spec, ok
}

// ChangeKind is the kind of a Change.
type ChangeKind uint8

// The kinds of changes.
const (
	PutService ChangeKind = iota
	DeleteService
	PutServer
	DeleteServer
	PutLocalAddress
	DeleteLocalAddress
	PutSNAT
	DeleteSNAT
	PutAccessList
	DeleteAccessList
	PutGlobalAccess
	PutAccessSet
	DeleteAccessSet
	PutLimit
	DeleteLimit
	PutShaping
	DeleteShaping
)

// Change is one step from one table to another. Only the fields that its kind needs are set.
type Change struct {
	Kind    ChangeKind
	Service ServiceKey     // for a service or a server
	Spec    ServiceSpec    // PutService
	Address netip.AddrPort // for a server
	Server  ServerSpec     // PutServer
	Local   netip.Addr     // for a local address
	// PutLocalAddress
	LocalSpec LocalSpec
	SNAT      SNAT // DeleteSNAT: its name
	// DeleteAccessList, PutGlobalAccess: its name
	AccessList AccessList
	AccessSet  AccessSet // DeleteAccessSet: its name
	Limit      Limit     // DeleteLimit: its name
	Shaping    Shaping   // DeleteShaping: its port
}

// Do applies the change to t.
func (t *Table) Do(c Change) error {
	service := t.Services[c.Service]
	switch c.Kind {
	case PutService:
		if service == nil {
			service = &TableService{Servers: map[netip.AddrPort]ServerSpec{}}
			t.Services[c.Service] = service
		}
		service.Spec = c.Spec
	case DeleteService:
		delete(t.Services, c.Service)
	case PutServer:
		if service == nil {
			return fmt.Errorf("server %s: no service %s", ServerText(c.Address), c.Service)
		}
		service.Servers[c.Address] = c.Server
	case DeleteServer:
		if service == nil {
			return fmt.Errorf("server %s: no service %s", ServerText(c.Address), c.Service)
		}
		delete(service.Servers, c.Address)
	case PutLocalAddress:
		t.LocalAddresses[c.Local] = c.LocalSpec
	case DeleteLocalAddress:
		delete(t.LocalAddresses, c.Local)
	case PutSNAT:
		t.SNAT[c.SNAT.Name] = c.SNAT
	case DeleteSNAT:
		delete(t.SNAT, c.SNAT.Name)
	case PutAccessList:
		t.AccessLists[c.AccessList.Name] = c.AccessList
	case DeleteAccessList:
		delete(t.AccessLists, c.AccessList.Name)
	case PutGlobalAccess:
		t.GlobalAccess = c.AccessList.Name
	case PutAccessSet:
		t.AccessSets[c.AccessSet.Name] = c.AccessSet
	case DeleteAccessSet:
		delete(t.AccessSets, c.AccessSet.Name)
	case PutLimit:
		t.Limits[c.Limit.Name] = c.Limit
	case DeleteLimit:
		delete(t.Limits, c.Limit.Name)
	case PutShaping:
		t.Shaping[c.Shaping.Port] = c.Shaping
	case DeleteShaping:
		delete(t.Shaping, c.Shaping.Port)
	}
	return nil
}

// Diff returns the fewest changes that turn `from` into `to`, in an order that harms no traffic while they
// take effect one after the other. Access sets and lists, limits and shaping come first, and leave last. Deletions that free resources come first. Local addresses come before
// the services that need them, new servers come before old ones leave, and local addresses leave last, or
// become a peer's. An address that changes its role first leaves the old one.
func Diff(from, to *Table) []Change {
	var gone, locals, services, servers, goneServers, goneLocals []Change
	roles := rolesOf(to)

	for _, key := range sortedKeys(from.Services) {
		if to.Services[key] == nil {
			gone = append(gone, Change{Kind: DeleteService, Service: key})
		}
	}
	for _, local := range slices.SortedFunc(maps.Keys(to.LocalAddresses), netip.Addr.Compare) {
		have, ok := from.LocalAddresses[local]
		want := to.LocalAddresses[local]
		change := Change{Kind: PutLocalAddress, Local: local, LocalSpec: want}
		switch {
		case ok && have == want:
		case ok && want.OfPeer:
			goneLocals = append(goneLocals, change)
		default:
			locals = append(locals, change)
		}
	}
	for _, key := range sortedKeys(to.Services) {
		want, have := to.Services[key], from.Services[key]
		if have != nil && have.Spec.Mode != want.Spec.Mode {
			// A server's sessions have one mode: recreate the service.
			gone = append(gone, Change{Kind: DeleteService, Service: key})
			have = nil
		}
		if have == nil || have.Spec != want.Spec {
			services = append(services, Change{Kind: PutService, Service: key, Spec: want.Spec})
		}
		if have == nil {
			have = &TableService{}
		}
		for _, address := range sortedServers(want.Servers) {
			spec := want.Servers[address]
			if old, ok := have.Servers[address]; !ok || old != spec {
				servers = append(servers, Change{Kind: PutServer, Service: key, Address: address, Server: spec})
			}
		}
		for _, address := range sortedServers(have.Servers) {
			if _, ok := want.Servers[address]; ok {
				continue
			}
			change := Change{Kind: DeleteServer, Service: key, Address: address}
			if role := roles[address.Addr()]; role == roleVIP || role == roleLocal || role == rolePool {
				gone = append(gone, change)
			} else {
				goneServers = append(goneServers, change)
			}
		}
	}
	for _, local := range slices.SortedFunc(maps.Keys(from.LocalAddresses), netip.Addr.Compare) {
		if _, ok := to.LocalAddresses[local]; ok {
			continue
		}
		change := Change{Kind: DeleteLocalAddress, Local: local}
		if roles[local] != roleNone {
			locals = append(locals, change)
		} else {
			goneLocals = append(goneLocals, change)
		}
	}
	goneSNAT, snat := diffSNAT(from, to, roles)
	access, goneAccess := diffAccess(from, to)
	limits, goneLimits := diffLimits(from, to)
	shaping, goneShaping := diffShaping(from, to)
	return slices.Concat(access, limits, shaping, goneSNAT, gone, locals, snat, services, servers, goneServers, goneLocals, goneAccess, goneLimits,
		goneShaping)
}

type role uint8

const (
	roleNone role = iota
	roleVIP
	roleServer
	roleLocal
	rolePool
)

func rolesOf(t *Table) map[netip.Addr]role {
	roles := map[netip.Addr]role{}
	for key, service := range t.Services {
		for address := range service.Servers {
			roles[address.Addr()] = roleServer
		}
		roles[key.VIP] = roleVIP
	}
	for local := range t.LocalAddresses {
		roles[local] = roleLocal
	}
	for _, rule := range t.SNAT {
		for _, address := range rule.Pool {
			roles[address] = rolePool
		}
	}
	return roles
}

// Compare orders keys for human readers: by address, port, protocol.
func (k ServiceKey) Compare(other ServiceKey) int {
	return cmp.Or(k.VIP.Compare(other.VIP), cmp.Compare(k.Port, other.Port),
		cmp.Compare(k.LastPort, other.LastPort), cmp.Compare(k.Protocol, other.Protocol))
}

func sortedKeys(services map[ServiceKey]*TableService) []ServiceKey {
	return slices.SortedFunc(maps.Keys(services), ServiceKey.Compare)
}

func sortedNames[V any](byName map[string]V) []string {
	return slices.Sorted(maps.Keys(byName))
}

func sortedServers(servers map[netip.AddrPort]ServerSpec) []netip.AddrPort {
	return slices.SortedFunc(maps.Keys(servers), netip.AddrPort.Compare)
}

// Description is a text that describes a change.
type Description struct {
	Action string // "add", "change" or "remove"
	Object string
	Detail string
}

// Describe describes a change of `from`; `names` returns a service's name where the change has none.
func Describe(c Change, from *Table, names func(ServiceKey) string) Description {
	service := func() string { return fmt.Sprintf("service %s (%s)", names(c.Service), c.Service) }
	server := func() string { return fmt.Sprintf("server %s of %s", ServerText(c.Address), names(c.Service)) }
	switch c.Kind {
	case PutService:
		if old := from.Services[c.Service]; old != nil && old.Spec.Mode == c.Spec.Mode {
			text := describeSpec(old.Spec, c.Spec)
			if list := c.Spec.Policy.Access; list != old.Spec.Policy.Access && from.AccessLists[list].Existing == EndExisting {
				text += "; " + EndExisting.announce()
			}
			return Description{"change", service(), text}
		}
		return Description{"add", service(), describeNewService(c.Spec)}
	case DeleteService:
		return Description{"remove", service(), "its sessions end"}
	case PutServer:
		if old, ok := from.Server(ServerRef{c.Service, c.Address}); ok && old != c.Server {
			return Description{"change", server(), describeServer(old, c.Server)}
		}
		return Description{"add", server(), describeNewServer(c.Server)}
	case DeleteServer:
		return Description{"remove", server(), "its sessions end"}
	case PutLocalAddress:
		return describeLocal(c, from)
	case PutSNAT, DeleteSNAT:
		return describeSNAT(c, from)
	case PutAccessList, DeleteAccessList, PutGlobalAccess:
		return describeAccess(c, from)
	case PutAccessSet, DeleteAccessSet:
		return describeAccessSet(c, from)
	case PutLimit, DeleteLimit:
		return describeLimit(c, from, names)
	case PutShaping, DeleteShaping:
		return describeShaping(c, from, names)
	default:
		return Description{"remove", "local address " + c.Local.String(), "its sessions end"}
	}
}

func describeLocal(c Change, from *Table) Description {
	text := map[bool]string{false: "own", true: "of a peer"}
	object := "local address " + c.Local.String()
	if old, ok := from.LocalAddresses[c.Local]; ok {
		return Description{"change", object, text[old.OfPeer] + " -> " + text[c.LocalSpec.OfPeer]}
	}
	if !c.LocalSpec.OfPeer {
		return Description{"add", object, ""}
	}
	return Description{"add", object, text[true]}
}

func describeSpec(old, spec ServiceSpec) string {
	var parts []string
	note := func(what string, from, to any) {
		if from != to {
			parts = append(parts, fmt.Sprintf("%s %v -> %v", what, from, to))
		}
	}
	note("name", old.Name, spec.Name)
	note("mode", old.Mode, spec.Mode)
	describePolicy(note, old.Policy, spec.Policy)
	for i := range spec.Timeouts {
		note("timeout "+Timeout(i).String(), old.Timeouts[i], spec.Timeouts[i])
	}
	return strings.Join(parts, ", ")
}

func describeNewService(spec ServiceSpec) string {
	text := fmt.Sprintf("%s, %s", spec.Mode, spec.Policy)
	if r := spec.Policy.Resets; r != (Resets{}) && r != DefaultResets {
		text += ", resets " + spec.Policy.Resets.String()
	}
	return text
}

func describeNewServer(spec ServerSpec) string {
	text := fmt.Sprintf("weight %d, %s", spec.Weight, spec.State)
	if spec.Backup {
		text += ", backup"
	}
	if spec.MaxSessions != 0 {
		text += fmt.Sprintf(", at most %d sessions", spec.MaxSessions)
	}
	return text
}

func describeServer(old, spec ServerSpec) string {
	var parts []string
	if old.Weight != spec.Weight {
		parts = append(parts, fmt.Sprintf("weight %d -> %d", old.Weight, spec.Weight))
	}
	if old.State != spec.State {
		parts = append(parts, fmt.Sprintf("%s -> %s", old.State, spec.State))
	}
	if old.Backup != spec.Backup {
		parts = append(parts, fmt.Sprintf("backup %v -> %v", old.Backup, spec.Backup))
	}
	if old.MaxSessions != spec.MaxSessions {
		parts = append(parts, fmt.Sprintf("max_sessions %s -> %s", orNone(numberText(old.MaxSessions)), orNone(numberText(spec.MaxSessions))))
	}
	if old.CheckMark != spec.CheckMark {
		parts = append(parts, fmt.Sprintf("check mark %#x -> %#x", old.CheckMark, spec.CheckMark))
	}
	return strings.Join(parts, ", ")
}

func (k ChangeKind) String() string {
	return [...]string{"put service", "delete service", "put server", "delete server",
		"put local address", "delete local address", "put snat", "delete snat", "put access list",
		"delete access list", "put global access list", "put access set", "delete access set",
		"put limit", "delete limit", "put shaping", "delete shaping"}[k]
}
