// SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"steelyard/internal/model"

	"google.golang.org/protobuf/encoding/protowire"
)

// scrape is an excerpt of what a node_exporter answers after some idle and busy seconds of two processors.
func scrape(idle, busy float64) string {
	return fmt.Sprintf(`# HELP node_cpu_seconds_total Seconds the CPUs spent in each mode.
# TYPE node_cpu_seconds_total counter
node_cpu_seconds_total{cpu="0",mode="idle"} %g
node_cpu_seconds_total{cpu="0",mode="user"} %g
node_cpu_seconds_total{cpu="1",mode="iowait"} %g
node_cpu_seconds_total{cpu="1",mode="system"} %g 1700000000000
node_load1 0.7
`, idle/2, busy/2, idle/2, busy/2)
}

func binary() string {
	var message, entry []byte
	double := func(to []byte, number protowire.Number, value float64) []byte {
		return protowire.AppendFixed64(protowire.AppendTag(to, number, protowire.Fixed64Type), math.Float64bits(value))
	}
	entry = protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "queue")
	entry = double(entry, 2, 0.25)
	message = double(message, fieldCPU, 0.5)
	message = double(message, fieldRPS, 120)
	message = protowire.AppendBytes(protowire.AppendTag(message, fieldNamed, protowire.BytesType), entry)
	message = protowire.AppendVarint(protowire.AppendTag(message, 3, protowire.VarintType), 7) // rps, which is deprecated
	return base64.StdEncoding.EncodeToString(message)
}

func TestReports(t *testing.T) {
	for name, c := range map[string]struct {
		header http.Header
		body   string
		metric string
		want   float64
		fails  string
	}{
		"json body":    {body: `{"cpu_utilization":0.5,"rps_fractional":120,"named_metrics":{"queue":0.25}}`, want: 0.5},
		"protobuf's":   {body: `{"cpuUtilization":0.5,"rpsFractional":120,"namedMetrics":{"queue":0.25}}`, metric: "named_metrics.queue", want: 0.25},
		"json header":  {header: http.Header{reportHeader: {`JSON {"cpu_utilization": 0.5, "rps_fractional": 120}`}}, want: 0.5},
		"text header":  {header: http.Header{reportHeader: {"TEXT cpu_utilization=0.5, rps_fractional=120,named_metrics.queue=0.25"}}, metric: "named_metrics.queue", want: 0.25},
		"bin header":   {header: http.Header{reportHeader: {"BIN " + binary()}}, want: 0.5},
		"binary":       {header: http.Header{reportHeaderBinary: {binary()}}, metric: "named_metrics.queue", want: 0.25},
		"application":  {body: `{"cpu_utilization":0.9,"application_utilization":0.5,"rps_fractional":120}`, metric: "application_utilization", want: 0.5},
		"no report":    {body: "ok", fails: "neither a header"},
		"unknown form": {header: http.Header{reportHeader: {"XML <a/>"}}, fails: "begin with"},
		"no cpu":       {body: `{"rps_fractional":120}`, fails: "no cpu_utilization"},
		"null":         {body: `{"cpu_utilization":null}`, fails: "no cpu_utilization"},
		"no metric":    {body: `{"cpu_utilization":0.5}`, metric: "named_metrics.queue", fails: "no named_metrics.queue"},
		"bad json":     {body: `{"cpu_utilization":`, fails: "no JSON"},
		"bad text":     {header: http.Header{reportHeader: {"TEXT cpu_utilization"}}, fails: "NAME=NUMBER"},
		"bad base64":   {header: http.Header{reportHeaderBinary: {"!"}}, fails: "base64"},
		"bad binary":   {header: http.Header{reportHeaderBinary: {"CQ"}}, fails: "OrcaLoadReport"},
		"too long":     {body: `{"x":"` + strings.Repeat("x", maxReport) + `"}`, fails: "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := readReport(c.header, strings.NewReader(c.body))
			var value float64
			if err == nil {
				value, err = r.value(c.metric)
			}
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Fatalf("error %v, not %q", err, c.fails)
				}
			} else if err != nil || value != c.want || r.RPS != 120 {
				t.Errorf("%g, %g, %v", value, r.RPS, err)
			}
		})
	}
}

