// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"steelyard/internal/cluster"
	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/pki"

	"connectrpc.com/connect"
)

// The keys: docs/design/0042-controller.md.
const (
	keyAuthority   = "ca"       // the signing authority, with its key, and former ones
	keyNext        = "ca-next"  // the next authority, which signs once all members trust it
	keySince       = "ca-since" // when the current step of a replacement began
	keyWait        = "ca-wait"  // exists while certificates from before that step may be valid: on a lease, because clocks may be wrong
	keyTrust       = "trust/"   // the authorities that members and controllers trust, during a replacement
	keyTokens      = "tokens/"
	keyMembers     = "members/"
	keyProjects    = "projects/"
	keyConfigs     = "configs/"
	keyDesired     = "desired/"
	keyPrevious    = "previous/"
	keyRefusals    = "refusals/"
	keyPrune       = "prune/" // FORWARDER: written with a desired configuration that may remove services from before the join
	keyOwners      = "owners/"
	keyControllers = "controllers/"
	keyStatus      = "status/"
	keyDrains      = "drains/"             // FORWARDER/SERVER: the last order for a server of a service
	keyMoving      = "drains-of-requests/" // VIP/SERVER: likewise for services of requests, at any forwarder
	keyJudged      = "drains-judged/"      // FORWARDER: the agent's own orders that are stored
	keyForgotten   = "drains-forgotten/"   // FORWARDER, AllForwarders: written whenever orders are removed
	keyAudit       = "audit/"
	keyClaims      = "claims" // written by each change that claims addresses
	keyGroups      = "groups/"
	keyGroupKeys   = "group-keys/" // NAME: slot key and secrets
	keyGroupOf     = "group-of/"   // FORWARDER: of which group it is a node; stays when it leaves
	keyNodes       = "nodes/"      // FORWARDER: its status as a node
	keyTakeovers   = "takeovers/"  // GROUP/FORWARDER: who serves the sessions of a node that is gone
	keyLost        = "lost/"       // FORWARDER: why its agent does not reach it
)

// LargeKeys are the prefixes of the keys whose values are configurations.
var LargeKeys = []string{keyConfigs, keyDesired, keyPrevious}

// defaultProject always exists, and its files may have all sections.
const defaultProject = "default"

type member struct {
	Role     pb.Role  `json:"role"`
	Projects []string `json:"projects,omitempty"`
	Key      string   `json:"key"` // hash
	Joined   int64    `json:"joined_unix_s"`
}

// kind returns the kind in a member's certificate.
func (m member) kind() string {
	if m.Role == pb.Role_ROLE_FORWARDER {
		return pki.Forwarder
	}
	return pki.User
}

type tokenRecord struct {
	Name      string   `json:"name"`
	Role      pb.Role  `json:"role"`
	Projects  []string `json:"projects,omitempty"`
	Secret    string   `json:"secret_hash"`
	Expires   int64    `json:"expires_unix_s"` // by the clock of the controller that created it; the lease ends it
	Authority string   `json:"authority"`      // hash of the authority that signed when the token was created; no other one accepts it
}

type project struct {
	MaxServices uint32           `json:"max_services,omitempty"`
	MaxServers  uint32           `json:"max_servers,omitempty"`
	Forwarders  []string         `json:"forwarders,omitempty"`
	Usage       map[string]usage `json:"usage,omitempty"`    // by forwarder
	Workflow    bool             `json:"workflow,omitempty"` // only the workflow writes its files
	VIPs        []netip.Prefix   `json:"vips,omitempty"`     // that must contain its VIPs
	Servers     []netip.Prefix   `json:"servers,omitempty"`  // that must contain its servers
}

type usage struct {
	Services uint32 `json:"services"`
	Servers  uint32 `json:"servers"`
}

// total returns the project's usage, summed over all forwarders.
func (p project) total() usage {
	var sum usage
	for _, u := range p.Usage {
		sum.Services += u.Services
		sum.Servers += u.Servers
	}
	return sum
}

// with returns the project with its usage at a forwarder.
func (p project) with(forwarder string, used usage) project {
	uses := maps.Clone(p.Usage)
	if uses == nil {
		uses = map[string]usage{}
	}
	delete(uses, forwarder)
	if used.Services > 0 {
		uses[forwarder] = used
	}
	p.Usage = uses
	return p
}

// owner is the controller that owns a forwarder, or leads the workflow.
type owner struct {
	ID  string `json:"id"`
	URL string `json:"url"`
	// Of a forwarder: the addresses of its agent's connection, because the controller's URL may have a host name.
	Agent netip.Addr `json:"agent,omitzero"`
	At    netip.Addr `json:"at,omitzero"` // of the controller
}

type status struct {
	Applied     int64  `json:"applied"`
	Confirmed   int64  `json:"confirmed,omitempty"` // the last revision that the forwarder confirmed
	Refused     int64  `json:"refused,omitempty"`   // a revision that the agent or the forwarder refuses
	Older       bool   `json:"older,omitempty"`     // because the agent has a newer revision than the store
	InForwarder bool   `json:"in_forwarder"`
	Error       string `json:"error,omitempty"`
	Changes     uint32 `json:"changes,omitempty"`
	Forwarder   uint64 `json:"forwarder_revision,omitempty"`
	At          int64  `json:"at_unix_s"`
	// Orders to drain up to this revision have reached the agent.
	Drains       int64  `json:"drains,omitempty"`
	DrainWarning string `json:"drain_warning,omitempty"` // why the forwarder does not have them yet
	NoDrains     bool   `json:"no_drains,omitempty"`     // the agent is of an older version, and accepts orders at its own API only
}

