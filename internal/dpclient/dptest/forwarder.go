// SPDX-License-Identifier: Apache-2.0

// Package dptest is a forwarder for tests: the contract of forwarder.proto without packets. It checks
// changes one by one in their order, which is stricter than the contract requires.
package dptest

import (
	"bytes"
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
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
	Peers        *pb.PeerList // nil: none are configured
	BeforePeers  bool         // an earlier version, without roles and peers
	RoleWaits    bool         // a change of the role waits
	RefuseGroup  string       // why it refuses groups; "": it accepts them
	group        *pb.Group    // of which it is a node; nil: none
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
	locals   map[string]*pb.LocalAddress
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
	return &config{map[string]*pb.LocalAddress{}, map[string]*pb.Config_Entry{}, map[string]int{}, map[string]int{},
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
