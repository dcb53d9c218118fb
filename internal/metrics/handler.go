// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"steelyard/internal/model"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

const (
	// longestScrape is below Prometheus' own default of ten seconds.
	longestScrape = 8 * time.Second
	// maxScrapes bounds concurrent scrapes; each buffers the counters of all requested objects.
	maxScrapes = 4
)

// Handler answers scrapes, in Prometheus' text format:
//
//	/metrics?service=NAME   only the named services and their servers, and no limits; may be repeated
//	/metrics?detail=LEVEL   servers: everything; services: no servers; none: neither, and no limits
//
// A scrape has a time limit: longestScrape, or four fifths of the time that Prometheus waits
// (X-Prometheus-Scrape-Timeout-Seconds). steelyard_scrape_complete names the parts that are missing then
// or cannot be read from the forwarder.
type Handler struct {
	sources Sources
	shared  *prometheus.Registry // the agent's own metrics
	detail  func() model.Detail
	slots   chan struct{}
}

// NewHandler returns a handler that also shows the metrics in shared. For requests without a detail,
// detail returns the level.
func NewHandler(sources Sources, shared *prometheus.Registry, detail func() model.Detail) *Handler {
	return &Handler{sources, shared, detail, make(chan struct{}, maxScrapes)}
}

// query selects services and servers.
type query struct {
	names  map[string]bool // empty: all
	detail model.Detail
}

func (q query) wants(name string) bool { return len(q.names) == 0 || q.names[name] }
func (q query) services() bool         { return q.detail != model.DetailNone }
func (q query) servers() bool          { return q.detail == model.DetailServers }

func (h *Handler) query(r *http.Request) (query, error) {
	words := r.URL.Query()
	q := query{names: map[string]bool{}, detail: h.detail()}
	for _, name := range words["service"] {
		q.names[name] = true
		q.detail = model.DetailServers // a request that names a service selects all its series
	}
	if text := words.Get("detail"); text != "" {
		at := slices.IndexFunc(model.Details, func(d model.Detail) bool { return d.String() == text })
		if at < 0 {
			return q, fmt.Errorf("detail=%s is unknown: use servers, services or none", text)
		}
		q.detail = model.Details[at]
	}
	return q, nil
}

// limit returns the maximum duration of a scrape.
func limit(r *http.Request) time.Duration {
	seconds, err := strconv.ParseFloat(r.Header.Get("X-Prometheus-Scrape-Timeout-Seconds"), 64)
	if err != nil || seconds <= 0 || seconds > longestScrape.Seconds() {
		return longestScrape
	}
	return time.Duration(seconds * 0.8 * float64(time.Second))
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, err := h.query(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		http.Error(w, fmt.Sprintf("%d scrapes are under way already", maxScrapes), http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit(r))
	defer cancel()
	w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	var to io.Writer = w
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		zip, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
		defer zip.Close()
		to = zip
	}
	out := bufio.NewWriterSize(to, 256<<10)
	defer out.Flush()
	h.write(ctx, out, q)
}

func (h *Handler) write(ctx context.Context, out *bufio.Writer, q query) {
	start, complete := time.Now(), map[string]bool{}
	c := &collector{sources: h.sources, ctx: ctx, complete: complete}
	all := &serviceSeries{}
	all.readStates(h.sources.Store, q)
	if client, err := h.sources.Dial(ctx); err == nil {
		defer client.Close()
		c.client = client
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, _ := prometheus.Gatherers{h.shared, registry}.Gather() // a partial result is better than none
	for _, family := range families {
		_, _ = expfmt.MetricFamilyToText(out, family)
	}
	if c.client != nil && q.services() {
		complete["services"] = all.readTraffic(ctx, c.client, h.sources.Store, q) == nil
		complete["limits"] = all.readLimits(ctx, c.client, q) == nil
		complete["shaping"] = all.readShaping(ctx, c.client, q) == nil
	}
	complete["output"] = all.write(ctx, out)
	name := "steelyard_scrape_complete"
	writeHead(out, name, "gauge", "1 if all of this part of the scrape was read and written in time.")
	for _, part := range slices.Sorted(maps.Keys(complete)) {
		value := 0
		if complete[part] {
			value = 1
		}
		fmt.Fprintf(out, "%s{part=%q} %d\n", name, part, value)
	}
	name = "steelyard_scrape_seconds"
	writeHead(out, name, "gauge", "How long this scrape took.")
	fmt.Fprintf(out, "%s %.3f\n", name, time.Since(start).Seconds())
}
