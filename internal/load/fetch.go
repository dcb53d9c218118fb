// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"steelyard/internal/egress"
	"steelyard/internal/model"
)

// nodePort is the usual one of a node_exporter.
const nodePort = 9100

// address returns where a server's source listens.
func (t Target) address() netip.AddrPort {
	port := t.Own.Port
	if port == 0 {
		port = t.Policy.Port
	}
	if port == 0 {
		if port = t.Ref.Address.Port(); t.Policy.Type == model.LoadNode || t.Policy.Type == model.LoadPrometheus {
			port = nodePort // for a Prometheus, which has these metrics: $instance
		}
	}
	return netip.AddrPortFrom(t.Ref.Address.Addr(), port)
}

// sourceOf describes a server's source of load, without secrets.
func sourceOf(t Target) string {
	switch t.Policy.Type {
	case model.LoadNode, model.LoadORCA:
		path, _, _ := strings.Cut(t.Policy.Path, "?")
		return fmt.Sprintf("%s http://%s%s", t.Policy.Type, t.address(), path)
	case model.LoadPrometheus:
		return "prometheus " + t.Policy.URL
	}
	return t.Policy.Type.String()
}

// fetch queries a server's source once.
func (s *Sources) fetch(ctx context.Context, t *target) (value, rps float64, err error) {
	where := "http://" + t.address().String() + t.Policy.Path
	if t.Policy.Type == model.LoadPrometheus {
		where = strings.TrimSuffix(t.Policy.URL, "/") + "/api/v1/query?query=" + url.QueryEscape(queryOf(t.Target))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return 0, 0, errors.New("the address of the source is not valid")
	}
	request.Header.Set("User-Agent", "steelyard")
	response, err := s.clients[t.By].Do(request)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // without the query
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s", t.Policy.Timeout)
		}
		return 0, 0, egress.Explain(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK && t.Policy.Type != model.LoadPrometheus {
		return 0, 0, fmt.Errorf("the source answers %d", response.StatusCode)
	}
	switch t.Policy.Type {
	case model.LoadNode:
		times, err := parseNode(io.LimitReader(response.Body, maxScrape+1))
		if err != nil {
			return 0, 0, err
		}
		s.mu.Lock()
		before := t.cpu
		t.cpu = times
		s.mu.Unlock()
		value, err = times.busySince(before)
		return value, 0, err
	case model.LoadPrometheus:
		data, err := readAll(response.Body, maxQuery)
		if err != nil {
			return 0, 0, err
		}
		value, err = parseQuery(data)
		return value, 0, err
	}
	report, err := readReport(response.Header, response.Body)
	if err == nil {
		value, err = report.value(t.Policy.Metric)
	}
	return value, report.RPS, err
}

// queryOf returns the query for one server.
func queryOf(t Target) string {
	instance := t.Own.Instance
	if instance == "" {
		instance = t.address().String()
	}
	return strings.NewReplacer("$address", t.Ref.Address.Addr().String(), "$port", strconv.Itoa(int(t.Ref.Address.Port())),
		"$instance", instance).Replace(t.Policy.Query)
}

// cpuTimes are seconds of all processors since the host's start.
type cpuTimes struct{ idle, all float64 }

// busySince returns which part of the time since an earlier reading the processors were busy.
func (c cpuTimes) busySince(before cpuTimes) (float64, error) {
	all, idle := c.all-before.all, c.idle-before.idle
	switch {
	case before.all == 0, all < 0, idle < 0: // the first reading, or the host has rebooted
		return 0, errFirst
	case all == 0:
		return 0, errors.New("the counters of the processors stand still")
	}
	return max(0, 1-idle/all), nil
}

// parseNode sums the processors' times of a node_exporter, in the text format of Prometheus.
func parseNode(body io.Reader) (cpuTimes, error) {
	const metric = "node_cpu_seconds_total{"
	var times cpuTimes
	found, size := false, 0
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 4096), maxReport)
	for lines.Scan() {
		line := lines.Text()
		if size += len(line) + 1; size > maxScrape {
			return times, fmt.Errorf("the answer has more than %d bytes", maxScrape)
		}
		if !strings.HasPrefix(line, metric) {
			continue
		}
		labels, rest, ok := strings.Cut(line[len(metric):], "}")
		number, _, _ := strings.Cut(strings.TrimSpace(rest), " ") // a time stamp may follow
		seconds, err := strconv.ParseFloat(number, 64)
		mode := label(labels, "mode")
		if !ok || err != nil || !(seconds >= 0) || mode == "" {
			return times, errors.New("a line of node_cpu_seconds_total is no sample")
		}
		found = true
		times.all += seconds
		if mode == "idle" || mode == "iowait" {
			times.idle += seconds
		}
	}
	if err := lines.Err(); err != nil {
		return times, err
	}
	if !found {
		return times, errors.New("the answer has no node_cpu_seconds_total: is it a node_exporter's?")
	}
	return times, nil
}

// label returns a label's value.
func label(labels, name string) string {
	for pair := range strings.SplitSeq(labels, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if ok && key == name {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

// parseQuery reads the answer of a Prometheus to a query, which must be one number.
func parseQuery(data []byte) (float64, error) {
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Type   string          `json:"resultType"`
			Result json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return 0, errors.New("the answer is no Prometheus'")
	}
	if answer.Status != "success" {
		return 0, errors.New("the Prometheus refuses the query: try it there")
	}
	var sample []json.RawMessage
	switch answer.Data.Type {
	case "scalar":
		if err := json.Unmarshal(answer.Data.Result, &sample); err != nil {
			return 0, errors.New("the answer is no Prometheus'")
		}
	case "vector":
		var series []struct {
			Value []json.RawMessage `json:"value"`
		}
		if err := json.Unmarshal(answer.Data.Result, &series); err != nil {
			return 0, errors.New("the answer is no Prometheus'")
		}
		if len(series) != 1 {
			return 0, fmt.Errorf("the query returns %d series, not one: use $address or $instance in it", len(series))
		}
		sample = series[0].Value
	default:
		return 0, errors.New("the query returns neither a vector nor a scalar")
	}
	var number string
	if len(sample) != 2 || json.Unmarshal(sample[1], &number) != nil {
		return 0, errors.New("the answer has no value")
	}
	value, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, errors.New("the value of the answer is no number")
	}
	return value, nil
}
