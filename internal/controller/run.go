// SPDX-License-Identifier: Apache-2.0

// Package controller configures many forwarders through their agents, together with other controllers: docs/design/0042-controller.md.
package controller

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"steelyard/internal/cluster"
	"steelyard/internal/config"
	"steelyard/internal/gen/agentpb/agentpbconnect"
	"steelyard/internal/gen/controllerpb/controllerpbconnect"
	"steelyard/internal/gen/nfvpb/nfvpbconnect"
	"steelyard/internal/pki"
	"steelyard/internal/placement"
	"steelyard/internal/stall"
	"steelyard/internal/unixsock"

	"connectrpc.com/connect"
)

// Defaults.
const (
	DefaultSocket = "/run/steelyard/controller/controller.sock"
	DefaultState  = "/var/lib/steelyard/controller"
	DefaultListen = ":7443"
)

// Options configure a controller.
type Options struct {
	Store  *cluster.Store
	Listen net.Listener // TCP, for agents and users
	URL    string       // at which agents and other controllers reach it; "": derived from the host's name and the port
	Socket string       // path of the Unix socket for users of this host
	Group  string       // its members are admins
	Log    *slog.Logger
	Now    func() time.Time // nil: time.Now
	// Placement of requested services. Zero values select the defaults.
	Placement     placement.Options
	MeasureEvery  time.Duration // interval of readings of forwarders' load; default 5 s
	WorkflowTick  time.Duration // interval of checks of time limits; default 1 s
	SpareSettle   time.Duration // how long spare capacity for the loss of a forwarder must be missing, or be restored, before an event reports it; default 30 s
	SecretLife    time.Duration // how long the former secret of a group is accepted; default 2 min
	MaintainEvery time.Duration // interval of checks of the certificate's age, and of removal of old records; default 1 min
}

// Server is a running controller.
type Server struct {
	store    *cluster.Store
	identity *pki.Identity
	peers    *http.Transport
	id, url  string
	log      *slog.Logger
	now      func() time.Time
	ctx      context.Context

	authorities   atomic.Pointer[authorities]
	authorityWake chan struct{}

	mu        sync.Mutex
	changed   *sync.Cond // guarded by mu: signals changes of the mirror
	mirror    cluster.Snapshot
	asked     map[string]asked     // by request: where its service's traffic is measured
	mirrorErr error                // why the mirror has stopped; nil: it is current
	looks     time.Time            // since when the mirror has followed all changes
	measured  map[string]time.Time // when the mirror last received a forwarder's load, after that time
	sessions  map[string]*session
	watchers  map[*watcher]bool
	parsers   map[string]*config.Parser // by project
	lease     cluster.Lease             // 0: none, and no agent is accepted
	// When this controller received its certificate of the current authorities.
	authoritiesAt time.Time

	placing      placement.Options
	measureEvery time.Duration
	workflowTick time.Duration
	spareSettle  time.Duration
	secretLife   time.Duration
	houseEvery   time.Duration

	inFlight *inFlight

	alone chan struct{} // full while a request of the workflow runs alone, after it has lost against others

	usesMu sync.Mutex
	uses   map[string]*uses         // by the file's hash in the store
	beside map[string]*usesOfOthers // by project

	auditMu sync.Mutex
	audited int64
}

// Run serves until ctx ends. Fails if it cannot start.
func Run(ctx context.Context, o Options) error {
	s := &Server{store: o.Store, log: o.Log, now: o.Now, ctx: ctx, url: o.URL, sessions: map[string]*session{}, watchers: map[*watcher]bool{},
		authorityWake: make(chan struct{}, 1), alone: make(chan struct{}, 1), inFlight: newInFlight()}
	if s.now == nil {
		s.now = time.Now
	}
	s.placing, s.measureEvery, s.workflowTick = o.Placement, cmp.Or(o.MeasureEvery, 5*time.Second), cmp.Or(o.WorkflowTick, time.Second)
	s.spareSettle, s.houseEvery = cmp.Or(o.SpareSettle, 30*time.Second), cmp.Or(o.MaintainEvery, housekeeping)
	s.secretLife = cmp.Or(o.SecretLife, secretLife)
	s.changed = sync.NewCond(&s.mu)
	random := make([]byte, 6)
	if _, err := rand.Read(random); err != nil {
		return err
	}
	s.id = hex.EncodeToString(random)
	if s.url == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("the host's name: %w: use --url", err)
		}
		_, port, _ := net.SplitHostPort(o.Listen.Addr().String())
		s.url = "https://" + net.JoinHostPort(host, port)
	}
	if err := s.bootstrap(ctx); err != nil {
		return err
	}
	local, err := unixsock.Listen(o.Socket, o.Group, "the controller's socket", o.Log)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { s.keepLease(ctx) })
	running.Go(func() { s.follow(ctx) })
	running.Go(func() { s.runMaintenance(ctx) })
	running.Go(func() { s.runAuthority(ctx) })
	running.Go(func() { s.measure(ctx) })
	running.Go(func() { s.runWorkflow(ctx) })
	running.Go(func() { s.runRotations(ctx) })
	running.Go(func() { s.answer(ctx, s.localServer(), func(h *http.Server) error { return h.Serve(local) }) })
	s.log.Info("controller is ready", "url", s.url, "id", s.id, "socket", o.Socket)
	s.answer(ctx, s.remoteServer(), func(h *http.Server) error { return h.ServeTLS(newGuests(o.Listen), "", "") })
	return nil
}

