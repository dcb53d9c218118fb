// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"steelyard/internal/stall"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Sizes of the store. An etcd that reports no quota has its default.
const (
	DefaultQuota = 2 << 30
	reserve      = 5 // a fifth of the quota is reserved for leases, owners, statuses and records
	wasteful     = 2 // a file of twice the size of its contents is rewritten
	smallest     = 64 << 20
	soonest      = 5 * time.Second // between two attempts to free space
	// etcd reports its size at its last write to the file, which happens every 100 ms.
	countedAfter = 300 * time.Millisecond
)

// Size of the store.
type Size struct {
	File  int64 // bytes on disk
	Used  int64 // of File, in use
	Quota int64 // beyond this, etcd refuses writes
}

// Size queries the first member that answers.
func (s *Store) Size(ctx context.Context) (Size, error) {
	var failures error
	for _, endpoint := range s.client.Endpoints() {
		asking, cancel := stall.WithTimeout(ctx, 3*time.Second)
		status, err := s.client.Status(asking, endpoint)
		cancel()
		if err == nil {
			size := Size{status.DbSize, status.DbSizeInUse, status.DbSizeQuota}
			if size.Quota <= 0 {
				size.Quota = s.quota
			}
			return size, nil
		}
		failures = errors.Join(failures, err)
	}
	return Size{}, failed(failures)
}

// grew counts a text that is being written.
func (s *Store) grew(bytes int) {
	s.growth.Lock()
	defer s.growth.Unlock()
	s.grown, s.grownAt = s.uncounted()+int64(bytes), time.Now()
}

// uncounted returns the bytes written that etcd's size may not include yet. Requires growth.
func (s *Store) uncounted() int64 {
	if time.Since(s.grownAt) > countedAfter {
		return 0
	}
	return s.grown
}

// holds reports whether so many more bytes leave the reserve free.
func (s Size) holds(bytes int64) bool { return s.File+bytes <= s.Quota-s.Quota/reserve }

// counted returns etcd's size. If the bytes might not fit, it waits until the size is accurate.
func (s *Store) counted(ctx context.Context, bytes int64) (Size, error) {
	size, err := s.Size(ctx)
	s.growth.Lock()
	lacks := s.uncounted()
	s.growth.Unlock()
	if err != nil || lacks == 0 || size.holds(lacks+bytes) {
		return size, err
	}
	select {
	case <-time.After(countedAfter):
		return s.Size(ctx)
	case <-ctx.Done():
		return size, ctx.Err()
	}
}

// Room fails if there is no space for a value, after trying to free some.
func (s *Store) Room(ctx context.Context, bytes int) error {
	fits := func() (Size, bool, error) {
		size, err := s.counted(ctx, 2*int64(bytes))
		return size, size.holds(2 * int64(bytes)), err
	}
	if _, fit, err := fits(); err != nil || fit {
		return nil // without the permission to query the size, etcd itself reports that it is full
	}
	s.tidying.Lock()
	defer s.tidying.Unlock()
	size, fit, err := fits()
	if err != nil || fit {
		return err // another call has freed space
	}
	// Rewriting the file stops etcd for a moment: repeated requests for too much space must not cause that each time.
	if time.Since(s.squeezed) > soonest || size.File > s.squeezedTo+size.Quota/10 {
		if err := s.squeeze(ctx); err != nil {
			return err
		}
	}
	if size, fit, err = fits(); err != nil || fit {
		return err
	}
	return fmt.Errorf("%w: of %d MB, %d MB are in use, and this needs %d MB: remove configurations, or raise its quota", ErrFull,
		size.Quota>>20, size.Used>>20, bytes>>20)
}

