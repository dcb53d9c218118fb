// SPDX-License-Identifier: Apache-2.0

package dptest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"net/netip"
	"slices"
	"strings"

	pb "steelyard/internal/gen/forwarderpb"

	"google.golang.org/protobuf/proto"
)

// The requests of one connection.

// session is one connection with its staged changes, and the data of a set that it sends.
type session struct {
	*Forwarder
	staged []*pb.Change
	set    []byte
}

func refuse(code pb.Code, format string, args ...any) *pb.Response {
	return &pb.Response{Error: &pb.Error{Code: code, Text: fmt.Sprintf(format, args...)}}
}

// claim ends warnings of Status.Contested, which begin with the address.
func (s *session) claim(request *pb.ClaimRequest) *pb.Response {
	before := len(s.Status.Contested)
	s.Status.Contested = slices.DeleteFunc(s.Status.Contested, func(text string) bool {
		return len(request.GetAddresses()) == 0 || slices.ContainsFunc(request.GetAddresses(), func(bytes []byte) bool {
			address, _ := netip.AddrFromSlice(bytes)
			return strings.HasPrefix(text, address.String()+" ")
		})
	})
	return &pb.Response{Body: &pb.Response_Claim{Claim: &pb.ClaimResult{Claimed: uint32(before - len(s.Status.Contested))}}}
}

// Contest has another host have addresses.
func (f *Forwarder) Contest(addresses ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Status.Contested = nil
	for _, address := range addresses {
		f.Status.Contested = append(f.Status.Contested, address+" is in use by another host")
	}
}

// Contested returns the warnings of addresses that other hosts have.
func (f *Forwarder) Contested() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.Status.Contested)
}

func (s *session) answer(request *pb.Request) *pb.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	if request.GetVersion() > uint32(pb.Version_VERSION_CURRENT) {
		return refuse(pb.Code_CODE_UNSUPPORTED, "version %d is newer than this forwarder", request.GetVersion())
	}
	switch body := request.GetBody().(type) {
	case *pb.Request_SetRole:
		if !s.BeforePeers {
			return s.setRole(body.SetRole)
		}
	case *pb.Request_ListPeers:
		if !s.BeforePeers {
			return s.listPeers()
		}
	case *pb.Request_SetGroup:
		if !s.BeforePeers {
			return s.setGroup(body.SetGroup.GetGroup())
		}
	case *pb.Request_Status:
		status := proto.CloneOf(s.Status)
		status.Revision, status.Services = s.revision, uint32(len(s.config.services))
		return &pb.Response{Body: &pb.Response_Status{Status: status}}
	case *pb.Request_Apply:
		return s.apply(body.Apply)
	case *pb.Request_Claim:
		return s.claim(body.Claim)
	case *pb.Request_GetConfig:
		return s.getConfig(body.GetConfig)
	case *pb.Request_ListServices:
		return s.listServices(body.ListServices)
	case *pb.Request_ListSessions:
		return s.listSessions(body.ListSessions)
	case *pb.Request_ListDrops:
		return &pb.Response{Body: &pb.Response_ListDrops{ListDrops: &pb.DropList{Drops: s.Drops}}}
	case *pb.Request_ListAttacks:
		return &pb.Response{Body: &pb.Response_ListAttacks{ListAttacks: &pb.AttackList{Attacks: s.Attacks}}}
	case *pb.Request_FetchSamples:
		return s.fetchSamples(body.FetchSamples)
	case *pb.Request_ListPorts:
		return &pb.Response{Body: &pb.Response_ListPorts{ListPorts: &pb.PortList{Ports: s.Ports}}}
	case *pb.Request_ListWorkers:
		list := proto.CloneOf(&pb.WorkerList{Workers: s.Workers})
		if !s.Stuck {
			s.beat++
		}
		for _, worker := range list.Workers {
			worker.IdleCycles += s.beat
		}
		return &pb.Response{Body: &pb.Response_ListWorkers{ListWorkers: list}}
	case *pb.Request_Upgrade:
		if s.Upgrade == nil {
			return refuse(pb.Code_CODE_UNSUPPORTED, "this forwarder cannot be upgraded")
		}
		result, refusal := s.Upgrade(body.Upgrade)
		if result == nil && refusal == nil {
			return nil
		}
		return &pb.Response{Error: refusal, Body: &pb.Response_Upgrade{Upgrade: result}}
	case *pb.Request_ListSnat:
		list := &pb.SnatList{}
		for _, name := range slices.Sorted(maps.Keys(s.config.snat)) {
			list.Rules = append(list.Rules, &pb.SnatStats{Rule: s.config.snat[name], Traffic: &pb.Traffic{SessionsActive: 3,
				SessionsCreated: 5, PacketsIn: 70, BytesIn: 7000, PacketsOut: 60, BytesOut: 90000}})
		}
		return &pb.Response{Body: &pb.Response_ListSnat{ListSnat: list}}
	case *pb.Request_ListAccess:
		list := &pb.AccessLists{SetsBytes: 524448, DroppedEarly: s.DroppedEarly}
		for _, name := range slices.Sorted(maps.Keys(s.config.sets)) {
			list.Sets = append(list.Sets, s.config.setStats(name))
		}
		for _, name := range slices.Sorted(maps.Keys(s.config.access)) {
			stats := &pb.AccessStats{List: s.config.access[name], Otherwise: 1000, Global: name == s.config.global}
			for i := range stats.List.GetRules() {
				stats.Matches = append(stats.Matches, uint64(7*(i+1)))
			}
			for _, entry := range s.entries() {
				if entry.GetService().GetAccessList() == name {
					stats.Services = append(stats.Services, entry.GetService().GetName())
				}
			}
			list.Lists = append(list.Lists, stats)
		}
		return &pb.Response{Body: &pb.Response_ListAccess{ListAccess: list}}
	case *pb.Request_SetShares:
		return s.setShares(body.SetShares)
	case *pb.Request_ListShaping:
		return s.listShaping()
	case *pb.Request_ListLimits:
		return s.listLimits(body.ListLimits)
	case *pb.Request_PutSetData:
		return s.putSetData(body.PutSetData)
	case *pb.Request_ListSlots:
		return &pb.Response{Body: &pb.Response_ListSlots{ListSlots: &pb.SlotList{Slots: s.Slots}}}
	}
	return refuse(pb.Code_CODE_UNSUPPORTED, "unknown request")
}

