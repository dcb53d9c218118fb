// SPDX-License-Identifier: Apache-2.0

// Package cluster is the shared store of controllers: an etcd in this process, or an external one. It provides keys, revisions, leases and
// transactions, and does not interpret them.
package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"steelyard/internal/stall"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// prefix of all keys; its number changes with their meaning.
const prefix = "/steelyard/1/"

// maxRequestBytes bounds a transaction of the embedded etcd; large values are kept in pieces.
const maxRequestBytes = 4 << 20

// Options of the store.
type Options struct {
	Directory string      // of the embedded etcd; unless Endpoints are given
	Endpoints []string    // URLs of an external etcd
	TLS       *tls.Config // for the external etcd; nil: none
	Members   *Members    // the cluster of the embedded etcds of several controllers; nil: a single one
	Quota     int64       // bytes of the embedded etcd's file; 0: DefaultQuota
	Large     []string    // prefixes of the keys that PutLarge writes
}

// Store is a connection to etcd.
type Store struct {
	client   *clientv3.Client
	embedded *embed.Etcd
	closing  sync.Once
	members  *Members
	quota    int64
	large    []string
	cache    cache

	tidying sync.Mutex
	marks   []int64 // revisions at the last calls of Tidy
	// When the file was last rewritten to free space, and its size after that.
	squeezed   time.Time
	squeezedTo int64
	growth     sync.Mutex
	grown      int64 // bytes of texts that etcd may not count yet; with growth
	grownAt    time.Time
}

// ErrConflict means that another writer changed a key that a transaction was computed from.
var ErrConflict = errors.New("another writer changed the same data at the same time: try again")

// ErrGone means that a watch would start before the stored history.
var ErrGone = errors.New("the events since then are no longer stored: list, and watch from that revision")

// Open starts the embedded etcd, or connects to the external one.
func Open(ctx context.Context, o Options) (*Store, error) {
	s := &Store{members: o.Members, quota: o.Quota, large: o.Large}
	if s.quota == 0 {
		s.quota = DefaultQuota
	}
	endpoints := o.Endpoints
	if len(endpoints) == 0 {
		path, err := s.embed(ctx, o)
		if err != nil {
			return nil, err
		}
		endpoints = []string{path}
	}
	client, err := clientv3.New(o.client(endpoints))
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("etcd: %w", err)
	}
	s.client = client
	return s, nil
}

// client returns the options of etcd's client. Keepalives detect that an external etcd is unreachable. The embedded one needs none, and gRPC's
// keepalives would close its connection whenever the clock is set back, because they compare wall-clock times.
func (o Options) client(endpoints []string) clientv3.Config {
	c := clientv3.Config{Endpoints: endpoints, TLS: o.TLS, DialTimeout: 5 * time.Second, Logger: zap.NewNop(), MaxCallSendMsgSize: maxRequestBytes + 1<<20}
	if len(o.Endpoints) > 0 {
		c.DialKeepAliveTime, c.DialKeepAliveTimeout = 5*time.Second, 10*time.Second // longer than a stall of this host
	}
	return c
}

// embed starts an etcd that only clients of this user reach: by a Unix socket in its directory. In a cluster, it returns when more than half of the
// members run.
func (s *Store) embed(ctx context.Context, o Options) (string, error) {
	directory := o.Directory
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return "", fmt.Errorf("state: %w", err)
	}
	config := embed.NewConfig()
	config.Name, config.Dir = "embedded", filepath.Join(directory, "etcd")
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	config.MaxRequestBytes = maxRequestBytes
	config.QuotaBackendBytes = s.quota           // Tidy compacts
	config.GRPCKeepAliveInterval = math.MaxInt64 // never, as for its client
	// The time of a lease continues when the leader changes or etcd restarts, accurate to five minutes: leases expire tokens, because clocks differ.
	if err := config.ServerFeatureGate.(interface{ Set(string) error }).Set("LeaseCheckpoint=true,LeaseCheckpointPersist=true"); err != nil {
		return "", err
	}
	listen := func(name string) (url.URL, string) {
		path := filepath.Join(directory, name)
		return url.URL{Scheme: "unix", Path: path}, "unix://" + path
	}
	client, endpoint := listen("client.sock")
	peer, _ := listen("peer.sock")
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	if o.Members != nil {
		if err := o.Members.apply(config, directory); err != nil {
			return "", err
		}
	}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return "", fmt.Errorf("the embedded etcd in %s: %w", config.Dir, err)
	}
	s.embedded = etcd
	select {
	case <-etcd.Server.ReadyNotify():
		return endpoint, nil
	case err = <-etcd.Err():
	case <-etcd.Server.StopNotify():
		err = errors.New("it has stopped")
	case <-ctx.Done():
		err = ctx.Err()
	}
	etcd.Server.Stop() // Close alone would wait until the server is ready
	etcd.Close()
	s.embedded = nil
	return "", fmt.Errorf("the embedded etcd in %s: %w", config.Dir, err)
}

