// SPDX-License-Identifier: Apache-2.0

// Package member is an agent's side of a controller: it joins, keeps its certificate good, and opens the connection over which
// the controller configures it. docs/design/0042-controller.md.
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
		return nil, fmt.Errorf("this agent has not joined yet: give it a token by --token-file (`steelyard token create`)")
	}
	identity, _, err = Join(ctx, path, controllers, token, pki.Forwarder)
	return identity, err
}

// Join exchanges a token for an identity of a kind, by the first controller that answers. It returns the URLs of all controllers too.
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
		for _, to := range []string{"", path} { // nothing is written of an identity that is of no use
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

// Renew gets a new certificate if it is time.
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

// Show makes a small request of a user by a new connection, so that controllers that replace their authority see what the user has now.
func Show(ctx context.Context, identity *pki.Identity, controller string) error {
	client := controllerpbconnect.NewControllerServiceClient(clientWith(identity.Client()), controller)
	if _, err := client.ListAuthorities(ctx, connect.NewRequest(&pb.ListAuthoritiesRequest{})); err != nil {
		return fmt.Errorf("showing the renewed certificate: %w", err)
	}
	return nil
}

func clientWith(config *tls.Config) *http.Client {
	const patience = 5 * time.Second // then another controller is asked: this one may be cut off, and answer nothing at all
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, TLSHandshakeTimeout: patience,
		DialContext: (&net.Dialer{Timeout: patience}).DialContext, ResponseHeaderTimeout: 2 * patience}}
}

// Member is the agent at its controllers.
type Member struct {
	Identity *pki.Identity
	Handler  http.Handler // what the controller may ask
	Log      *slog.Logger
	// URLs that are tried in any case, beside those that controllers tell.
	Controllers []string
	// How often the certificate's age is looked at; default 1 min.
	LookEvery time.Duration

	mu        sync.Mutex
	path      string              // of the file with what was learned; "": none
	learned   []string            // URLs
	connected string              // URL; "": to none
	reached   map[netip.Addr]bool // addresses to which controllers' names have led
	err       error               // why
}

// Remember reads the URLs that were learned before, and keeps those that are learned from now on, in a file.
func (m *Member) Remember(path string) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.Log.Warn("the controllers that were learned before are not known", "error", err)
	}
	m.learn(strings.Fields(string(data)))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.path = path
}

// Know adds the URLs of controllers that are alive now.
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
		m.Log.Warn("the controllers are not kept for the next start", "error", err)
	}
}

// learn reports whether it has heard anything new. One that is away now may be the only one later: only the bound makes it forget, first
// those that it has not been told of for the longest time.
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

// reach notes the address of a controller.
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

// Addresses returns the addresses of controllers, as far as they are known: from URLs, and from connections.
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

// Bounds of what is learned.
const (
	maxLearned = 64
	maxURL     = 300
)

// Warnings say that no controller is connected.
func (m *Member) Warnings() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.connected != "" || m.err == nil {
		return nil
	}
	return []string{"no controller is connected; the forwarder keeps its configuration: " + m.err.Error()}
}

// ranked returns the controllers in the order in which this member tries them: another one for each member, so that
// the controllers share the work.
func (m *Member) ranked() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return order(m.Identity.Name().Name, slices.Compact(slices.Sorted(slices.Values(slices.Concat(m.Controllers, m.learned)))))
}

// order ranks controllers for a member by a hash of both.
func order(name string, controllers []string) []string {
	rank := func(controller string) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(name + " " + controller)) // cannot fail
		sum := h.Sum64()
		return (sum ^ sum>>29) * 0xbf58476d1ce4e5b9 // FNV's upper bits hardly depend on the last bytes
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
				wait = shortest // it was a good one
			}
			m.Log.Warn("no connection to a controller", "controller", controller, "error", err)
		}
		timer := time.NewTimer(wait/2 + rand.N(wait)) // not all agents at the same moment
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
		m.Log.Warn("the certificate is not renewed", "expires", m.Identity.Expires(), "error", err)
	}
	config := m.Identity.Client()
	config.NextProtos = []string{pki.ALPN}
	conn, err := (&tls.Dialer{Config: config}).DialContext(dialing, "tcp", to.Host)
	if err != nil {
		return err
	}
	m.reach(conn.RemoteAddr())
	if m.Identity.Due() { // the controllers replace their authority; the next connection shows them what this one has now
		err := Renew(dialing, m.Identity, controller)
		if err == nil {
			conn.Close()
			return errRenewed
		}
		m.Log.Warn("the certificate is not renewed", "expires", m.Identity.Expires(), "error", err)
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

// keepGood renews the certificate in time, and ends the connection then: the next one shows the new certificate.
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
				m.Log.Warn("the certificate is not renewed", "expires", m.Identity.Expires(), "error", err)
				continue
			}
			conn.Close()
		case <-ctx.Done():
			return
		}
	}
}

// silence is how long a controller may send nothing. It pings every two seconds, so this is longer than a stall of its host.
const silence = 10 * time.Second

// serve answers the controller, which is the client of this connection.
func (m *Member) serve(ctx context.Context, conn net.Conn) error {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // TLS is below
	server := &http.Server{
		Handler: m.Handler, Protocols: protocols, MaxHeaderBytes: 64 << 10, BaseContext: func(net.Listener) context.Context { return ctx },
		HTTP2:    &http.HTTP2Config{SendPingTimeout: 3 * time.Second, PingTimeout: time.Minute}, // conn ends it sooner
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
	errEnded   = errors.New("the controller has ended the connection")
	errRenewed = errors.New("the certificate was renewed")
)

// single is a listener with one connection; it ends when that one does.
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

// watched is a connection that tells when it was closed.
type watched struct {
	net.Conn
	once sync.Once
	done chan struct{}
}

func (c *watched) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}
