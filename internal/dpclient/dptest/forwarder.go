// SPDX-License-Identifier: Apache-2.0

// Package dptest is a forwarder for tests: the contract of forwarder.proto without packets. It checks
// changes one by one in their order, which is stricter than the contract requires.
package dptest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/forwarderpb"

	"google.golang.org/protobuf/proto"
)

// Forwarder is a fake forwarder that listens on a socket. Set its exported fields before use.
type Forwarder struct {
	Socket string
	Page   int // entries in an answer, whatever the request says; 0: as requested

	Status       *pb.Status
	Sessions     []*pb.Session
	Drops        []*pb.Drop
	ServiceDrops []*pb.ServiceDrop    // of each service
	Unavailable  *pb.UnavailableStats // of each service
	DroppedEarly uint64               // by XDP programs, for the global access list
	Attacks      []*pb.Attack
	Samples      []*pb.Sample // numbered from 2; each client gets the kinds that it requests
	Ports        []*pb.Port
	Workers      []*pb.Worker
	Stuck        bool // workers do not run
	beat         uint64
	Slots        []*pb.Slot
	// Answers an upgrade by a result or a refusal; if by neither, the connection ends. nil: refuses all.
	Upgrade func(*pb.UpgradeRequest) (*pb.UpgradeResult, *pb.Error)
	Traffic func(key *pb.ServiceKey, server *pb.Server) *pb.Traffic // server nil: the service's
	Delay   func(server *pb.Server) *pb.DelayStats

	tb       testing.TB
	mu       sync.Mutex
	cond     *sync.Cond
	listener net.Listener
	stopped  bool
	conns    map[net.Conn]struct{}
	config   *config
	revision uint64
	commits  [][]*pb.Change
	dials    int // connections so far
	applies  int // ApplyRequests received
	largest  int // most changes in one of them
	fetches  []*pb.FetchSamplesRequest
	setData  map[string][]byte            // by digest: data of sets, kept for ever
	pieces   int                          // of that data received
	shares   map[string]*pb.ServiceShares // by key, as set last
	refusal  *pb.Error
	refused  []netip.Addr // VIPs whose services are refused; none: all are refused
	serving  sync.WaitGroup
}

// config is the forwarder's configuration, by the keys' wire bytes.
type config struct {
	locals   map[string]bool
	services map[string]*pb.Config_Entry
	vips     map[string]int // number of services with the address
	servers  map[string]int // number of servers with the address
	snat     map[string]*pb.Snat
	access   map[string]*pb.AccessList
	sets     map[string]*pb.AccessSet
	global   string
	limits   map[string]*pb.Limit
	shaping  map[string]*pb.Shaping
}

func newConfig() *config {
	return &config{map[string]bool{}, map[string]*pb.Config_Entry{}, map[string]int{}, map[string]int{},
		map[string]*pb.Snat{}, map[string]*pb.AccessList{}, map[string]*pb.AccessSet{}, "", map[string]*pb.Limit{}, map[string]*pb.Shaping{}}
}

func (c *config) clone() *config {
	copied := &config{maps.Clone(c.locals), map[string]*pb.Config_Entry{}, maps.Clone(c.vips), maps.Clone(c.servers),
		maps.Clone(c.snat), maps.Clone(c.access), maps.Clone(c.sets), c.global, maps.Clone(c.limits), maps.Clone(c.shaping)}
	for key, entry := range c.services {
		copied.services[key] = proto.CloneOf(entry)
	}
	return copied
}

// New starts a forwarder that ends with the test.
func New(tb testing.TB) *Forwarder {
	tb.Helper()
	directory, err := os.MkdirTemp("", "sy") // t.TempDir is too long for a socket's path
	if err != nil {
		tb.Fatal(err)
	}
	f := &Forwarder{
		Socket: filepath.Join(directory, "forwarder.sock"), Status: &pb.Status{Build: "fake", Workers: 2, MarksActive: true},
		tb: tb, conns: map[net.Conn]struct{}{},
		config: newConfig(), setData: map[string][]byte{},
	}
	f.cond = sync.NewCond(&f.mu)
	f.Start()
	tb.Cleanup(func() {
		f.Stop()
		os.RemoveAll(directory)
	})
	return f
}

// Start listens, after New or Stop, with the present configuration.
func (f *Forwarder) Start() {
	f.tb.Helper()
	listener, err := net.Listen("unix", f.Socket)
	if err != nil {
		f.tb.Fatal(err)
	}
	f.mu.Lock()
	f.listener, f.stopped = listener, false
	f.mu.Unlock()
	f.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if f.keep(conn) {
				f.serving.Go(func() { f.serve(conn) })
			}
		}
	})
}

