// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"steelyard/internal/config"
	"steelyard/internal/gen/agentpb/agentpbconnect"

	"connectrpc.com/connect"
)

// Limits of requests. Clients are on this host, so a request is slow only if its client is.
const (
	maxRequestBytes = 64 << 10                    // for most methods
	maxFileRequest  = config.MaxFileBytes + 1<<20 // for methods that carry a file, with the message around it
	maxFileRequests = 2                           // concurrent requests with a file
	readTimeout     = 30 * time.Second
)

// carriesFile lists the methods whose request contains a file.
var carriesFile = map[string]bool{
	agentpbconnect.AgentServiceApplyConfigProcedure: true,
	agentpbconnect.AgentServiceDiffConfigProcedure:  true,
}

// Limits of the reading socket: its clients share the forwarder's connections with the agent.
const (
	maxReaders    = 4                // concurrent requests
	answerTimeout = 40 * time.Second // to produce the answer, and for the client to read it
)

// NewHandler returns the handler of the agent's socket. It reads a request completely before it is decoded, and only up to the method's limit. Requests
// are not compressed, because the socket is local, so the limit bounds the memory of a request.
func NewHandler(server *Server) http.Handler {
	handler := newService(server)
	files := make(chan struct{}, maxFileRequests)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit := int64(maxRequestBytes)
		if carriesFile[r.URL.Path] {
			limit = maxFileRequest
			if !enter(r, files) {
				return
			}
			defer func() { <-files }()
		}
		serveWhole(w, r, limit, handler)
	})
}

// NewReadingHandler returns the handler of the reading socket: only methods that the contract marks NO_SIDE_EFFECTS, and few of them at a time. missing
// describes the right that other methods need.
func NewReadingHandler(server *Server, missing func() string) http.Handler {
	onlyReading := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
			if request.Spec().IdempotencyLevel != connect.IdempotencyNoSideEffects {
				return nil, connect.NewError(connect.CodePermissionDenied, errors.New(missing()))
			}
			return next(ctx, request)
		}
	})
	service := newService(server, connect.WithInterceptors(onlyReading))
	readers := make(chan struct{}, maxReaders)
	// Waits only once the whole request has arrived, so that a slow sender delays no other.
	inTurn := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !enter(r, readers) {
			return
		}
		defer func() { <-readers }()
		controller := http.NewResponseController(w)
		_ = controller.SetWriteDeadline(time.Now().Add(answerTimeout)) // not supported by recorders in tests
		service.ServeHTTP(w, r)
		_ = controller.SetWriteDeadline(time.Time{})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serveWhole(w, r, maxRequestBytes, inTurn)
	})
}

func newService(server *Server, more ...connect.HandlerOption) http.Handler {
	more = append(more, connect.WithReadMaxBytes(maxFileRequest), connect.WithCompression("gzip", nil, nil))
	_, handler := agentpbconnect.NewAgentServiceHandler(server, more...)
	return handler
}

// enter waits for a slot; false: the client has disconnected.
func enter(r *http.Request, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-r.Context().Done():
		return false
	}
}

// serveWhole reads the request and then calls handler.
func serveWhole(w http.ResponseWriter, r *http.Request, limit int64, handler http.Handler) {
	body, err := readBody(w, r, limit)
	if err != nil {
		writeError(w, r, err)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	handler.ServeHTTP(w, r)
}

// readBody reads a whole request. Its deadline does not apply to later operations.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	controller := http.NewResponseController(w)
	_ = controller.SetReadDeadline(time.Now().Add(readTimeout)) // not supported by recorders in tests
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	_ = controller.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return nil, connect.NewError(connect.CodeResourceExhausted,
			fmt.Errorf("the request has more than %d bytes: a file may have %d", large.Limit, config.MaxFileBytes))
	}
	return body, err
}

func writeError(w http.ResponseWriter, r *http.Request, err error) {
	_ = connect.NewErrorWriter().Write(w, r, err)
}
