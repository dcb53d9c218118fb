// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"steelyard/internal/cluster"
	agentpb "steelyard/internal/gen/agentpb"
	"steelyard/internal/gen/agentpb/agentpbconnect"
	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/gen/controllerpb/controllerpbconnect"
	"steelyard/internal/pki"
	"steelyard/internal/stall"

	"connectrpc.com/connect"
)

// session is an agent's connection, on which the controller is the client.
type session struct {
	forwarder string
	since     time.Time // start, before the handshake
	joined    int64     // revision of members/FORWARDER
	fence     int64     // revision of owners/FORWARDER, compared by each write about the forwarder
	conn      *tunnelConn
	transport *http.Transport
	agent     agentpbconnect.AgentServiceClient
	member    controllerpbconnect.MemberServiceClient
	wake      chan struct{} // desired/FORWARDER has changed
	noted     *status       // the status that this session wrote last
	drains    drainSession
	node      nodeSession
}

// tunnelConn signals the end of a connection.
type tunnelConn struct {
	net.Conn
	once sync.Once
	done chan struct{}
}

func (c *tunnelConn) Read(data []byte) (int, error) {
	n, err := c.Conn.Read(data)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		c.Close()
	}
	return n, err
}

func (c *tunnelConn) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}

// Maximum bytes of an agent's answers, also when they are decompressed: they bound the controller's memory if the agent's host is compromised.
const (
	maxListing = 64 << 20 // 20 000 services with their servers
	maxAnswer  = 16 << 20 // orders to drain
)

// newSession makes the client's side of a connection.
func newSession(forwarder string, conn net.Conn) *session {
	s := &session{forwarder: forwarder, conn: &tunnelConn{Conn: stall.NewConn(conn, silence), done: make(chan struct{})}, wake: make(chan struct{}, 1),
		drains: drainSession{wake: make(chan struct{}, 1)}, node: nodeSession{wake: make(chan struct{}, 1)}}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // TLS is below
	once := make(chan net.Conn, 1)
	once <- s.conn
	s.transport = &http.Transport{
		Protocols: protocols, MaxConnsPerHost: 1, DisableCompression: true,
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingEvery, PingTimeout: time.Minute}, // tunnelConn detects a dead peer sooner
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			select {
			case conn := <-once:
				return conn, nil
			default:
				return nil, errors.New("the agent's connection has ended")
			}
		},
	}
	client := &http.Client{Transport: s.transport}
	s.agent = agentpbconnect.NewAgentServiceClient(client, "http://agent", connect.WithReadMaxBytes(maxListing))
	s.member = controllerpbconnect.NewMemberServiceClient(client, "http://agent", connect.WithReadMaxBytes(maxAnswer))
	return s
}