// Endpoints returns the URLs of the store's etcd.
func (s *Store) Endpoints() []string { return s.client.Endpoints() }

// Close ends the connection, and the embedded etcd.
func (s *Store) Close() {
	s.closing.Do(func() {
		if s.client != nil {
			_ = s.client.Close()
		}
		if s.embedded != nil {
			s.embedded.Close()
		}
	})
}

// Entry is a key with its value.
type Entry struct {
	Key      string
	Value    []byte
	Revision int64 // of the last change; 0: the key does not exist
}

// Get reads a key.
func (s *Store) Get(ctx context.Context, key string) (Entry, error) {
	response, err := s.client.Get(ctx, prefix+key)
	if err != nil {
		return Entry{}, failed(err)
	}
	if len(response.Kvs) == 0 {
		return Entry{Key: key}, nil
	}
	return Entry{key, response.Kvs[0].Value, response.Kvs[0].ModRevision}, nil
}

// GetAt reads a key as it was at a revision, which must be a recent one.
func (s *Store) GetAt(ctx context.Context, key string, revision int64) (Entry, error) {
	response, err := s.client.Get(ctx, prefix+key, clientv3.WithRev(revision))
	if err != nil {
		return Entry{}, failed(err)
	}
	if len(response.Kvs) == 0 {
		return Entry{Key: key}, nil
	}
	return Entry{key, response.Kvs[0].Value, response.Kvs[0].ModRevision}, nil
}

// Names lists the keys with a prefix, without their values.
func (s *Store) Names(ctx context.Context, begin string) ([]string, error) {
	response, err := s.client.Get(ctx, prefix+begin, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, failed(err)
	}
	var names []string
	for _, kv := range response.Kvs {
		names = append(names, strings.TrimPrefix(string(kv.Key), prefix))
	}
	return names, nil
}

// List reads all keys with a prefix, at one revision, which it returns.
func (s *Store) List(ctx context.Context, begin string) ([]Entry, int64, error) {
	response, err := s.client.Get(ctx, prefix+begin, clientv3.WithPrefix())
	if err != nil {
		return nil, 0, failed(err)
	}
	var entries []Entry
	for _, kv := range response.Kvs {
		entries = append(entries, Entry{strings.TrimPrefix(string(kv.Key), prefix), kv.Value, kv.ModRevision})
	}
	return entries, response.Header.Revision, nil
}

// Last reads the limit recently written keys with a prefix, newest first.
func (s *Store) Last(ctx context.Context, begin string, limit int64) ([]Entry, error) {
	response, err := s.client.Get(ctx, prefix+begin, clientv3.WithPrefix(), clientv3.WithLimit(limit),
		clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend))
	if err != nil {
		return nil, failed(err)
	}
	var entries []Entry
	for _, kv := range response.Kvs {
		entries = append(entries, Entry{strings.TrimPrefix(string(kv.Key), prefix), kv.Value, kv.ModRevision})
	}
	return entries, nil
}

// Snapshot has the values of some keys at one revision.
type Snapshot struct {
	Revision int64
	Entries  map[string]Entry
}

// Get returns a key's entry; revision 0: the key did not exist.
func (s Snapshot) Get(key string) Entry {
	if entry, found := s.Entries[key]; found {
		return entry
	}
	return Entry{Key: key}
}

