// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"steelyard/internal/cluster"
)

// The outcome of a change. Until the forwarder has confirmed it, previous/FORWARDER/PROJECT has the version that the forwarder confirmed last. So any
// controller that receives a refusal can roll the change back, however late.

// confirm records that a forwarder has confirmed a revision, and deletes the previous versions that this makes obsolete.
func (s *Server) confirm(ctx context.Context, forwarder string, revision int64) error {
	previousKeys, err := s.store.Names(ctx, keyPrevious+forwarder+"/")
	if err != nil {
		return err
	}
	for _, key := range previousKeys {
		_, err := s.retry(ctx, func() (*cluster.Txn, error) {
			previous, err := s.store.Get(ctx, key)
			if err != nil || previous.Revision == 0 || previous.Revision > revision { // removed, or of a later change
				return nil, err
			}
			own, err := s.store.Get(ctx, keyConfigs+nameOf(key, keyPrevious))
			if err != nil {
				return nil, err
			}
			txn := new(cluster.Txn).Unchanged(previous).Unchanged(own)
			if own.Revision <= revision {
				return txn.Delete(key), nil
			}
			// The project has changed its file again meanwhile; etcd's history still has the confirmed version.
			confirmed, err := s.store.GetAt(ctx, own.Key, revision)
			if err != nil {
				return nil, err
			}
			return txn.PutLarge(key, confirmed.Value), nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// rollBack undoes the change that made the forwarder refuse a revision: that of the project which the reason names, else the newest. If the rest is
// refused too, the next call undoes the next change.
func (s *Server) rollBack(ctx context.Context, one *session, refused int64, reason string) error {
	_, err := s.retry(ctx, func() (*cluster.Txn, error) {
		desired, err := s.store.Get(ctx, keyDesired+one.forwarder)
		if err != nil {
			return nil, err
		}
		undone, others, err := s.unconfirmed(ctx, one.forwarder, refused, reason)
		if err != nil || undone.Revision == 0 {
			return nil, err // nothing to roll back: this version was accepted before, so the cause is at the forwarder or its host
		}
		name := nameOf(undone.Key, keyConfigs+one.forwarder+"/")
		previous, err := s.store.Get(ctx, keyPrevious+one.forwarder+"/"+name)
		if err != nil {
			return nil, err
		}
		record, entry, err := read[project](ctx, s.store, keyProjects+name)
		if err != nil {
			return nil, err
		}
		work, rollback := s.newWork(name), &plan{forwarder: one.forwarder, project: name}
		now, err := s.store.Snapshot(ctx, keyGroupOf+one.forwarder, keyGroups)
		if err == nil {
			err = rollback.findGroup(work, now)
		}
		if err != nil {
			return nil, err
		}
		before, err := s.store.Load(ctx, previous.Value)
		if err != nil {
			return nil, err
		}
		rollback.text = before.Text
		txn := new(cluster.Txn).At(keyOwners+one.forwarder, one.fence).Unchanged(desired).Unchanged(undone).Unchanged(previous).Delete(previous.Key)
		rollback.guardGroup(txn)
		if rollback.text == nil {
			txn.Delete(undone.Key)
		} else {
			txn.PutLarge(undone.Key, previous.Value)
		}
		var used usage
		if rollback.text == nil && len(others) == 1 {
			txn.Delete(desired.Key)
		} else {
			if err = s.merge(ctx, work, rollback, others, "rolling back"); err == nil {
				err = s.saveTexts(ctx, work, rollback)
			}
			if err != nil {
				return nil, fmt.Errorf("rolling back the change that %s refuses: %w", one.forwarder, err)
			}
			used = rollback.used()
			txn.PutLarge(desired.Key, rollback.mergedRef)
		}
		if entry.Revision != 0 {
			txn.Unchanged(entry).Put(entry.Key, encode(record.with(one.forwarder, used)), 0)
		}
		state, _, err := read[status](ctx, s.store, keyStatus+one.forwarder)
		if err != nil {
			return nil, err
		}
		// The refusal covers all changes since the last confirmed one. `previous` may be newer than that one, because confirm() rewrites it; so take the minimum.
		since := min(previous.Revision, state.Confirmed+1, undone.Revision)
		txn.Put(keyRefusals+one.forwarder+"/"+name, encode(refusal{since, undone.Revision, reason}), 0)
		return s.record(txn, "controller/"+s.id, "roll back", one.forwarder, name, "the forwarder refuses it: "+reason), nil
	})
	return err
}

// unconfirmed returns the file to roll back (Revision 0 if none), and all files. Of several files whose last change the forwarder has not confirmed, it
// returns the one that the refusal's reason names, even if that file has changed again since: otherwise a project could apply so often that the
// changes of other projects are rolled back instead of its own. If the reason names none, it returns the one that changed last.
func (s *Server) unconfirmed(ctx context.Context, forwarder string, until int64, reason string) (cluster.Entry, []cluster.Entry, error) {
	previousKeys, err := s.store.Names(ctx, keyPrevious+forwarder+"/")
	if err != nil {
		return cluster.Entry{}, nil, err
	}
	configs, _, err := s.store.List(ctx, keyConfigs+forwarder+"/")
	if err != nil {
		return cluster.Entry{}, nil, err
	}
	var changed []cluster.Entry
	var newest cluster.Entry
	for _, config := range configs {
		if slices.Contains(previousKeys, keyPrevious+nameOf(config.Key, keyConfigs)) {
			changed = append(changed, config)
			if config.Revision > newest.Revision && config.Revision <= until {
				newest = config
			}
		}
	}
	if len(changed) > 1 {
		for _, config := range changed {
			if named, err := s.isNamed(ctx, config, nameOf(config.Key, keyConfigs+forwarder+"/"), reason); named || err != nil {
				return config, configs, err
			}
		}
	}
	return newest, configs, nil
}

// isNamed reports whether a refusal's reason begins with a service of a project, or with an address in its file.
func (s *Server) isNamed(ctx context.Context, config cluster.Entry, project, reason string) (bool, error) {
	word, rest, _ := strings.Cut(reason, " ")
	if word == "service" {
		service, _, _ := strings.Cut(rest, ":")
		owner, _, long := strings.Cut(service, ".")
		return long && owner == project || !long && project == defaultProject, nil
	}
	address, err := netip.ParseAddr(strings.TrimRight(word, ":,"))
	if err != nil {
		return false, nil
	}
	has, err := s.usesAt(ctx, config)
	if err != nil {
		return false, err
	}
	_, isServer := has.servers[address]
	for key := range has.keys {
		if key.VIP == address {
			return true, nil
		}
	}
	return isServer || has.own[address], nil
}

// outcome is a forwarder's status with regard to one change.
type outcome struct {
	status
	rolledBack bool
}

// await waits for the outcome of a project's change. Returns nil if no agent is connected.
func (s *Server) await(ctx context.Context, forwarder, project string, revision int64) (*outcome, error) {
	var found *outcome
	err := s.observe(ctx, forwarder, revision, func() bool {
		found = s.outcomeOf(forwarder, project, revision)
		return found != nil || s.mirror.Get(keyOwners+forwarder).Revision == 0
	})
	if err != nil {
		return nil, unavailable(fmt.Errorf("the configuration is saved, but %w", err))
	}
	return found, nil
}

// observe waits until the mirror has reached a revision and done returns true. It calls done with mu held.
func (s *Server) observe(ctx context.Context, forwarder string, revision int64, done func() bool) error {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)*9/10)
		defer cancel()
	}
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.mirror.Revision >= revision && done():
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("the agent of %s has not answered yet", forwarder)
		case s.mirrorErr != nil:
			return fmt.Errorf("the answer of the agent of %s is unknown: %w", forwarder, s.mirrorErr)
		}
		s.changed.Wait()
	}
}

// outcomeOf returns the outcome of a change; nil: none yet. The caller holds mu.
func (s *Server) outcomeOf(forwarder, project string, revision int64) *outcome {
	var undone refusal
	var now status
	if entry := s.mirror.Get(keyRefusals + forwarder + "/" + project); entry.Revision != 0 && decodeRecord(entry, &undone) == nil && undone.has(revision) {
		return &outcome{status{Error: undone.Error}, true}
	}
	if entry := s.mirror.Get(keyStatus + forwarder); entry.Revision == 0 || decodeRecord(entry, &now) != nil {
		return nil
	}
	switch {
	case now.Older && now.Refused >= revision: // the agent has a newer revision than the store
		return &outcome{now, false}
	case !now.Older && now.Refused != now.Applied && now.Applied >= revision: // the agent has applied this revision or a later one
		return &outcome{now, false}
	case !now.Older && now.Refused == revision && s.mirror.Get(keyPrevious+forwarder+"/"+project).Revision == 0: // refused, and there is nothing to roll back
		return &outcome{now, false}
	}
	return nil // no report yet, or the rollback is in progress
}
