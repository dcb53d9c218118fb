// SPDX-License-Identifier: Apache-2.0

package version

import (
	"os"
	"regexp"
	"testing"
)

func TestAgentAndForwarderAreOfOneVersion(t *testing.T) {
	text, err := os.ReadFile("../../meson.build")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?s)project\([^)]*?\bversion: '([^']+)'`).FindSubmatch(text)
	if found == nil || string(found[1]) != Build {
		t.Errorf("meson.build says %q, version.Build is %q: make them the same", found, Build)
	}
}
