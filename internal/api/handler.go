// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"steelyard/internal/config"
	"steelyard/internal/gen/agentpb/agentpbconnect"

	"connectrpc.com/connect"
)

// Limits of what clients send. They are on this host, and a request that takes longer is not under way.
const (
	maxRequestBytes = 64 << 10                    // of most methods
	maxFileRequest  = config.MaxFileBytes + 1<<20 // of those that carry a file, with the message around it
	maxFileRequests = 2                           // of those, at a time
	readTimeout     = 30 * time.Second
)

// carriesFile lists the methods whose request contains a file.
var carriesFile = map[string]bool{
	agentpbconnect.AgentServiceApplyConfigProcedure: true,
	agentpbconnect.AgentServiceDiffConfigProcedure:  true,
}

// NewHandler returns the handler of the agent's socket. It reads a request as a whole before anything
// looks at it, and only up to the method's limit. There is no compression, which a socket of this host
// does not need: a request has as many bytes in memory as were sent.
func NewHandler(server *Server) http.Handler {
	_, handler := agentpbconnect.NewAgentServiceHandler(server,
		connect.WithReadMaxBytes(maxFileRequest), connect.WithCompression("gzip", nil, nil))
	files := make(chan struct{}, maxFileRequests)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit := int64(maxRequestBytes)
		if carriesFile[r.URL.Path] {
			limit = maxFileRequest
			select {
			case files <- struct{}{}:
				defer func() { <-files }()
			case <-r.Context().Done():
				return
			}
		}
		body, err := readBody(w, r, limit)
		if err != nil {
			writeError(w, r, err)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		handler.ServeHTTP(w, r)
	})
}

// readBody reads a whole request; its deadline holds for nothing after it.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	controller := http.NewResponseController(w)
	_ = controller.SetReadDeadline(time.Now().Add(readTimeout)) // not supported by recorders in tests
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	_ = controller.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return nil, connect.NewError(connect.CodeResourceExhausted,
			fmt.Errorf("the request has more than %d bytes", large.Limit))
	}
	return body, err
}

func writeError(w http.ResponseWriter, r *http.Request, err error) {
	_ = connect.NewErrorWriter().Write(w, r, err)
}
