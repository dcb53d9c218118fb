// SPDX-License-Identifier: Apache-2.0

package inflight

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
)

func TestEndWaitsForActiveRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests Requests
		answer, finished, ended := make(chan struct{}), false, false
		handler := requests.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-answer; finished = true }))
		serve := func() int {
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			return recorder.Code
		}
		go serve()
		synctest.Wait()
		go func() { requests.End(); ended = true }()
		synctest.Wait()
		if finished || ended {
			t.Error("it does not wait")
		}
		if code := serve(); code != http.StatusServiceUnavailable {
			t.Errorf("a later request: %d", code)
		}
		close(answer)
		synctest.Wait()
		if !finished || !ended {
			t.Error("it waits after the last request")
		}
	})
}
