// SPDX-License-Identifier: Apache-2.0

package dpclient

import (
	"fmt"
	"net/netip"

	pb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/model"
)

// SessionFilter selects sessions; fields that are not set match all.
type SessionFilter struct {
	Client  netip.Addr
	Bits    int // of the network that Client is in; 0: the address itself
	Service *model.ServiceKey
	// Only sessions whose client is known to receive packets at its address: neither embryonic nor unreplied.
	Validated bool
}

func timeoutsToWire(t model.Timeouts) *pb.Timeouts {
	return &pb.Timeouts{
		SynSentS: t[model.SynSent], SynReceivedS: t[model.SynReceived],
		EstablishedS: t[model.Established], FinWaitS: t[model.FinWait],
		ClosingS: t[model.Closing], TimeWaitS: t[model.TimeWait], ResetS: t[model.Reset],
		UdpOneWayS: t[model.UDPOneWay], UdpS: t[model.UDPTwoWay], EchoS: t[model.Echo],
	}
}

func timeoutsFromWire(t *pb.Timeouts) model.Timeouts {
	return model.Timeouts{
		model.SynSent: t.GetSynSentS(), model.SynReceived: t.GetSynReceivedS(),
		model.Established: t.GetEstablishedS(), model.FinWait: t.GetFinWaitS(),
		model.Closing: t.GetClosingS(), model.TimeWait: t.GetTimeWaitS(), model.Reset: t.GetResetS(),
		model.UDPOneWay: t.GetUdpOneWayS(), model.UDPTwoWay: t.GetUdpS(), model.Echo: t.GetEchoS(),
	}.Or(model.DefaultTimeouts)
}

func keyToWire(k model.ServiceKey) *pb.ServiceKey {
	return &pb.ServiceKey{Protocol: pb.Protocol(k.Protocol), Vip: k.VIP.AsSlice(), Port: uint32(k.Port),
		LastPort: uint32(k.LastPort)}
}

// KeyFromWire reads a service's key.
func KeyFromWire(k *pb.ServiceKey) (model.ServiceKey, error) {
	vip, err := addressFromWire(k.GetVip())
	if err != nil {
		return model.ServiceKey{}, fmt.Errorf("a service's VIP: %w", err)
	}
	port, err := portFromWire(k.GetPort())
	if err != nil {
		return model.ServiceKey{}, fmt.Errorf("service %s: %w", vip, err)
	}
	last, err := portFromWire(k.GetLastPort())
	if err != nil {
		return model.ServiceKey{}, fmt.Errorf("service %s: %w", vip, err)
	}
	return model.ServiceKey{Protocol: model.Protocol(k.GetProtocol()), VIP: vip, Port: port, LastPort: last}, nil
}

// ServerAddressFromWire reads a server's address and port.
func ServerAddressFromWire(s *pb.Server) (netip.AddrPort, error) {
	address, err := addressFromWire(s.GetAddress())
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("a server's address: %w", err)
	}
	port, err := portFromWire(s.GetPort())
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("server %s: %w", address, err)
	}
	return netip.AddrPortFrom(address, port), nil
}

func addressFromWire(bytes []byte) (netip.Addr, error) {
	address, ok := netip.AddrFromSlice(bytes)
	if !ok {
		return netip.Addr{}, fmt.Errorf("%d bytes from the forwarder, not 4 or 16", len(bytes))
	}
	return address.Unmap(), nil
}

func portFromWire(port uint32) (uint16, error) {
	if port > 65535 {
		return 0, fmt.Errorf("port %d from the forwarder", port)
	}
	return uint16(port), nil
}