// List returns the entries with a prefix, in order.
func (s Snapshot) List(begin string) []Entry {
	var found []Entry
	for key, entry := range s.Entries {
		if strings.HasPrefix(key, begin) {
			found = append(found, entry)
		}
	}
	slices.SortFunc(found, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	return found
}

// Snapshot reads keys, and for a text that ends in a slash all keys with this prefix, at one revision.
func (s *Store) Snapshot(ctx context.Context, keys ...string) (Snapshot, error) {
	var reads []clientv3.Op
	for _, key := range keys {
		if strings.HasSuffix(key, "/") {
			reads = append(reads, clientv3.OpGet(prefix+key, clientv3.WithPrefix()))
		} else {
			reads = append(reads, clientv3.OpGet(prefix+key))
		}
	}
	response, err := s.client.Txn(ctx).Then(reads...).Commit()
	if err != nil {
		return Snapshot{}, failed(err)
	}
	found := Snapshot{response.Header.Revision, map[string]Entry{}}
	for _, one := range response.Responses {
		for _, kv := range one.GetResponseRange().Kvs {
			key := strings.TrimPrefix(string(kv.Key), prefix)
			found.Entries[key] = Entry{key, kv.Value, kv.ModRevision}
		}
	}
	return found, nil
}

// Txn is a transaction: if all keys still have the revisions that were read, it writes everything, else nothing.
type Txn struct {
	conditions []clientv3.Cmp
	operations []clientv3.Op
	refers     map[string]bool // hashes
}

// Unchanged requires that a key has not changed since it was read; an entry of revision 0 must still not exist.
func (t *Txn) Unchanged(e Entry) *Txn { return t.At(e.Key, e.Revision) }

// At requires that a key's last change was at a revision.
func (t *Txn) At(key string, revision int64) *Txn {
	t.conditions = append(t.conditions, clientv3.Compare(clientv3.ModRevision(prefix+key), "=", revision))
	return t
}

// Exists requires that a key exists.
func (t *Txn) Exists(key string) *Txn {
	t.conditions = append(t.conditions, clientv3.Compare(clientv3.CreateRevision(prefix+key), ">", 0))
	return t
}

// NoneSince requires that no key with a prefix has been written after a revision.
func (t *Txn) NoneSince(begin string, revision int64) *Txn {
	t.conditions = append(t.conditions, clientv3.Compare(clientv3.ModRevision(prefix+begin), "<", revision+1).WithPrefix())
	return t
}

// Put writes a key; lease 0: without expiry.
func (t *Txn) Put(key string, value []byte, lease Lease) *Txn {
	t.operations = append(t.operations, clientv3.OpPut(prefix+key, string(value), clientv3.WithLease(clientv3.LeaseID(lease))))
	return t
}

// Delete removes a key.
func (t *Txn) Delete(key string) *Txn {
	t.operations = append(t.operations, clientv3.OpDelete(prefix+key))
	return t
}

// DeleteAll removes all keys with a prefix.
func (t *Txn) DeleteAll(begin string) *Txn {
	t.operations = append(t.operations, clientv3.OpDelete(prefix+begin, clientv3.WithPrefix()))
	return t
}

// Commit tries a transaction and returns its revision, or ErrConflict.
func (s *Store) Commit(ctx context.Context, t *Txn) (int64, error) {
	response, err := s.client.Txn(ctx).If(t.conditions...).Then(t.operations...).Commit()
	if err != nil {
		return 0, failed(err)
	}
	if !response.Succeeded {
		return 0, ErrConflict
	}
	return response.Header.Revision, nil
}

// Lease removes its keys when its owner stops renewing it.
type Lease int64

// Grant creates a lease.
func (s *Store) Grant(ctx context.Context, life time.Duration) (Lease, error) {
	response, err := s.client.Grant(ctx, max(1, int64(life/time.Second)))
	if err != nil {
		return 0, failed(err)
	}
	return Lease(response.ID), nil
}

// Keep renews a lease until ctx ends, and then revokes it. The channel is closed when the lease is lost, or may be.
func (s *Store) Keep(ctx context.Context, lease Lease, life time.Duration) (<-chan struct{}, error) {
	answers, err := s.client.KeepAlive(ctx, clientv3.LeaseID(lease))
	if err != nil {
		return nil, failed(err)
	}
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		for {
			silent := make(chan struct{}) // no answer during the lease's life
			stop := stall.After(life, func() { close(silent) })
			select {
			case _, alive := <-answers:
				stop()
				if !alive {
					return
				}
			case <-silent:
				return
			}
		}
	}()
	return lost, nil
}

// Revoke removes a lease with its keys.
func (s *Store) Revoke(ctx context.Context, lease Lease) {
	_, _ = s.client.Revoke(ctx, clientv3.LeaseID(lease)) // if this fails, it expires
}

// Event is a change of a key.
type Event struct {
	Entry
	Deleted bool
}

// Watch calls f for each change of keys with a prefix after a revision, until ctx ends or the watch breaks.
func (s *Store) Watch(ctx context.Context, begin string, after int64, f func(Event)) error {
	return s.WatchAll(ctx, begin, after, func(events []Event) {
		for _, event := range events {
			f(event)
		}
	})
}

// WatchAll is Watch, but passes all changes of one or several revisions at once.
func (s *Store) WatchAll(ctx context.Context, begin string, after int64, f func([]Event)) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for response := range s.client.Watch(ctx, prefix+begin, clientv3.WithPrefix(), clientv3.WithRev(after+1)) {
		if err := response.Err(); err != nil {
			return failed(err)
		}
		events := make([]Event, 0, len(response.Events))
		for _, event := range response.Events {
			events = append(events, Event{Entry{strings.TrimPrefix(string(event.Kv.Key), prefix), event.Kv.Value, event.Kv.ModRevision},
				event.Type == clientv3.EventTypeDelete})
		}
		f(events)
	}
	return ctx.Err()
}

func failed(err error) error {
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return fmt.Errorf("%w: it accepts only reads until there is space, which the controller tries to free", ErrFull)
	}
	if errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("%w (%w)", ErrGone, err)
	}
	return fmt.Errorf("etcd: %w", err)
}