// keep remembers a connection for Stop; one that was accepted during Stop is closed instead.
func (f *Forwarder) keep(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		conn.Close()
		return false
	}
	f.conns[conn] = struct{}{}
	f.dials++
	return true
}

// Change changes the forwarder's answers while it runs.
func (s *Forwarder) Change(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// Stop ends all connections, as when a forwarder dies.
func (f *Forwarder) Stop() {
	f.mu.Lock()
	f.stopped = true
	f.listener.Close()
	for conn := range f.conns {
		conn.Close()
	}
	f.mu.Unlock()
	f.serving.Wait()
}

// Forget drops the configuration, as a forwarder without its state directory would.
func (f *Forwarder) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config, f.revision = newConfig(), 0
}

// LoseSets loses the data of all sets, as a forwarder with a broken disk would at its start.
func (f *Forwarder) LoseSets() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.setData)
	f.revision++
}

// Set returns the packed prefixes of a set that has data, and how many pieces of any data were received.
func (f *Forwarder) Set(name string) (data []byte, pieces int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.setData[string(f.config.sets[name].GetDigest())], f.pieces
}

// AwaitSet waits until a set has these packed prefixes.
func (f *Forwarder) AwaitSet(name string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !bytes.Equal(f.setData[string(f.config.sets[name].GetDigest())], data) {
		f.cond.Wait()
	}
}

// Refuse answers further transactions with an error, until called with nil: those that put a service at
// one of the VIPs, or all if no VIP is given.
func (f *Forwarder) Refuse(refusal *pb.Error, vips ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refusal, f.refused = refusal, nil
	for _, vip := range vips {
		f.refused = append(f.refused, netip.MustParseAddr(vip))
	}
}

func (f *Forwarder) refuses(changes []*pb.Change) bool {
	if f.refusal == nil || len(f.refused) == 0 {
		return f.refusal != nil
	}
	return slices.ContainsFunc(changes, func(change *pb.Change) bool {
		vip, ok := netip.AddrFromSlice(change.GetPutService().GetKey().GetVip())
		return ok && slices.Contains(f.refused, vip)
	})
}

// Commits returns the changes of every accepted transaction so far.
func (f *Forwarder) Commits() [][]*pb.Change {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.commits)
}

// Dials returns the number of connections so far.
func (f *Forwarder) Dials() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dials
}

// Applies returns the number of apply requests, and the largest number of changes in one of them.
func (f *Forwarder) Applies() (requests, largest int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.applies, f.largest
}

// Server returns the forwarder's entry for a server of the VIP; nil if there is none.
func (f *Forwarder) Server(vip, server string) *pb.Server {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.server(vip, server)
}

func (f *Forwarder) server(vip, server string) *pb.Server {
	v, s := netip.MustParseAddrPort(vip), netip.MustParseAddrPort(server)
	for _, entry := range f.config.services {
		key := entry.Service.Key
		if !bytes.Equal(key.Vip, v.Addr().AsSlice()) || key.Port != uint32(v.Port()) {
			continue
		}
		for _, candidate := range entry.Servers {
			if bytes.Equal(candidate.Address, s.Addr().AsSlice()) && candidate.Port == uint32(s.Port()) {
				return candidate
			}
		}
	}
	return nil
}

// AwaitState waits until a server of the VIP has a state in the forwarder.
func (f *Forwarder) AwaitState(vip, server string, state pb.ServerState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if s := f.server(vip, server); s != nil && s.State == state {
			return
		}
		f.cond.Wait()
	}
}

// AwaitCommits waits until n transactions were accepted.
func (f *Forwarder) AwaitCommits(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.commits) < n {
		f.cond.Wait()
	}
}

func (f *Forwarder) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		f.mu.Lock()
		delete(f.conns, conn)
		f.mu.Unlock()
	}()
	session := &session{Forwarder: f}
	for {
		request := &pb.Request{}
		err := dpclient.ReadFrame(conn, request)
		if errors.Is(err, dpclient.ErrTooLarge) {
			_ = dpclient.WriteFrame(conn, &pb.Response{Error: &pb.Error{Code: pb.Code_CODE_TOO_LARGE, Text: err.Error()}})
			return
		}
		if errors.Is(err, proto.Error) {
			_ = dpclient.WriteFrame(conn, &pb.Response{Error: &pb.Error{Code: pb.Code_CODE_MALFORMED, Text: err.Error()}})
			continue
		}
		if err != nil {
			return
		}
		response := session.answer(request)
		if response == nil {
			return
		}
		response.Version, response.Id = uint32(pb.Version_VERSION_CURRENT), request.GetId()
		if dpclient.WriteFrame(conn, response) != nil {
			return
		}
	}
}

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
			config.LocalAddresses = append(config.LocalAddresses, &pb.LocalAddress{Address: []byte(local)})
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