// SpecToWire writes a service.
func SpecToWire(key model.ServiceKey, spec model.ServiceSpec) *pb.Service {
	return &pb.Service{
		Key: keyToWire(key), Name: spec.Name, Mark: markToWire(spec.Policy.Mark),
		Mode: pb.Mode(spec.Mode), Scheduler: pb.Scheduler(spec.Policy.Scheduler),
		HashOn: pb.HashOn(spec.Policy.HashOn), Persistence: persistenceToWire(spec.Policy.Persistence),
		SlowStartS: spec.Policy.SlowStart, OnePacket: spec.Policy.OnePacket, MaxSessions: spec.Policy.MaxSessions,
		ClientAddress: pb.ClientAddress(spec.Policy.ClientAddress), SloppyTcp: spec.Policy.SloppyTCP,
		KeepClientOptions: spec.Policy.ClientOptions == model.KeepOptions,
		Resets:            resetsToWire(spec.Policy.Resets), SynDefence: defenceToWire(spec.Policy.SynDefence),
		AccessList: spec.Policy.Access, ClientLimits: clientLimitsToWire(spec.Policy.Clients),
		WhenUnavailable: unavailableOnWire[spec.Policy.Unavailable],
		Sync:            syncOnWire[spec.Policy.Sync.From], SyncOlderThanS: spec.Policy.Sync.OlderThan,
		Timeouts: timeoutsToWire(spec.Timeouts),
	}
}

// unavailableOnWire leaves the default out, so that a forwarder of an earlier version accepts it.
var unavailableOnWire = map[model.WhenUnavailable]pb.WhenUnavailable{
	model.UnavailableReset: pb.WhenUnavailable_WHEN_UNAVAILABLE_UNSPECIFIED,
	model.UnavailableDrop:  pb.WhenUnavailable_WHEN_UNAVAILABLE_DROP,
	model.UnavailableICMP:  pb.WhenUnavailable_WHEN_UNAVAILABLE_ICMP,
}

func unavailableFromWire(w pb.WhenUnavailable) model.WhenUnavailable {
	switch w {
	case pb.WhenUnavailable_WHEN_UNAVAILABLE_DROP:
		return model.UnavailableDrop
	case pb.WhenUnavailable_WHEN_UNAVAILABLE_ICMP:
		return model.UnavailableICMP
	}
	return model.UnavailableReset
}

// syncOnWire leaves the default out, so that a forwarder of an earlier version accepts it.
var syncOnWire = map[model.SyncFrom]pb.Sync{
	model.SyncEstablished: pb.Sync_SYNC_UNSPECIFIED,
	model.SyncOff:         pb.Sync_SYNC_OFF,
	model.SyncAll:         pb.Sync_SYNC_ALL,
	model.SyncStrict:      pb.Sync_SYNC_STRICT,
}

func syncFromWire(s pb.Sync) model.SyncFrom {
	switch s {
	case pb.Sync_SYNC_OFF:
		return model.SyncOff
	case pb.Sync_SYNC_ALL:
		return model.SyncAll
	case pb.Sync_SYNC_STRICT:
		return model.SyncStrict
	}
	return model.SyncEstablished
}

func markToWire(m model.Mark) *pb.Mark {
	if !m.Set {
		return nil
	}
	return &pb.Mark{Dscp: uint32(m.DSCP)}
}

func persistenceToWire(p model.Persistence) *pb.Persistence {
	if p.Timeout == 0 {
		return nil
	}
	return &pb.Persistence{TimeoutS: p.Timeout, Prefix4: uint32(p.Prefix4), Prefix6: uint32(p.Prefix6)}
}

var defencesOnWire = map[model.SynDefence]pb.SynDefence{
	model.DefenceOff: pb.SynDefence_SYN_DEFENCE_OFF, model.DefenceAlways: pb.SynDefence_SYN_DEFENCE_ALWAYS,
	model.DefenceAuto: pb.SynDefence_SYN_DEFENCE_AUTO,
}

func defenceToWire(d model.SynDefence) pb.SynDefence {
	return defencesOnWire[d]
}

func defenceFromWire(d pb.SynDefence) model.SynDefence {
	for own, wire := range defencesOnWire {
		if wire == d {
			return own
		}
	}
	return model.DefenceOff
}

func clientLimitsToWire(l model.ClientLimits) *pb.ClientLimits {
	if l == (model.ClientLimits{}) {
		return nil
	}
	return &pb.ClientLimits{NewPerSecond: l.NewPerSecond, Burst: l.Burst, Sessions: l.Sessions}
}