func TestNode(t *testing.T) {
	first, err := parseNode(strings.NewReader(scrape(100, 20)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.busySince(cpuTimes{}); !errors.Is(err, errFirst) {
		t.Errorf("%v", err)
	}
	second, err := parseNode(strings.NewReader(scrape(101, 23)))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := second.busySince(first); err != nil || math.Abs(got-0.75) > 1e-9 {
		t.Errorf("%g, %v", got, err)
	}
	if _, err := first.busySince(second); !errors.Is(err, errFirst) { // the server has started again
		t.Errorf("%v", err)
	}
	for text, why := range map[string]string{
		"up 1\n":                                             "is it a node_exporter",
		`node_cpu_seconds_total{mode="idle"} x`:              "no sample",
		`node_cpu_seconds_total{mode="idle"} NaN`:            "no sample",
		`node_cpu_seconds_total{cpu="0"} 1`:                  "no sample",
		strings.Repeat(strings.Repeat("#", 1023)+"\n", 8193): "more than",
	} {
		if _, err := parseNode(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

func TestQueryAnswers(t *testing.T) {
	for text, want := range map[string]string{
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1700000000.1,"0.5"]}]}}`: "",
		`{"status":"success","data":{"resultType":"scalar","result":[1700000000,"0.5"]}}`:                           "",
		`{"status":"success","data":{"resultType":"vector","result":[]}}`:                                           "0 series",
		`{"status":"success","data":{"resultType":"matrix","result":[]}}`:                                           "neither a vector",
		`{"status":"error","error":"parse error"}`:                                                                  "refuses the query",
		`{"status":"success","data":{"resultType":"scalar","result":[1]}}`:                                          "no value",
		`<html>`: "no Prometheus",
	} {
		got, err := parseQuery([]byte(text))
		if want == "" && (err != nil || got != 0.5) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %g, %v", text, got, err)
		}
	}
}

// lab is a server with a source, and Sources that read it.
type lab struct {
	*Sources
	ref    model.ServerRef
	done   chan Reading
	answer atomic.Value // http.HandlerFunc
	now    atomic.Int64
}

func newLab(t *testing.T, policy model.Load) *lab {
	l := &lab{done: make(chan Reading)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { l.answer.Load().(http.HandlerFunc)(w, r) }))
	t.Cleanup(server.Close)
	address := netip.MustParseAddrPort(strings.TrimPrefix(server.URL, "http://"))
	l.ref = model.ServerRef{Service: model.ServiceKey{Protocol: model.TCP, VIP: netip.MustParseAddr("10.0.0.80"), Port: 80}, Address: address}
	if policy.Type == model.LoadPrometheus {
		policy.URL = server.URL
	}
	if policy.Type == model.LoadNode {
		policy.Port = address.Port()
	}
	policy.Interval, policy.Full, policy.Timeout = time.Millisecond, 1, 10*time.Second
	over := make(chan struct{})
	l.Sources = New(Options{Now: func() time.Time { return time.Unix(l.now.Load(), 0) }, Done: func(_ model.ServerRef, r Reading) {
		select {
		case l.done <- r:
		case <-over:
		}
	}})
	t.Cleanup(func() { close(over); l.Close() })
	l.set(func(http.ResponseWriter, *http.Request) {})
	l.Watch([]Target{{Ref: l.ref, Policy: policy}})
	return l
}

func (l *lab) set(answer http.HandlerFunc) { l.answer.Store(answer) }

// until returns the next reading that is as wanted: attempts before it may have begun before the answer was changed.
func (l *lab) until(is func(Reading) bool) Reading {
	for {
		if r := <-l.done; is(r) {
			return r
		}
	}
}

func TestFailuresKeepTheValue(t *testing.T) {
	l := newLab(t, model.Load{Type: model.LoadORCA, Path: "/orca"})
	l.now.Store(1000)
	l.set(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"cpu_utilization":0.5,"x":%q}`, r.URL.Path)
	})
	if r := l.until(func(r Reading) bool { return r.Err == "" }); r.CPU != 0.5 || r.At.Unix() != 1000 || !strings.HasSuffix(r.Source, "/orca") {
		t.Errorf("%+v", r)
	}
	l.now.Store(2000)
	l.set(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) })
	if r := l.until(func(r Reading) bool { return r.Failed == 3 }); r.CPU != 0.5 || r.At.Unix() != 1000 || !strings.Contains(r.Err, "503") {
		t.Errorf("%+v", r)
	}
	l.set(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"cpu_utilization":3}`) })
	if r := l.until(func(r Reading) bool { return r.Err == "" }); r.CPU != 1 || r.At.Unix() != 2000 || r.Failed != 0 {
		t.Errorf("%+v", r)
	}
	l.set(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"cpu_utilization":-1}`) })
	l.until(func(r Reading) bool { return strings.Contains(r.Err, "no load") })
	l.Watch(nil)
	if _, known := l.Reading(l.ref); known {
		t.Error("it is still read")
	}
}

// An answer may have anything, such as the path that was asked for with its token, or what a tenant may not read.
func TestErrorsHideTheQuery(t *testing.T) {
	const token = "secret-0123456789abcdef0123456789abcdef0123456789abcdef"
	for kind, answer := range map[model.LoadType]string{model.LoadNode: `node_cpu_seconds_total{x} of "%s"`, model.LoadORCA: "TEXT asked for %s"} {
		l := newLab(t, model.Load{Type: kind, Path: "/load?token=" + token})
		l.set(func(w http.ResponseWriter, r *http.Request) {
			text := fmt.Sprintf(answer, r.URL.RequestURI())
			w.Header().Set(reportHeader, text)
			fmt.Fprintln(w, text)
		})
		if r := l.until(func(r Reading) bool { return r.Err != "" }); strings.Contains(r.Err, token[:10]) || strings.Contains(r.Err, "asked for") || strings.Contains(r.Err, "/load") {
			t.Errorf("%v: %q", kind, r.Err)
		}
	}
}