// refusal is the reason why a change was rolled back.
type refusal struct {
	Since    int64  `json:"since,omitempty"` // of the first change that was rolled back together with it: none since was confirmed
	Revision int64  `json:"revision"`        // of the change
	Error    string `json:"error"`
}

// has reports whether a change was rolled back.
func (r refusal) has(revision int64) bool { return r.Since <= revision && revision <= r.Revision }

type audit struct {
	At        int64  `json:"at_unix_ms"`
	Who       string `json:"who"`
	What      string `json:"what"`
	Forwarder string `json:"forwarder,omitempty"`
	Project   string `json:"project,omitempty"`
	Detail    string `json:"detail,omitempty"`
}

// encode returns a record's value.
func encode(record any) []byte {
	data, err := json.Marshal(record)
	if err != nil {
		panic(err) // records are plain values, so encoding cannot fail
	}
	return data
}

// read decodes a record. A missing record is the zero value.
func read[T any](ctx context.Context, s *cluster.Store, key string) (T, cluster.Entry, error) {
	var record T
	entry, err := s.Get(ctx, key)
	if err != nil {
		return record, entry, unavailable(err)
	}
	if entry.Revision == 0 {
		return record, entry, nil
	}
	if err := json.Unmarshal(entry.Value, &record); err != nil {
		return record, entry, connect.NewError(connect.CodeInternal, fmt.Errorf("%s in etcd: %w", key, err))
	}
	return record, entry, nil
}

// record adds an audit record to a transaction.
func (s *Server) record(txn *cluster.Txn, caller, what, forwarder, project, detail string) *cluster.Txn {
	now := s.now()
	s.auditMu.Lock()
	s.audited = max(s.audited+1, now.UnixNano()) // keys of one controller are unique and ordered
	key := fmt.Sprintf("%s%020d-%s", keyAudit, s.audited, s.id)
	s.auditMu.Unlock()
	return txn.Put(key, encode(audit{now.UnixMilli(), caller, what, forwarder, project, shortened(detail)}), 0)
}

// shortened bounds the length of a text from another host.
func shortened(text string) string {
	if len(text) > maxText {
		return strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}

// attempts bounds how often a transaction is computed again after conflicts.
const attempts = 20

// maxRetryPause bounds the pause between attempts.
const maxRetryPause = 128 * time.Millisecond

// retry computes and commits a transaction, again after each conflict. The pauses are random and grow, so that conflicting callers separate.
func (s *Server) retry(ctx context.Context, compute func() (*cluster.Txn, error)) (int64, error) {
	for i := range attempts {
		if i > 0 {
			select {
			case <-ctx.Done():
				return 0, unavailable(ctx.Err())
			case <-time.After(rand.N(min(maxRetryPause, 2*time.Millisecond<<i))):
			}
		}
		txn, err := compute()
		if err != nil || txn == nil {
			return 0, err
		}
		revision, err := s.store.Commit(ctx, txn)
		if err == nil {
			return revision, nil
		}
		if !errors.Is(err, cluster.ErrConflict) {
			return 0, unstored(err)
		}
	}
	return 0, connect.NewError(connect.CodeAborted, cluster.ErrConflict)
}

// ---- errors -------------------------------------------------------------------------------------

// unstored returns the error of a failed write.
func unstored(err error) error {
	if errors.Is(err, cluster.ErrFull) {
		return connect.NewError(connect.CodeResourceExhausted, err)
	}
	return unavailable(err)
}

// unavailable returns the error of a failed read of the store, or of a call that cannot be answered now.
func unavailable(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded), strings.Contains(err.Error(), context.DeadlineExceeded.Error()):
		err = errors.New("etcd did not answer in time: check that its members run, by `journalctl -u steelyard-controller` on their hosts")
	case errors.Is(err, context.Canceled), strings.Contains(err.Error(), context.Canceled.Error()):
		err = errors.New("this controller is stopping, or the call was cancelled: try again")
	}
	return connect.NewError(connect.CodeUnavailable, err)
}

func invalid(err error) error { return connect.NewError(connect.CodeInvalidArgument, err) }
func missing(format string, args ...any) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf(format, args...))
}
func denied(format string, args ...any) error {
	return connect.NewError(connect.CodePermissionDenied, fmt.Errorf(format, args...))
}

const (
	maxOperations = 100 // of a transaction: etcd accepts 128
	housekeeping  = time.Minute
	leaseLife     = 10 * time.Second // renewed three times in its life, so a stall of half of it does not end it
	pushTimeout   = 20 * time.Second
	pingEvery     = 2 * time.Second // while an agent sends nothing; agents rely on it, too
	silence       = 5 * time.Second // after this time an agent's host counts as dead
	defaultTokens = time.Hour
	maxJoin       = 16 << 10 // bytes of a request
	maxText       = 2 << 10  // bytes of an error or of a record's detail in the store
)

func nameOf(key, prefix string) string { return strings.TrimPrefix(key, prefix) }
