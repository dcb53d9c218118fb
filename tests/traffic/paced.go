// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// pacedReport has the results of requests at a fixed rate. Delays count from a request's planned time, so a stall
// delays all requests planned meanwhile.
type pacedReport struct {
	Planned  int            `json:"planned"`
	Answered int            `json:"answered"` // in time, with the right answer
	Failures map[string]int `json:"failures"` // by nature
	P50Ms    float64        `json:"p50_ms"`
	P99Ms    float64        `json:"p99_ms"` // a request that failed took its patience
	MaxMs    float64        `json:"max_ms"`
}

// paced sends this many requests per second, each on its own connection, without waiting for earlier ones.
func (o options) paced(rate int, length time.Duration, answers io.Writer) int {
	var mu sync.Mutex
	var running sync.WaitGroup
	var took []time.Duration
	report := pacedReport{Failures: map[string]int{}}
	start, gap := time.Now(), time.Second/time.Duration(rate)

	for due := start; due.Sub(start) < length; due = due.Add(gap) {
		time.Sleep(time.Until(due))
		target := o.webTargets.of(report.Planned)
		report.Planned++
		running.Go(func() {
			err := o.once(target, due)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				report.Answered++
				took = append(took, time.Since(due))
			} else {
				report.Failures[nature(err)]++
				took = append(took, o.patience)
			}
		})
	}
	running.Wait()
	slices.Sort(took)
	at := func(permille int) float64 {
		return float64(took[min(len(took)*permille/1000, len(took)-1)]) / float64(time.Millisecond)
	}
	report.P50Ms, report.P99Ms, report.MaxMs = at(500), at(990), at(1000)
	json.NewEncoder(answers).Encode(report)
	return 0
}

// once sends one request, which must be answered within the patience.
func (o options) once(target string, due time.Time) error {
	deadline := due.Add(o.patience)
	conn, err := (&net.Dialer{Deadline: deadline}).Dial("tcp", target)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(deadline)
	if err := request(conn, "/"); err != nil {
		return err
	}
	_, err = readName(bufio.NewReaderSize(conn, 512))
	return err
}

// slowClients keep connections open on which they send a request's head, one byte per period.
type slowClients struct {
	mu          sync.Mutex
	held, ended int
}

// slow opens this many connections from all sources in rotation, and answers lines of its input with the number of open
// ones. It does not replace closed ones.
func (o options) slow(count int, sources targets, commands io.Reader, answers io.Writer) int {
	var s slowClients
	var opening sync.WaitGroup
	places := make(chan struct{}, 64) // opened at once

	for n := range count {
		places <- struct{}{}
		opening.Add(1)
		go func() {
			conn, err := dialFrom(sources, n, o.webTargets.of(n), o.patience)
			<-places
			s.count(err == nil)
			opening.Done()
			if err == nil {
				drip(conn, o.period)
				s.end()
			}
		}()
	}
	opening.Wait()
	for lines := bufio.NewScanner(commands); ; {
		s.mu.Lock()
		fmt.Fprintf(answers, "{\"wanted\":%d,\"held\":%d}\n", count, s.held-s.ended)
		s.mu.Unlock()
		if !lines.Scan() || lines.Text() == "finish" {
			return 0
		}
	}
}

func (s *slowClients) count(opened bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if opened {
		s.held++
	}
}

func (s *slowClients) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended++
}

func dialFrom(sources targets, n int, target string, patience time.Duration) (net.Conn, error) {
	dialer := net.Dialer{Timeout: patience}
	if len(sources) > 0 {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(sources.of(n))}
	}
	return dialer.Dial("tcp", target)
}

// drip returns when the peer closes the connection.
func drip(conn net.Conn, period time.Duration) {
	defer conn.Close()
	one := make([]byte, 1)
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nX-Slow: "); err != nil {
		return
	}
	for {
		conn.SetReadDeadline(time.Now().Add(period))
		if _, err := conn.Read(one); !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if _, err := conn.Write([]byte("a")); err != nil {
			return
		}
	}
}
