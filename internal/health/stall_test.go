// SPDX-License-Identifier: Apache-2.0

package health

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"steelyard/internal/model"
	"steelyard/internal/stall"
	"steelyard/internal/store"
)

func TestStallsAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stolen := []time.Duration{0, 0}
		s := stalls{process: new(stall.Watch), read: func() []time.Duration { return append([]time.Duration(nil), stolen...) }}
		expect := func(when string, since time.Time, want time.Duration) {
			t.Helper()
			if got := s.since(since); got != want {
				t.Errorf("%s: %s, not %s", when, got, want)
			}
		}
		start := time.Now()
		s.noteSteal(start)
		time.Sleep(time.Second)
		expect("at first", start.Add(time.Millisecond), 0)
		stolen[1] = 300 * time.Millisecond
		expect("a processor was stolen", start.Add(time.Millisecond), 300*time.Millisecond)
		expect("of so short a time", time.Now().Add(-100*time.Millisecond), 100*time.Millisecond)
		expect("before the first reading", start, 0)
		s.process.Note(start, start.Add(700*time.Millisecond))
		expect("this process was stopped longer", start.Add(time.Millisecond), 699*time.Millisecond)
		s.noteSteal(time.Now())
		time.Sleep(time.Second)
		expect("afterwards", time.Now().Add(-900*time.Millisecond), 0)
		for range 1000 {
			s.noteSteal(time.Now())
		}
		if len(s.steals) != keptSteals {
			t.Errorf("%d are kept", len(s.steals))
		}
	})
	if all := readSteal(); len(all) == 0 {
		t.Error("this host has no processors")
	}
}

// A time-out that passed while this host did not run says nothing; the check is repeated at once.
func TestChecksDuringStallsAreInconclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hasty := policy
		hasty.Fall = 1
		var checks, downs atomic.Int32
		process := new(stall.Watch)
		c := New(Options{Limit: 1, Stalls: process,
			Probe: func(ctx context.Context, _ model.Health, _ Server) error {
				checks.Add(1)
				from := time.Now()
				<-ctx.Done()
				process.Note(from, from.Add(hasty.Timeout/2))
				return errors.New("no answer")
			},
			Report:  func(_ model.ServerRef, _ uint64, state State) { downs.Add(1) },
			Observe: func(Observation) {},
		})
		defer c.Close()
		list := targets(1, hasty, true, true)
		c.Watch(list)
		time.Sleep(hasty.Interval + hasty.Timeout)
		synctest.Wait()
		state, _ := c.State(list[0].Ref)
		if !state.Up || state.Undecided == 0 || downs.Load() != 0 {
			t.Errorf("after %d checks: %+v", checks.Load(), state)
		}
		// A host that stalls all the time finds a dead server too.
		time.Sleep(maxStalledTimeouts * 4 * hasty.Timeout)
		synctest.Wait()
		if state, _ = c.State(list[0].Ref); state.Up || downs.Load() != 1 {
			t.Errorf("after %d checks: %+v", checks.Load(), state)
		}
	})
}

// One watch measures for the whole process: a stall that it has found counts for checks.
func TestTheWatchOfTheProcess(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	if c.stalls.process != stall.Process() {
		t.Error("the checker has a watch of its own")
	}
	from := time.Unix(0, 0) // before the time of any other test, and of synctest
	stall.Process().Note(from, from.Add(time.Hour))
	if got := c.stalls.since(from); got != time.Hour {
		t.Errorf("%s", got)
	}
}

// TestMain runs the process that TestStoppedProcessDoesNotFailItsCheck stops.
func TestMain(m *testing.M) {
	if server := os.Getenv("STEELYARD_TEST_CHECK"); server != "" {
		checkOnce(netip.MustParseAddrPort(server))
		return
	}
	os.Exit(m.Run())
}

const stoppedTimeout = 500 * time.Millisecond

// checkOnce reports the first result of the checks of a server.
func checkOnce(server netip.AddrPort) {
	stall.Start()
	results := make(chan Observation, 99)
	c := New(Options{Limit: 1, Probe: NewProbe(Connect, nil), Report: func(_ model.ServerRef, _ uint64, state State) { fmt.Println("up:", state.Up) },
		Observe: func(o Observation) { results <- o }})
	c.Watch([]store.Target{{Ref: model.ServerRef{Address: server}, Up: true, Checked: true, Policy: model.Health{
		Type: model.HealthHTTP, Path: "/", Expect: model.StatusRange{First: 200, Last: 299}, Interval: stoppedTimeout, Timeout: stoppedTimeout, Rise: 1, Fall: 1}}})
	for one := range results {
		fmt.Println(one.Undecided, one.Passed)
		if one.Undecided == Decided {
			c.Close()
			return
		}
	}
}

// A process that is stopped while a server answers does not count the server as dead, although the timeout has passed when it continues.
func TestStoppedProcessDoesNotFailItsCheck(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	asked, answer := make(chan bool), make(chan bool)
	first := true
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if first {
			first = false
			asked <- true
			<-answer
		}
	})}
	go server.Serve(listener)
	defer server.Close()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), "STEELYARD_TEST_CHECK="+listener.Addr().String())
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	<-asked
	if err := command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * stoppedTimeout) // the stall itself
	if err := command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	if !lines.Scan() || lines.Text() != "stall false" {
		t.Errorf("first: %q", lines.Text())
	}
	close(answer)
	for lines.Scan() {
		if text := lines.Text(); text != "stall false" && text != "decided true" {
			t.Error(text)
		}
	}
	if err := command.Wait(); err != nil {
		t.Error(err)
	}
}
