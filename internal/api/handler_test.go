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

// What is nested deeply is refused before it takes a stack that deep: groups in protobuf, and JSON.
func TestDeepRequestsAreRefused(t *testing.T) {
	web := httptest.NewServer(NewHandler(&Server{}))
	defer web.Close()
	const depth = 60000
	for kind, body := range map[string]string{
		"application/proto": strings.Repeat("\xa3\x38", depth/2), // field 900 begins a group
		"application/json":  strings.Repeat(`{"x":`, depth/5),
		"application/json;": strings.Repeat("[", depth),
	} {
		code, text := post(t, web.URL+agentpbconnect.AgentServiceListSessionsProcedure, []byte(body),
			http.Header{"Content-Type": {strings.TrimSuffix(kind, ";")}})
		if code != http.StatusBadRequest || !strings.Contains(text, "invalid_argument") {
			t.Errorf("%s: %d %.200s", kind, code, text)
		}
	}
}

// A GET has its message in the address, compressed if it says so.
func TestCompressedGetsAreRefused(t *testing.T) {
	web := httptest.NewServer(NewHandler(&Server{}))
	defer web.Close()
	response, err := http.Get(web.URL + agentpbconnect.AgentServiceListSessionsProcedure +
		"?connect=v1&encoding=proto&compression=gzip&base64=1&message=H4sIAAAAAAAA")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusNotImplemented {
		t.Error(response.Status)
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