func TestSources(t *testing.T) {
	t.Run("node", func(t *testing.T) {
		l := newLab(t, model.Load{Type: model.LoadNode, Path: "/metrics"})
		var asked atomic.Int64
		l.set(func(w http.ResponseWriter, _ *http.Request) {
			n := float64(asked.Add(1))
			fmt.Fprint(w, scrape(3*n, n))
		})
		if r := l.until(func(r Reading) bool { return !r.At.IsZero() }); r.CPU != 0.25 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("prometheus", func(t *testing.T) {
		l := newLab(t, model.Load{Type: model.LoadPrometheus, Query: `busy{instance="$instance",address="$address"}`})
		l.set(func(w http.ResponseWriter, r *http.Request) {
			want := `busy{instance="127.0.0.1:9100",address="127.0.0.1"}`
			if got := r.URL.Query().Get("query"); got != want || r.URL.Path != "/api/v1/query" {
				http.Error(w, "unexpected "+got, http.StatusBadRequest)
				return
			}
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"scalar","result":[1,"0.5"]}}`)
		})
		if r := l.until(func(r Reading) bool { return !r.At.IsZero() }); r.CPU != 0.5 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("health", func(t *testing.T) {
		s := New(Options{})
		defer s.Close()
		ref := model.ServerRef{Address: netip.MustParseAddrPort("10.1.0.21:80")}
		s.Watch([]Target{{Ref: ref, Policy: model.Load{Type: model.LoadHealth, Full: 1}}})
		if !s.Wants(ref) || s.Wants(model.ServerRef{}) {
			t.Error("wrong server")
		}
		s.Answered(ref, http.Header{reportHeader: {"TEXT cpu_utilization=0.5"}}, nil)
		if r, _ := s.Reading(ref); r.CPU != 0.5 || r.Err != "" {
			t.Errorf("%+v", r)
		}
		s.Answered(ref, http.Header{}, nil)
		if r, _ := s.Reading(ref); r.CPU != 0.5 || r.Failed != 1 {
			t.Errorf("%+v", r)
		}
	})
}

// A redirect would have another host say how busy this one is.
func TestNoRedirect(t *testing.T) {
	l := newLab(t, model.Load{Type: model.LoadORCA, Path: "/"})
	l.set(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+l.ref.Address.String()+"/other", http.StatusFound)
	})
	l.until(func(r Reading) bool { return strings.Contains(r.Err, "302") })
}

func FuzzReport(f *testing.F) {
	f.Add("JSON", `{"cpu_utilization":0.5,"named_metrics":{"a":1}}`)
	f.Add("TEXT", "cpu_utilization=0.5,named_metrics.a=1")
	f.Add("BIN", binary())
	f.Add("", `{"cpuUtilization":1e400}`)
	f.Fuzz(func(t *testing.T, kind, text string) {
		header := http.Header{}
		if kind != "" {
			header.Set(reportHeader, kind+" "+text)
		}
		r, err := readReport(header, strings.NewReader(text))
		if err != nil {
			return
		}
		if len(r.Named) > maxNames || r.RPS < 0 || math.IsInf(r.RPS, 0) {
			t.Errorf("%+v", r)
		}
		if value, err := r.value(""); err == nil {
			if value, err := normal(value, 1); err == nil && !(value >= 0 && value <= 1) {
				t.Errorf("%g", value)
			}
		}
	})
}

func FuzzNode(f *testing.F) {
	f.Add(scrape(1, 2), scrape(3, 4))
	f.Add("node_cpu_seconds_total{mode=\"idle\"} 1e308\n", "node_cpu_seconds_total{mode=\"user\"} 1e308\n")
	f.Fuzz(func(t *testing.T, one, two string) {
		first, err1 := parseNode(strings.NewReader(one))
		second, err2 := parseNode(strings.NewReader(two))
		if err1 != nil || err2 != nil {
			return
		}
		value, err := second.busySince(first)
		if err == nil {
			if value, err = normal(value, 1); err == nil && !(value >= 0 && value <= 1) {
				t.Errorf("%g", value)
			}
		}
	})
}

func FuzzQuery(f *testing.F) {
	f.Add([]byte(`{"status":"success","data":{"resultType":"vector","result":[{"value":[1,"0.5"]}]}}`))
	f.Add([]byte(`{"status":"success","data":{"resultType":"scalar","result":[1,"NaN"]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if value, err := parseQuery(data); err == nil {
			if value, err = normal(value, 1); err == nil && !(value >= 0 && value <= 1) {
				t.Errorf("%g", value)
			}
		}
	})
}