func (s *session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// accept serves a connection that an agent has opened, until it ends.
func (s *Server) accept(_ *http.Server, conn *tls.Conn, _ http.Handler) {
	defer conn.Close()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	lease := s.currentLease()
	if lease == 0 { // without waiting: the agent may find a controller that reaches etcd
		s.log.Warn("closing an agent's connection: this controller does not reach etcd", "from", conn.RemoteAddr())
		return
	}
	asking, done := stall.WithTimeout(ctx, leaseLife)
	defer done()
	caller, err := s.identify(asking, conn.ConnectionState())
	if err != nil || caller.Kind != pki.Forwarder {
		s.log.Warn("refusing an agent", "from", conn.RemoteAddr(), "error", err)
		return
	}
	one := newSession(caller.Name.Name, conn)
	one.joined = caller.revision
	if stranger, ok := conn.NetConn().(*guest); ok {
		stranger.accept()
		one.since = stranger.at
	}
	// The agent has chosen this controller, so the previous owner loses the forwarder.
	one.fence, err = s.store.Commit(asking, new(cluster.Txn).At(keyMembers+one.forwarder, caller.revision).
		Put(keyOwners+one.forwarder, encode(owner{s.id, s.url, addressOf(conn.RemoteAddr()), addressOf(conn.LocalAddr())}), lease))
	if err != nil {
		s.log.Warn("closing an agent's connection", "forwarder", one.forwarder, "error", err)
		return
	}
	s.enter(one)
	defer s.leave(one)
	s.log.Info("forwarder is connected", "forwarder", one.forwarder, "from", conn.RemoteAddr(), "fence", one.fence)
	stop := context.AfterFunc(ctx, func() { one.conn.Close() })
	defer stop()
	go s.serve(ctx, one)
	go s.serveNode(ctx, one)
	<-one.conn.done
	cancel()
	s.log.Info("forwarder is disconnected", "forwarder", one.forwarder)
}

// addressOf returns the address of one end of a connection; the zero value: it has none.
func addressOf(end net.Addr) netip.Addr {
	tcp, ok := end.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}

func (s *Server) enter(one *session) {
	s.mu.Lock()
	if one.since.Before(s.authoritiesAt) { // its handshake may have presented former certificates
		go one.conn.Close()
	}
	before := s.sessions[one.forwarder]
	if before == nil || before.fence < one.fence {
		s.sessions[one.forwarder] = one
	} else {
		before = one // a newer session exists already
	}
	s.mu.Unlock()
	if before != nil {
		before.conn.Close()
	}
	one.poke()
}

func (s *Server) leave(one *session) {
	s.mu.Lock()
	if s.sessions[one.forwarder] == one {
		delete(s.sessions, one.forwarder)
	}
	s.mu.Unlock()
	ctx, cancel := stall.WithTimeout(context.WithoutCancel(s.ctx), 2*time.Second)
	defer cancel()
	// If another controller owns it already, this fails; without an owner, the lease removes it.
	_, _ = s.store.Commit(ctx, new(cluster.Txn).At(keyOwners+one.forwarder, one.fence).Delete(keyOwners+one.forwarder))
}

// serve sends the desired configuration to the agent whenever it changes.
func (s *Server) serve(ctx context.Context, one *session) {
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	for {
		select {
		case <-one.wake:
		case <-again.C:
		case <-one.drains.wake:
			err := s.pushDrains(ctx, one)
			if s.over(ctx, one, err) {
				return
			}
			if err != nil {
				again.Reset(time.Second)
			}
			continue
		case <-ctx.Done():
			return
		}
		wait, err := s.push(ctx, one)
		if s.over(ctx, one, err) {
			return
		}
		again.Reset(wait)
	}
}

// over reports whether a failure ends a session because another controller owns the forwarder.
func (s *Server) over(ctx context.Context, one *session, err error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	s.log.Warn("sending the desired configuration to the agent has failed", "forwarder", one.forwarder, "error", err)
	if errors.Is(err, cluster.ErrConflict) {
		one.conn.Close()
		return true
	}
	return false
}

// push sends the desired configuration and writes its outcome. Returns when to call again.
func (s *Server) push(ctx context.Context, one *session) (time.Duration, error) {
	const soon, later = time.Second, 10 * time.Second
	entry, controllers, known := s.desiredOf(one)
	if !known {
		return time.Hour, nil // poke wakes it
	}
	if err := s.pushDrains(ctx, one); err != nil { // drains first: a new forwarder must not send new sessions to drained servers
		return soon, err
	}
	if entry.Revision == 0 { // an empty configuration needs a first request, too: otherwise nothing reads the connection, and its end goes unnoticed
		asking, cancel := stall.WithTimeout(ctx, leaseLife)
		defer cancel()
		_, err := one.agent.GetStatus(asking, connect.NewRequest(&agentpb.GetStatusRequest{}))
		return time.Hour, err
	}
	text, err := s.store.Load(ctx, entry.Value)
	if err != nil {
		return soon, err
	}
	sending, cancel := stall.WithDeadline(ctx, pushTimeout)
	defer cancel()
	request := &pb.SetDesiredRequest{Revision: entry.Revision, YamlGzip: text.Gzip, Controllers: controllers}
	response, err := one.member.SetDesired(sending, connect.NewRequest(request))
	if err == nil && response.Msg.GetNeedsPrune() {
		// --prune applies to the configuration with which it was written, in one transaction.
		prune, failed := s.store.Get(ctx, keyPrune+one.forwarder)
		if failed != nil {
			return soon, failed
		}
		if request.Prune = prune.Revision == entry.Revision; request.Prune {
			response, err = one.member.SetDesired(sending, connect.NewRequest(request))
		}
	}
	if err != nil {
		return soon, err
	}
	answer, wait := response.Msg, time.Hour
	now := one.drains.in(status{Applied: answer.GetRevision(), Error: shortened(answer.GetError()), Changes: answer.GetChanges(),
		Forwarder: answer.GetForwarderRevision(), At: s.now().Unix()})
	now.Confirmed = s.confirmedOf(one)
	switch answer.GetOutcome() {
	case pb.SetDesiredResponse_OUTCOME_APPLIED:
		now.InForwarder, now.Confirmed = true, now.Applied
		if err := s.noteConfirmed(ctx, one, now); err != nil {
			return soon, err
		}
		if err := s.dropDrains(ctx, one, entry, text.Text); err != nil {
			return soon, err
		}
		return wait, nil
	case pb.SetDesiredResponse_OUTCOME_LOADED, pb.SetDesiredResponse_OUTCOME_FAILED:
		wait = later
	case pb.SetDesiredResponse_OUTCOME_REFUSED:
		now.Refused = entry.Revision
		wait = later
		err = s.rollBack(ctx, one, entry.Revision, now.Error)
	case pb.SetDesiredResponse_OUTCOME_OLDER:
		now.Error = "the agent has a newer configuration than the store, as after a restore of etcd from a backup, and keeps it: apply the configuration again"
		now.Refused, now.Older = entry.Revision, true
		wait = later
	}
	if err != nil {
		return soon, err
	}
	return wait, s.note(ctx, one, now)
}

// confirmedOf returns the last revision that the forwarder has confirmed; 0: unknown.
func (s *Server) confirmedOf(one *session) int64 {
	if one.noted != nil {
		return one.noted.Confirmed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var noted status
	if entry := s.mirror.Get(keyStatus + one.forwarder); entry.Revision == 0 || decodeRecord(entry, &noted) != nil {
		return 0
	}
	return noted.Confirmed
}

// note writes a forwarder's status, if this session still owns it.
func (s *Server) note(ctx context.Context, one *session, now status) error {
	if old := one.noted; old != nil {
		same := *old
		same.At = now.At
		if same == now {
			return nil
		}
	}
	_, err := s.store.Commit(ctx, new(cluster.Txn).At(keyOwners+one.forwarder, one.fence).Put(keyStatus+one.forwarder, encode(now), 0))
	if err == nil {
		one.noted = &now
	}
	return err
}

// noteConfirmed writes that a forwarder has confirmed the sent configuration, and deletes the previous versions: in one transaction, unless a file has
// changed again.
func (s *Server) noteConfirmed(ctx context.Context, one *session, now status) error {
	txn := new(cluster.Txn).At(keyOwners+one.forwarder, one.fence).Put(keyStatus+one.forwarder, encode(now), 0)
	again := false
	s.mu.Lock()
	previousEntries := s.mirror.List(keyPrevious + one.forwarder + "/")
	for _, previous := range previousEntries {
		own := s.mirror.Get(keyConfigs + nameOf(previous.Key, keyPrevious))
		again = again || own.Revision > now.Applied
		txn.Unchanged(previous).Unchanged(own).Delete(previous.Key)
	}
	s.mu.Unlock()
	if len(previousEntries) > 0 && !again && len(previousEntries) < maxOperations/2 {
		if _, err := s.store.Commit(ctx, txn); err == nil {
			one.noted = &now
			return nil
		}
	}
	if len(previousEntries) > 0 {
		if err := s.confirm(ctx, one.forwarder, now.Applied); err != nil {
			return err
		}
	}
	return s.note(ctx, one, now)
}
