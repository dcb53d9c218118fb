// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"steelyard/internal/model"

	gobgp "github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"
)

const (
	// noListener: neighbours do not connect to this host, so no privileged port is needed.
	noListener = -1
	// deferral bounds the wait for the End-of-RIB markers of all neighbours after a graceful restart (RFC 4724 4.1).
	deferral = 5 * time.Second
	// connectRetry is the time between attempts to connect to a neighbour (RFC 4271 8, ConnectRetryTime).
	connectRetry = 5 * time.Second
	// idleHold is the time after which a closed session is opened again.
	idleHold = 2 * time.Second
	// maxPasswordBytes is TCP_MD5SIG_MAXKEYLEN.
	maxPasswordBytes = 80
	// bfdMultiplier is the number of packets whose loss ends a session.
	bfdMultiplier = 3
)

// speaker announces routes to BGP neighbours. It accepts none.
type speaker struct {
	log *slog.Logger

	mu        sync.Mutex
	server    *server.BgpServer // nil: none runs
	config    model.BGP         // of server
	neighbors map[netip.Addr]neighborConfig
	has       map[netip.Prefix]Route // announced
}

// neighborConfig is a neighbour and the contents of its password file.
type neighborConfig struct {
	model.BGPNeighbor
	password string
}

// set changes sessions and announcements until they agree with the configuration and these routes. Without an AS number it ends all sessions.
func (s *speaker) set(config model.BGP, routes []Route) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil && !s.config.SameSpeaker(&config) {
		s.stop()
	}
	if config.AS == 0 {
		return nil
	}
	if s.server == nil {
		if err := s.start(config); err != nil {
			return fmt.Errorf("BGP: %w", err)
		}
	}
	again := !s.config.SameAttributes(&config)
	s.config = config
	return errors.Join(s.setRoutes(routes, again), s.setNeighbors())
}

func (s *speaker) start(config model.BGP) error {
	// gobgp logs each step of a session at the level Info.
	s.server = server.NewBgpServer(server.LoggerOption(slog.New(quiet{s.log.Handler()}), new(slog.LevelVar)))
	go s.server.Serve()
	s.neighbors, s.has, s.config = map[netip.Addr]neighborConfig{}, map[netip.Prefix]Route{}, config
	err := s.server.StartBgp(context.Background(), &gobgp.StartBgpRequest{
		Global: &gobgp.Global{Asn: config.AS, RouterId: config.RouterID.String(), ListenPort: noListener},
	})
	if err == nil {
		err = s.rejectImports()
	}
	if err != nil {
		s.stop()
	}
	return err
}

// rejectImports rejects all routes except this host's own ones, to which gobgp applies the import policy, too.
func (s *speaker) rejectImports() error {
	own := &gobgp.Policy{Name: "own", Statements: []*gobgp.Statement{{
		Name:       "own",
		Conditions: &gobgp.Conditions{RouteType: gobgp.Conditions_ROUTE_TYPE_LOCAL},
		Actions:    &gobgp.Actions{RouteAction: gobgp.RouteAction_ROUTE_ACTION_ACCEPT},
	}}}
	if err := s.server.AddPolicy(context.Background(), &gobgp.AddPolicyRequest{Policy: own}); err != nil {
		return err
	}
	return s.server.SetPolicyAssignment(context.Background(), &gobgp.SetPolicyAssignmentRequest{Assignment: &gobgp.PolicyAssignment{
		Name: "global", Direction: gobgp.PolicyDirection_POLICY_DIRECTION_IMPORT, DefaultAction: gobgp.RouteAction_ROUTE_ACTION_REJECT,
		Policies: []*gobgp.Policy{own},
	}})
}

// close ends all sessions. With graceful restart, neighbours keep the routes for a while.
func (s *speaker) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
}

// stop is close. Requires mu.
func (s *speaker) stop() {
	if s.server == nil {
		return
	}
	_ = s.server.StopBgp(context.Background(), &gobgp.StopBgpRequest{AllowGracefulRestart: s.config.RestartTime > 0})
	s.server.Stop()
	s.server = nil
}

// quiet drops messages below the level Warn.
type quiet struct{ slog.Handler }

