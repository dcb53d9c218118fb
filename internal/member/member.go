// SPDX-License-Identifier: Apache-2.0

// Package member is an agent's connection to controllers: it joins, renews its certificate, and opens the connection over which a controller configures
// it. docs/design/0042-controller.md.
package member

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/gen/controllerpb/controllerpbconnect"
	"steelyard/internal/pki"
	"steelyard/internal/stall"
	"steelyard/internal/store"

	"connectrpc.com/connect"
)

// IdentityFile is the name of the file with the certificate and its key.
const IdentityFile = "identity.pem"

// Open returns the identity of an earlier run, or joins with a token.
func Open(ctx context.Context, directory string, controllers []string, token string) (*pki.Identity, error) {
	path := filepath.Join(directory, IdentityFile)
	identity, err := pki.Load(path, time.Now)
	if !errors.Is(err, fs.ErrNotExist) {
		return identity, err
	}
	if token == "" {
		return nil, fmt.Errorf("this agent has not joined yet: start it with --token-file and a token from `steelyard token create`")
	}
	identity, _, err = Join(ctx, path, controllers, token, pki.Forwarder)
	return identity, err
}

// Join exchanges a token for an identity of a kind, at the first controller that answers. It also returns the URLs of all controllers.
func Join(ctx context.Context, path string, controllers []string, text, kind string) (*pki.Identity, []string, error) {
	token, err := pki.ParseToken(text)
	if err != nil {
		return nil, nil, err
	}
	key, err := pki.NewKey()
	if err != nil {
		return nil, nil, err
	}
	request, err := pki.Request(key)
	if err != nil {
		return nil, nil, err
	}
	var failures error
	for _, controller := range controllers {
		client := controllerpbconnect.NewControllerServiceClient(clientWith(pki.Joining(token, time.Now)), controller)
		response, err := client.Join(ctx, connect.NewRequest(&pb.JoinRequest{Token: text, Request: request, ClockUnixS: uint64(time.Now().Unix())}))
		if err != nil {
			failures = errors.Join(failures, fmt.Errorf("joining by %s: %w", controller, err))
			continue
		}
		for _, to := range []string{"", path} { // the identity is checked in memory before it is written
			identity := pki.NewIdentity(to, time.Now)
			if err := identity.Replace(key, response.Msg.GetCertificate(), response.Msg.GetAuthorities()); err != nil {
				return nil, nil, err
			}
			if got := identity.Name().Kind; got != kind {
				return nil, nil, fmt.Errorf("this token is for a %s, not for a %s", got, kind)
			}
			if to == path {
				return identity, response.Msg.GetControllers(), nil
			}
		}
	}
	return nil, nil, failures
}

// Renew renews the certificate when it is due.
func Renew(ctx context.Context, identity *pki.Identity, controller string) error {
	if !identity.Due() {
		return nil
	}
	key := identity.Key()
	request, err := pki.Request(key)
	if err != nil {
		return err
	}
	client := controllerpbconnect.NewControllerServiceClient(clientWith(identity.Client()), controller)
	response, err := client.Renew(ctx, connect.NewRequest(&pb.RenewRequest{Request: request}))
	if err != nil {
		return fmt.Errorf("renewing the certificate: %w", err)
	}
	if err := identity.Renew(key, response.Msg.GetCertificate(), response.Msg.GetAuthorities()); err != nil {
		return fmt.Errorf("renewing the certificate: %w", err)
	}
	return nil
}

// Show sends a small request over a new connection, so that controllers that replace their authority learn the user's current certificates.
func Show(ctx context.Context, identity *pki.Identity, controller string) error {
	client := controllerpbconnect.NewControllerServiceClient(clientWith(identity.Client()), controller)
	if _, err := client.ListAuthorities(ctx, connect.NewRequest(&pb.ListAuthoritiesRequest{})); err != nil {
		return fmt.Errorf("showing the renewed certificate: %w", err)
	}
	return nil
}

func clientWith(config *tls.Config) *http.Client {
	const patience = 5 * time.Second // then the next controller is tried, because this one may be unreachable
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, TLSHandshakeTimeout: patience,
		DialContext: (&net.Dialer{Timeout: patience}).DialContext, ResponseHeaderTimeout: 2 * patience}}
}

