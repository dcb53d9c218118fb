// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"steelyard/internal/model"

	"go.yaml.in/yaml/v4"
)

// Sources of the servers' load.

type rawLoad struct {
	at       position
	path     string
	kind     value[model.LoadType]
	port     value[uint16]
	route    value[string]
	url      value[string]
	query    value[string]
	metric   value[string]
	full     value[float64]
	interval value[time.Duration]
	timeout  value[time.Duration]
}

type rawServerLoad struct {
	at       position
	path     string
	off      value[model.LoadType]
	port     value[uint16]
	instance value[string]
}

var defaultLoad = model.Load{Full: 1, Interval: 5 * time.Second, Timeout: 2 * time.Second}

// defaultLoadPaths are the default paths of sources that have one.
var defaultLoadPaths = map[model.LoadType]string{model.LoadNode: "/metrics", model.LoadORCA: "/orca"}

const (
	maxQueryBytes = 4096
	maxFull       = 1e9
)

var loadFields = []field[rawLoad]{
	scalar(fieldDoc{name: "type", kind: "node, orca, health, prometheus or none", required: true,
		doc: "`node`: the metrics of a node_exporter on the server; the load is the fraction of time in which its processors were not idle between two readings. " +
			"`orca`: a report by the conventions of ORCA (Open Request Cost Aggregation of xDS) over HTTP, as JSON or in the header `endpoint-load-metrics`. " +
			"`health`: such a report in the answers to the service's health checks, which must be `http`. `prometheus`: a query to a Prometheus. `none`: the load is not read."},
		func(l *rawLoad) *value[model.LoadType] { return &l.kind }, parseWord(model.LoadTypes...)),
	scalar(fieldDoc{name: "port", kind: "port", def: "9100 with node, the server's with orca",
		doc: "node, orca: the port of the source on the server."},
		func(l *rawLoad) *value[uint16] { return &l.port }, parsePort),
	scalar(fieldDoc{name: "path", kind: "path", def: "/metrics with node, /orca with orca",
		doc: "node, orca: the path of the request, with a query if needed. No command, log or error shows the query."},
		func(l *rawLoad) *value[string] { return &l.route }, parsePath),
	scalar(fieldDoc{name: "url", kind: "URL", doc: "prometheus: its URL, such as `http://prometheus.example:9090`."},
		func(l *rawLoad) *value[string] { return &l.url }, parseURL),
	scalar(fieldDoc{name: "query", kind: "PromQL",
		doc: "prometheus: a query whose result is one number. In it, `$address` and `$port` are the server's, and `$instance` is its own `instance`, or address and port of `node` metrics."},
		func(l *rawLoad) *value[string] { return &l.query }, parseQuery),
	scalar(fieldDoc{name: "metric", kind: "name", def: "cpu_utilization",
		doc: "orca, health: the metric of the report: `cpu_utilization`, `application_utilization`, `named_metrics.NAME` or `utilization.NAME`."},
		func(l *rawLoad) *value[string] { return &l.metric }, parseMetric),
	scalar(fieldDoc{name: "full", kind: "number above 0", def: "1",
		doc: "The value at full load, such as 100 for a query that returns percentages."},
		func(l *rawLoad) *value[float64] { return &l.full }, parseFull),
	scalar(fieldDoc{name: "interval", kind: "duration, 1s to 10m", def: defaultLoad.Interval.String(), doc: "Time between two readings of a server."},
		func(l *rawLoad) *value[time.Duration] { return &l.interval }, parseDuration(time.Second, 10*time.Minute)),
	scalar(fieldDoc{name: "timeout", kind: "duration, 10ms to 1m", def: defaultLoad.Timeout.String(),
		doc: "A reading that takes longer fails. At most the interval; the default is lowered to a shorter interval."},
		func(l *rawLoad) *value[time.Duration] { return &l.timeout }, parseDuration(10*time.Millisecond, time.Minute)),
}

var serverLoadFields = []field[rawServerLoad]{
	scalar(fieldDoc{name: "type", kind: "none", doc: "`none`: this server's load is not read."},
		func(l *rawServerLoad) *value[model.LoadType] { return &l.off }, parseWord(model.LoadNone)),
	scalar(fieldDoc{name: "port", kind: "port", def: "the service's `load.port`", doc: "The port of the source on this server."},
		func(l *rawServerLoad) *value[uint16] { return &l.port }, parsePort),
	scalar(fieldDoc{name: "instance", kind: "text", def: "address and port", doc: "prometheus: the value of `$instance` for this server."},
		func(l *rawServerLoad) *value[string] { return &l.instance }, parseInstance),
}

var (
	loadObject = docsOf("load", "The source from which the agent reads the servers' load. `feedback` uses it, and `steelyard get servers` shows it. "+
		"If the source fails, the last value stays, with its age: see docs/server-load.md.", loadFields)
	serverLoadObject = docsOf("load of a server", "A server's own settings. The others are in `load` of its service.", serverLoadFields)
)

var loadField = field[rawService]{fieldDoc{name: "load", kind: "mapping", object: loadObject, doc: "The source of the servers' load. Without it, the load is not read."},
	func(d *decoder, n *yaml.Node, path string, into *rawService) {
		into.load.at, into.load.path = positionOf(n), path
		readObject(d, n, path, loadFields, &into.load)
	}}