// Enabled implements slog.Handler.
func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && q.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup implements slog.Handler.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }

// setRoutes withdraws and announces; again: also what is announced already, with other attributes.
func (s *speaker) setRoutes(routes []Route, again bool) error {
	wanted := make(map[netip.Prefix]Route, len(routes))
	for _, route := range routes {
		wanted[route.Prefix] = route
	}
	if !again && maps.Equal(wanted, s.has) {
		return nil
	}
	for prefix, route := range s.has {
		if _, stays := wanted[prefix]; stays {
			continue
		}
		if err := s.server.DeletePath(apiutil.DeletePathRequest{Paths: []*apiutil.Path{s.path(route)}}); err != nil {
			return fmt.Errorf("BGP: withdraw %s: %w", prefix, err)
		}
		delete(s.has, prefix)
	}
	for prefix, route := range wanted {
		if before, known := s.has[prefix]; known && before == route && !again {
			continue
		}
		if _, err := s.server.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{s.path(route)}}); err != nil {
			return fmt.Errorf("BGP: announce %s: %w", prefix, err)
		}
		s.has[prefix] = route
	}
	return nil
}

// path returns a route as gobgp has it. The unspecified next hop becomes the session's own address.
func (s *speaker) path(route Route) *apiutil.Path {
	family, nextHop := familyOf(route.Prefix.Addr()), netip.IPv4Unspecified()
	if family == bgp.RF_IPv6_UC {
		nextHop = netip.IPv6Unspecified()
	}
	med := s.config.MED
	if route.Remote {
		med += remoteMetric
	}
	nlri, _ := bgp.NewIPAddrPrefix(route.Prefix) // valid prefixes only
	hop, _ := bgp.NewPathAttributeNextHop(nextHop)
	attributes := []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP), hop, bgp.NewPathAttributeMultiExitDisc(med)}
	if len(s.config.Communities) > 0 {
		communities := make([]uint32, len(s.config.Communities))
		for i, community := range s.config.Communities {
			communities[i] = uint32(community)
		}
		attributes = append(attributes, bgp.NewPathAttributeCommunities(communities))
	}
	return &apiutil.Path{Family: family, Nlri: nlri, Attrs: attributes}
}

func familyOf(address netip.Addr) bgp.Family {
	if address.Is4() {
		return bgp.RF_IPv4_UC
	}
	return bgp.RF_IPv6_UC
}

// setNeighbors closes and opens sessions. A neighbour whose settings change gets a new session.
func (s *speaker) setNeighbors() error {
	var failed error
	wanted := map[netip.Addr]bool{}
	for _, neighbor := range s.config.Neighbors {
		wanted[neighbor.Address] = true
		one := neighborConfig{BGPNeighbor: neighbor}
		var err error
		if one.password, err = readPassword(neighbor.PasswordFile); err != nil {
			failed = errors.Join(failed, fmt.Errorf("BGP neighbor %s: %w", neighbor.Address, err))
			continue
		}
		before, known := s.neighbors[neighbor.Address]
		if known && before == one {
			continue
		}
		if known {
			s.remove(neighbor.Address)
		}
		if err := s.server.AddPeer(context.Background(), &gobgp.AddPeerRequest{Peer: s.peer(one)}); err != nil {
			failed = errors.Join(failed, fmt.Errorf("BGP neighbor %s: %w", neighbor.Address, err))
			continue
		}
		s.neighbors[neighbor.Address] = one
	}
	for address := range s.neighbors {
		if !wanted[address] {
			s.remove(address)
		}
	}
	return failed
}

func (s *speaker) remove(address netip.Addr) {
	_ = s.server.DeletePeer(context.Background(), &gobgp.DeletePeerRequest{Address: address.String()})
	delete(s.neighbors, address)
}

