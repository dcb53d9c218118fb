// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// At a test's pace this would last 10 s; the finish comes within a second.
const size = 400*block + 77

// lab is servers on this machine, some of which misbehave once `bad` is set.
type lab struct {
	web, dns string
	bad      atomic.Bool
	once     sync.Once
}

// misbehave runs once per run of the lab, in the first request that is due.
func (l *lab) misbehave(how func()) bool {
	did := false
	if l.bad.Load() {
		l.once.Do(func() { how(); did = true })
	}
	return did
}

// behaviour defines how the servers of a test answer. Each function gets a flow's connection after its request.
type behaviour struct {
	ask      func(l *lab, c net.Conn) // an HTTP request for the name
	download func(l *lab, c net.Conn) // one for the content
	query    func(l *lab, query []byte, reply func([]byte))
}

func say(c net.Conn, body string) {
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func give(c net.Conn, body []byte) {
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nX-Served-By: s1\r\nContent-Length: %d\r\n\r\n", len(body))
	c.Write(body)
}

func reset(c net.Conn) {
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

func dnsAnswer(query []byte, name string) []byte {
	answer := slices.Clone(query)
	answer[2], answer[7] = 0x81, 1
	answer = append(answer, 0xc0, dnsHeader, 0, 16, 0, 1, 0, 0, 0, 0, 0, byte(len(name)+1), byte(len(name)))
	return append(answer, name...)
}

// good is the default behaviour.
var good = behaviour{
	ask:      func(_ *lab, c net.Conn) { say(c, "s1\n") },
	download: func(_ *lab, c net.Conn) { give(c, content(size)) },
	query:    func(_ *lab, query []byte, reply func([]byte)) { reply(dnsAnswer(query, "s1")) },
}

func startLab(t *testing.T, b behaviour) *lab {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close(); packets.Close() })
	l := &lab{web: listener.Addr().String(), dns: packets.LocalAddr().String()}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go l.serve(conn, b)
		}
	}()
	go func() {
		buffer := make([]byte, 512)
		for {
			n, peer, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			b.query(l, buffer[:n], func(answer []byte) { packets.WriteTo(answer, peer) })
		}
	}()
	return l
}

func (l *lab) serve(conn net.Conn, b behaviour) {
	defer conn.Close()
	for requests := bufio.NewReader(conn); ; {
		request, err := http.ReadRequest(requests)
		if err != nil {
			return
		}
		if request.URL.Path == "/" {
			b.ask(l, conn)
		} else {
			b.download(l, conn)
		}
	}
}

// play runs the program against a lab: ready, then bad behaviour, two steps, and the finish.
func play(t *testing.T, l *lab, change ...func(*options)) (reports []report, status int) {
	t.Helper()
	o := options{
		web: 5, downloads: 3, udp: 5, webTargets: targets{l.web}, udpTargets: targets{l.dns}, path: "/content",
		size: size, period: 10 * time.Millisecond, resend: 20 * time.Millisecond, patience: 2 * time.Second, rate: 40 * block,
	}
	for _, f := range change {
		f(&o)
	}
	commands, command := io.Pipe()
	answers, answer := io.Pipe()
	go func() {
		status = o.run(commands, answer)
		answer.Close()
	}()
	lines := json.NewDecoder(answers)
	for _, line := range []string{"step", "step", "finish", ""} {
		var r report
		if err := lines.Decode(&r); err != nil {
			t.Fatalf("no report %d: %v", len(reports)+1, err)
		}
		reports = append(reports, r)
		l.bad.Store(true)
		if line != "" {
			fmt.Fprintln(command, line)
		}
	}
	if err := lines.Decode(&report{}); err != io.EOF {
		t.Errorf("a report after the last: %v", err)
	}
	return reports, status
}

func TestGoodServersFailNoFlow(t *testing.T) {
	reports, status := play(t, startLab(t, good))
	last := reports[len(reports)-1]
	if status != 0 || len(last.Failures) != 0 || len(last.Examples) != 0 {
		t.Errorf("status %d, failures %v: %v", status, last.Failures, last.Examples)
	}
	for n, event := range []string{"ready", "step", "step", "finish"} {
		r := reports[n]
		if r.Event != event || r.Number != n+1 {
			t.Errorf("report %d is %s, number %d", n+1, r.Event, r.Number)
		}
		for kind, want := range map[string]int{"http": 5, "download": 3, "udp": 5} {
			p := r.Flows[kind]
			if p.Count != want || p.Failed != 0 || p.Servers["s1"] != want {
				t.Errorf("report %d: %s: %+v", n+1, kind, p)
			}
			if p.Answers < want || p.StallMs <= 0 || p.Stalled == "" {
				t.Errorf("report %d: %s: %d answers, longest %f ms of %q", n+1, kind, p.Answers, p.StallMs, p.Stalled)
			}
		}
	}
}

