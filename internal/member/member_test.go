// SPDX-License-Identifier: Apache-2.0

package member

import (
	"fmt"
	"slices"
	"testing"
)

func TestControllersShareTheWork(t *testing.T) {
	urls := []string{"https://c1:7443", "https://c2:7443", "https://c3:7443"}
	first, second := map[string]int{}, map[string]int{}
	for i := range 300 {
		name := fmt.Sprintf("f%d", i)
		ordered := order(name, urls)
		first[ordered[0]]++
		if again := order(name, []string{urls[2], urls[0], urls[1]}); !slices.Equal(again, ordered) {
			t.Fatalf("%s: %v, and told in another order %v", name, ordered, again)
		}
		// Who loses its controller goes where it would go if that one had never been.
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
