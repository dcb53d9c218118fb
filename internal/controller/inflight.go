// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"steelyard/internal/config"
	"steelyard/internal/gen/agentpb/agentpbconnect"

	"connectrpc.com/connect"
	"golang.org/x/sync/semaphore"
)

// Bounds of the memory of concurrent requests, so that one member cannot starve the others. A request over a bound waits.
const (
	maxInFlight  = 256 // requests per member
	maxFilesOf   = 2   // requests per member with a large or compressed file
	maxFiles     = 16  // likewise, all members together
	maxMessage   = 1 << 20
	smallFile    = 256 << 10 // a file above this size is large
	bodyTimeout  = time.Minute
	maxComputing = 4 // concurrent computations of changes; one per member
)

// files are the methods whose requests carry a file. Only these requests may be larger than maxMessage.
var files = map[string]bool{agentpbconnect.AgentServiceApplyConfigProcedure: true, agentpbconnect.AgentServiceDiffConfigProcedure: true}

// messageLimits bounds the size of requests by their method.
func messageLimits() connect.HandlerOption {
	return connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
		if files[spec.Procedure] {
			return []connect.HandlerOption{connect.WithReadMaxBytes(config.MaxFileBytes + 1<<20)}
		}
		return []connect.HandlerOption{connect.WithReadMaxBytes(maxMessage)}
	})
}

// inFlight bounds the concurrent requests of members.
type inFlight struct {
	mu    sync.Mutex
	of    map[string]*share
	files chan struct{}
	// Parsing the largest file takes 1.3 GB, so it runs alone.
	computing *semaphore.Weighted
}

// share is the state of one member's concurrent requests.
type share struct {
	in                         *inFlight
	member                     string
	holders                    int // guarded by in.mu: requests, including waiting ones
	requests, files, computing chan struct{}
}

func newInFlight() *inFlight {
	return &inFlight{of: map[string]*share{}, files: make(chan struct{}, maxFiles), computing: semaphore.NewWeighted(maxComputing)}
}

// enter counts a request, and waits while its member has too many. Returns nil if the request ends meanwhile.
func (f *inFlight) enter(ctx context.Context, member string) (one *share, leave func()) {
	f.mu.Lock()
	if one = f.of[member]; one == nil {
		one = &share{in: f, member: member, requests: make(chan struct{}, maxInFlight), files: make(chan struct{}, maxFilesOf), computing: make(chan struct{}, 1)}
		f.of[member] = one
	}
	one.holders++
	f.mu.Unlock()
	if !acquire(ctx, one.requests) {
		one.release()
		return nil, nil
	}
	return one, func() {
		<-one.requests
		one.release()
	}
}

// retain keeps a share alive after its requests have ended.
func (s *share) retain() {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	s.holders++
}

func (s *share) release() {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	if s.holders--; s.holders == 0 {
		delete(s.in.of, s.member)
	}
}

// acquire waits for a slot. Returns false if the request ends meanwhile.
func acquire(ctx context.Context, slots chan struct{}) bool {
	select {
	case slots <- struct{}{}: // a free slot serves even a request that has ended
		return true
	default:
	}
	select {
	case slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

type shareKey struct{}

// bounded serves requests of members within their shares. The caller is in the context. Users of the Unix socket and other controllers have no bounds.
func (s *Server) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := from(r.Context())
		if caller.certificate == nil || caller.relayed {
			next.ServeHTTP(w, r)
			return
		}
		own, leave := s.inFlight.enter(r.Context(), caller.String())
		if own == nil {
			return
		}
		defer leave()
		if files[r.URL.Path] {
			project := r.Header.Get(ProjectHeader)
			if project == "" {
				project = defaultProject
			}
			if r.URL.Path == agentpbconnect.AgentServiceApplyConfigProcedure && !caller.mayApply(project) { // before its file is read
				_ = connect.NewErrorWriter().Write(w, r, denied("%s may not apply in the project %s", caller, project))
				return
			}
			body := &fileBody{body: r.Body, ctx: r.Context(), all: s.inFlight.files, own: own.files, compressed: isCompressed(r.Header)}
			defer body.release()
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // not supported by recorders in tests
			body.ended = func() { _ = http.NewResponseController(w).SetReadDeadline(time.Time{}) }
			r.Body = body
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), shareKey{}, own)))
	})
}

// isCompressed reports whether a request is compressed, in any of the protocols. Decompressed it may be 1000 times as large.
func isCompressed(header http.Header) bool {
	for _, name := range []string{"Content-Encoding", "Grpc-Encoding", "Connect-Content-Encoding"} {
		for _, value := range header.Values(name) {
			if value != "" && value != "identity" {
				return true
			}
		}
	}
	return false
}

// fileBody is the body of a request with a file. Above smallFile bytes it acquires a slot, until the request ends.
type fileBody struct {
	body       io.ReadCloser
	ctx        context.Context
	all, own   chan struct{}
	compressed bool
	read       int
	has        bool
	ended      func() // the body is read no further
}

func (b *fileBody) Read(data []byte) (int, error) {
	if !b.has && (b.compressed || b.read > smallFile) {
		if !acquire(b.ctx, b.own) {
			return 0, b.ctx.Err()
		}
		if !acquire(b.ctx, b.all) {
			<-b.own
			return 0, b.ctx.Err()
		}
		b.has = true
	}
	n, err := b.body.Read(data)
	b.read += n
	if errors.Is(err, io.EOF) && b.ended != nil {
		b.ended()
		b.ended = nil
	}
	return n, err
}

func (b *fileBody) Close() error { return b.body.Close() }

func (b *fileBody) release() {
	if b.has {
		<-b.all
		<-b.own
	}
}

// startComputing waits for its member's slot, and for as many of the common slots as the file's values need.
func (f *inFlight) startComputing(ctx context.Context, text []byte) (done func(), err error) {
	if f == nil { // unit tests without a server
		return func() {}, nil
	}
	own, isMember := ctx.Value(shareKey{}).(*share)
	if isMember && !acquire(ctx, own.computing) {
		return nil, unavailable(ctx.Err())
	}
	slots := min(maxComputing, 1+int64(config.Weight(text)*maxComputing))
	if err := f.computing.Acquire(ctx, slots); err != nil {
		if isMember {
			<-own.computing
		}
		return nil, unavailable(err)
	}
	return func() {
		f.computing.Release(slots)
		if isMember {
			<-own.computing
		}
	}, nil
}

// refusedPause is how long a member waits after a change that a forwarder refused, so that changes of other members reach the forwarder.
const refusedPause = time.Second

// delayMember blocks the next computation of a request's member for a while.
func delayMember(ctx context.Context) {
	own, isMember := ctx.Value(shareKey{}).(*share)
	if isMember && acquire(ctx, own.computing) {
		own.retain()
		time.AfterFunc(refusedPause, func() {
			<-own.computing
			own.release()
		})
	}
}
