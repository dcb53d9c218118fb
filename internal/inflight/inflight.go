// SPDX-License-Identifier: Apache-2.0

// Package inflight waits for the active requests of HTTP servers: http.Server.Close does not.
package inflight

import (
	"net/http"
	"sync"
)

// Requests counts active requests.
type Requests struct {
	mu     sync.Mutex
	ended  bool
	active sync.WaitGroup
}

func (r *Requests) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false
	}
	r.active.Add(1)
	return true
}

// Handler counts requests to a handler. After the end it answers 503.
func (r *Requests) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if !r.begin() {
			http.Error(w, "this program ends", http.StatusServiceUnavailable)
			return
		}
		defer r.active.Done()
		next.ServeHTTP(w, request)
	})
}

// End refuses new requests, and waits for the active ones. Cancel their contexts first.
func (r *Requests) End() {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.active.Wait()
}