func resetsToWire(r model.Resets) *pb.Resets {
	if r == (model.Resets{}) {
		return nil
	}
	return &pb.Resets{Expired: r.Expired, Down: r.Down, Unknown: r.Unknown}
}

// PolicyFromWire reads a service's policy for sessions and resets.
func PolicyFromWire(s *pb.Service) model.Policy {
	p, r := s.GetPersistence(), s.GetResets()
	options := model.RemoveOptions
	if s.GetKeepClientOptions() {
		options = model.KeepOptions
	}
	return model.Policy{
		Scheduler: model.Scheduler(s.GetScheduler()), HashOn: model.HashOn(s.GetHashOn()),
		Persistence: model.Persistence{Timeout: p.GetTimeoutS(), Prefix4: uint8(p.GetPrefix4()), Prefix6: uint8(p.GetPrefix6())},
		SlowStart:   s.GetSlowStartS(), OnePacket: s.GetOnePacket(), MaxSessions: s.GetMaxSessions(),
		ClientAddress: model.ClientAddress(s.GetClientAddress()), SloppyTCP: s.GetSloppyTcp(), ClientOptions: options,
		Resets:     model.Resets{Expired: r.GetExpired(), Down: r.GetDown(), Unknown: r.GetUnknown()},
		SynDefence: defenceFromWire(s.GetSynDefence()), Unavailable: unavailableFromWire(s.GetWhenUnavailable()),
		Access: s.GetAccessList(), Sync: model.Sync{From: syncFromWire(s.GetSync()), OlderThan: s.GetSyncOlderThanS()},
		Mark: model.Mark{Set: s.GetMark() != nil, DSCP: model.DSCP(s.GetMark().GetDscp())},
		Clients: model.ClientLimits{NewPerSecond: s.GetClientLimits().GetNewPerSecond(), Burst: s.GetClientLimits().GetBurst(),
			Sessions: s.GetClientLimits().GetSessions()},
	}
}

func specFromWire(s *pb.Service) model.ServiceSpec {
	return model.ServiceSpec{
		Name: s.GetName(), Mode: model.Mode(s.GetMode()), Policy: PolicyFromWire(s),
		Timeouts: timeoutsFromWire(s.GetTimeouts()),
	}
}

// ServerToWire writes a server.
func ServerToWire(address netip.AddrPort, spec model.ServerSpec) *pb.Server {
	return &pb.Server{
		Address: address.Addr().AsSlice(), Port: uint32(address.Port()),
		Weight: uint32(spec.Weight), State: pb.ServerState(spec.State),
		Backup: spec.Backup, MaxSessions: spec.MaxSessions, CheckMark: spec.CheckMark,
	}
}

func addPage(table *model.Table, page *pb.Config) error {
	for _, local := range page.GetLocalAddresses() {
		address, err := addressFromWire(local.GetAddress())
		if err != nil {
			return fmt.Errorf("a local address: %w", err)
		}
		table.LocalAddresses[address] = model.LocalSpec{OfPeer: local.GetOfPeer()}
	}
	for _, entry := range page.GetEntries() {
		key, err := KeyFromWire(entry.GetService().GetKey())
		if err != nil {
			return err
		}
		service := &model.TableService{
			Spec: specFromWire(entry.GetService()), Servers: map[netip.AddrPort]model.ServerSpec{},
		}
		for _, server := range entry.GetServers() {
			address, err := ServerAddressFromWire(server)
			if err != nil {
				return fmt.Errorf("service %s: %w", key, err)
			}
			service.Servers[address] = model.ServerSpec{
				Weight: uint16(server.GetWeight()), State: model.State(server.GetState()),
				Backup: server.GetBackup(), MaxSessions: server.GetMaxSessions(), CheckMark: server.GetCheckMark(),
			}
		}
		table.Services[key] = service
	}
	for _, rule := range page.GetSnat() {
		snat, err := SNATFromWire(rule)
		if err != nil {
			return err
		}
		table.SNAT[snat.Name] = snat
	}
	for _, wire := range page.GetAccessSets() {
		set, err := accessSetFromWire(wire)
		if err != nil {
			return err
		}
		table.AccessSets[set.Name] = set
	}
	for _, wire := range page.GetAccessLists() {
		list, err := AccessListFromWire(wire)
		if err != nil {
			return err
		}
		table.AccessLists[list.Name] = list
	}
	if name := page.GetGlobalAccess(); name != "" {
		table.GlobalAccess = name
	}
	for _, wire := range page.GetLimits() {
		limit, err := LimitFromWire(wire)
		if err != nil {
			return err
		}
		table.Limits[limit.Name] = limit
	}
	for _, wire := range page.GetShaping() {
		shaping, err := ShapingFromWire(wire)
		if err != nil {
			return err
		}
		table.Shaping[shaping.Port] = shaping
	}
	return nil
}

