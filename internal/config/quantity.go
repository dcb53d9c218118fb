// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"steelyard/internal/model"
)

// Numbers with decimal prefixes, parsed exactly, without floating point.

// quantity is a number with an optional prefix, or of bytes.
type quantity struct {
	n      uint64
	bytes  bool // written with B
	prefix bool // written with k, M or G
}

var (
	errNoNumber = errors.New("not a number")
	errFraction = errors.New("not a whole number")
	errTooLarge = errors.New("too large")
)

// zeroError is the error of a number that begins with 0.
type zeroError struct{ error }

// decimalDigits are the digits that a prefix stands for.
var decimalDigits = map[string]int{"": 0, "k": 3, "M": 6, "G": 9}

// parseDecimal reads "1500", "1.5k" or "2G".
func parseDecimal(text string) (n uint64, prefix string, err error) {
	end := strings.LastIndexAny(text, "0123456789.") + 1
	number, prefix := text[:end], text[end:]
	digits, known := decimalDigits[prefix]
	whole, part, point := strings.Cut(number, ".")
	if !known || whole == "" || point && part == "" || strings.ContainsFunc(whole+part, func(r rune) bool { return r < '0' || r > '9' }) {
		return 0, prefix, errNoNumber
	}
	if err := checkDecimal(number); err != nil {
		return 0, prefix, zeroError{err}
	}
	part = strings.TrimRight(part, "0")
	if len(part) > digits {
		return 0, prefix, errFraction
	}
	n, err = strconv.ParseUint(whole+part+strings.Repeat("0", digits-len(part)), 10, 64)
	if err != nil {
		return 0, prefix, errTooLarge
	}
	return n, prefix, nil
}

// shortNumber formats the bound of a range as users write it: 400G.
func shortNumber(n uint64) string {
	for _, prefix := range []string{"G", "M", "k"} {
		zeros := strings.Repeat("0", decimalDigits[prefix])
		if text, ok := strings.CutSuffix(strconv.FormatUint(n, 10), zeros); ok && text != "" {
			return text + prefix
		}
	}
	return strconv.FormatUint(n, 10)
}

// parseRate parses a rate: a number with a decimal prefix.
func parseRate(unit model.LimitUnit) func(string) (uint64, error) {
	low, high := rateRanges[unit].low, rateRanges[unit].high
	return func(text string) (uint64, error) {
		n, _, err := parseDecimal(text)
		switch {
		case errors.As(err, new(zeroError)):
			return 0, err
		case errors.Is(err, errFraction):
			return 0, fmt.Errorf("%s is not a whole number per second: write fewer decimals", text)
		case errors.Is(err, errNoNumber):
			return 0, rateHint(text, unit)
		case err != nil || n < low || n > high:
			return 0, fmt.Errorf("%s is out of range: use %s to %s", text, shortNumber(low), shortNumber(high))
		}
		return n, nil
	}
}

// parseQuantity parses a number with a decimal prefix, optionally with B.
func parseQuantity(text string) (quantity, error) {
	number, bytes := strings.CutSuffix(text, "B")
	n, prefix, err := parseDecimal(number)
	switch {
	case errors.As(err, new(zeroError)):
		return quantity{}, err
	case errors.Is(err, errFraction):
		return quantity{}, fmt.Errorf("%s is not a whole number: write fewer decimals", text)
	case errors.Is(err, errTooLarge):
		return quantity{}, fmt.Errorf("%s is out of range: use at most %sB", text, shortNumber(maxBurstBytes))
	case err != nil:
		return quantity{}, quantityHint(text)
	}
	return quantity{n, bytes, prefix != ""}, nil
}