func (s *session) apply(request *pb.ApplyRequest) *pb.Response {
	s.applies++
	s.largest = max(s.largest, len(request.GetChanges()))
	if s.refuses(request.GetChanges()) {
		s.staged = nil
		return &pb.Response{Error: s.refusal}
	}
	s.staged = append(s.staged, request.GetChanges()...)
	if !request.GetCommit() {
		return &pb.Response{Body: &pb.Response_Apply{Apply: &pb.ApplyResult{Staged: uint32(len(s.staged))}}}
	}
	changes := s.staged
	s.staged = nil
	next := s.config.clone()
	for i, change := range changes {
		err := next.do(change)
		if digest := change.GetPutAccessSet().GetDigest(); len(digest) > 0 && s.setData[string(digest)] == nil {
			err = errors.New("the data of the set is not here")
		}
		if err != nil {
			response := refuse(pb.Code_CODE_INVALID, "change %d: %v", i, err)
			response.Error.ChangeIndex = uint32(i)
			return response
		}
	}
	if err := next.checkLimits(); err != nil {
		return refuse(pb.Code_CODE_INVALID, "%v", err)
	}
	s.config = next
	s.revision++
	s.commits = append(s.commits, changes)
	s.cond.Broadcast()
	return &pb.Response{Body: &pb.Response_Apply{Apply: &pb.ApplyResult{Revision: s.revision}}}
}

func (s *session) putSetData(request *pb.PutSetDataRequest) *pb.Response {
	reply := func(next uint64) *pb.Response {
		return &pb.Response{Body: &pb.Response_PutSetData{PutSetData: &pb.SetDataResult{Next: next}}}
	}
	if s.setData[string(request.GetDigest())] != nil {
		return reply(request.GetSize())
	}
	if len(request.GetPiece()) == 0 {
		s.set = []byte{}
		return reply(0)
	}
	if uint64(len(s.set)) != request.GetOffset() {
		return refuse(pb.Code_CODE_INVALID, "piece %d is not the next one", request.GetOffset())
	}
	s.set = append(s.set, request.GetPiece()...)
	s.pieces++
	if uint64(len(s.set)) < request.GetSize() {
		return reply(uint64(len(s.set)))
	}
	if digest := sha256.Sum256(s.set); !bytes.Equal(digest[:], request.GetDigest()) ||
		crc32.Checksum(s.set, crc32.MakeTable(crc32.Castagnoli)) != request.GetCrc32C() {
		return refuse(pb.Code_CODE_INVALID, "the data of a set is wrong")
	}
	s.setData[string(request.GetDigest())] = s.set
	s.set = nil
	return reply(request.GetSize())
}

// page returns at most limit entries of a list from the cursor, and the next page's cursor or 0.
func page[T any](f *Forwarder, list []T, cursor, limit int) ([]T, int) {
	if limit == 0 {
		limit = 1000
	}
	if f.Page != 0 {
		limit = min(limit, f.Page)
	}
	cursor = min(cursor, len(list))
	end := min(cursor+limit, len(list))
	if end == len(list) {
		return list[cursor:], 0
	}
	return list[cursor:end], end
}