var serverLoadField = field[rawServer]{fieldDoc{name: "load", kind: "mapping", object: serverLoadObject, doc: "Overrides parts of the service's `load`."},
	func(d *decoder, n *yaml.Node, path string, into *rawServer) {
		into.load.at, into.load.path = positionOf(n), path
		readObject(d, n, path, serverLoadFields, &into.load)
	}}

func parseURL(text string) (string, error) {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" {
		return "", fmt.Errorf("%q is not a URL: write one like http://prometheus.example:9090", text)
	}
	if parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		return "", fmt.Errorf("the URL has a user, a query or a fragment: write scheme, host, port and path alone")
	}
	return text, nil
}

func parseQuery(text string) (string, error) {
	if strings.TrimSpace(text) == "" || len(text) > maxQueryBytes {
		return "", fmt.Errorf("the query is empty or too long: write 1 to %d bytes", maxQueryBytes)
	}
	return text, nil
}

// Lengths are compared apart: {1,128} would compile to 128 copies of a class, at each start of the program.
const maxMetricBytes = 128

var metricPattern = regexp.MustCompile(`^(cpu_utilization|application_utilization|mem_utilization|(named_metrics|utilization)\.([A-Za-z0-9_.:/-]+))$`)

func parseMetric(text string) (string, error) {
	parts := metricPattern.FindStringSubmatch(text)
	if parts == nil || len(parts[3]) > maxMetricBytes {
		return "", fmt.Errorf("%q is not a metric: write cpu_utilization, application_utilization, mem_utilization, named_metrics.NAME or utilization.NAME", text)
	}
	return text, nil
}

func parseFull(text string) (float64, error) {
	full, err := parseFloat(text)
	if err != nil || !(full > 0 && full <= maxFull) {
		return 0, fmt.Errorf("%q is not a number above 0: write one like 1 or 100", text)
	}
	return full, checkDecimal(text)
}

var instancePattern = regexp.MustCompile(`^[A-Za-z0-9._:@/\[\]-]+$`)

func parseInstance(text string) (string, error) {
	if len(text) > maxMetricBytes || !instancePattern.MatchString(text) { // it is inserted into a query, so it may have no quotes
		return "", fmt.Errorf("%q is not an instance: use letters, digits and ._:@/[]-", text)
	}
	return text, nil
}

// load builds a service's source of load, and rejects keys that it does not use.
func (b *builder) load(raw *rawService, health model.Health) model.Load {
	l := &raw.load
	if !l.kind.set || l.kind.v == model.LoadNone {
		return model.Load{}
	}
	kind := l.kind.v
	only := func(set bool, at position, path string, uses bool) {
		if set && !uses {
			b.fail(at, path, "a source of `type: %s` does not use this: remove the line, or change the type", kind)
		}
	}
	direct, reports := kind == model.LoadNode || kind == model.LoadORCA, kind == model.LoadORCA || kind == model.LoadHealth
	only(l.port.set, l.port.at, l.port.path, direct || kind == model.LoadPrometheus)
	only(l.route.set, l.route.at, l.route.path, direct)
	only(l.url.set, l.url.at, l.url.path, kind == model.LoadPrometheus)
	only(l.query.set, l.query.at, l.query.path, kind == model.LoadPrometheus)
	only(l.metric.set, l.metric.at, l.metric.path, reports)
	only(l.full.set, l.full.at, l.full.path, kind != model.LoadNode)
	only(l.interval.set, l.interval.at, l.interval.path, kind != model.LoadHealth)
	only(l.timeout.set, l.timeout.at, l.timeout.path, kind != model.LoadHealth)
	if kind == model.LoadPrometheus && (!l.url.set || !l.query.set) {
		b.fail(l.at, l.path, "a source of `type: prometheus` needs `url` and `query`")
	}
	if kind == model.LoadHealth && health.Type != model.HealthHTTP {
		b.fail(l.kind.at, l.kind.path, "only health checks of `type: http` can carry a load report: set `health.type: http`, or use another source")
	}
	load := model.Load{Type: kind, Port: l.port.v, Path: l.route.or(defaultLoadPaths[kind]), URL: l.url.v, Query: l.query.v,
		Metric: l.metric.v, Full: l.full.or(defaultLoad.Full)}
	if kind == model.LoadHealth {
		return load
	}
	load.Interval, load.Timeout = l.interval.or(defaultLoad.Interval), l.timeout.or(defaultLoad.Timeout)
	if !l.timeout.set {
		load.Timeout = min(load.Timeout, load.Interval)
	} else if load.Timeout > load.Interval {
		b.fail(l.timeout.at, l.timeout.path, "the timeout, %s, is longer than the interval, %s", load.Timeout, load.Interval)
	}
	return load
}

// serverLoad builds a server's own settings of its source.
func (b *builder) serverLoad(raw *rawService, s *rawServer) model.ServerLoad {
	l := &s.load
	if l.at == (position{}) {
		return model.ServerLoad{}
	}
	kind := raw.load.kind.v
	if kind == model.LoadNone {
		b.fail(l.at, l.path, "the service has no `load`: add one, or remove this line")
	}
	if l.instance.set && kind != model.LoadPrometheus {
		b.fail(l.instance.at, l.instance.path, "only `type: prometheus` uses `instance`: remove this line")
	}
	if l.port.set && kind == model.LoadHealth {
		b.fail(l.port.at, l.port.path, "with `type: health` the load is in the answers to health checks: remove the port")
	}
	return model.ServerLoad{Off: l.off.set, Port: l.port.v, Instance: l.instance.v}
}
