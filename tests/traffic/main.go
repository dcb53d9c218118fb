// SPDX-License-Identifier: Apache-2.0

// Traffic keeps many conversations through a balancer open at once, and reports their results: keep-alive HTTP
// connections, long downloads, UDP flows. Each must last from start to finish and stay at its server; otherwise it counts
// as failed, and never reconnects.
//
// It reads commands from standard input, and answers each by a line of JSON on standard output:
//
//	(start)  {"event":"ready",…}   every flow has had an answer
//	step     {"event":"step",…}    every flow has had an answer to a later request; events since the last report
//	finish   {"event":"finish",…}  the downloads are complete; the exit status is 0 if no flow has failed
//
// With -paced it sends requests at a fixed rate instead, and with -slow it opens connections that never finish their
// request.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Counts of flows, their targets and parameters.
type options struct {
	web, downloads, udp      int
	webTargets, udpTargets   targets
	path                     string // of the content at the web servers
	size                     int    // of the content
	period, resend, patience time.Duration
	rate                     int // of a download, in bytes per second
}

// targets are addresses, which flows use in rotation.
type targets []string

func (t *targets) String() string { return strings.Join(*t, ",") }

func (t *targets) Set(text string) error {
	*t = strings.Split(text, ",")
	return nil
}

func (t targets) of(flow int) string { return t[flow%len(t)] }

func main() {
	var o options
	var write string
	var rate, slow int
	var length time.Duration
	var sources targets
	flag.IntVar(&o.web, "http", 0, "number of keep-alive HTTP connections")
	flag.IntVar(&o.downloads, "downloads", 0, "number of downloads")
	flag.IntVar(&o.udp, "udp", 0, "number of UDP flows")
	flag.Var(&o.webTargets, "web", "`addresses` of web servers, HOST:PORT,…; flows take them in turn")
	flag.Var(&o.udpTargets, "dns", "`addresses` of DNS servers, whose TXT record of who.lab names them")
	flag.StringVar(&o.path, "path", "/files/content", "where the web servers have the content")
	flag.IntVar(&o.size, "size", 3<<20, "size of the content in bytes")
	flag.DurationVar(&o.period, "period", time.Second, "time between two questions of a flow")
	flag.DurationVar(&o.resend, "resend", 200*time.Millisecond, "time after which a UDP question is sent again")
	flag.DurationVar(&o.patience, "patience", 30*time.Second, "time without an answer after which a flow has failed")
	flag.IntVar(&o.rate, "rate", 16<<10, "pace of a download in bytes per second, until the finish")
	flag.StringVar(&write, "write-content", "", "only write the content into this `file`, for the web servers")
	flag.IntVar(&rate, "paced", 0, "requests a `second`, a connection each, instead of all that")
	flag.DurationVar(&length, "for", 10*time.Second, "how long paced requests are sent")
	flag.IntVar(&slow, "slow", 0, "number of connections that send a byte each period, instead of all that")
	flag.Var(&sources, "from", "local `addresses` of slow connections, which take them in turn")
	flag.Parse()

	if write != "" {
		if err := os.WriteFile(write, content(o.size), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "traffic:", err)
			os.Exit(1)
		}
		return
	}
	if flag.NArg() > 0 || (o.web+o.downloads+rate+slow > 0 && o.webTargets == nil) || (o.udp > 0 && o.udpTargets == nil) {
		flag.Usage()
		os.Exit(2)
	}
	// One core suffices, and leaves the other to the balancer under test.
	runtime.GOMAXPROCS(1)
	if rate > 0 {
		os.Exit(o.paced(rate, length, os.Stdout))
	}
	if slow > 0 {
		os.Exit(o.slow(slow, sources, os.Stdin, os.Stdout))
	}
	os.Exit(o.run(os.Stdin, os.Stdout))
}

// run starts all flows, executes commands, and returns the exit status.
func (o options) run(commands io.Reader, answers io.Writer) int {
	record := newBook()
	output := json.NewEncoder(answers)
	hurry, end := make(chan struct{}), make(chan struct{})
	var asking, loading sync.WaitGroup

	all := content(o.size)
	for n := range o.web {
		record.start(&asking, web, func(f *flow) error {
			return o.hold(f, o.webTargets.of(n), o.offset(n, o.web), end)
		})
	}
	for n := range o.udp {
		record.start(&asking, udp, func(f *flow) error {
			return o.query(f, o.udpTargets.of(n), o.offset(n, o.udp), end)
		})
	}
	for n := range o.downloads {
		record.start(&loading, download, func(f *flow) error {
			return o.download(f, o.webTargets.of(n), all, o.offset(n, o.downloads), hurry)
		})
	}
	record.settle()
	output.Encode(record.report("ready"))

	for lines := bufio.NewScanner(commands); lines.Scan(); {
		switch lines.Text() {
		case "step":
			record.settle()
			output.Encode(record.report("step"))
		case "finish":
			close(hurry)
			loading.Wait()
			record.settle()
			close(end)
			asking.Wait()
			last := record.report("finish")
			output.Encode(last)
			if last.failed() {
				return 1
			}
			return 0
		default:
			fmt.Fprintf(os.Stderr, "traffic: no command %q: there are step and finish\n", lines.Text())
			return 2
		}
	}
	fmt.Fprintln(os.Stderr, "traffic: standard input ended before a finish")
	return 2
}

// offset spreads the first requests of n flows over a period.
func (o options) offset(flow, flows int) time.Time {
	return time.Now().Add(o.period * time.Duration(flow) / time.Duration(flows))
}

// next returns the time of a flow's next request after one that was due at `due`. It skips requests that a stall
// delayed, and so keeps the flow's phase.
func next(due time.Time, period time.Duration) time.Time {
	missed := max(0, time.Since(due)/period)
	return due.Add((missed + 1) * period)
}

// pause waits until due. It returns false at the end.
func pause(due time.Time, end <-chan struct{}) bool {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-end:
		return false
	case <-timer.C:
		return true
	}
}
