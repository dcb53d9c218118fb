// SPDX-License-Identifier: Apache-2.0

package stall

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestLateCountsStallsSinceATime(t *testing.T) {
	begun := time.Now()
	at := func(ms int) time.Time { return begun.Add(time.Duration(ms) * time.Millisecond) }
	w := new(Watch)
	for _, ms := range []int{0, 100, 250, 2250, 2350, 2850, 2950} {
		w.tick(at(ms))
	}
	for _, c := range []struct{ since, now, want int }{
		{0, 3000, 2500},
		{250, 3000, 2500},
		{1250, 3000, 1500},
		{2300, 3000, 500},
		{2900, 3000, 0},
		{2900, 3950, 1000}, // not seen by the ticker yet
		{0, 3950, 3500},
	} {
		if got := w.lateUntil(at(c.since), at(c.now)); got != time.Duration(c.want)*time.Millisecond {
			t.Errorf("late since %d at %d: %v, not %d ms", c.since, c.now, got, c.want)
		}
	}
}

func TestAWatchThatDoesNotRunReportsNothing(t *testing.T) {
	for _, w := range []*Watch{nil, new(Watch)} {
		if late := w.Late(time.Now().Add(-time.Hour)); late != 0 {
			t.Errorf("%v", late)
		}
	}
}

func TestOnlyTheLatestStallsAreRemembered(t *testing.T) {
	w, begun := new(Watch), time.Now().Add(-time.Hour)
	for i := range 2 * remembered {
		w.Note(begun.Add(time.Duration(2*i)*time.Second), begun.Add(time.Duration(2*i+1)*time.Second))
	}
	if late := w.Late(begun); late != remembered*time.Second {
		t.Errorf("%v", late)
	}
}

func TestATimeoutCountsOnlyTimeInWhichTheProcessRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, begun := new(Watch), time.Now()
		w.Note(begun.Add(500*time.Millisecond), begun.Add(3500*time.Millisecond))
		ctx, cancel := w.WithTimeout(t.Context(), time.Second)
		defer cancel()
		child, cancelChild := context.WithCancel(ctx)
		defer cancelChild()
		<-child.Done()
		if took := time.Since(begun); took < 4*time.Second || took > 5*time.Second {
			t.Errorf("it ended after %v", took)
		}
		for _, c := range []context.Context{ctx, child} {
			if !errors.Is(c.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(c), context.DeadlineExceeded) {
				t.Errorf("%v, %v", c.Err(), context.Cause(c))
			}
		}
	})
}

func TestATimeoutEndsWithItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, end := context.WithCancel(t.Context())
		ctx, cancel := new(Watch).WithTimeout(parent, time.Second)
		defer cancel()
		end()
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.Canceled) {
			t.Error(ctx.Err())
		}
		if late, cancel := new(Watch).WithTimeout(parent, time.Second); late.Err() == nil {
			t.Error("a context of a parent that has ended has not ended")
			cancel()
		} else {
			cancel()
		}
		mine, cancel := new(Watch).WithTimeout(t.Context(), time.Second)
		cancel()
		if !errors.Is(mine.Err(), context.Canceled) {
			t.Error(mine.Err())
		}
	})
}

func TestADeadlineIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, begun := new(Watch), time.Now()
		ctx, cancel := w.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if at, has := ctx.Deadline(); has {
			t.Error(at)
		}
		ctx, cancel = w.WithDeadline(t.Context(), time.Second)
		defer cancel()
		w.Note(begun, begun.Add(3*time.Second))
		if at, has := ctx.Deadline(); !has || !at.Equal(begun.Add(4*time.Second)) {
			t.Error(at, has)
		}
	})
}

// A silent peer, and one that sends just before the limit, with and without a stall of this host.
func TestSilentConnectionCloses(t *testing.T) {
	for _, c := range []struct {
		name         string
		sends, stall time.Duration
		sent         int
		want         time.Duration
	}{
		{"silent", 0, 0, 0, 10 * time.Second},
		{"silent and stalled", 0, 5 * time.Second, 0, 15 * time.Second},
		{"ends", 9 * time.Second, 0, 3, 37 * time.Second},
		{"ends and stalled", 9 * time.Second, 5 * time.Second, 1, 23 * time.Second}, // 4 s of the stall are after the byte
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, begun := new(Watch), time.Now()
				w.Note(begun.Add(8*time.Second), begun.Add(8*time.Second+c.stall))
				near, far := net.Pipe()
				defer far.Close()
				go func() {
					for range c.sent {
						time.Sleep(c.sends)
						_, _ = far.Write([]byte{1})
					}
				}()
				_, err := io.Copy(io.Discard, w.NewConn(near, 10*time.Second))
				if took := time.Since(begun); err == nil || took < c.want || took > c.want+time.Second {
					t.Errorf("closed after %v, not %v: %v", took, c.want, err)
				}
			})
		})
	}
}

func TestAStoppedTimerDoesNotExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, fired := new(Watch), false
		stop := w.After(time.Second, func() { fired = true })
		if !stop() || stop() {
			t.Error("stop returns something else than whether it had an effect")
		}
		time.Sleep(2 * time.Second)
		if fired {
			t.Error("it was called")
		}
		stop = w.After(time.Second, func() { fired = true })
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !fired || stop() {
			t.Error("it was not called, or can still be stopped")
		}
	})
}

// child is a process with a time-out that is shorter than the time for which it is stopped.
const child = "STEELYARD_STALL_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	Start()
	begun := time.Now()
	ctx, cancel := WithTimeout(context.Background(), time.Second)
	defer cancel()
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		os.Exit(1)
	}
	fmt.Println(ctx.Err(), Late(begun).Nanoseconds())
}

func TestAStoppedProcessDoesNotTimeOut(t *testing.T) {
	const stopped = 1500 * time.Millisecond
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), child+"=1")
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = command.Wait() }()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the child does not start")
	}
	_ = command.Process.Signal(syscall.SIGSTOP)
	time.Sleep(stopped)
	fmt.Fprintln(in, "an answer that came meanwhile")
	_ = command.Process.Signal(syscall.SIGCONT)
	var ended string
	var late int64
	if !lines.Scan() {
		t.Fatal("the child does not continue")
	}
	if _, err := fmt.Sscan(lines.Text(), &ended, &late); err != nil {
		t.Fatal(lines.Text(), err)
	}
	if ended != "<nil>" || time.Duration(late) < stopped*9/10 {
		t.Errorf("the time-out: %s, late by %v, stopped for %v", ended, time.Duration(late), stopped)
	}
}
