// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	pb "steelyard/internal/gen/controllerpb"

	"connectrpc.com/connect"
)

func TestControllersShareTheWork(t *testing.T) {
	urls := []string{"https://c1:7443", "https://c2:7443", "https://c3:7443"}
	first, second := map[string]int{}, map[string]int{}
	for i := range 300 {
		name := fmt.Sprintf("f%d", i)
		ordered := order(name, urls)
		first[ordered[0]]++
		if again := order(name, []string{urls[2], urls[0], urls[1]}); !slices.Equal(again, ordered) {
			t.Fatalf("%s: %v, and in another input order %v", name, ordered, again)
		}
		// Without its controller, a member connects where it would without that controller in the list.
		if left := order(name, slices.DeleteFunc(slices.Clone(urls), func(u string) bool { return u == ordered[0] })); left[0] != ordered[1] {
			t.Fatalf("%s: %v, then %v", name, ordered, left)
		}
		if ordered[0] == urls[0] {
			second[ordered[1]]++
		}
	}
	for _, url := range urls {
		if first[url] < 70 || first[url] > 130 {
			t.Errorf("%s is the first of %d of 300: %v", url, first[url], first)
		}
	}
	if second[urls[1]] < 25 || second[urls[2]] < 25 {
		t.Errorf("those of %s would go to %v", urls[0], second)
	}
}

func TestOnlyRefusalsAreForEver(t *testing.T) {
	invalid := func(err error) error { return connect.NewError(connect.CodeInvalidArgument, err) }
	for name, test := range map[string]struct {
		err  error
		has  bool
		want pb.SetDesiredResponse_Outcome
	}{
		"good":                    {nil, true, pb.SetDesiredResponse_OUTCOME_APPLIED},
		"refused":                 {invalid(errors.New("no")), false, pb.SetDesiredResponse_OUTCOME_REFUSED},
		"refused later":           {invalid(errors.New("no")), true, pb.SetDesiredResponse_OUTCOME_REFUSED},
		"no forwarder":            {connect.NewError(connect.CodeUnavailable, errors.New("away")), true, pb.SetDesiredResponse_OUTCOME_LOADED},
		"a full disk":             {invalid(&fs.PathError{Op: "write", Err: syscall.ENOSPC}), false, pb.SetDesiredResponse_OUTCOME_FAILED},
		"a file that is not here": {invalid(&fs.PathError{Op: "open", Err: syscall.ENOENT}), false, pb.SetDesiredResponse_OUTCOME_REFUSED},
		"cancelled":               {context.Canceled, false, pb.SetDesiredResponse_OUTCOME_FAILED},
	} {
		if got := outcomeOf(test.err, test.has); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestLearnedControllersAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "controllers")
	m := &Member{Log: slog.New(slog.DiscardHandler)}
	m.Remember(path)
	for i := range 2 * maxLearned {
		m.Know([]string{fmt.Sprintf("https://c%d:7443", i), "https://two words", strings.Repeat("x", maxURL+1)})
	}
	again := &Member{Log: m.Log}
	again.Remember(path)
	if len(again.learned) != maxLearned || again.learned[0] != "https://c127:7443" || !slices.Equal(again.learned, m.learned) {
		t.Errorf("%d: %v", len(again.learned), again.learned)
	}
}
