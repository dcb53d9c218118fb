// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"strings"
	"time"

	"steelyard/internal/cluster"
)

// The mirror is a cache of the small keys, updated by one watch, so that a change costs no reads, however many forwarders and callers wait for it.
// It lags behind etcd by the events that the watch has not delivered yet. Its users compare revisions in a transaction, or know a revision that the
// mirror must have reached: a session waits for its fence, so that what it sends is no older than the agent's connection.
var mirrored = []string{keyOwners, keyControllers, keyDesired, keyConfigs, keyPrevious, keyRefusals, keyStatus, keyTrust, keyDrains, keyMoving, keyJudged, keyForgotten,
	keyGroups, keyGroupKeys, keyGroupOf}

// follow applies changes of the store to the mirror: it wakes and ends sessions.
func (s *Server) follow(ctx context.Context) {
	for ctx.Err() == nil {
		now, err := s.store.Snapshot(ctx, append([]string{keyRequests}, mirrored...)...)
		if err == nil {
			s.catchUp(now)
			err = s.store.WatchAll(ctx, "", now.Revision, s.see)
		}
		s.mu.Lock()
		s.mirrorErr = err
		s.changed.Broadcast()
		s.mu.Unlock()
		if ctx.Err() == nil {
			s.log.Warn("the watch of etcd has failed", "error", err)
			pause(ctx, time.Second)
		}
	}
}

// catchUp wakes all waiters after a snapshot, because events may have been missed.
func (s *Server) catchUp(now cluster.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mirror, s.mirrorErr = now, nil
	s.looks, s.measured = time.Now(), map[string]time.Time{}
	s.asked = map[string]asked{}
	for _, entry := range now.List(keyRequests) {
		s.seeRequest(cluster.Event{Entry: entry})
		delete(now.Entries, entry.Key) // large values stay out of the mirror
	}
	s.wakeAuthority()
	s.changed.Broadcast()
	for name, one := range s.sessions {
		s.checkOwner(name, one)
		one.poke() // wakes its drains, too
		one.node.poke()
	}
	s.endWatches("", 0)
}

// see applies events of the store.
func (s *Server) see(events []cluster.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, event := range events {
		s.mirror.Revision = event.Revision
		if event.Deleted {
			delete(s.mirror.Entries, event.Key)
		} else if slices.ContainsFunc(mirrored, func(begin string) bool { return strings.HasPrefix(event.Key, begin) }) {
			s.mirror.Entries[event.Key] = event.Entry
		}
	}
	s.changed.Broadcast()
	for _, event := range events {
		s.act(event)
	}
}

// act applies one event. The caller holds mu.
func (s *Server) act(event cluster.Event) {
	if name, ok := cutPrefix(event.Key, keyDesired); ok {
		if one := s.sessions[name]; one != nil {
			one.poke()
		}
	}
	if name, ok := cutPrefix(event.Key, keyOwners); ok && !event.Deleted {
		if one := s.sessions[name]; one != nil {
			s.checkOwner(name, one)
			one.poke() // the session waits until the mirror reaches its fence
			one.node.poke()
		}
	}
	if strings.HasPrefix(event.Key, keyRequests) {
		s.seeRequest(event)
	}
	if name, ok := cutPrefix(event.Key, keyLoads); ok {
		if s.measured[name] = time.Now(); event.Deleted {
			delete(s.measured, name)
		}
	}
	s.seeDrain(event)
	if slices.ContainsFunc([]string{keyGroups, keyGroupKeys, keyGroupOf}, func(begin string) bool { return strings.HasPrefix(event.Key, begin) }) {
		s.wakeNodes()
	}
	for _, begin := range []string{keyAuthority, keyTrust, keyMembers, keyControllers} {
		if strings.HasPrefix(event.Key, begin) {
			s.wakeAuthority()
		}
	}
	if name, ok := cutPrefix(event.Key, keyMembers); ok {
		s.endWatches(name, event.Revision)
		if one := s.sessions[name]; one != nil && one.fence < event.Revision {
			go one.conn.Close() // the member was removed, or joined again with another key; it may reconnect
		}
	}
}

// loadAge returns the minimum age of a forwarder's load, by this controller's clock: the controller that wrote it has another clock.
func (s *Server) loadAge(name string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.measured[name]; ok {
		return time.Since(at)
	}
	if s.looks.IsZero() {
		return 0
	}
	return time.Since(s.looks)
}

// checkOwner ends a session whose forwarder belongs to another controller now. The caller holds mu.
func (s *Server) checkOwner(name string, one *session) {
	if one.fence < s.mirror.Get(keyOwners+name).Revision {
		s.log.Info("another controller serves the forwarder now", "forwarder", name)
		go one.conn.Close()
	}
}

// desiredOf returns the desired configuration of a session's forwarder, and the URLs of all controllers, unless the mirror is older than the session.
func (s *Server) desiredOf(one *session) (desired cluster.Entry, controllers []string, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mirror.Revision < one.fence {
		return cluster.Entry{}, nil, false
	}
	controllers = []string{s.url}
	for _, entry := range s.mirror.List(keyControllers) {
		var other owner
		if decodeRecord(entry, &other) == nil && !slices.Contains(controllers, other.URL) {
			controllers = append(controllers, other.URL)
		}
	}
	slices.Sort(controllers)
	return s.mirror.Get(keyDesired + one.forwarder), controllers, true
}
