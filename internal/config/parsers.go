// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"steelyard/internal/model"
)

// The parsers of single values. Their errors quote the value and name the remedy.

func parseAddress(text string) (netip.Addr, error) {
	address, err := netip.ParseAddr(text)
	if err != nil {
		if _, err := netip.ParseAddrPort(text); err == nil {
			return address, fmt.Errorf("%q has a port: write it as `port` beside the address", text)
		}
		if prefix, err := netip.ParsePrefix(text); err == nil {
			return address, fmt.Errorf("%q is a prefix: write the address alone, %s", text, prefix.Addr())
		}
		return address, fmt.Errorf("%q is not an address: write one like 10.0.0.80 or fd00::80", text)
	}
	broadcast := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	for _, bad := range []struct {
		is   bool
		what string
	}{
		{address.Zone() != "", "has a zone: use an address that is not link-local"},
		{address.Is4In6(), "is an IPv4-mapped IPv6 address: write " + address.Unmap().String()},
		{address.IsUnspecified(), "is the unspecified address: use one of a host"},
		{address.IsLoopback(), "is a loopback address, which never leaves a host: use another"},
		{address.IsMulticast(), "is a multicast address: use one of a single host"},
		{address.IsLinkLocalUnicast(), "is a link-local address, which no router forwards: use another"},
		{address == broadcast, "is the broadcast address: use one of a single host"},
		{isReserved(address), "is in 0.0.0.0/8 or 240.0.0.0/4, which no host has: use another"},
	} {
		if bad.is {
			return address, fmt.Errorf("%s %s", text, bad.what)
		}
	}
	return address, nil
}

// isReserved reports whether no host can have an IPv4 address (RFC 6890).
func isReserved(address netip.Addr) bool {
	if !address.Is4() {
		return false
	}
	first := address.As4()[0]
	return first == 0 || first >= 240
}

// checkDecimal rejects numbers that YAML versions read differently: 0120 is 120 in YAML 1.2, but an octal number, 80, in YAML 1.1. text may continue
// with a unit or a fraction.
func checkDecimal(text string) error {
	digits := strings.TrimLeft(text, "+-")
	if strings.HasPrefix(text, "+") && digits != "" && digits[0] >= '0' && digits[0] <= '9' {
		return fmt.Errorf("%s has a sign: write %s", text, digits)
	}
	if len(digits) > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9' {
		return fmt.Errorf("%s begins with 0, which YAML 1.1 reads as an octal number: write %s", text, strings.TrimLeft(digits[:len(digits)-1], "0")+digits[len(digits)-1:])
	}
	return nil
}

// parseFloat parses a decimal fraction, but no hexadecimal number, infinity or NaN.
func parseFloat(text string) (float64, error) {
	if strings.ContainsFunc(text, func(r rune) bool { return !strings.ContainsRune("0123456789.eE+-", r) }) {
		return 0, errNoNumber
	}
	return strconv.ParseFloat(text, 64)
}

func parseNumber(low, high int) func(string) (int, error) {
	remedy := fmt.Sprintf("use %d to %d", low, high)
	if low == high {
		remedy = fmt.Sprintf("use %d", low)
	}
	return func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, fmt.Errorf("%q is not a whole number: %s", text, remedy)
		}
		if err := checkDecimal(text); err != nil {
			return 0, err
		}
		if n < low || n > high {
			return 0, fmt.Errorf("%d is out of range: %s", n, remedy)
		}
		return n, nil
	}
}

func parsePort(text string) (uint16, error) {
	port, err := parseNumber(1, 65535)(text)
	return uint16(port), err
}

// portRange is the port part of a model.ServiceKey.
type portRange struct{ first, last uint16 }

func parsePorts(text string) (portRange, error) {
	if text == "all" {
		return portRange{}, nil
	}
	if from, to, ok := strings.Cut(text, "-"); ok && from != "" {
		first, err := parsePort(strings.TrimSpace(from))
		if err != nil {
			return portRange{}, err
		}
		last, err := parsePort(strings.TrimSpace(to))
		if err == nil && last <= first {
			err = fmt.Errorf("%s is no range: write the lower port first, and one port alone as %d", text, first)
		}
		return portRange{first, last}, err
	}
	if _, err := strconv.Atoi(text); err != nil {
		return portRange{}, fmt.Errorf("%q is not a port: write a number, a range like 8000-8099, or all", text)
	}
	port, err := parsePort(text)
	return portRange{first: port}, err
}

