// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"steelyard/internal/gen/agentpb/agentpbconnect"
)

func post(t *testing.T, url string, body []byte, header http.Header) (int, string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/proto")
	for name, values := range header {
		request.Header[name] = values
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var text bytes.Buffer
	_, _ = text.ReadFrom(response.Body)
	return response.StatusCode, text.String()
}

func TestRequestsAreLimited(t *testing.T) {
	web := httptest.NewServer(NewHandler(&Server{}))
	defer web.Close()
	for procedure, size := range map[string]int{
		agentpbconnect.AgentServiceListSessionsProcedure: maxRequestBytes + 1,
		agentpbconnect.AgentServiceSetDrainProcedure:     maxRequestBytes + 1,
		agentpbconnect.AgentServiceApplyConfigProcedure:  maxFileRequest + 1,
	} {
		code, text := post(t, web.URL+procedure, make([]byte, size), nil)
		if code != http.StatusTooManyRequests || !strings.Contains(text, "resource_exhausted") {
			t.Errorf("%s: %d %s", procedure, code, text)
		}
	}
}

// Few bytes do not become many.
func TestCompressedRequestsAreRefused(t *testing.T) {
	web := httptest.NewServer(NewHandler(&Server{}))
	defer web.Close()
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, _ = writer.Write(make([]byte, 32<<20))
	_ = writer.Close()
	code, text := post(t, web.URL+agentpbconnect.AgentServiceApplyConfigProcedure, packed.Bytes(),
		http.Header{"Content-Encoding": {"gzip"}})
	if code != http.StatusNotImplemented || !strings.Contains(text, "unimplemented") {
		t.Errorf("%d %s", code, text)
	}
}
