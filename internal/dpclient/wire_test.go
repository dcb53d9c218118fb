// SPDX-License-Identifier: Apache-2.0

package dpclient_test

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go/parser"
	"go/token"
)

// Tests may act as the forwarder; other packages of the product must not know the wire format.
func TestOnlyThisPackageKnowsTheWireFormat(t *testing.T) {
	const generated = `"steelyard/internal/gen/forwarderpb"`
	allowed := []string{"internal/dpclient", "internal/dpclient/dptest", "internal/gen/agentpb"}
	root := filepath.Join("..", "..")
	knowing := map[string]bool{}
	for _, top := range []string{"cmd", "internal", "tests", "deploy"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			where, err := filepath.Rel(root, filepath.Dir(path))
			for _, one := range file.Imports {
				if one.Path.Value == generated {
					knowing[filepath.ToSlash(where)] = true
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !knowing["internal/dpclient"] {
		t.Error("this package is not found to import the wire format: the test looks in the wrong place")
	}
	for where := range knowing {
		if !slices.Contains(allowed, where) {
			t.Errorf("%s imports %s: let internal/dpclient say what it needs", where, generated)
		}
	}
}
