// SPDX-License-Identifier: Apache-2.0

// Fleet measures a controller with many forwarders. The controller, with its etcd, is this process; agents are another one, and speak the real
// protocol over TLS, but take any configuration without a forwarder. It prints a line of JSON for each value.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"steelyard/internal/cluster"
	"steelyard/internal/controller"
	agentpb "steelyard/internal/gen/agentpb"
	"steelyard/internal/gen/agentpb/agentpbconnect"
	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/gen/controllerpb/controllerpbconnect"

	"connectrpc.com/connect"
)

func main() {
	forwarders := flag.Int("forwarders", 100, "how many")
	services := flag.Int("services", 10000, "of each")
	changes := flag.Int("changes", 100, "of one server's weight, for all forwarders")
	every := flag.Duration("every", time.Second, "how often one is made, at most")
	agents := flag.String("agents", "", "be the agents of the controller at this `URL`; their tokens come by the standard input")
	profile := flag.String("profile", "", "`file` for a profile of the controller's processor time")
	flag.Parse()
	var err error
	if *profile != "" {
		file, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(file)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "fleet:", err)
			os.Exit(1)
		}
		defer pprof.StopCPUProfile()
	}
	if *agents != "" {
		err = runAgents(*agents)
	} else {
		err = run(*forwarders, *services, *changes, *every)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

// text is a configuration in which one server has a weight.
func text(services, changed, weight int) []byte {
	var b strings.Builder
	b.WriteString("version: 1\nlocal_addresses: [10.1.0.10]\nservices:\n")
	for i := range services {
		w := 1
		if i == changed {
			w = weight
		}
		fmt.Fprintf(&b, "  - name: service-%d\n    vip: 10.%d.%d.%d\n    port: %d\n    health: { type: none }\n    servers:\n"+
			"      - { address: 10.128.%d.%d, port: 8080, weight: %d }\n      - { address: 10.129.%d.%d, port: 8080, weight: 1 }\n",
			i, 64+i/62500, i/250%250, i%250+1, 8000+i%10, i/250%250, i%250+1, w, i/250%250, i%250+1)
	}
	return []byte(b.String())
}

type clients struct {
	controllerpbconnect.ControllerServiceClient
	agentpbconnect.AgentServiceClient
}

func run(forwarders, services, changes int, every time.Duration) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	directory, err := os.MkdirTemp("", "fleet")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	store, err := cluster.Open(ctx, cluster.Options{Directory: filepath.Join(directory, "s"), Large: controller.LargeKeys})
	if err != nil {
		return err
	}
	defer store.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	url, socket := "https://"+listener.Addr().String(), filepath.Join(directory, "c.sock")
	ended := make(chan error, 1)
	go func() {
		ended <- controller.Run(ctx, controller.Options{Store: store, Listen: listener, URL: url, Socket: socket,
			Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	}()
	defer func() { cancel(); <-ended }()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	c := clients{controllerpbconnect.NewControllerServiceClient(client, "http://controller"), agentpbconnect.NewAgentServiceClient(client, "http://controller")}
	if err := await(ctx, func() bool {
		_, err := c.ListProjects(ctx, connect.NewRequest(&pb.ListProjectsRequest{}))
		return err == nil
	}); err != nil {
		return err
	}
	told, stop, err := startAgents(ctx, c, url, forwarders)
	if err != nil {
		return err
	}
	defer stop()
	return measure(ctx, c, told, forwarders, services, changes, every)
}

func await(ctx context.Context, is func() bool) error {
	for begun := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if ctx.Err() != nil || time.Since(begun) > 3*time.Minute {
			return fmt.Errorf("not within three minutes")
		}
	}
	return nil
}

// startAgents starts the other process, and waits until all its agents are connected. Each configuration that one gets is told by its time.
func startAgents(ctx context.Context, c clients, url string, forwarders int) (<-chan time.Time, func(), error) {
	var tokens strings.Builder
	for i := range forwarders {
		token, err := c.CreateToken(ctx, connect.NewRequest(&pb.CreateTokenRequest{Name: fmt.Sprintf("f%d", i), Role: pb.Role_ROLE_FORWARDER}))
		if err != nil {
			return nil, nil, err
		}
		tokens.WriteString(token.Msg.GetToken() + "\n")
	}
	command := exec.CommandContext(ctx, os.Args[0], "-agents", url)
	command.Stdin, command.Stderr = strings.NewReader(tokens.String()), os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := command.Start(); err != nil {
		return nil, nil, err
	}
	stop := func() { _ = command.Process.Kill(); _ = command.Wait() }
	told := make(chan time.Time, 16*forwarders)
	go readTimes(out, told)
	err = await(ctx, func() bool {
		list, err := c.ListForwarders(ctx, connect.NewRequest(&pb.ListForwardersRequest{}))
		connected := 0
		for _, f := range list.Msg.GetForwarders() {
			if f.GetController() != "" {
				connected++
			}
		}
		return err == nil && connected == forwarders
	})
	if err != nil {
		stop()
		return nil, nil, fmt.Errorf("the agents are not connected %w", err)
	}
	return told, stop, nil
}

func readTimes(from io.Reader, told chan<- time.Time) {
	for scanner := bufio.NewScanner(from); scanner.Scan(); {
		if at, err := strconv.ParseInt(scanner.Text(), 10, 64); err == nil {
			told <- time.Unix(0, at)
		}
	}
	close(told)
}

// order applies a file to all forwarders, and returns when the last one had it and when the order was confirmed.
func order(ctx context.Context, c clients, told <-chan time.Time, forwarders int, yaml []byte) (reached, confirmed time.Duration, err error) {
	request := connect.NewRequest(&agentpb.ApplyConfigRequest{Yaml: yaml, File: "fleet.yaml"})
	request.Header().Set(controller.ForwarderHeader, controller.AllForwarders)
	begun := time.Now()
	response, err := c.ApplyConfig(ctx, request)
	confirmed = time.Since(begun)
	if err == nil && len(response.Msg.GetWarnings()) > 0 {
		err = fmt.Errorf("%s", response.Msg.GetWarnings()[0])
	}
	if err != nil {
		return 0, 0, err
	}
	for range forwarders {
		at, open := <-told
		if !open {
			return 0, 0, fmt.Errorf("the agents have ended")
		}
		reached = max(reached, at.Sub(begun))
	}
	return reached, confirmed, nil
}

func measure(ctx context.Context, c clients, told <-chan time.Time, forwarders, services, changes int, every time.Duration) error {
	emit := func(metric, unit string, value float64) {
		line, _ := json.Marshal(map[string]any{"bench": "controller", "params": map[string]int{"forwarders": forwarders, "services": services},
			"metric": metric, "unit": unit, "value": value})
		fmt.Println(string(line))
	}
	first, _, err := order(ctx, c, told, forwarders, text(services, -1, 0))
	if err != nil {
		return err
	}
	emit("first reaches all", "s", first.Seconds())
	before, begun, busy := usage(), time.Now(), time.Duration(0)
	var all []time.Duration
	for i := range changes {
		yaml := text(services, i*services/changes, 2+i%60)
		ownBefore := usage()
		started := time.Now()
		reached, confirmed, err := order(ctx, c, told, forwarders, yaml)
		if err != nil {
			return err
		}
		busy += usage() - ownBefore
		all = append(all, reached)
		emit("change reaches all", "s", reached.Seconds())
		emit("change confirmed by all", "s", confirmed.Seconds())
		time.Sleep(every - time.Since(started))
	}
	slices.Sort(all)
	emit("change reaches all, 99th percentile", "s", all[max(0, (len(all)*99+99)/100-1)].Seconds())
	emit("controller's cores at a change a second", "cores", (usage()-before).Seconds()/max(time.Since(begun), time.Duration(changes)*every).Seconds())
	emit("controller's time for a change", "s", busy.Seconds()/float64(changes))
	emit("controller's memory, largest", "MB", peak())
	return nil
}

// usage returns this process's time of processors.
func usage() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func peak() float64 {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return float64(used.Maxrss) / 1024
}
