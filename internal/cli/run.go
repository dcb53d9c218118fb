// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// runOptions are the options of `steelyard run`, in the form for the supervisor.
type runOptions struct {
	Interface   string
	Addresses   []string
	Ports       []uint
	Workers     uint
	LocalPorts  string
	MemoryMB    uint
	Connections uint
	Ring        uint
	Fork        string
	Pacing      bool
	Large       bool
	Log         string
	TOA         bool
	Hooks       []string
	Name        string
}

// The supervisor's own bounds (dataplane/preload/message.h, supervisor_options.c).
const (
	runAddresses = 16
	runPorts     = 32
)

var runForks = []string{"auto", "relay", "keep"} // enum message_fork

var runLevels = []string{"error", "warn", "info", "debug"} // enum sy_log_level

func (a *app) runCommand() *cobra.Command {
	o := runOptions{}
	command := &cobra.Command{
		Use: "run --interface NAME [flags] -- PROGRAM [ARGUMENT...]", Short: "Run an unmodified program on the user-space TCP stack",
		Long: "PROGRAM's TCP connections from and to the served addresses use a stack in its own process, over AF_XDP. Linux keeps all other sockets, including " +
			"listeners at other addresses, and ARP, neighbour discovery and all other packets of the interface.\n\n" +
			"The program may have several processes (nginx): --workers is the number of those with a stack. Each serves the receive queues whose number, " +
			"modulo the number of workers, is its own. docs/run.md lists differences from Linux.\n\n" +
			"steelyard stack shows its connections and counters, which ss and nstat do not show.\n\n" +
			"The command ends with the last process of the program, with the exit code of its first one (128 and more: a signal). It forwards " +
			"SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGWINCH. It needs root; the program's workers need not be root.",
		Example: "  steelyard run --interface eth0 -- redis-server /etc/redis/redis.conf\n" +
			"  steelyard run --interface eth0 --workers 2 --address 192.0.2.10 --port 80 --port 443 -- nginx -g 'daemon off;'\n" +
			"  steelyard run --interface eth0 --hook http_path,name=api -- nginx -g 'daemon off;'\n" +
			"  steelyard run --interface eth0 -- curl http://192.0.2.10/",
	}
	command.Args = func(c *cobra.Command, given []string) error {
		if c.ArgsLenAtDash() != 0 || len(given) == 0 {
			return fmt.Errorf("write the program after --: usage: %s", c.UseLine())
		}
		return nil
	}
	flags := command.Flags()
	flags.StringVar(&o.Interface, "interface", "", "`name` of the kernel interface whose packets the stack receives")
	flags.StringArrayVar(&o.Addresses, "address", nil, "served `address`, repeatable: of the interface, or a VIP on lo or a dummy interface; "+
		"default: all of the interface but link-local ones")
	flags.UintSliceVar(&o.Ports, "port", nil, "served `port`, repeatable; listeners on other ports stay with Linux; default: each port on which the program listens")
	flags.UintVar(&o.Workers, "workers", 1, "`number` of the program's processes with a stack of their own")
	flags.StringVar(&o.LocalPorts, "local-ports", "61000-65535", "`range` of local ports for connections that the program opens, outside Linux's own range (net.ipv4.ip_local_port_range)")
	flags.UintVar(&o.MemoryMB, "memory", 64, "memory of each worker for packets, in `MB`")
	flags.UintVar(&o.Connections, "connections", 65536, "maximum `number` of connections of each worker")
	flags.UintVar(&o.Ring, "ring", 4096, "`number` of packets in a receive queue, a power of 2 from 256 to 32768: a larger one bridges longer pauses "+
		"in which the program is busy, and needs some 2 KB of memory per packet and queue")
	flags.BoolVar(&o.TOA, "toa", false, "getpeername() returns the client that a balancer names in a TCP option (client_address: toa), not the balancer; "+
		"only if the ports are reachable through the balancer alone, because any sender of the option can claim any address")
	flags.StringVar(&o.Fork, "fork", "auto", "`which` connections of a parent the children of fork() get, by a relay: auto (those that the parent "+
		"does not serve in an event loop), relay (all) or keep (none: they stay with the parent)")
	flags.BoolVar(&o.Pacing, "pacing", false, "send segments evenly over a round trip, not in bursts; a program sets SO_MAX_PACING_RATE for one connection")
	flags.BoolVar(&o.Large, "large-segments", false, "let the kernel or the NIC split large segments (TSO): "+
		"bulk data costs less; segments pass tc, and the other end of a veth must accept partial checksums")
	flags.StringVar(&o.Log, "log", "warn", "log `level` of the stack on standard error: error, warn, info or debug")
	flags.StringArrayVar(&o.Hooks, "hook", nil, "`FILE` of a hook, or the name of a ready-made one, that sets priorities; repeatable. After it, with commas: "+
		"name=NAME, listen=ADDRESS:PORT, and parameters such as 0=512")
	flags.StringVar(&o.Name, "name", "", "`name` by which steelyard stack and steelyard hook find the program (--stack); default: PROGRAM-PID")
	command.RunE = func(_ *cobra.Command, program []string) error {
		arguments, err := o.arguments()
		if err != nil {
			return err
		}
		if err := o.checkLocalPorts(); err != nil {
			return err
		}
		if _, err := exec.LookPath(program[0]); err != nil {
			return notStarted(program[0], errors.Unwrap(err))
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		supervisor, library, err := findSupervisor(self)
		if err != nil {
			return err
		}
		if os.Geteuid() != 0 {
			return errors.New("run needs root: it attaches an XDP program to the interface; the program may drop its rights afterwards")
		}
		arguments = append(append([]string{"steelyard-supervisor", "--library", library}, arguments...), append([]string{"--"}, program...)...)
		return fmt.Errorf("%s: %w", supervisor, syscall.Exec(supervisor, arguments, os.Environ()))
	}
	return command
}

// notStarted maps errors to the exit codes of shells.
func notStarted(program string, err error) error {
	code := 126
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = 127
	}
	return &exitError{code, fmt.Errorf("%s: %w", program, err)}
}

