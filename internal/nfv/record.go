// SPDX-License-Identifier: Apache-2.0

// Package nfv is the workflow by which a management system requests load balancing: records with a state, and the steps between states. It is pure: the
// caller reads and writes records, and implements World. docs/design/0048-nfv-workflow.md.
package nfv

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	pb "steelyard/internal/gen/nfvpb"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Time limits of states that wait for the caller or for a forwarder, unless a request has its own.
const (
	NeedsForwarderLimit = 15 * time.Minute
	ConfiguringLimit    = time.Minute
	RoutingLimit        = 10 * time.Minute
	WithdrawingLimit    = 10 * time.Minute
	// RemovedLife is how long a removed record is kept, by the clocks of the controllers that removed it and that read it. EndShown is the minimum,
	// whatever these clocks say.
	RemovedLife = 24 * time.Hour
	EndShown    = 10 * time.Minute
	// RefusedLife is how long a forwarder that has refused a service is not selected again.
	RefusedLife = time.Minute
)

// DefaultProject is the project of requests that name none.
const DefaultProject = "nfv"

const (
	maxHistory = 32
	maxReals   = 4096
)

// Record is a request with its state, stored as JSON.
type Record struct {
	Wanted    json.RawMessage    `json:"wanted"` // Balancing
	State     pb.State           `json:"state"`
	Forwarder string             `json:"forwarder,omitempty"`
	Leaving   string             `json:"leaving,omitempty"`
	Why       string             `json:"why,omitempty"`
	Error     string             `json:"error,omitempty"`
	Revision  int64              `json:"revision,omitempty"` // of the forwarder's file that has it; 0: none yet
	Alone     bool               `json:"alone,omitempty"`    // it was in a file that was refused, with others
	Beyond    int64              `json:"beyond,omitempty"`   // that file's revision: only a later one shows whether the service is refused alone
	Route     *Route             `json:"route,omitempty"`
	Refused   map[string]Refusal `json:"refused,omitempty"` // by forwarder
	History   []Event            `json:"history,omitempty"`
	Asked     int64              `json:"asked_unix_ms"`
	Changed   int64              `json:"changed_unix_ms"`
	Placed    int64              `json:"placed_unix_ms,omitempty"` // when it was placed at its forwarder
	Lacking   int64              `json:"lacking_ms,omitempty"`     // time without a forwarder before the current wait, since the request or its last route
	Deleted   bool               `json:"deleted,omitempty"`
}

// Route is the route that the caller sets.
type Route struct {
	Generation  uint64 `json:"generation"`
	Destination string `json:"destination"`
	NextHop     string `json:"next_hop,omitempty"`
	// At a group of forwarders: of all nodes that serve, separated by spaces. NextHop is the first one.
	NextHops  string `json:"next_hops,omitempty"`
	Forwarder string `json:"forwarder"`
	Withdraw  bool   `json:"withdraw,omitempty"`
	Confirmed bool   `json:"confirmed,omitempty"`
}

// Refusal is why a forwarder does not have a service.
type Refusal struct {
	Why string `json:"why"`
	At  int64  `json:"at_unix_ms"`
}

// Event is one of a record's past.
type Event struct {
	At     int64    `json:"at_unix_ms"`
	State  pb.State `json:"state"`
	Detail string   `json:"detail,omitempty"`
}

// Key identifies a virtual or a real service: equal triples have equal keys everywhere.
func Key(protocol string, address netip.Addr, port uint16) string {
	number := byte(6)
	if protocol == "udp" {
		number = 17
	}
	data := append([]byte{number}, address.AsSlice()...)
	sum := sha256.Sum256(binary.BigEndian.AppendUint16(data, port))
	return hex.EncodeToString(sum[:8])
}

// Normal validates a request, and returns it with defaults filled in.
func Normal(wanted *pb.Balancing) (*pb.Balancing, error) {
	b := proto.CloneOf(wanted)
	if b.Project == "" {
		b.Project = DefaultProject
	}
	if err := normalServices(b); err != nil {
		return nil, err
	}
	if _, err := Text([]*pb.Balancing{b}); err != nil {
		return nil, err
	}
	return b, nil
}

func address(text string, port uint32) (netip.AddrPort, error) {
	parsed, err := netip.ParseAddr(text)
	if err != nil || parsed.Zone() != "" {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address", text)
	}
	if port == 0 || port > 65535 {
		return netip.AddrPort{}, fmt.Errorf("%d is not a port", port)
	}
	return netip.AddrPortFrom(parsed.Unmap(), uint16(port)), nil
}

// NewRecord acknowledges a request, which is normal.
func NewRecord(wanted *pb.Balancing, now time.Time) (*Record, error) {
	data, err := protojson.Marshal(wanted)
	if err != nil {
		return nil, err
	}
	r := &Record{Wanted: data, Asked: now.UnixMilli()}
	r.enter(pb.State_STATE_ACKNOWLEDGED, now, "")
	return r, nil
}

// Balancing returns the request.
func (r *Record) Balancing() (*pb.Balancing, error) {
	b := &pb.Balancing{}
	return b, (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(r.Wanted, b)
}

// Same reports whether a request equals that of a record.
func (r *Record) Same(wanted *pb.Balancing) bool {
	had, err := r.Balancing()
	return err == nil && proto.Equal(had, wanted)
}

// Ended reports whether nothing happens to the record any more.
func (r *Record) Ended() bool {
	return r.State == pb.State_STATE_REMOVED || r.State == pb.State_STATE_FAILED
}

// On reports whether a forwarder is to have the service.
func (r *Record) On(forwarder string) bool {
	return !r.Ended() && (r.Forwarder == forwarder || r.Leaving == forwarder)
}

// Settled reports whether the forwarder has accepted the service.
func (r *Record) Settled(forwarder string) bool {
	return r.Leaving == forwarder || r.State != pb.State_STATE_CONFIGURING
}

// enter changes the state.
func (r *Record) enter(state pb.State, now time.Time, detail string) {
	r.State, r.Changed = state, now.UnixMilli()
	r.say(now, detail)
}

// say appends to the history without a change of state.
func (r *Record) say(now time.Time, detail string) {
	r.History = append(r.History, Event{now.UnixMilli(), r.State, detail})
	if len(r.History) > maxHistory {
		r.History = r.History[len(r.History)-maxHistory:]
	}
}

// Status returns the record in the form for callers.
func (r *Record) Status(revision int64) (*pb.Status, error) {
	wanted, err := r.Balancing()
	if err != nil {
		return nil, err
	}
	s := &pb.Status{Wanted: wanted, State: r.State, Forwarder: r.Forwarder, Leaving: r.Leaving, Why: r.Why, Error: r.Error, Revision: revision,
		AskedUnixMs: uint64(r.Asked), ChangedUnixMs: uint64(r.Changed)}
	if r.Route != nil {
		s.Route = &pb.Route{Generation: r.Route.Generation, Destination: r.Route.Destination, NextHop: r.Route.NextHop, NextHops: r.Route.hops(), Forwarder: r.Route.Forwarder,
			Withdraw: r.Route.Withdraw, Confirmed: r.Route.Confirmed, Predecessors: wanted.GetPredecessors()}
	}
	for _, e := range r.History {
		s.History = append(s.History, &pb.Event{AtUnixMs: uint64(e.At), State: e.State, Detail: e.Detail})
	}
	return s, nil
}

// StateText returns a state as users read it.
func StateText(state pb.State) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(state.String(), "STATE_")), "_", "-")
}
