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

// Sizes of the store. Where etcd reports no quota of its own, it has its default.
const (
	DefaultQuota = 2 << 30
	reserve      = 5 // a fifth of the quota is for leases, owners, statuses and records: configurations stop before
	wasteful     = 2 // a file that is twice as large as what is in it is worth rewriting
	smallest     = 64 << 20
	soonest      = 5 * time.Second // between two attempts to make room where there was none
	// etcd says its size as it was when it last wrote to its file, which it does each 100 ms.
	countedAfter = 300 * time.Millisecond
)

// Size of the store.
type Size struct {
	File  int64 // bytes on the disk
	Used  int64 // of these in use
	Quota int64 // beyond this, etcd takes no more writes
}

// Size asks the first member that answers.
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

// grew notes that a text is being written.
func (s *Store) grew(bytes int) {
	s.growth.Lock()
	defer s.growth.Unlock()
	s.grown, s.grownAt = s.uncounted()+int64(bytes), time.Now()
}

// uncounted returns how much of what was written etcd's size may lack. With growth.
func (s *Store) uncounted() int64 {
	if time.Since(s.grownAt) > countedAfter {
		return 0
	}
	return s.grown
}

// holds says whether so many bytes more leave the reserve.
func (s Size) holds(bytes int64) bool { return s.File+bytes <= s.Quota-s.Quota/reserve }

// counted returns etcd's size. It waits for the true one, if so many bytes might not fit.
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

// Room refuses a value for which there is none, after trying to make some.
func (s *Store) Room(ctx context.Context, bytes int) error {
	fits := func() (Size, bool, error) {
		size, err := s.counted(ctx, 2*int64(bytes))
		return size, size.holds(2 * int64(bytes)), err
	}
	if _, fit, err := fits(); err != nil || fit {
		return nil // who may not ask for the size is told by etcd itself when it is full
	}
	s.tidying.Lock()
	defer s.tidying.Unlock()
	size, fit, err := fits()
	if err != nil || fit {
		return err // another one has made room
	}
	// Rewriting the file stops etcd for a moment: who asks for too much, again and again, must not cause that each time.
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

// Tidy removes what nobody needs: texts that no key refers to, and history older than the last calls; and it gives the room back to the
// disk. It ends the alarm of an etcd that was full. Every controller is to call it now and then.
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

// historyKept is the number of calls of Tidy for which a watch can go on where it ended.
const historyKept = 6

// squeeze makes room at once: no history stays.
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
			return fmt.Errorf("%w, and nothing in it can be spared: raise its quota", ErrFull)
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
		return nil // another controller was first, or this member is behind
	}
	if err != nil {
		return failed(err)
	}
	return nil
}

// defragment rewrites the members' files, one after another: each answers nobody meanwhile.
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

// sweep removes texts that nothing refers to, if nobody has begun to do so after a revision.
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