func (s *session) entries() []*pb.Config_Entry {
	var entries []*pb.Config_Entry
	for _, key := range slices.Sorted(maps.Keys(s.config.services)) {
		entries = append(entries, s.config.services[key])
	}
	return entries
}

func (s *session) getConfig(request *pb.GetConfigRequest) *pb.Response {
	config := &pb.Config{Revision: s.revision}
	if request.GetCursor() == 0 {
		for _, local := range slices.Sorted(maps.Keys(s.config.locals)) {
			config.LocalAddresses = append(config.LocalAddresses, s.config.locals[local])
		}
		for _, name := range slices.Sorted(maps.Keys(s.config.snat)) {
			config.Snat = append(config.Snat, s.config.snat[name])
		}
		for _, name := range slices.Sorted(maps.Keys(s.config.sets)) {
			set := proto.CloneOf(s.config.sets[name])
			set.Missing = len(set.Digest) > 0 && s.setData[string(set.Digest)] == nil
			config.AccessSets = append(config.AccessSets, set)
		}
		for _, name := range slices.Sorted(maps.Keys(s.config.access)) {
			config.AccessLists = append(config.AccessLists, s.config.access[name])
		}
		config.GlobalAccess = s.config.global
		config.Limits = s.limits()
		config.Shaping = s.shaping()
	}
	entries, next := page(s.Forwarder, s.entries(), int(request.GetCursor()), int(request.GetLimit()))
	config.Entries, config.NextCursor = entries, uint32(next)
	return &pb.Response{Body: &pb.Response_GetConfig{GetConfig: config}}
}

func (s *session) listServices(request *pb.ListServicesRequest) *pb.Response {
	entries := s.entries()
	if request.GetOnly() != nil {
		entries = slices.DeleteFunc(entries, func(e *pb.Config_Entry) bool { return !proto.Equal(e.Service.Key, request.Only) })
	}
	entries, next := page(s.Forwarder, entries, int(request.GetCursor()), int(request.GetLimit()))
	list := &pb.ServiceList{NextCursor: uint32(next)}
	traffic := func(key *pb.ServiceKey, server *pb.Server) *pb.Traffic {
		if s.Traffic == nil {
			return &pb.Traffic{}
		}
		return s.Traffic(key, server)
	}
	for _, entry := range entries {
		stats := &pb.ServiceStats{Service: entry.Service, Traffic: traffic(entry.Service.Key, nil)}
		for _, server := range entry.Servers {
			stats.Servers = append(stats.Servers, &pb.ServerStats{Server: server, Traffic: traffic(entry.Service.Key, server)})
		}
		stats.Drops, stats.Unavailable = s.ServiceDrops, s.Unavailable
		s.addShares(stats)
		switch entry.Service.SynDefence {
		case pb.SynDefence_SYN_DEFENCE_ALWAYS:
			stats.SynDefence = &pb.DefenceStats{Answered: 1000, Returned: 900, Wrong: 7, On: true, HalfOpen: 2}
		case pb.SynDefence_SYN_DEFENCE_AUTO:
			stats.SynDefence = &pb.DefenceStats{Answered: 50, Returned: 40, On: true, HalfOpen: 3, SwitchedOn: 2,
				SinceUnixMs: 1000, Why: "most handshakes are not completed"}
		}
		list.Services = append(list.Services, stats)
	}
	return &pb.Response{Body: &pb.Response_ListServices{ListServices: list}}
}

// within reports whether a client is in the network of a request.
func within(request *pb.ListSessionsRequest, client []byte) bool {
	if request.ClientBits == 0 {
		return bytes.Equal(request.Client, client)
	}
	network, _ := netip.AddrFromSlice(request.Client)
	address, _ := netip.AddrFromSlice(client)
	return netip.PrefixFrom(network, int(request.ClientBits)).Contains(address)
}

func (s *session) listSessions(request *pb.ListSessionsRequest) *pb.Response {
	matching := slices.DeleteFunc(slices.Clone(s.Sessions), func(session *pb.Session) bool {
		key := &pb.ServiceKey{Protocol: session.Protocol, Vip: session.Vip, Port: session.Vport}
		return request.Client != nil && !within(request, session.Client) ||
			request.Validated && (session.State == "syn-sent" || session.State == "syn-received") ||
			request.Service != nil && !proto.Equal(key, request.Service)
	})
	sessions, next := page(s.Forwarder, matching, int(request.GetCursor()), int(request.GetLimit()))
	return &pb.Response{Body: &pb.Response_ListSessions{
		ListSessions: &pb.SessionList{Sessions: sessions, NextCursor: uint64(next)}}}
}
