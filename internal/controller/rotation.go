// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	"steelyard/internal/cluster"
	pb "steelyard/internal/gen/controllerpb"

	"connectrpc.com/connect"
)

// The replacement of a group's secret, in three steps. Each begins when all nodes apply the one before:
//
//	1  the new one is accepted
//	2  the new one encrypts; the former one is accepted, for SYN cookies too
//	0  the former one is removed
const (
	rotationNone = iota
	rotationAccepts
	rotationEncrypts
)

// secretLife is the life of SYN cookies under the former secret.
const secretLife = 2 * time.Minute

const maxSecretNumber = 255

// RotateGroup implements the service.
func (s *Server) RotateGroup(ctx context.Context, request *connect.Request[pb.RotateGroupRequest]) (*connect.Response[pb.RotateGroupResponse], error) {
	caller, name := from(ctx), request.Msg.GetName()
	if !caller.admin() {
		return nil, denied("only an admin changes groups, and %s is none", caller)
	}
	var next uint32
	_, err := s.retry(ctx, func() (*cluster.Txn, error) {
		keys, entry, err := read[groupKeys](ctx, s.store, keyGroupKeys+name)
		if err != nil {
			return nil, err
		}
		if entry.Revision == 0 {
			return nil, missing("there is no group %q: `steelyard get groups` lists them", name)
		}
		if keys.Step != rotationNone {
			return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("the secret of %s is being replaced already: `steelyard describe group %s` says what that waits for", name, name))
		}
		secret, err := randomHex(secretBytes)
		if err != nil {
			return nil, err
		}
		next = keys.Secrets[0].ID%maxSecretNumber + 1
		keys.Secrets, keys.Step = append(keys.Secrets, groupSecret{next, secret}), rotationAccepts
		return s.record(new(cluster.Txn).Unchanged(entry).Put(entry.Key, encode(keys), 0), caller.String(), "rotate group", "", "", fmt.Sprintf("%s: secret %d", name, next)), nil
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.RotateGroupResponse{Secret: next}), nil
}

// rotation returns what the replacement of the secret waits for; "": there is none.
func (v *groupView) rotation() string {
	if v.keys.Step == rotationNone {
		return ""
	}
	var waits []string
	for _, name := range v.Forwarders() {
		if !v.has(name) {
			waits = append(waits, name)
		}
	}
	switch what := fmt.Sprintf("step %d of 3", v.keys.Step); {
	case len(waits) > 0:
		return what + ": waits for " + strings.Join(waits, ", ")
	case v.keys.Step == rotationEncrypts:
		return what + ": the former secret ends when SYN cookies of it have expired"
	default:
		return what
	}
}

// next returns the keys of the next step.
func (k groupKeys) next() groupKeys {
	switch k.Step {
	case rotationAccepts:
		return groupKeys{k.SlotKey, []groupSecret{k.Secrets[1], k.Secrets[0]}, rotationEncrypts}
	default:
		return groupKeys{k.SlotKey, k.Secrets[:1], rotationNone}
	}
}

// runRotations continues replacements of secrets. Any controller does: each step compares what it was computed from.
func (s *Server) runRotations(ctx context.Context) {
	since := map[string]time.Time{} // since when all nodes apply a step, by group and revision
	for ctx.Err() == nil {
		if err := s.rotate(ctx, since); err != nil && ctx.Err() == nil {
			s.log.Warn("a replacement of a group's secret does not go on", "error", err)
		}
		pause(ctx, s.workflowTick)
	}
}

func (s *Server) rotate(ctx context.Context, since map[string]time.Time) error {
	if s.currentLease() == 0 {
		return nil
	}
	now, err := s.store.Snapshot(ctx, keyGroups, keyGroupKeys, keyNodes, keyOwners)
	if err != nil {
		return err
	}
	for _, entry := range now.List(keyGroups) {
		v, err := readGroup(now, entry)
		if err != nil {
			return err
		}
		keys := now.Get(keyGroupKeys + v.Name)
		step := fmt.Sprintf("%s@%d", v.Name, v.revision)
		if v.keys.Step == rotationNone || strings.Contains(v.rotation(), "waits for") {
			delete(since, step)
			continue
		}
		if since[step].IsZero() {
			since[step] = time.Now()
		}
		if v.keys.Step == rotationEncrypts && time.Since(since[step]) < s.secretLife {
			continue
		}
		delete(since, step)
		next := v.keys.next()
		detail := fmt.Sprintf("group %s: secret %d is accepted by all nodes, and encrypts from now on", v.Name, next.Secrets[0].ID)
		if next.Step == rotationNone {
			detail = fmt.Sprintf("group %s: secret %d is removed", v.Name, v.keys.Secrets[1].ID)
		}
		txn := new(cluster.Txn).Unchanged(entry).Unchanged(keys).Put(keys.Key, encode(next), 0)
		if _, err := s.store.Commit(ctx, s.record(txn, "controller/"+s.id, eventRotation, "", "", detail)); err != nil {
			return err
		}
	}
	return nil
}