// Tidy removes garbage: texts that no key refers to, and history older than the last calls. It returns the space to the disk, and clears the alarm of a
// full etcd. Every controller calls it periodically.
func (s *Store) Tidy(ctx context.Context) error {
	s.tidying.Lock()
	defer s.tidying.Unlock()
	now, err := s.client.Get(ctx, prefix, clientv3.WithCountOnly(), clientv3.WithPrefix())
	if err != nil {
		return failed(err)
	}
	s.marks = append(s.marks, now.Header.Revision)
	alarms, err := s.client.AlarmList(ctx)
	if err != nil {
		return failed(err)
	}
	size, err := s.Size(ctx)
	if err != nil {
		return err
	}
	if full(alarms.Alarms) || size.File > size.Quota*3/4 && size.File > s.squeezedTo+size.Quota/10 {
		return s.squeeze(ctx)
	}
	if len(s.marks) < historyKept {
		return nil
	}
	before := s.marks[len(s.marks)-historyKept]
	s.marks = s.marks[len(s.marks)-historyKept:]
	if err := s.sweep(ctx, before); err != nil {
		return err
	}
	if err := s.compact(ctx, before); err != nil {
		return err
	}
	if size.File > smallest && size.File > wasteful*size.Used {
		return s.defragment(ctx)
	}
	return nil
}

// historyKept is the number of calls of Tidy for which an interrupted watch can resume.
const historyKept = 6

// squeeze frees space at once: no history stays.
func (s *Store) squeeze(ctx context.Context) error {
	now, err := s.client.Get(ctx, prefix, clientv3.WithCountOnly(), clientv3.WithPrefix())
	if err != nil {
		return failed(err)
	}
	s.marks = nil
	if err := s.sweep(ctx, now.Header.Revision); err != nil {
		return err
	}
	now, err = s.client.Get(ctx, prefix, clientv3.WithCountOnly(), clientv3.WithPrefix())
	if err != nil {
		return failed(err)
	}
	if err := s.compact(ctx, now.Header.Revision); err != nil {
		return err
	}
	if err := s.defragment(ctx); err != nil {
		return err
	}
	size, err := s.Size(ctx)
	if err != nil {
		return err
	}
	s.squeezed, s.squeezedTo = time.Now(), size.File
	alarms, err := s.client.AlarmList(ctx)
	if err != nil {
		return failed(err)
	}
	for _, alarm := range alarms.Alarms {
		if alarm.Alarm != etcdserverpb.AlarmType_NOSPACE {
			continue
		}
		if size.File > size.Quota*9/10 {
			return fmt.Errorf("%w, and nothing in it can be removed: raise its quota", ErrFull)
		}
		if _, err := s.client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: alarm.MemberID, Alarm: alarm.Alarm}); err != nil {
			return failed(err)
		}
	}
	return nil
}

func full(alarms []*etcdserverpb.AlarmMember) bool {
	for _, alarm := range alarms {
		if alarm.Alarm == etcdserverpb.AlarmType_NOSPACE {
			return true
		}
	}
	return false
}

func (s *Store) compact(ctx context.Context, revision int64) error {
	_, err := s.client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	if errors.Is(err, rpctypes.ErrCompacted) || errors.Is(err, rpctypes.ErrFutureRev) {
		return nil // another controller has done it, or this member lags behind
	}
	if err != nil {
		return failed(err)
	}
	return nil
}

// defragment rewrites the members' files, one after another: a member does not answer meanwhile.
func (s *Store) defragment(ctx context.Context) error {
	for _, endpoint := range s.client.Endpoints() {
		rewriting, cancel := stall.WithTimeout(ctx, time.Minute)
		_, err := s.client.Defragment(rewriting, endpoint)
		cancel()
		if err != nil {
			return failed(err)
		}
	}
	return nil
}

// sweep removes texts without references, unless a reference was added after a revision.
func (s *Store) sweep(ctx context.Context, before int64) error {
	marks, err := s.client.Get(ctx, markRoot, clientv3.WithPrefix())
	if err != nil {
		return failed(err)
	}
	needed := map[string]bool{}
	for _, begin := range s.large { // after the marks
		entries, _, err := s.List(ctx, begin)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if hash, named := hashOf(entry.Value); named {
				needed[hash] = true
			}
		}
	}
	for _, kv := range marks.Kvs {
		hash := strings.TrimPrefix(string(kv.Key), markRoot)
		if needed[hash] || kv.ModRevision > before {
			continue
		}
		_, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)).
			Then(clientv3.OpDelete(string(kv.Key)), clientv3.OpDelete(partRoot+hash+"/", clientv3.WithPrefix())).Commit()
		if err != nil {
			return failed(err)
		}
	}
	return nil
}
