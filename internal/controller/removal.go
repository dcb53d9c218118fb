// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"

	"steelyard/internal/cluster"
	pb "steelyard/internal/gen/controllerpb"

	"connectrpc.com/connect"
)

// RemoveMember implements the service. It voids the certificate and the tokens of the name, then removes its state, and the name last: if it is
// interrupted, the caller can repeat it.
func (s *Server) RemoveMember(ctx context.Context, request *connect.Request[pb.RemoveMemberRequest]) (*connect.Response[pb.RemoveMemberResponse], error) {
	caller, name := from(ctx), request.Msg.GetName()
	if !caller.admin() {
		return nil, denied("only an admin removes members, and %s is none", caller)
	}
	err := s.voidTokens(ctx, name)
	if err != nil {
		return nil, err
	}
	revision, err := s.retry(ctx, func() (*cluster.Txn, error) {
		record, entry, err := read[member](ctx, s.store, keyMembers+name)
		if err != nil {
			return nil, err
		}
		if entry.Revision == 0 {
			return nil, missing("there is no member %q", name)
		}
		of, ofEntry, err := read[groupOf](ctx, s.store, keyGroupOf+name)
		if err == nil && of.Group != "" {
			err = invalid(errors.New(name + " is a node of the group " + of.Group + ": remove it there first, by `steelyard group set`"))
		}
		if err != nil {
			return nil, err
		}
		record.Key = "" // no certificate has this key
		return s.record(new(cluster.Txn).Unchanged(ofEntry).Unchanged(entry).Put(entry.Key, encode(record), 0), caller.String(), "remove member", "", "", name), nil
	})
	if err == nil {
		err = s.forget(ctx, name, revision)
	}
	return connect.NewResponse(&pb.RemoveMemberResponse{}), err
}

// voidTokens removes the tokens for a name.
func (s *Server) voidTokens(ctx context.Context, name string) error {
	entries, _, err := s.store.List(ctx, keyTokens)
	if err != nil {
		return unavailable(err)
	}
	for _, entry := range entries {
		var token tokenRecord
		if err := decodeRecord(entry, &token); err != nil {
			return err
		}
		if token.Name == name {
			if _, err := s.store.Commit(ctx, new(cluster.Txn).Delete(entry.Key)); err != nil {
				return unstored(err)
			}
		}
	}
	return nil
}

// forget removes a forwarder's state, and its name, if that was voided at this revision and has not joined again.
func (s *Server) forget(ctx context.Context, name string, revision int64) error {
	void := func() *cluster.Txn { return new(cluster.Txn).At(keyMembers+name, revision) }
	configs, err := s.store.Names(ctx, keyConfigs+name+"/")
	if err != nil {
		return unavailable(err)
	}
	for _, key := range configs { // one by one: etcd bounds the size of a transaction
		projectKey := keyProjects + nameOf(key, keyConfigs+name+"/")
		_, err := s.retry(ctx, func() (*cluster.Txn, error) {
			record, entry, err := read[project](ctx, s.store, projectKey)
			if err != nil {
				return nil, err
			}
			txn := void().Delete(key)
			if entry.Revision != 0 {
				txn.Unchanged(entry).Put(projectKey, encode(record.with(name, usage{})), 0)
			}
			return txn, nil
		})
		if err != nil {
			return err
		}
	}
	var rest []string
	for _, begin := range []string{keyPrevious, keyRefusals, keyDrains} {
		keys, err := s.store.Names(ctx, begin+name+"/")
		if err != nil {
			return unavailable(err)
		}
		rest = append(rest, keys...)
	}
	rest = append(rest, keyDesired+name, keyStatus+name, keyPrune+name, keyLoads+name, keyLost+name, keyGroupOf+name, keyNodes+name, keyJudged+name, keyForgotten+name, keyTrust+memberTrust+name)
	for keys := range slices.Chunk(rest, maxOperations) {
		txn := void()
		for _, key := range keys {
			txn.Delete(key)
		}
		if _, err := s.store.Commit(ctx, txn); err != nil {
			return unstored(err)
		}
	}
	_, err = s.store.Commit(ctx, void().Delete(keyMembers+name))
	if err != nil {
		return unstored(err)
	}
	return nil
}

// ReplaceController implements the service.
func (s *Server) ReplaceController(ctx context.Context, request *connect.Request[pb.ReplaceControllerRequest]) (
	*connect.Response[pb.ReplaceControllerResponse], error) {
	caller, name := from(ctx), request.Msg.GetName()
	if !caller.admin() {
		return nil, denied("only an admin replaces controllers, and %s is none", caller)
	}
	if _, err := s.store.Commit(ctx, s.record(new(cluster.Txn), caller.String(), "replace controller", "", "", name)); err != nil {
		return nil, unstored(err)
	}
	if err := s.store.Replace(ctx, name); err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return connect.NewResponse(&pb.ReplaceControllerResponse{}), nil
}
