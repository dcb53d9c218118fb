// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"steelyard/internal/cluster"
	pb "steelyard/internal/gen/controllerpb"

	"connectrpc.com/connect"
)

// Bounds of watches.
const (
	maxWatches   = 256  // per controller
	maxWatchesOf = 32   // per member
	watchBehind  = 1024 // events that a caller may lag behind
)

// Why a watch ends.
var (
	errRemoved = connect.NewError(connect.CodeUnauthenticated, errors.New("the caller was removed, or has joined again from another host"))
	errSlow    = connect.NewError(connect.CodeOutOfRange, errors.New("the caller reads events too slowly: list, and watch from that revision"))
)

// watcher is a caller's open watch.
type watcher struct {
	caller principal
	end    context.CancelCauseFunc
}

// Watch implements the service.
func (s *Server) Watch(ctx context.Context, request *connect.Request[pb.WatchRequest], stream *connect.ServerStream[pb.WatchResponse]) error {
	return follow(ctx, s, "", func(ctx context.Context) (int64, error) {
		after := request.Msg.GetAfterRevision()
		if after == 0 {
			var err error
			if _, after, err = s.store.List(ctx, keyControllers); err != nil {
				return 0, unavailable(err)
			}
		}
		// The first message has the start revision: a caller whose connection was cut resumes from its last revision.
		return after, stream.Send(&pb.WatchResponse{Revision: after, What: "watching"})
	}, func(event cluster.Event) (*pb.WatchResponse, error) { return describe(event), nil }, stream.Send)
}

// follow sends a caller the messages of begin, and then the changes after the revision that begin returns. describe converts a change; nil: it
// produces no message.
func follow[T any](ctx context.Context, s *Server, prefix string, begin func(context.Context) (int64, error),
	describe func(cluster.Event) (*T, error), send func(*T) error) error {
	caller := from(ctx)
	if !caller.mayRead() {
		return denied("%s may not read", caller)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	stop := context.AfterFunc(s.ctx, func() { end(s.ctx.Err()) })
	defer stop()
	leave, err := s.enterWatch(&watcher{caller, end})
	if err != nil {
		return err
	}
	defer leave()
	err = s.stillMember(ctx, caller) // the membership may have ended before the watch was registered
	var after int64
	if err == nil {
		after, err = begin(ctx)
	}
	if err != nil {
		if ctx.Err() != nil { // the cause of the end, not the store's error about a context
			return context.Cause(ctx)
		}
		return err
	}
	events := make(chan *T, watchBehind)
	go func() {
		err := s.store.Watch(ctx, prefix, after, func(event cluster.Event) {
			message, err := describe(event)
			if err != nil {
				end(err)
			}
			if message == nil {
				return
			}
			select {
			case events <- message:
			default: // never block: etcd's client would buffer events without a bound
				end(errSlow)
			}
		})
		if errors.Is(err, cluster.ErrGone) {
			err = connect.NewError(connect.CodeOutOfRange, err)
		}
		end(err)
	}()
	for {
		select {
		case message := <-events:
			if err := send(message); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// enterWatch registers a watch, so that it is counted and can be ended.
func (s *Server) enterWatch(one *watcher) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watchers) >= maxWatches {
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("this controller serves %d watches already: use another controller", maxWatches))
	}
	if one.caller.revision != 0 { // a member: neither a user of the Unix socket nor a controller
		own := 0
		for other := range s.watchers {
			if other.caller.revision != 0 && other.caller.Name == one.caller.Name {
				own++
			}
		}
		if own >= maxWatchesOf {
			return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%s has %d watches here already: end some", one.caller, maxWatchesOf))
		}
	}
	s.watchers[one] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, one)
	}, nil
}

// stillMember fails if a caller's authority or membership has ended since it was identified.
func (s *Server) stillMember(ctx context.Context, caller principal) error {
	if err := s.authorities.Load().check(caller, s.now()); err != nil {
		return err
	}
	if caller.revision == 0 { // a user of the Unix socket, or a controller
		return nil
	}
	entry, err := s.store.Get(ctx, keyMembers+caller.Name.Name)
	if err != nil {
		return unavailable(err)
	}
	if entry.Revision != caller.revision {
		return errRemoved
	}
	return nil
}

// endWatches ends the watches of a member that has changed; "": of any member that has changed since its caller was identified, as events may have
// been missed. revision: the member's entry as it is now. The caller holds mu.
func (s *Server) endWatches(name string, revision int64) {
	for one := range s.watchers {
		switch {
		case one.caller.revision == 0:
		case name == one.caller.Name.Name && revision > one.caller.revision:
			one.end(errRemoved)
		case name == "":
			go func() {
				if err := s.stillMember(s.ctx, one.caller); err != nil {
					one.end(err)
				}
			}()
		}
	}
}

// describe returns the message of a change in the store, or nil.
func describe(event cluster.Event) *pb.WatchResponse {
	kind, name, _ := strings.Cut(event.Key, "/")
	message := &pb.WatchResponse{Revision: event.Revision, Forwarder: name}
	switch kind + "/" {
	case keyDesired:
		message.What = "desired"
	case keyStatus:
		var now status
		if event.Deleted || json.Unmarshal(event.Value, &now) != nil {
			return nil
		}
		message.What, message.Detail = "status", fmt.Sprintf("revision %d", now.Applied)
		if now.Error != "" {
			message.Detail += ": " + now.Error
		}
	case keyRefusals:
		var now refusal
		if event.Deleted || json.Unmarshal(event.Value, &now) != nil {
			return nil
		}
		forwarder, project, _ := strings.Cut(name, "/")
		message.Forwarder, message.What = forwarder, "taken-back"
		message.Detail = fmt.Sprintf("revision %d of the project %s: %s", now.Revision, project, now.Error)
	case keyDrains, keyMoving:
		var now drainRecord
		if event.Deleted || json.Unmarshal(event.Value, &now) != nil {
			return nil
		}
		place, server, _ := strings.Cut(name, "/")
		if message.Forwarder = place; kind+"/" == keyMoving {
			message.Forwarder = ""
		}
		message.What, message.Detail = now.order().String(), server
	case keyOwners:
		var now owner
		if message.What = "owner-gone"; !event.Deleted {
			message.What = "owner"
			_ = json.Unmarshal(event.Value, &now) // if it is unreadable, the event has no detail
			message.Detail = now.URL
		}
	case keyMembers:
		var now member
		if message.What = "removed"; !event.Deleted {
			if json.Unmarshal(event.Value, &now) != nil || now.Key == "" {
				return nil // the member is being removed
			}
			message.What = "joined"
		}
	case keyRequests:
		message.Forwarder, message.What, message.Detail = describeRequest(event)
	case keyGroups:
		if message.Forwarder, message.What, message.Detail = "", "group", name; event.Deleted {
			message.Detail += ": removed"
		}
	case keyTakeovers:
		var now takeover
		_, message.Forwarder, _ = strings.Cut(name, "/")
		if message.What = eventReturn; !event.Deleted {
			if json.Unmarshal(event.Value, &now) != nil {
				return nil
			}
			message.What, message.Detail = eventTakeover, now.Detail
		}
	case keyLost:
		if message.What = eventBack; !event.Deleted {
			message.What, message.Detail = eventLost, string(event.Value)
		}
	case keySpare + "/":
		if message.What = "spare-missing"; event.Deleted {
			message.What = "spare"
		}
		message.Detail = string(event.Value)
	default:
		return nil
	}
	return message
}