func parseWeight(text string) (uint16, error) {
	weight, err := parseNumber(0, 65535)(text)
	return uint16(weight), err
}

func parseBool(text string) (bool, error) {
	switch text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false: write one of them", text)
}

func parseDuration(low, high time.Duration) func(string) (time.Duration, error) {
	return func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration: write a number with its unit, like 500ms, 2s, 15m or 24h", text)
		}
		if err := checkDecimal(text); err != nil {
			return 0, err
		}
		if d < low || d > high {
			return 0, fmt.Errorf("%s is out of range: use %s to %s", text, shortDuration(low), shortDuration(high))
		}
		return d, nil
	}
}

// shortDuration formats 12h0m0s as 12h.
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// maxTimeout keeps idle times below half the range of the forwarder's 16-bit clock in seconds.
const maxTimeout = 9 * time.Hour

func parseTimeout(text string) (uint32, error) {
	d, err := parseDuration(time.Second, maxTimeout)(text)
	if err == nil && d%time.Second != 0 {
		return 0, fmt.Errorf("%s is not in whole seconds: use %s", text, d.Round(time.Second))
	}
	return uint32(d / time.Second), err
}

func parsePercent(high int) func(string) (int, error) {
	return func(text string) (int, error) {
		digits, ok := strings.CutSuffix(text, "%")
		n, err := strconv.Atoi(digits)
		if !ok || err != nil {
			return 0, fmt.Errorf("%q is not a percentage: write one like 10%%", text)
		}
		if err := checkDecimal(text); err != nil {
			return 0, err
		}
		if n < 0 || n > high {
			return 0, fmt.Errorf("%s is out of range: use 0%% to %d%%", text, high)
		}
		return n, nil
	}
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

const maxNameBytes = 63

func parseName(text string) (string, error) {
	if len(text) > maxNameBytes {
		return "", fmt.Errorf("%.20q… has %d bytes: use at most %d", text, len(text), maxNameBytes)
	}
	if !namePattern.MatchString(text) {
		return "", fmt.Errorf("%q is not a name: use letters, digits, '.', '_' and '-', and begin with a "+
			"letter or digit", text)
	}
	return text, nil
}

// parseWord accepts one of the given words.
func parseWord[V fmt.Stringer](words ...V) func(string) (V, error) {
	return func(text string) (V, error) {
		names := make([]string, len(words))
		for i, word := range words {
			if word.String() == text {
				return word, nil
			}
			names[i] = word.String()
		}
		var none V
		return none, fmt.Errorf("%q is unknown: use %s", text, alternatives(names))
	}
}

// alternatives formats words as "a, b or c".
func alternatives(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func parseHealthType(text string) (model.HealthType, error) {
	switch t := model.HealthType(text); t {
	case model.HealthNone, model.HealthTCP, model.HealthHTTP:
		return t, nil
	}
	return "", fmt.Errorf("%q is unknown: use tcp, http or none", text)
}

func parsePath(text string) (string, error) {
	if !strings.HasPrefix(text, "/") {
		return "", fmt.Errorf("%q does not begin with '/': write it like /healthz", text)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '#' }) {
		return "", fmt.Errorf("%q has a character that a request line cannot carry: write it as %%XX", text)
	}
	return text, nil
}

const maxHostBytes = 253 // RFC 1035, section 2.3.4, as text

var hostPattern = regexp.MustCompile(`^[A-Za-z0-9.:_\[\]-]+$`)

func parseHost(text string) (string, error) {
	if len(text) > maxHostBytes || !hostPattern.MatchString(text) {
		return "", fmt.Errorf("%q is not a host name: write one like www.example.org", text)
	}
	return text, nil
}

func parseExpect(text string) (model.StatusRange, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	low, err := strconv.Atoi(first)
	high, err2 := strconv.Atoi(last)
	if err != nil || err2 != nil || low < 100 || high > 599 || low > high {
		return model.StatusRange{}, fmt.Errorf("%q is not a range of HTTP status codes: write 200 or 200-399", text)
	}
	for _, part := range []string{first, last} {
		if err := checkDecimal(part); err != nil {
			return model.StatusRange{}, err
		}
	}
	return model.StatusRange{First: uint16(low), Last: uint16(high)}, nil
}

func parseListen(text string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = parsePort(port)
	}
	if err == nil && host != "" {
		_, err = netip.ParseAddr(host)
	}
	if err != nil {
		return "", fmt.Errorf("%q is not an address with a port: write one like 127.0.0.1:9270 or [::1]:9270", text)
	}
	return text, nil
}
