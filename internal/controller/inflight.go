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

// Bounds of what requests hold in memory at a time. Whatever one member sends, the others are served. What is over a bound waits.
const (
	maxInFlight  = 256 // requests of a member
	maxFilesOf   = 2   // of these, ones with a file that is large or compressed
	maxFiles     = 16  // likewise of all members
	maxMessage   = 1 << 20
	smallFile    = 256 << 10 // a request with a file is large from here on
	bodyTimeout  = time.Minute
	maxComputing = 4 // changes that are computed at a time, of which a member has one
)

// files are the methods whose requests carry a file. Only they are larger than maxMessage.
var files = map[string]bool{agentpbconnect.AgentServiceApplyConfigProcedure: true, agentpbconnect.AgentServiceDiffConfigProcedure: true}

// messageLimits bounds requests by their method.
func messageLimits() connect.HandlerOption {
	return connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
		if files[spec.Procedure] {
			return []connect.HandlerOption{connect.WithReadMaxBytes(config.MaxFileBytes + 1<<20)}
		}
		return []connect.HandlerOption{connect.WithReadMaxBytes(maxMessage)}
	})
}

// inFlight bounds the requests of members.
type inFlight struct {
	mu    sync.Mutex
	of    map[string]*share
	files chan struct{}
	// Parsed trees take 1.3 GB for the largest file: it is computed alone.
	computing *semaphore.Weighted
}

// share is what a member's requests hold.
type share struct {
	in                         *inFlight
	member                     string
	holders                    int // with in.mu: requests, also those that wait
	requests, files, computing chan struct{}
}

func newInFlight() *inFlight {
	return &inFlight{of: map[string]*share{}, files: make(chan struct{}, maxFiles), computing: semaphore.NewWeighted(maxComputing)}
}

// enter counts a request, and waits while its member has too many. Returns nil when the request has ended.
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

// hold keeps a share although its requests end.
func (s *share) hold() {
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

// acquire waits for a slot; false: the request has ended.
func acquire(ctx context.Context, slots chan struct{}) bool {
	select {
	case slots <- struct{}{}: // also of a request that has ended: it is served, if nothing is waited for
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

// bounded serves requests of members within their shares. The caller is in the context. This host's users and other controllers have no bounds.
func (s *Server) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := from(r.Context())
		if who.certificate == nil || who.relayed {
			next.ServeHTTP(w, r)
			return
		}
		own, leave := s.inFlight.enter(r.Context(), who.String())
		if own == nil {
			return
		}
		defer leave()
		if files[r.URL.Path] {
			project := r.Header.Get(ProjectHeader)
			if project == "" {
				project = defaultProject
			}
			if r.URL.Path == agentpbconnect.AgentServiceApplyConfigProcedure && !who.mayApply(project) { // its file is not read
				_ = connect.NewErrorWriter().Write(w, r, denied("%s may not apply in the project %s", who, project))
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

// isCompressed reports whether a request says that it is compressed, in any of the protocols: it may become 1000 times as large.
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

// fileBody is the body of a request with a file. From a size on it has a slot, until the request has ended.
type fileBody struct {
	body       io.ReadCloser
	ctx        context.Context
	all, own   chan struct{}
	compressed bool
	read       int
	has        bool
	ended      func() // nothing is read any more
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

// startComputing waits until a change may be computed: a member has one at a time, and a file with many values takes the slots of several.
func (f *inFlight) startComputing(ctx context.Context, text []byte) (done func(), err error) {
	if f == nil { // tests of parts
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

// refusedPause is how long a member waits after a change that a forwarder refused: meanwhile the changes of others reach it.
const refusedPause = time.Second

// delayMember keeps the member of a request from computing another change for a while.
func delayMember(ctx context.Context) {
	own, isMember := ctx.Value(shareKey{}).(*share)
	if isMember && acquire(ctx, own.computing) {
		own.hold()
		time.AfterFunc(refusedPause, func() {
			<-own.computing
			own.release()
		})
	}
}
