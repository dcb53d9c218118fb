// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/url"
	"strconv"
	"strings"
)

// Hidden stands for the query of a path: people put tokens there, so it is shown nowhere.
const Hidden = "?…"

// shortestToken is the minimum length of a query's value that is hidden wherever it occurs; shorter ones are words and
// numbers that occur in any text.
const shortestToken = 8

// HideQuery returns a path without its query.
func HideQuery(path string) string {
	before, _, found := strings.Cut(path, "?")
	if !found {
		return path
	}
	return before + Hidden
}

// HideQueryIn removes the query of a path from a text that may quote it, whole or in parts.
func HideQueryIn(text, path string) string {
	_, query, found := strings.Cut(path, "?")
	if !found || query == "" {
		return text
	}
	text = replaceQuoted(text, "?"+query, Hidden)
	for _, word := range append(strings.FieldsFunc(query, func(r rune) bool { return strings.ContainsRune("&;=", r) }), query) {
		plain, err := url.QueryUnescape(word)
		if err != nil {
			plain = word
		}
		for _, secret := range []string{word, plain} {
			if len(secret) >= shortestToken {
				text = replaceQuoted(text, secret, "…")
			}
		}
	}
	return text
}

// replaceQuoted replaces a word as it is, and as %q writes it.
func replaceQuoted(text, word, by string) string {
	quoted := strconv.Quote(word)
	return strings.ReplaceAll(strings.ReplaceAll(text, quoted[1:len(quoted)-1], by), word, by)
}