// peer returns a neighbour as gobgp has it: with the address family of its session alone.
func (s *speaker) peer(n neighborConfig) *gobgp.Peer {
	family := &gobgp.Family{Afi: gobgp.Family_AFI_IP, Safi: gobgp.Family_SAFI_UNICAST}
	if n.Address.Is6() {
		family.Afi = gobgp.Family_AFI_IP6
	}
	restart := s.config.RestartTime > 0
	peer := &gobgp.Peer{
		Conf:      &gobgp.PeerConf{NeighborAddress: n.Address.String(), PeerAsn: n.AS, AuthPassword: n.password},
		Transport: &gobgp.Transport{RemotePort: uint32(n.Port)},
		Timers: &gobgp.Timers{Config: &gobgp.TimersConfig{
			HoldTime: uint64(n.HoldTime.Seconds()), KeepaliveInterval: uint64(n.HoldTime.Seconds()) / 3,
			ConnectRetry: uint64(connectRetry.Seconds()), IdleHoldTimeAfterReset: uint64(idleHold.Seconds()),
		}},
		GracefulRestart: &gobgp.GracefulRestart{Enabled: restart, RestartTime: uint32(s.config.RestartTime.Seconds()),
			DeferralTime: uint32(deferral.Seconds()), LocalRestarting: restart},
		AfiSafis: []*gobgp.AfiSafi{{
			Config:            &gobgp.AfiSafiConfig{Family: family, Enabled: true},
			MpGracefulRestart: &gobgp.MpGracefulRestart{Config: &gobgp.MpGracefulRestartConfig{Enabled: restart}},
			PrefixLimits:      &gobgp.PrefixLimit{Family: family, MaxPrefixes: n.MaxPrefixes},
		}},
	}
	if n.TTL > 1 && n.AS != s.config.AS {
		peer.EbgpMultihop = &gobgp.EbgpMultihop{Enabled: true, MultihopTtl: uint32(n.TTL)}
	}
	if n.BFD > 0 {
		interval := uint32(n.BFD.Microseconds())
		peer.Bfd = &gobgp.BfdPeerConfig{Enabled: true, Port: server.BfdServerPort, DesiredMinimumTxInterval: interval,
			RequiredMinimumReceive: interval, DetectionMultiplier: bfdMultiplier}
	}
	return peer
}

// readPassword reads the first line of a file. Errors show nothing of its contents.
func readPassword(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	password, _, _ := strings.Cut(string(data), "\n")
	if password = strings.TrimSpace(password); password == "" || len(password) > maxPasswordBytes {
		return "", fmt.Errorf("%s: the first line has %d bytes: use 1 to %d", path, len(password), maxPasswordBytes)
	}
	return password, nil
}

// Neighbor is the state of a BGP session.
type Neighbor struct {
	Address netip.Addr
	AS      uint32
	State   string    // of RFC 4271 8.2.2, such as "established"
	Since   time.Time // zero: it was never established
	Error   string    // why it is not established, if gobgp knows
	BFD     string    // "up", "down", …; empty: not configured
}

// Established reports whether the session is established.
func (n *Neighbor) Established() bool { return n.State == "established" }

// states returns the state of each configured neighbour.
func (s *speaker) states() []Neighbor {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return nil
	}
	known := map[string]*gobgp.Peer{}
	_ = s.server.ListPeer(context.Background(), &gobgp.ListPeerRequest{}, func(peer *gobgp.Peer) { known[peer.GetConf().GetNeighborAddress()] = peer })
	var list []Neighbor
	for _, config := range s.config.Neighbors {
		state := Neighbor{Address: config.Address, AS: config.AS, State: "idle"}
		if peer := known[config.Address.String()]; peer != nil {
			state.State = strings.ToLower(strings.TrimPrefix(peer.GetState().GetSessionState().String(), "SESSION_STATE_"))
			state.Error = peer.GetState().GetDisconnectMessage()
			if uptime := peer.GetTimers().GetState().GetUptime(); uptime != nil && uptime.AsTime().Unix() > 0 {
				state.Since = uptime.AsTime()
			}
			if peer.GetState().GetAdminState() == gobgp.PeerState_ADMIN_STATE_PFX_CT {
				state.Error = "the neighbour has sent more than max_prefixes"
			}
			if config.BFD > 0 {
				state.BFD = strings.ToLower(strings.TrimPrefix(peer.GetState().GetBfdState().GetSessionState().String(), "BFD_SESSION_STATE_"))
			}
		}
		if state.Established() {
			state.Error = ""
		}
		list = append(list, state)
	}
	return slices.Clip(list)
}