// arguments validates the options and returns the supervisor's.
func (o *runOptions) arguments() ([]string, error) {
	if o.Interface == "" {
		return nil, errors.New("--interface is missing: name the interface whose packets the stack receives")
	}
	level := slices.Index(runLevels, o.Log)
	if level < 0 {
		return nil, fmt.Errorf("--log %s: use one of %s", o.Log, strings.Join(runLevels, ", "))
	}
	if !slices.Contains(runForks, o.Fork) {
		return nil, fmt.Errorf("--fork %s: use one of %s", o.Fork, strings.Join(runForks, ", "))
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	addresses, err := o.served()
	if err != nil {
		return nil, err
	}
	arguments := []string{"--interface", o.Interface, "--workers", strconv.FormatUint(uint64(o.Workers), 10), "--local-ports", o.LocalPorts,
		"--memory", strconv.FormatUint(uint64(o.MemoryMB), 10), "--connections", strconv.FormatUint(uint64(o.Connections), 10),
		"--ring", strconv.FormatUint(uint64(o.Ring), 10), "--log", strconv.Itoa(level)}
	for _, address := range addresses {
		arguments = append(arguments, "--address", address.String())
	}
	if o.TOA {
		arguments = append(arguments, "--toa")
	}
	for _, port := range o.Ports {
		arguments = append(arguments, "--port", strconv.FormatUint(uint64(port), 10))
	}
	if o.Fork != "auto" {
		arguments = append(arguments, "--fork", o.Fork)
	}
	if o.Pacing {
		arguments = append(arguments, "--pacing")
	}
	if o.Large {
		arguments = append(arguments, "--large-segments")
	}
	if o.Name != "" {
		arguments = append(arguments, "--name", o.Name)
	}
	for _, text := range o.Hooks {
		hook, err := runHook(text)
		if err != nil {
			return nil, err
		}
		arguments = append(arguments, hook...)
	}
	return arguments, nil
}

func (o *runOptions) check() error {
	for _, number := range []struct {
		option                  string
		value, minimum, maximum uint
	}{{"workers", o.Workers, 1, 32}, {"memory", o.MemoryMB, 16, 65536}, {"connections", o.Connections, 16, 4000000}} {
		if number.value < number.minimum || number.value > number.maximum {
			return fmt.Errorf("--%s %d: use %d to %d", number.option, number.value, number.minimum, number.maximum)
		}
	}
	if o.Ring < 256 || o.Ring > 32768 || o.Ring&(o.Ring-1) != 0 {
		return fmt.Errorf("--ring %d: use a power of 2 from 256 to 32768", o.Ring)
	}
	for _, port := range o.Ports {
		if port < 1 || port > 65535 {
			return fmt.Errorf("--port %d: use 1 to 65535", port)
		}
	}
	if len(o.Ports) > runPorts {
		return fmt.Errorf("%d ports: at most %d; without --port all are served", len(o.Ports), runPorts)
	}
	first, last, found := strings.Cut(o.LocalPorts, "-")
	low, errLow := strconv.ParseUint(first, 10, 16)
	high, errHigh := strconv.ParseUint(last, 10, 16)
	if !found || errLow != nil || errHigh != nil || low < 1024 || low > high {
		return fmt.Errorf("--local-ports %s: write a range such as 61000-65535, from 1024 on", o.LocalPorts)
	}
	if uint64(o.Workers) > high-low+1 {
		return fmt.Errorf("--local-ports %s: each of %d workers needs one", o.LocalPorts, o.Workers)
	}
	return nil
}

// runHook converts FILE,name=NAME,listen=ADDRESS:PORT,I=VALUE into options of the supervisor.
func runHook(text string) ([]string, error) {
	file, rest, _ := strings.Cut(text, ",")
	path, err := findHook(file)
	if err != nil {
		return nil, fmt.Errorf("--hook %w", err)
	}
	name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".o"), ".bpf")
	var listen, params []string
	for _, part := range strings.FieldsFunc(rest, func(r rune) bool { return r == ',' }) {
		key, value, _ := strings.Cut(part, "=")
		switch key {
		case "name":
			name = value
		case "listen":
			listen = append(listen, value)
		default:
			params = append(params, part)
		}
	}
	if len(listen) == 0 {
		listen = []string{"default"}
	}
	places, err := hookPlaces(listen)
	if err != nil {
		return nil, fmt.Errorf("--hook %s: %w", text, err)
	}
	numbers, err := hookParameters(params)
	if err != nil {
		return nil, fmt.Errorf("--hook %s: %w", text, err)
	}
	arguments := []string{"--hook", name, "--hook-file", path}
	for _, place := range places {
		address, _ := netip.AddrFromSlice(place.GetAddress())
		text := ""
		if address.IsValid() {
			text = address.String()
		}
		arguments = append(arguments, "--hook-place", fmt.Sprintf("%s#%d", text, place.GetPort()))
	}
	for _, number := range numbers {
		arguments = append(arguments, "--hook-param", fmt.Sprintf("%d=%d", number.GetIndex(), number.GetValue()))
	}
	return arguments, nil
}