func changeToWire(c model.Change) *pb.Change {
	server := func() *pb.Change_ServerOf {
		return &pb.Change_ServerOf{Service: keyToWire(c.Service), Server: ServerToWire(c.Address, c.Server)}
	}
	switch c.Kind {
	case model.PutService:
		return &pb.Change{Kind: &pb.Change_PutService{PutService: SpecToWire(c.Service, c.Spec)}}
	case model.DeleteService:
		return &pb.Change{Kind: &pb.Change_DeleteService{DeleteService: keyToWire(c.Service)}}
	case model.PutServer:
		return &pb.Change{Kind: &pb.Change_PutServer{PutServer: server()}}
	case model.DeleteServer:
		return &pb.Change{Kind: &pb.Change_DeleteServer{DeleteServer: server()}}
	case model.PutLocalAddress:
		return &pb.Change{Kind: &pb.Change_PutLocalAddress{
			PutLocalAddress: &pb.LocalAddress{Address: c.Local.AsSlice(), OfPeer: c.LocalSpec.OfPeer}}}
	case model.PutSNAT:
		return &pb.Change{Kind: &pb.Change_PutSnat{PutSnat: SNATToWire(c.SNAT)}}
	case model.DeleteSNAT:
		return &pb.Change{Kind: &pb.Change_DeleteSnat{DeleteSnat: c.SNAT.Name}}
	case model.PutAccessList:
		return &pb.Change{Kind: &pb.Change_PutAccessList{PutAccessList: AccessListToWire(c.AccessList)}}
	case model.DeleteAccessList:
		return &pb.Change{Kind: &pb.Change_DeleteAccessList{DeleteAccessList: c.AccessList.Name}}
	case model.PutAccessSet:
		return &pb.Change{Kind: &pb.Change_PutAccessSet{PutAccessSet: accessSetToWire(c.AccessSet)}}
	case model.DeleteAccessSet:
		return &pb.Change{Kind: &pb.Change_DeleteAccessSet{DeleteAccessSet: c.AccessSet.Name}}
	case model.PutLimit:
		return &pb.Change{Kind: &pb.Change_PutLimit{PutLimit: LimitToWire(c.Limit)}}
	case model.DeleteLimit:
		return &pb.Change{Kind: &pb.Change_DeleteLimit{DeleteLimit: c.Limit.Name}}
	case model.PutShaping:
		return &pb.Change{Kind: &pb.Change_PutShaping{PutShaping: ShapingToWire(c.Shaping)}}
	case model.DeleteShaping:
		return &pb.Change{Kind: &pb.Change_DeleteShaping{DeleteShaping: c.Shaping.Port}}
	case model.PutGlobalAccess:
		return &pb.Change{Kind: &pb.Change_PutGlobalAccess{PutGlobalAccess: c.AccessList.Name}}
	default:
		return &pb.Change{Kind: &pb.Change_DeleteLocalAddress{
			DeleteLocalAddress: &pb.LocalAddress{Address: c.Local.AsSlice()}}}
	}
}
