// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"steelyard/internal/freeport"
	"steelyard/internal/model"

	gobgp "github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"
)

// router is a BGP speaker on the loopback interface.
type router struct {
	*testing.T
	*server.BgpServer
	port uint16
}

func newRouter(t *testing.T) *router {
	r := &router{t, server.NewBgpServer(server.LoggerOption(slog.New(slog.DiscardHandler), new(slog.LevelVar))), netip.MustParseAddrPort(freeport.Address(t)).Port()}
	go r.Serve()
	t.Cleanup(func() {
		_ = r.StopBgp(context.Background(), &gobgp.StopBgpRequest{})
		r.Stop()
	})
	r.must(r.StartBgp(t.Context(), &gobgp.StartBgpRequest{Global: &gobgp.Global{
		Asn: 65000, RouterId: "192.0.2.254", ListenPort: int32(r.port), ListenAddresses: []string{"127.0.0.1"}}}))
	r.must(r.AddPeer(t.Context(), &gobgp.AddPeerRequest{Peer: &gobgp.Peer{
		Conf:      &gobgp.PeerConf{NeighborAddress: "127.0.0.1", PeerAsn: 65001},
		Transport: &gobgp.Transport{PassiveMode: true},
	}}))
	return r
}

func (r *router) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// routes returns what it has received, with MED and communities.
func (r *router) routes() string {
	var words []string
	_ = r.ListPath(apiutil.ListPathRequest{TableType: gobgp.TableType_TABLE_TYPE_GLOBAL, Family: bgp.RF_IPv4_UC}, func(prefix bgp.NLRI, paths []*apiutil.Path) {
		for _, path := range paths {
			word := prefix.String()
			for _, attribute := range path.Attrs {
				switch a := attribute.(type) {
				case *bgp.PathAttributeMultiExitDisc:
					word += fmt.Sprintf(" med %d", a.Value)
				case *bgp.PathAttributeCommunities:
					for _, community := range a.Value {
						word += " " + model.Community(community).String()
					}
				}
			}
			words = append(words, word)
		}
	})
	return strings.Join(words, ", ")
}

func (r *router) until(what string, condition func() bool) {
	r.Helper()
	for end := time.Now().Add(2 * time.Minute); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			r.Fatalf("not in time: %s; it has %q", what, r.routes())
		}
	}
}

func (r *router) config() model.BGP {
	return model.BGP{AS: 65001, RouterID: netip.MustParseAddr("192.0.2.1"), MED: 100, Neighbors: []model.BGPNeighbor{{
		Address: netip.MustParseAddr("127.0.0.1"), Port: r.port, AS: 65000, HoldTime: 9 * time.Second, MaxPrefixes: 2, TTL: 1}}}
}

func route(prefix string) Route {
	return Route{Prefix: netip.MustParsePrefix(prefix), Kind: model.RouteVIP}
}

func newSpeaker(t *testing.T) *speaker {
	s := &speaker{log: slog.New(slog.DiscardHandler)}
	t.Cleanup(s.close)
	return s
}

func TestRoutesReachANeighbour(t *testing.T) {
	r, s := newRouter(t), newSpeaker(t)
	config := r.config()
	set := func(want string, routes ...Route) {
		t.Helper()
		r.must(s.set(config, routes))
		r.until(want, func() bool { return r.routes() == want })
	}
	remote := route("10.1.0.201/32")
	remote.Remote = true
	set("10.0.0.80/32 med 100", route("10.0.0.80/32"))
	if states := s.states(); len(states) != 1 || !states[0].Established() || states[0].Error != "" || states[0].Since.IsZero() {
		t.Errorf("%+v", states)
	}
	set("10.1.0.201/32 med 1100", remote)
	remote.Remote = false
	set("10.1.0.201/32 med 100", remote)
	config.Communities, config.MED = []model.Community{65001<<16 | 100, 0xffffff01}, 7
	set("10.1.0.201/32 med 7 65001:100 no-export", remote)
	set("")
	config.AS = 0
	r.must(s.set(config, nil))
	if s.states() != nil {
		t.Error("a speaker that is not configured has neighbours")
	}
}

func TestTooManyPrefixesEndASession(t *testing.T) {
	r, s := newRouter(t), newSpeaker(t)
	r.must(s.set(r.config(), nil))
	r.until("a session", func() bool { return s.states()[0].Established() })
	for i := range 3 {
		path := (&speaker{}).path(route(fmt.Sprintf("198.51.100.%d/32", i)))
		_, err := r.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{path}})
		r.must(err)
	}
	r.until("the session ends", func() bool { return strings.Contains(s.states()[0].Error, "max_prefixes") })
}

func TestPasswords(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	for content, want := range map[string]string{"secret\n": "secret", "secret": "secret", "a b \nmore": "a b", "": "", "\n": "", strings.Repeat("x", 81): ""} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readPassword(file)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", content, got, err)
		}
	}
	if _, err := readPassword(file + "x"); err == nil {
		t.Error("an absent file has a password")
	}
}
