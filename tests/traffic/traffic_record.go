// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

type kind int

const (
	web kind = iota
	download
	udp
	kinds
)

var kindNames = [kinds]string{"http", "download", "udp"}

// examples is the number of failures that are described; others are only counted.
const examples = 8

var (
	errMoved   = errors.New("another server answers")
	errCorrupt = errors.New("wrong content")
)

// record has the state of all flows.
type record struct {
	mu        sync.Mutex
	flows     [kinds][]*flow
	step      [kinds]tally
	failures  map[string]int
	described []string
	reports   int
	round     int
	unsettled int // living flows without an answer to something asked in this round
	settled   *sync.Cond
}

// tally counts events of one kind of flow since the last report.
type tally struct {
	Answers int     `json:"answers"`
	Resent  int     `json:"resent"`
	StallMs float64 `json:"stall_ms"` // longest wait for an answer; for a download, for the next bytes
	Stalled string  `json:"stalled"`  // the flow that waited so long
}

// flow is one conversation. Only its own goroutine writes it; fields that the record reads are under the record's lock.
type flow struct {
	record *record
	kind   kind
	local  net.Addr // nil until there is a socket; the record does not read it
	server string   // who answers
	failed bool
	round  int // of the newest question that was answered
}

// question is a request that a flow waits for.
type question struct {
	round int
	since time.Time
}

func newBook() *record {
	b := &record{failures: map[string]int{}}
	b.settled = sync.NewCond(&b.mu)
	return b
}

// start starts a flow, which ends when `converse` returns.
func (b *record) start(running *sync.WaitGroup, kind kind, converse func(*flow) error) {
	f := &flow{record: b, kind: kind}
	b.mu.Lock()
	b.flows[kind] = append(b.flows[kind], f)
	b.mu.Unlock()
	running.Go(func() {
		if err := converse(f); err != nil {
			b.fail(f, err)
		}
	})
}

// settle starts a round, and returns when every flow that has not failed has had an answer to a request of this round.
// A complete download sends no further requests.
func (b *record) settle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.round++
	b.unsettled = 0
	for _, flows := range b.flows {
		for _, f := range flows {
			if !f.failed && f.round < b.round {
				b.unsettled++
			}
		}
	}
	for b.unsettled > 0 {
		b.settled.Wait()
	}
}

func (b *record) settleOne() {
	if b.unsettled--; b.unsettled == 0 {
		b.settled.Broadcast()
	}
}

// ask records that the flow now waits for an answer.
func (f *flow) ask() question {
	f.record.mu.Lock()
	defer f.record.mu.Unlock()
	return question{f.record.round, time.Now()}
}

// answered records an answer and its server; the flow fails if the server has changed.
func (f *flow) answered(q question, server string) error {
	b := f.record
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.server == "" {
		f.server = server
	} else if f.server != server {
		return fmt.Errorf("%w: %.40q instead of %q", errMoved, server, f.server)
	}
	step := &b.step[f.kind]
	step.Answers++
	if ms := float64(time.Since(q.since)) / float64(time.Millisecond); ms > step.StallMs {
		step.StallMs, step.Stalled = ms, f.local.String()
	}
	if q.round > f.round {
		f.round = q.round
		if q.round == b.round {
			b.settleOne()
		}
	}
	return nil
}

// complete records that the flow has ended without failure.
func (f *flow) complete() {
	const forever = int(^uint(0) >> 1)
	b := f.record
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.round < b.round {
		b.settleOne()
	}
	f.round = forever
}

// resent records a repeated request.
func (f *flow) resent() {
	f.record.mu.Lock()
	defer f.record.mu.Unlock()
	f.record.step[f.kind].Resent++
}

func (b *record) fail(f *flow, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f.failed = true
	b.failures[nature(err)]++
	if len(b.described) < examples {
		b.described = append(b.described, fmt.Sprintf("%s %v (at %q): %v", kindNames[f.kind], f.local, f.server, err))
	}
	if f.round < b.round {
		b.settleOne()
	}
}

// nature returns the kind of a failure in one word.
func nature(err error) string {
	switch {
	case errors.Is(err, errMoved):
		return "moved"
	case errors.Is(err, errCorrupt):
		return "corrupted"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "closed"
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "refused"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return "silent"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return "silent" // a dial's
	}
	return "other"
}

// report is the report of one step.
type report struct {
	Event    string          `json:"event"`
	Number   int             `json:"number"` // 1 for the first
	Flows    map[string]part `json:"flows"`
	Failures map[string]int  `json:"failures"` // flows, by the nature of their failure, since the start
	Examples []string        `json:"examples"`
}

type part struct {
	tally
	Count   int            `json:"count"`
	Failed  int            `json:"failed"`  // since the start
	Servers map[string]int `json:"servers"` // living flows, by the server that answers them
}

// report returns the events since the last report.
func (b *record) report(event string) report {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reports++
	r := report{event, b.reports, map[string]part{}, maps.Clone(b.failures), append([]string{}, b.described...)}
	for kind, flows := range b.flows {
		p := part{tally: b.step[kind], Count: len(flows), Servers: map[string]int{}}
		for _, f := range flows {
			if f.failed {
				p.Failed++
			} else {
				p.Servers[f.server]++
			}
		}
		r.Flows[kindNames[kind]] = p
	}
	b.step = [kinds]tally{}
	return r
}

func (r report) failed() bool { return len(r.Failures) > 0 }
