// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func TestPacedRequestsAreAllCounted(t *testing.T) {
	l := startLab(t, good)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	o := options{webTargets: targets{l.web, silent.Addr().String()}, patience: 200 * time.Millisecond}
	var out bytes.Buffer
	o.paced(100, 200*time.Millisecond, &out)

	var got pacedReport
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Planned != 20 || got.Answered+got.Failures["silent"] != 20 || got.Failures["silent"] < 10 {
		t.Errorf("half of the targets never answer: %s", out.String())
	}
	if got.P99Ms < 200 {
		t.Errorf("a request that failed took its patience: %s", out.String())
	}
}

func TestSlowClientsKeepTheirConnections(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	heads := make(chan string, 3)
	go func() {
		for n := 0; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				head := make([]byte, len("GET / HTTP/1.1\r\nX-Slow: aa"))
				io.ReadFull(conn, head)
				heads <- string(head)
			}()
		}
	}()
	o := options{webTargets: targets{listener.Addr().String()}, patience: time.Second, period: 10 * time.Millisecond}
	commands, tell := io.Pipe()
	answers, out := io.Pipe()
	go o.slow(3, targets{"127.0.0.1", "127.0.0.2"}, commands, out)

	var held struct{ Wanted, Held int }
	if err := json.NewDecoder(answers).Decode(&held); err != nil || held.Wanted != 3 || held.Held != 3 {
		t.Fatalf("%+v held, %v", held, err)
	}
	for range 3 {
		if head := <-heads; !strings.HasSuffix(head, "aa") {
			t.Errorf("the server got %q", head)
		}
	}
	fmt.Fprintln(tell, "finish")
}