// handler serves both APIs to authenticated callers.
func (s *Server) handler() http.Handler {
	options := []connect.HandlerOption{messageLimits()}
	members := func(h http.Handler) http.Handler { return s.authenticated(s.bounded(h)) }
	mux := http.NewServeMux()
	path, own := controllerpbconnect.NewControllerServiceHandler(s, options...)
	mux.Handle(path, members(own))
	// Callers without a certificate reach this method only: the token authenticates them.
	_, joining := controllerpbconnect.NewControllerServiceHandler(s, connect.WithReadMaxBytes(maxJoin)) // bounds decompressed size, too
	mux.Handle(controllerpbconnect.ControllerServiceJoinProcedure, http.MaxBytesHandler(joining, maxJoin))
	path, workflow := nfvpbconnect.NewNfvServiceHandler(workflowService{s}, connect.WithReadMaxBytes(maxBalancing))
	mux.Handle(path, members(workflow))
	path, apply := agentpbconnect.NewAgentServiceHandler(&agentService{server: s}, options...)
	mux.Handle(path, members(s.forward(apply)))
	return mux
}

func (s *Server) newServer() *http.Server {
	return &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // failed handshakes, which any host can cause
	}
}

func (s *Server) localServer() *http.Server {
	server := s.newServer()
	server.ConnContext = localCaller
	return server
}

func (s *Server) remoteServer() *http.Server {
	server := s.newServer()
	server.ConnContext = withGuest
	server.Handler = s.limited(server.Handler)
	server.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxStreams}
	server.TLSConfig = s.identity.Server()
	server.TLSConfig.NextProtos = []string{"h2", "http/1.1", pki.ALPN}
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){pki.ALPN: s.accept}
	return server
}

// answer serves until ctx ends.
func (s *Server) answer(ctx context.Context, server *http.Server, serve func(*http.Server) error) {
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := serve(server); !errors.Is(err, http.ErrServerClosed) {
		s.log.Error("the controller has stopped serving", "error", err)
	}
}

// keepLease renews a lease, and closes the connections of all agents while there is none.
func (s *Server) keepLease(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.holdLease(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("this controller has no lease: it serves no agents", "error", err)
			pause(ctx, time.Second)
		}
	}
}

func (s *Server) holdLease(ctx context.Context) error {
	granting, cancel := stall.WithTimeout(ctx, leaseLife)
	defer cancel()
	lease, err := s.store.Grant(granting, leaseLife)
	if err != nil {
		return err
	}
	keeping, stop := context.WithCancel(ctx)
	defer stop()
	lost, err := s.store.Keep(keeping, lease, leaseLife)
	if err != nil {
		return err
	}
	if _, err := s.store.Commit(granting, new(cluster.Txn).Put(keyControllers+s.id, encode(owner{ID: s.id, URL: s.url}), lease)); err != nil {
		return err
	}
	s.setLease(lease)
	select {
	case <-lost:
		err = errors.New("the lease was lost")
	case <-ctx.Done():
	}
	s.setLease(0)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	s.store.Revoke(ending, lease)
	return err
}

func (s *Server) setLease(lease cluster.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = lease
	if lease == 0 {
		for _, one := range s.sessions {
			go one.conn.Close() // the agent may find a controller that reaches etcd
		}
	}
}

func (s *Server) currentLease() cluster.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease
}

// controllers returns the URLs of all live controllers.
func (s *Server) controllers(ctx context.Context) []string {
	urls := []string{s.url}
	entries, _, err := s.store.List(ctx, keyControllers)
	if err != nil {
		return urls // an agent keeps its last list
	}
	for _, entry := range entries {
		var one owner
		if decodeRecord(entry, &one) == nil && !slices.Contains(urls, one.URL) {
			urls = append(urls, one.URL)
		}
	}
	slices.Sort(urls)
	return urls
}

// runMaintenance renews the certificate and removes old records.
func (s *Server) runMaintenance(ctx context.Context) {
	for ctx.Err() == nil {
		if s.identity.Due() {
			if err := s.certify(); err != nil {
				s.log.Error("the controller's certificate", "error", err)
			}
		}
		if err := s.store.Tidy(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("compacting etcd has failed", "error", err)
		}
		if err := s.trimAudit(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("removing old audit records has failed", "error", err)
		}
		pause(ctx, s.houseEvery)
	}
}

func pause(ctx context.Context, length time.Duration) {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
