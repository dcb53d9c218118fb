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
	maxWatches   = 256  // of this controller
	maxWatchesOf = 32   // of them, of one member
	watchBehind  = 1024 // events that a caller may be behind
)

// Why a watch ends.
var (
	errRemoved = connect.NewError(connect.CodeUnauthenticated, errors.New("the caller was removed, or has joined again from elsewhere"))
	errSlow    = connect.NewError(connect.CodeOutOfRange, errors.New("the caller takes events too slowly: list, and watch from there"))
)

// watcher is a caller's open watch.
type watcher struct {
	caller
	end context.CancelCauseFunc
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
		// The first one says from where: a caller that was cut off goes on from the last revision that it has.
		return after, stream.Send(&pb.WatchResponse{Revision: after, What: "watching"})
	}, func(event cluster.Event) (*pb.WatchResponse, error) { return describe(event), nil }, stream.Send)
}

// follow sends a caller what begin sends, and then what changes after the revision that begin returns. describe makes a message of a change;
// nil: it is nobody's concern.
func follow[T any](ctx context.Context, s *Server, prefix string, begin func(context.Context) (int64, error),
	describe func(cluster.Event) (*T, error), send func(*T) error) error {
	who := from(ctx)
	if !who.mayRead() {
		return denied("%s may not read", who)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	stop := context.AfterFunc(s.ctx, func() { end(s.ctx.Err()) })
	defer stop()
	leave, err := s.enterWatch(&watcher{who, end})
	if err != nil {
		return err
	}
	defer leave()
	err = s.stillMember(ctx, who) // its end may have come before
	var after int64
	if err == nil {
		after, err = begin(ctx)
	}
	if err != nil {
		if ctx.Err() != nil { // it was ended meanwhile: that is why, not what the store says of a context
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
			default: // never wait: etcd's client would keep what comes meanwhile, without a bound
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

// enterWatch counts a watch, and lets it be ended from elsewhere.
func (s *Server) enterWatch(one *watcher) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watchers) >= maxWatches {
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("this controller serves %d watches already: use another one", maxWatches))
	}
	if one.revision != 0 { // a member: not the socket, nor another controller
		own := 0
		for other := range s.watchers {
			if other.revision != 0 && other.Name == one.Name {
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

// stillMember returns an error if a caller has lost its certificate's authority, or its membership, since it was identified.
func (s *Server) stillMember(ctx context.Context, who caller) error {
	if err := s.authorities.Load().hold(who, s.now()); err != nil {
		return err
	}
	if who.revision == 0 { // the socket, or another controller
		return nil
	}
	entry, err := s.store.Get(ctx, keyMembers+who.Name.Name)
	if err != nil {
		return unavailable(err)
	}
	if entry.Revision != who.revision {
		return errRemoved
	}
	return nil
}

// endWatches ends those of a member that has changed; with mu. "": whoever has changed while nobody looked. What a caller had become when
// it was let in may be heard of only later.
func (s *Server) endWatches(name string, revision int64) {
	for one := range s.watchers {
		switch {
		case one.revision == 0:
		case name == one.Name.Name && revision > one.revision:
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

// describe returns the event of a change in the store; nil: it is nobody's concern.
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
			_ = json.Unmarshal(event.Value, &now) // without it, the event has no detail
			message.Detail = now.URL
		}
	case keyMembers:
		var now member
		if message.What = "removed"; !event.Deleted {
			if json.Unmarshal(event.Value, &now) != nil || now.Key == "" {
				return nil // it is being removed
			}
			message.What = "joined"
		}
	case keyRequests:
		message.Forwarder, message.What, message.Detail = describeRequest(event)
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
