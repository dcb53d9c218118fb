// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Limits of a source's answer.
const (
	maxHeader = 64 << 10
	maxReport = 64 << 10 // bytes of a report
	maxScrape = 8 << 20  // bytes of a node_exporter's metrics
	maxQuery  = 256 << 10
	maxNames  = 256 // named metrics of a report
)

// Headers that may carry a report.
const (
	reportHeader       = "Endpoint-Load-Metrics"
	reportHeaderBinary = "Endpoint-Load-Metrics-Bin"
)

// report is an OrcaLoadReport of xDS: a server's own report.
type report struct {
	CPU         float64
	Application float64
	RPS         float64
	Named       map[string]float64 // "named_metrics.x", "utilization.x", "mem_utilization", "eps"
	hasCPU      bool
	hasApp      bool
}

// value returns the metric of a name; "": the use of processors.
func (r *report) value(name string) (float64, error) {
	switch {
	case (name == "" || name == "cpu_utilization") && r.hasCPU:
		return r.CPU, nil
	case name == "":
		return 0, errors.New("the report has no cpu_utilization")
	case name == "application_utilization" && r.hasApp:
		return r.Application, nil
	}
	if value, ok := r.Named[name]; ok {
		return value, nil
	}
	return 0, fmt.Errorf("the report has no %s", name)
}

// set sets one field by its name in the JSON and text forms.
func (r *report) set(name string, value float64) {
	switch name {
	case "cpu_utilization":
		r.CPU, r.hasCPU = value, true
	case "application_utilization":
		r.Application, r.hasApp = value, true
	case "rps_fractional":
		if value >= 0 && !math.IsInf(value, 0) {
			r.RPS = value
		}
	default:
		if r.Named == nil {
			r.Named = map[string]float64{}
		}
		if len(r.Named) < maxNames {
			r.Named[name] = value
		}
	}
}

// readReport extracts a report from an answer: from a header, else from the body.
func readReport(header http.Header, body io.Reader) (report, error) {
	if text := header.Get(reportHeaderBinary); text != "" {
		return parseBinary(text)
	}
	if text := header.Get(reportHeader); text != "" {
		kind, rest, _ := strings.Cut(text, " ")
		switch kind {
		case "JSON":
			return parseJSON([]byte(rest))
		case "TEXT":
			return parseText(rest)
		case "BIN":
			return parseBinary(rest)
		}
		return report{}, fmt.Errorf("the header %s does not begin with JSON, TEXT or BIN", reportHeader)
	}
	if body == nil {
		return report{}, fmt.Errorf("the answer has no header %s", reportHeader)
	}
	data, err := readAll(body, maxReport)
	if err != nil {
		return report{}, err
	}
	if len(bytes.TrimSpace(data)) == 0 || bytes.TrimSpace(data)[0] != '{' {
		return report{}, fmt.Errorf("the answer has neither a header %s nor a JSON object", reportHeader)
	}
	return parseJSON(data)
}

func parseJSON(data []byte) (report, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return report{}, errors.New("the report is no JSON")
	}
	r := report{}
	for name, raw := range fields {
		var number float64
		if json.Unmarshal(raw, &number) == nil {
			if string(raw) != "null" {
				r.set(snake(name), number)
			}
			continue
		}
		var named map[string]float64
		if json.Unmarshal(raw, &named) == nil {
			for key, value := range named {
				r.set(snake(name)+"."+key, value)
			}
		} // other fields are ignored
	}
	return r, nil
}

// snake returns the name of a field as the schema has it: protobuf's JSON writes cpuUtilization.
func snake(name string) string {
	var out strings.Builder
	for i, c := range name {
		if c >= 'A' && c <= 'Z' {
			if i > 0 {
				out.WriteByte('_')
			}
			c += 'a' - 'A'
		}
		out.WriteRune(c)
	}
	return out.String()
}

// parseText reads "cpu_utilization=0.3, named_metrics.x=1".
func parseText(text string) (report, error) {
	if len(text) > maxReport {
		return report{}, errors.New("the report is too long")
	}
	r := report{}
	for pair := range strings.SplitSeq(text, ",") {
		name, number, ok := strings.Cut(pair, "=")
		if !ok {
			name, number, ok = strings.Cut(pair, ":")
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if !ok || err != nil {
			return report{}, errors.New("a pair of the report is not NAME=NUMBER")
		}
		r.set(strings.TrimSpace(name), value)
	}
	return r, nil
}

// Field numbers of xds.data.orca.v3.OrcaLoadReport.
const (
	fieldCPU         = 1
	fieldMem         = 2
	fieldUtilization = 5
	fieldRPS         = 6
	fieldEPS         = 7
	fieldNamed       = 8
	fieldApplication = 9
)

func parseBinary(text string) (report, error) {
	data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(text), "="))
	if err != nil {
		return report{}, errors.New("the report is no base64")
	}
	r := report{}
	numbers := map[protowire.Number]string{fieldCPU: "cpu_utilization", fieldMem: "mem_utilization", fieldRPS: "rps_fractional",
		fieldEPS: "eps", fieldApplication: "application_utilization"}
	maps := map[protowire.Number]string{fieldUtilization: "utilization", fieldNamed: "named_metrics"}
	err = eachField(data, func(number protowire.Number, kind protowire.Type, value []byte) {
		switch {
		case kind == protowire.Fixed64Type && numbers[number] != "":
			r.set(numbers[number], float(value))
		case kind == protowire.BytesType && maps[number] != "":
			key, amount := "", 0.0
			_ = eachField(value, func(number protowire.Number, kind protowire.Type, value []byte) { // an entry of a map
				if number == 1 && kind == protowire.BytesType {
					key = string(value)
				} else if number == 2 && kind == protowire.Fixed64Type {
					amount = float(value)
				}
			})
			r.set(maps[number]+"."+key, amount)
		}
	})
	return r, err
}

func float(value []byte) float64 {
	bits, n := protowire.ConsumeFixed64(value)
	if n < 0 {
		return math.NaN()
	}
	return math.Float64frombits(bits)
}

// eachField calls f for the fields of a message; the value of one with a length is without it.
func eachField(data []byte, f func(protowire.Number, protowire.Type, []byte)) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return fmt.Errorf("the report is no OrcaLoadReport: %w", protowire.ParseError(n))
		}
		data = data[n:]
		length := protowire.ConsumeFieldValue(number, kind, data)
		if length < 0 {
			return fmt.Errorf("the report is no OrcaLoadReport: %w", protowire.ParseError(length))
		}
		value := data[:length]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		f(number, kind, value)
		data = data[length:]
	}
	return nil
}

// readAll reads an answer of a limited size.
func readAll(body io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("the answer has more than %d bytes", limit)
	}
	return data, err
}

// normal returns a value as a fraction of full load, at most 1.
func normal(value, full float64) (float64, error) {
	value /= full
	if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
		return 0, errors.New("the value is no load: it is negative, or no number")
	}
	return min(value, 1), nil
}

// shorten bounds the length of a source's answer in views and logs.
func shorten(text string) string {
	const maximum = 200
	clean := strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == '\ufffd' {
			return ' '
		}
		return c
	}, text)
	if len(clean) > maximum {
		clean = strings.ToValidUTF8(clean[:maximum], "") + "…"
	}
	return clean
}