// One flow fails once; each kind of failure must be reported by its name, with a nonzero exit status.
func TestFailuresAreReportedByName(t *testing.T) {
	bad := slices.Clone(content(size))
	bad[7*block+1] ^= 1
	for name, test := range map[string]struct {
		nature string
		kind   string
		change func(*behaviour)
	}{
		"connection is reset": {"reset", "http", func(b *behaviour) {
			b.ask = func(l *lab, c net.Conn) {
				if !l.misbehave(func() { reset(c) }) {
					good.ask(l, c)
				}
			}
		}},
		"connection is closed": {"closed", "http", func(b *behaviour) {
			b.ask = func(l *lab, c net.Conn) {
				if !l.misbehave(func() { c.Close() }) {
					good.ask(l, c)
				}
			}
		}},
		"connection falls silent": {"silent", "http", func(b *behaviour) {
			b.ask = func(l *lab, c net.Conn) {
				if !l.misbehave(func() {}) {
					good.ask(l, c)
				}
			}
		}},
		"connection moves": {"moved", "http", func(b *behaviour) {
			b.ask = func(l *lab, c net.Conn) {
				if !l.misbehave(func() { say(c, "s2\n") }) {
					good.ask(l, c)
				}
			}
		}},
		"answer is an error": {"corrupted", "http", func(b *behaviour) {
			b.ask = func(l *lab, c net.Conn) {
				if !l.misbehave(func() { io.WriteString(c, "HTTP/1.1 502 Bad\r\nContent-Length: 3\r\n\r\ns1\n") }) {
					good.ask(l, c)
				}
			}
		}},
		"bit is flipped": {"corrupted", "download", func(b *behaviour) {
			var first atomic.Bool
			b.download = func(l *lab, c net.Conn) {
				if first.CompareAndSwap(false, true) {
					give(c, bad)
				} else {
					good.download(l, c)
				}
			}
		}},
		"download is cut": {"closed", "download", func(b *behaviour) {
			var first atomic.Bool
			b.download = func(l *lab, c net.Conn) {
				if first.CompareAndSwap(false, true) {
					fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nX-Served-By: s1\r\nContent-Length: %d\r\n\r\n", size)
					c.Write(content(size)[:5*block])
					c.Close()
				} else {
					good.download(l, c)
				}
			}
		}},
		"content is another": {"corrupted", "download", func(b *behaviour) {
			b.download = func(_ *lab, c net.Conn) { give(c, content(size)[:size-1]) }
		}},
		"UDP flow moves": {"moved", "udp", func(b *behaviour) {
			b.query = func(l *lab, query []byte, reply func([]byte)) {
				if !l.misbehave(func() { reply(dnsAnswer(query, "s2")) }) {
					good.query(l, query, reply)
				}
			}
		}},
		"UDP flow gets nonsense": {"corrupted", "udp", func(b *behaviour) {
			b.query = func(l *lab, query []byte, reply func([]byte)) {
				if !l.misbehave(func() { reply(query) }) {
					good.query(l, query, reply)
				}
			}
		}},
		"UDP falls silent": {"silent", "udp", func(b *behaviour) {
			b.query = func(l *lab, query []byte, reply func([]byte)) {
				if !l.bad.Load() {
					good.query(l, query, reply)
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := good
			test.change(&b)
			reports, status := play(t, startLab(t, b))
			last := reports[len(reports)-1]
			if status != 1 {
				t.Errorf("status %d", status)
			}
			if len(last.Failures) != 1 || last.Failures[test.nature] == 0 {
				t.Errorf("failures %v instead of %s: %v", last.Failures, test.nature, last.Examples)
			}
			if last.Flows[test.kind].Failed != last.Failures[test.nature] {
				t.Errorf("%d flows of kind %s failed, of %v", last.Flows[test.kind].Failed, test.kind, last.Failures)
			}
			if len(last.Examples) == 0 || !strings.HasPrefix(last.Examples[0], test.kind+" 127.0.0.1:") {
				t.Errorf("reported as %q", last.Examples)
			}
		})
	}
}

func TestClosedPortIsRefusal(t *testing.T) {
	l := startLab(t, good)
	gone, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	l.dns = gone.LocalAddr().String()
	reports, status := play(t, l)
	if status != 1 || reports[0].Failures["refused"] != 5 {
		t.Errorf("status %d, failures %v", status, reports[0].Failures)
	}
}

func TestLostQueryIsSentAgain(t *testing.T) {
	b := good
	b.query = func(l *lab, query []byte, reply func([]byte)) {
		if !l.misbehave(func() {}) {
			good.query(l, query, reply)
		}
	}
	reports, status := play(t, startLab(t, b))
	step := reports[1].Flows["udp"]
	if status != 0 || step.Resent < 1 {
		t.Errorf("status %d, %d sent again", status, step.Resent)
	}
	if step.StallMs < 20 {
		t.Errorf("the wait was %f ms, although an answer was lost for 20", step.StallMs)
	}
}

func TestDownloadThatEndsEarlyFails(t *testing.T) {
	b := good
	b.download = func(_ *lab, c net.Conn) { give(c, content(2*block)) }
	reports, status := play(t, startLab(t, b), func(o *options) {
		o.size, o.rate, o.period = 2*block, 1<<30, 100*time.Millisecond
	})
	if last := reports[3]; status != 1 || last.Failures["other"] != 3 {
		t.Errorf("status %d, failures %v", status, last.Failures)
	}
}

func TestUnknownCommandIsRefused(t *testing.T) {
	o := options{}
	if status := o.run(strings.NewReader("stop\n"), io.Discard); status != 2 {
		t.Errorf("status %d", status)
	}
	if status := o.run(strings.NewReader(""), io.Discard); status != 2 {
		t.Errorf("status %d at the end of input", status)
	}
}

func TestDNSTextIsParsed(t *testing.T) {
	answer := dnsAnswer(dnsQuery(7), "s1")
	if who, err := dnsText(answer); who != "s1" || err != nil {
		t.Errorf("%q, %v", who, err)
	}
	for n := range answer {
		if who, err := dnsText(answer[:n]); err == nil {
			t.Errorf("%q from the first %d of %d bytes", who, n, len(answer))
		}
	}
}

func TestNextKeepsItsPhaseAfterAStall(t *testing.T) {
	due := time.Now().Add(-3500 * time.Millisecond)
	if got := next(due, time.Second).Sub(due); got != 4*time.Second {
		t.Errorf("asks %v after it was due", got)
	}
	due = time.Now().Add(time.Hour)
	if got := next(due, time.Second).Sub(due); got != time.Second {
		t.Errorf("asks %v after it was due", got)
	}
}