// Member is the agent's membership at its controllers.
type Member struct {
	Identity *pki.Identity
	Handler  http.Handler // the methods for the controller
	Log      *slog.Logger
	// URLs that are always tried, in addition to learned ones.
	Controllers []string
	// Interval of checks of the certificate's age; default 1 min.
	LookEvery time.Duration

	mu        sync.Mutex
	path      string              // of the file with learned URLs; "": none
	learned   []string            // URLs
	connected string              // URL; "": to none
	reached   map[netip.Addr]bool // addresses that controllers' names resolved to
	err       error               // why it is not connected
}

// Remember reads the URLs that were learned before, and stores those that are learned from now on in a file.
func (m *Member) Remember(path string) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.Log.Warn("reading the learned controllers has failed", "error", err)
	}
	m.learn(strings.Fields(string(data)))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.path = path
}

// Know adds the URLs of the live controllers.
func (m *Member) Know(controllers []string) {
	if !m.learn(controllers) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.path == "" {
		return
	}
	text := strings.Join(m.learned, "\n") + "\n"
	if err := store.WriteFile(m.path, []byte(text), 0o600); err != nil {
		m.Log.Warn("storing the learned controllers has failed", "error", err)
	}
}

// learn adds URLs, and returns true if one is new. It keeps those of unreachable controllers, which may be the only ones later. Above the bound it drops
// those that were reported least recently.
func (m *Member) learn(controllers []string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.learned
	var now []string
	for _, url := range slices.Concat(controllers, before) {
		if len(now) < maxLearned && len(url) <= maxURL && !strings.ContainsFunc(url, unicode.IsSpace) && !slices.Contains(now, url) {
			now = append(now, url)
		}
	}
	m.learned = now
	sorted := func(urls []string) []string { return slices.Sorted(slices.Values(urls)) }
	return !slices.Equal(sorted(before), sorted(now))
}

// reach records the address of a controller.
func (m *Member) reach(address net.Addr) {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reached == nil || len(m.reached) > maxLearned {
		m.reached = map[netip.Addr]bool{}
	}
	m.reached[tcp.AddrPort().Addr().Unmap().WithZone("")] = true
}

// Addresses returns the known addresses of controllers: from URLs, and from connections.
func (m *Member) Addresses() []netip.Addr {
	m.mu.Lock()
	defer m.mu.Unlock()
	addresses := slices.Collect(maps.Keys(m.reached))
	for _, one := range slices.Concat(m.Controllers, m.learned) {
		if to, err := url.Parse(one); err == nil {
			if address, err := netip.ParseAddr(to.Hostname()); err == nil {
				addresses = append(addresses, address.Unmap())
			}
		}
	}
	return addresses
}

// Bounds of learned URLs.
const (
	maxLearned = 64
	maxURL     = 300
)

// Warnings returns a warning while no controller is connected.
func (m *Member) Warnings() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.connected != "" || m.err == nil {
		return nil
	}
	return []string{"no controller is connected; the forwarder keeps its configuration: " + m.err.Error()}
}

// ranked returns the controllers in the order in which this member tries them. The order differs between members, so that controllers share the load.
func (m *Member) ranked() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return order(m.Identity.Name().Name, slices.Compact(slices.Sorted(slices.Values(slices.Concat(m.Controllers, m.learned)))))
}

// order ranks controllers for a member by a hash of both.
func order(name string, controllers []string) []string {
	rank := func(controller string) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(name + " " + controller)) // writing to a hash cannot fail
		sum := h.Sum64()
		return (sum ^ sum>>29) * 0xbf58476d1ce4e5b9 // mixes the bits: FNV's upper ones hardly depend on the last bytes
	}
	ordered := slices.Clone(controllers)
	slices.SortFunc(ordered, func(a, b string) int {
		if ra, rb := rank(a), rank(b); ra != rb {
			if ra < rb {
				return -1
			}
			return 1
		}
		return 0
	})
	return ordered
}