// served returns the stack's addresses: those of the interface, or the named ones, including a VIP on another interface (a server behind direct routing has
// it on lo or on a dummy interface).
func (o *runOptions) served() ([]netip.Addr, error) {
	link, err := net.InterfaceByName(o.Interface)
	if err != nil {
		return nil, fmt.Errorf("--interface %s: no such interface in this network namespace", o.Interface)
	}
	there, err := usableAddresses(link.Addrs)
	if err != nil {
		return nil, fmt.Errorf("addresses of %s: %w", o.Interface, err)
	}
	anywhere, err := usableAddresses(net.InterfaceAddrs)
	if err != nil {
		return nil, fmt.Errorf("addresses of this host: %w", err)
	}
	var wanted []netip.Addr
	for _, text := range o.Addresses {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("--address %s: not an IP address", text)
		}
		if !slices.Contains(there, address.Unmap()) && !slices.Contains(anywhere, address.Unmap()) {
			return nil, fmt.Errorf("--address %s: neither %s has it, nor, as a VIP, another interface: ip address add %s dev %s (a VIP: dev lo)",
				text, o.Interface, text, o.Interface)
		}
		if address.IsLoopback() && link.Flags&net.FlagLoopback == 0 {
			return nil, fmt.Errorf("--address %s: packets to it stay on this host, and do not arrive at %s", text, o.Interface)
		}
		wanted = append(wanted, address.Unmap())
	}
	if len(wanted) == 0 {
		wanted = there
	}
	switch {
	case len(wanted) == 0:
		return nil, fmt.Errorf("%s has no address that can be served: add one by ip address add ADDRESS/LENGTH dev %s", o.Interface, o.Interface)
	case len(wanted) > runAddresses:
		return nil, fmt.Errorf("%s has %d addresses, at most %d can be served: name them with --address", o.Interface, len(wanted), runAddresses)
	}
	return wanted, nil
}

// usableAddresses returns a list of addresses without link-local ones, which several interfaces may have.
func usableAddresses(list func() ([]net.Addr, error)) ([]netip.Addr, error) {
	networks, err := list()
	if err != nil {
		return nil, err
	}
	var addresses []netip.Addr
	for _, network := range networks {
		if prefix, err := netip.ParsePrefix(network.String()); err == nil && !prefix.Addr().IsLinkLocalUnicast() {
			addresses = append(addresses, prefix.Addr())
		}
	}
	return addresses, nil
}

// findSupervisor searches the supervisor and its library beside this binary, then in the installation.
func findSupervisor(self string) (supervisor, library string, err error) {
	directory := filepath.Dir(self)
	for _, beside := range []string{directory, filepath.Join(directory, "..", "libexec", "steelyard")} {
		supervisor, library = filepath.Join(beside, "steelyard-supervisor"), filepath.Join(beside, "libsteelyard-preload.so")
		if _, err := os.Stat(supervisor); err != nil {
			continue
		}
		if _, err := os.Stat(library); err == nil {
			library, err = filepath.EvalSymlinks(library)
			return supervisor, library, err
		}
	}
	return "", "", fmt.Errorf("steelyard-supervisor and libsteelyard-preload.so are neither beside %s nor in ../libexec/steelyard: install them", self)
}
