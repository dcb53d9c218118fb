// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"testing"
)

func TestQueriesAreHidden(t *testing.T) {
	for path, want := range map[string]string{
		"/healthz": "/healthz", "/healthz?": "/healthz?…", "/healthz?token=a?b": "/healthz?…", "": "", "?x": "?…",
	} {
		if got := HideQuery(path); got != want {
			t.Errorf("%q: %q", path, got)
		}
	}
}

func TestQueriesAreHiddenInTexts(t *testing.T) {
	const path = `/healthz?token=s3cr%2Ft"0123&n=7`
	for text, want := range map[string]string{
		"GET " + path + " HTTP/1.1":              "GET /healthz?… HTTP/1.1",
		fmt.Sprintf("malformed %q", "GET "+path): `malformed "GET /healthz?…"`,
		`401 s3cr%2Ft"0123 is wrong`:             "401 … is wrong",
		`401 s3cr/t"0123 is wrong`:               "401 … is wrong",
		"no answer from 10.1.0.11:7 within 1s":   "no answer from 10.1.0.11:7 within 1s",
	} {
		if got := HideQueryIn(text, path); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	for _, without := range []string{"/healthz", "/healthz?"} {
		if got := HideQueryIn("why? because", without); got != "why? because" {
			t.Errorf("%s: %q", without, got)
		}
	}
}
