// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"steelyard/internal/model"
)

// Hints for numbers with a unit, as people and other programs write them: 10Mbit, 10 Mbit/s, 1.5 Mpps, 64 KiB. In the file, a number has k, M or G,
// and the key has the unit.

// writtenNumber matches a number, a prefix, and a unit, without spaces and what follows a slash.
var writtenNumber = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?(?:[eE]\+?[0-9]+)?)([kKmMgGtT]?)(i?)([A-Za-z]*)$`)

// perSecond matches the end of a rate's unit.
var perSecond = regexp.MustCompile(`(?i)(/s|/sec|/second|persecond)$`)

// countedBy maps a unit in lower case to what it counts; "" stands for any unit, bytes for one that no limit counts.
var countedBy = map[string]string{
	"": "", "b": "bits", "bit": "bits", "bits": "bits", "bps": "bits", "bitps": "bits", "bitsps": "bits",
	"byte": "bytes", "bytes": "bytes", "byteps": "bytes", "bytesps": "bytes",
	"p": "packets", "pps": "packets", "pkt": "packets", "pkts": "packets", "packet": "packets", "packets": "packets",
	"cps": "sessions", "conn": "sessions", "conns": "sessions", "connections": "sessions", "session": "sessions", "sessions": "sessions",
}

// written is a number with a unit, as a user wrote it.
type written struct {
	n      float64
	binary bool
	counts string // a value of countedBy
}

// readWritten parses such a number. Returns false if the text is not one.
func readWritten(text string) (written, bool) {
	text = strings.NewReplacer(" ", "", "_", "").Replace(text)
	if strings.Count(text, ",") == 1 && !strings.Contains(text, ".") {
		text = strings.Replace(text, ",", ".", 1)
	}
	parts := writtenNumber.FindStringSubmatch(perSecond.ReplaceAllString(text, ""))
	if parts == nil {
		return written{}, false
	}
	n, err := strconv.ParseFloat(parts[1], 64)
	if err != nil {
		return written{}, false
	}
	w := written{n: n * math.Pow10(3*strings.Index(" KMGT", strings.ToUpper(parts[2]))), binary: parts[3] != ""}
	var known bool
	if w.counts, known = countedBy[strings.ToLower(parts[4])]; parts[4] == "B" || parts[4] == "Bps" {
		w.counts = "bytes"
	}
	return w, known && (!w.binary || parts[2] != "")
}

// shortest formats a number with the shortest prefix. Returns "" if it is not whole, or too large.
func shortest(n float64) string {
	if n != math.Trunc(n) || n < 1 || n > 1e15 {
		return ""
	}
	best := strconv.FormatFloat(n, 'f', -1, 64)
	for _, prefix := range []string{"G", "M", "k"} {
		unit := math.Pow10(decimalDigits[prefix])
		text := strconv.FormatFloat(n/unit, 'f', -1, 64) + prefix
		if again, _, err := parseDecimal(text); n >= unit && err == nil && float64(again) == n && len(text) < len(best) {
			best = text
		}
	}
	return best
}

// rateWords are the nouns of a rate's units.
var rateWords = [4]string{model.LimitBits: "bits", model.LimitPackets: "packets", model.LimitSessions: "sessions"}

// rateHint explains what is wrong with a rate.
func rateHint(text string, unit model.LimitUnit) error {
	w, ok := readWritten(text)
	switch {
	case !ok:
	case w.binary:
		return fmt.Errorf("%q has a binary prefix: write k, M or G, which are powers of 1000", text)
	case w.counts == "bytes" && unit == model.LimitBits && shortest(8*w.n) != "":
		return fmt.Errorf("%q are bytes, and the rate counts bits: did you mean %s?", text, shortest(8*w.n))
	case w.counts != "" && w.counts != rateWords[unit]:
		return fmt.Errorf("%q are %s, and the rate counts %s: write a number, alone or with k, M or G, such as 500 or 1.5k",
			text, w.counts, rateWords[unit])
	case shortest(w.n) != "":
		return fmt.Errorf("%q is not a rate: did you mean %s?", text, shortest(w.n))
	}
	return fmt.Errorf("%q is not a rate: write a number, alone or with k, M or G, such as 500, 800k or 1.5G", text)
}

// quantityHint explains what is wrong with a burst or batch.
func quantityHint(text string) error {
	w, ok := readWritten(text)
	short := shortest(w.n)
	switch {
	case !ok:
	case w.binary:
		return fmt.Errorf("%q has a binary unit: write kB, MB or GB, which are powers of 1000", text)
	case w.counts == "bits" && !strings.HasSuffix(text, "b") && shortest(w.n/8) != "":
		return fmt.Errorf("%q are bits, and bytes are counted here: did you mean %sB?", text, shortest(w.n/8))
	case short == "":
	case w.counts == "bytes" || w.counts == "bits":
		return fmt.Errorf("%q is not an amount: did you mean %sB?", text, short)
	default:
		return fmt.Errorf("%q is not an amount: did you mean %s?", text, short)
	}
	return fmt.Errorf("%q is not an amount: write bytes like 64kB or 2MB; packets and sessions like 500 or 2k", text)
}
