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
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"steelyard/internal/model"
	"steelyard/internal/store"
)

func TestStallsAreMeasured(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	stolen := []time.Duration{0, 0}
	s := stalls{read: func() []time.Duration { return append([]time.Duration(nil), stolen...) }}
	for _, ms := range []int{0, 50, 100, 190, 240, 1240, 1290} { // 90 ms are a busy machine
		s.tick(at(ms))
	}
	for _, test := range []struct {
		from, to int
		want     int
	}{
		{0, 240, 0}, {0, 1290, 950}, {300, 1000, 700}, {300, 320, 20}, {1240, 1300, 0},
		{1290, 1380, 0}, // the clock is not late yet
		{1290, 2290, 950},
	} {
		if got := s.within(at(test.from), at(test.to)); got != time.Duration(test.want)*time.Millisecond {
			t.Errorf("%d to %d: %s, not %d ms", test.from, test.to, got, test.want)
		}
	}
	stolen[1] = 300 * time.Millisecond
	if got := s.within(at(1250), at(1350)); got != 100*time.Millisecond { // not more than there was
		t.Errorf("stolen in 100 ms: %s", got)
	}
	s.tick(at(2250)) // a reading with the stolen time; the stall itself is over
	if got := s.within(at(2260), at(3000)); got != 700*time.Millisecond {
		t.Errorf("afterwards: %s", got) // the clock's own lateness alone
	}
	for i := range 1000 {
		s.tick(at(3000 + i*1000))
	}
	if len(s.late) > keptStalls || len(s.steals) > keptSteals {
		t.Errorf("%d and %d are kept", len(s.late), len(s.steals))
	}
	if all := readSteal(); len(all) == 0 {
		t.Error("this host has no processors")
	}
}

// A time-out that passed while this host did not run says nothing; the check is repeated at once.
func TestStallsDecideNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hasty := policy
		hasty.Fall = 1
		var stalled bool
		checks, downs := 0, 0
		var c *Checker
		c = New(Options{Limit: 1,
			Probe: func(ctx context.Context, _ model.Health, _ Server) error {
				checks++
				from := time.Now()
				<-ctx.Done()
				if stalled {
					c.stalls.mu.Lock()
					c.stalls.late = append(c.stalls.late, span{from, from.Add(hasty.Timeout / 2)})
					c.stalls.mu.Unlock()
				}
				return errors.New("no answer")
			},
			Report:  func(_ model.ServerRef, _ uint64, state State) { downs++ },
			Observe: func(Observation) {},
		})
		defer c.Close()
		list := targets(1, hasty, true, true)
		stalled = true
		c.Watch(list)
		time.Sleep(hasty.Interval + hasty.Timeout)
		synctest.Wait()
		state, _ := c.State(list[0].Ref)
		if !state.Up || state.Undecided == 0 || downs != 0 {
			t.Errorf("after %d checks: %+v", checks, state)
		}
		// A host that stalls all the time finds a dead server too.
		time.Sleep(maxStalledTimeouts * 4 * hasty.Timeout)
		synctest.Wait()
		if state, _ = c.State(list[0].Ref); state.Up || downs != 1 {
			t.Errorf("after %d checks: %+v", checks, state)
		}
	})
}

// TestMain runs the process that TestAStoppedAgent stops.
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
	results := make(chan Observation, 99)
	c := New(Options{Limit: 1, Probe: NewProbe(Connect, nil), Report: func(_ model.ServerRef, _ uint64, state State) { fmt.Println("up:", state.Up) },
		Observe: func(o Observation) { results <- o }})
	c.Watch([]store.Target{{Ref: model.ServerRef{Address: server}, Up: true, Proven: true, Policy: model.Health{
		Type: model.HealthHTTP, Path: "/", Expect: model.StatusRange{First: 200, Last: 299}, Interval: stoppedTimeout, Timeout: stoppedTimeout, Rise: 1, Fall: 1}}})
	for one := range results {
		fmt.Println(one.Undecided, one.Passed)
		if one.Undecided == Decided {
			c.Close()
			return
		}
	}
}

// A process that is stopped while a server answers does not take it for dead, although its time-out is over when it runs again.
func TestAStoppedAgent(t *testing.T) {
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