// Run keeps a connection to one of the controllers until ctx ends.
func (m *Member) Run(ctx context.Context) {
	const shortest, longest = 100 * time.Millisecond, 5 * time.Second
	wait := shortest
	for ctx.Err() == nil {
		for _, controller := range m.ranked() {
			begun := time.Now()
			err := m.visit(ctx, controller)
			m.mu.Lock()
			m.connected, m.err = "", fmt.Errorf("%s: %w", controller, err)
			m.mu.Unlock()
			if ctx.Err() != nil {
				return
			}
			if time.Since(begun) > longest {
				wait = shortest // the connection was established
			}
			m.Log.Warn("no connection to a controller", "controller", controller, "error", err)
		}
		timer := time.NewTimer(wait/2 + rand.N(wait)) // random, so that agents do not reconnect at the same time
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		wait = min(longest, 2*wait)
	}
}

// visit serves one controller until the connection ends.
func (m *Member) visit(ctx context.Context, controller string) error {
	to, err := url.Parse(controller)
	if err != nil || to.Host == "" {
		return fmt.Errorf("%q is not the URL of a controller: write https://HOST:7443", controller)
	}
	dialing, cancel := stall.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := Renew(dialing, m.Identity, controller); err != nil {
		m.Log.Warn("renewing the certificate has failed", "expires", m.Identity.Expires(), "error", err)
	}
	config := m.Identity.Client()
	config.NextProtos = []string{pki.ALPN}
	conn, err := (&tls.Dialer{Config: config}).DialContext(dialing, "tcp", to.Host)
	if err != nil {
		return err
	}
	m.reach(conn.RemoteAddr())
	if m.Identity.Due() { // the controllers replace their authority; the next connection presents the renewed certificate
		err := Renew(dialing, m.Identity, controller)
		if err == nil {
			conn.Close()
			return errRenewed
		}
		m.Log.Warn("renewing the certificate has failed", "expires", m.Identity.Expires(), "error", err)
	}
	m.mu.Lock()
	m.connected = controller
	m.mu.Unlock()
	m.Log.Info("controller is connected", "controller", controller)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	go m.keepGood(serving, controller, conn)
	return m.serve(serving, conn)
}

// keepGood renews the certificate in time, and then ends the connection: the next one presents the new certificate.
func (m *Member) keepGood(ctx context.Context, controller string, conn net.Conn) {
	ticker := time.NewTicker(cmp.Or(m.LookEvery, time.Minute))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if !m.Identity.Due() {
				continue
			}
			if err := Renew(ctx, m.Identity, controller); err != nil {
				m.Log.Warn("renewing the certificate has failed", "expires", m.Identity.Expires(), "error", err)
				continue
			}
			conn.Close()
		case <-ctx.Done():
			return
		}
	}
}

// silence is the maximum time without data from a controller. It pings every two seconds, so this exceeds a stall of its host.
const silence = 10 * time.Second

// serve answers the controller, which is the client of this connection.
func (m *Member) serve(ctx context.Context, conn net.Conn) error {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // TLS is below
	server := &http.Server{
		Handler: m.Handler, Protocols: protocols, MaxHeaderBytes: 64 << 10, BaseContext: func(net.Listener) context.Context { return ctx },
		HTTP2:    &http.HTTP2Config{SendPingTimeout: 3 * time.Second, PingTimeout: time.Minute}, // conn detects a dead peer sooner
		ErrorLog: slog.NewLogLogger(m.Log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	defer conn.Close()
	listener := &single{conn: &watched{Conn: stall.NewConn(conn, silence), done: make(chan struct{})}, address: conn.LocalAddr()}
	if err := server.Serve(listener); !errors.Is(err, errEnded) {
		return err
	}
	return errEnded
}

var (
	errEnded   = errors.New("the controller has closed the connection")
	errRenewed = errors.New("the certificate was renewed")
)

// single is a listener with one connection; it closes with that connection.
type single struct {
	conn     *watched
	address  net.Addr
	accepted bool
}

func (l *single) Accept() (net.Conn, error) {
	if !l.accepted {
		l.accepted = true
		return l.conn, nil
	}
	<-l.conn.done
	return nil, errEnded
}

func (l *single) Close() error   { return l.conn.Close() }
func (l *single) Addr() net.Addr { return l.address }

// watched is a connection that signals its close.
type watched struct {
	net.Conn
	once sync.Once
	done chan struct{}
}

func (c *watched) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}
