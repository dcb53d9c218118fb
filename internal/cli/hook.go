// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	pb "steelyard/internal/gen/stackpb"
	"steelyard/internal/stacks"

	"github.com/spf13/cobra"
)

const hookParams = 8 // SY_HOOK_PARAMS

// hookOptions are the options of all `steelyard hook` commands.
type hookOptions struct {
	stackOptions
	listen []string
	params []string
}

func (a *app) hookCommand() *cobra.Command {
	o := &hookOptions{}
	command := group("hook", "Load, list, swap and remove hooks of running programs")
	command.Long = "Hooks set the priority of packets and segments: docs/hooks.md explains how to write one. These commands control programs on the user-space " +
		"TCP stack, under `steelyard run` or with libsteelyard-tcp, while their traffic flows. All processes of a `steelyard run` get the same " +
		"hooks, including later ones.\n\n" +
		"A hook is verified before it runs. One that may not terminate, runs too long or reads outside of its arguments is refused, with the reason, and " +
		"nothing changes.\n\n" +
		"Root and the program's own user can control it, on a socket in /run/steelyard/stack."
	o.addTo(command)
	command.AddCommand(a.hookLoadCommand(o), a.hookSwapCommand(o), a.hookListCommand(o), a.hookSetCommand(o), a.hookRemoveCommand(o))
	return command
}

const hookFile = "FILE is an eBPF object, compiled by `clang -O2 -target bpf -c`, or the name of a ready-made hook, such as redis_command."

func (a *app) hookLoadCommand(o *hookOptions) *cobra.Command {
	command := &cobra.Command{
		Use: "load NAME FILE", Short: "Load a new hook", Args: args(2, 2),
		Long: hookFile + "\n\nWithout --listen, or with --listen default, the hook runs for all traffic without a hook of its own. A hook for segments may be " +
			"attached to a listener instead; connections that were accepted before keep their hook. ADDRESS is the listener's own address; a listener at all addresses is selected by :PORT. --listen none only loads the hook: another hook may call it by its number.",
		Example: "  steelyard hook load urgent redis_command\n  steelyard hook load api ./api_first.o --param 0=1\n" +
			"  steelyard hook load sizes bytes --listen 192.0.2.10:80 --listen :443",
	}
	flags := command.Flags()
	flags.StringArrayVar(&o.listen, "listen", nil, "where the hook runs: `ADDRESS:PORT` of a listener, :PORT for one at all addresses, default, or none; repeatable")
	flags.StringArrayVar(&o.params, "param", nil, "a parameter `I=VALUE`, such as 0=512; repeatable")
	command.RunE = func(c *cobra.Command, args []string) error {
		places := o.listen
		if len(places) == 0 {
			places = []string{"default"}
		}
		return a.hookLoad(c.Context(), o, args[0], args[1], false, places, "loaded")
	}
	return command
}

func (a *app) hookSwapCommand(o *hookOptions) *cobra.Command {
	command := &cobra.Command{
		Use: "swap NAME FILE", Short: "Replace a hook's code while traffic flows", Args: args(2, 2),
		Long: hookFile + "\n\nThe hook keeps its places, parameters and counters; its connections use the new code from their next segment on. " +
			"Both must be of the same kind, for packets or for segments.",
		Example: "  steelyard hook swap urgent ./mine.o",
	}
	command.Flags().StringArrayVar(&o.params, "param", nil, "a parameter `I=VALUE` that changes; repeatable")
	command.RunE = func(c *cobra.Command, args []string) error {
		return a.hookLoad(c.Context(), o, args[0], args[1], true, nil, "swapped")
	}
	return command
}

func (a *app) hookSetCommand(o *hookOptions) *cobra.Command {
	return &cobra.Command{
		Use: "set NAME I=VALUE...", Short: "Set parameters of a hook", Args: args(2, 1+hookParams),
		Long: "The first lines of a hook's source explain its parameters. VALUE is a number, decimal or hexadecimal (0x50), or up to eight characters " +
			"in quotation marks, read as a number in network byte order.",
		Example: "  steelyard hook set sizes 0=65536 1=5",
		RunE: func(c *cobra.Command, args []string) error {
			params, err := hookParameters(args[1:])
			if err != nil {
				return err
			}
			return a.hookChange(c.Context(), o, &pb.Request{Body: &pb.Request_Set{Set: &pb.Set{Name: args[0], Params: params}}}, args[0], "set")
		},
	}
}

func (a *app) hookRemoveCommand(o *hookOptions) *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Aliases: []string{"remove"}, Short: "Remove a hook", Args: args(1, 1),
		Long: "From then on no hook runs at its places, nor for connections that had it. Queued packets and segments keep their priority.",
		RunE: func(c *cobra.Command, args []string) error {
			return a.hookChange(c.Context(), o, &pb.Request{Body: &pb.Request_Remove{Remove: &pb.Remove{Name: args[0]}}}, args[0], "removed")
		},
	}
}

func (a *app) hookLoad(ctx context.Context, o *hookOptions, name, file string, swap bool, listen []string, done string) error {
	path, err := findHook(file)
	if err != nil {
		return err
	}
	object, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	params, err := hookParameters(o.params)
	if err != nil {
		return err
	}
	places, err := hookPlaces(listen)
	if err != nil {
		return err
	}
	err = a.hookChange(ctx, o, &pb.Request{Body: &pb.Request_Load{Load: &pb.Load{
		Name: name, Object: object, Swap: swap, Params: params, Places: places}}}, name, done)
	var refused *stacks.Error
	if errors.As(err, &refused) {
		return fmt.Errorf("%s: %s", path, refused.Text)
	}
	return err
}

// hookChange sends a change to one program, and prints the result.
func (a *app) hookChange(ctx context.Context, o *hookOptions, request *pb.Request, name, done string) error {
	one, err := o.one()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	response, err := one.Ask(ctx, request)
	if err != nil {
		return err
	}
	changed := response.GetChanged()
	defer a.hookIdle(changed.GetIdle())
	switch count := changed.GetStacks(); {
	case count+changed.GetSilent() == 0:
		fmt.Fprintf(a.out, "%s: %s %s; no process of it has a stack yet; the first one starts with it\n", one.Name, name, done)
	case changed.GetSilent() > 0:
		fmt.Fprintf(a.out, "%s: %s %s in %s; %d follow when their threads next wait\n", one.Name, name, done, plural(int(count), "stack"), changed.GetSilent())
	default:
		fmt.Fprintf(a.out, "%s: %s %s in %s\n", one.Name, name, done, plural(int(count), "stack"))
	}
	return nil
}

// hookIdle warns of places without a listener, where a hook never runs.
func (a *app) hookIdle(places []*pb.Place) {
	for _, place := range places {
		a.warn([]string{fmt.Sprintf("no listener at %s yet; a hook's place is the listener's own address", placeText(place))})
	}
}

// hookParameters parses I=VALUE.
func hookParameters(texts []string) ([]*pb.Param, error) {
	var params []*pb.Param
	for _, text := range texts {
		name, value, found := strings.Cut(text, "=")
		index, err := strconv.ParseUint(name, 10, 32)
		if !found || err != nil || index >= hookParams {
			return nil, fmt.Errorf("parameter %q: write I=VALUE, with I from 0 to %d", text, hookParams-1)
		}
		number, err := hookValue(value)
		if err != nil {
			return nil, fmt.Errorf("parameter %q: %w", text, err)
		}
		params = append(params, &pb.Param{Index: uint32(index), Value: number})
	}
	return params, nil
}

// hookValue reads a number, or up to eight characters in quotation marks as the number that they are in
// network order.
func hookValue(text string) (uint64, error) {
	if strings.HasPrefix(text, `"`) {
		inner, err := strconv.Unquote(text)
		if err != nil || len(inner) == 0 || len(inner) > 8 {
			return 0, errors.New("one to eight characters are possible between quotation marks")
		}
		number := uint64(0)
		for i := range 8 {
			number <<= 8
			if i < len(inner) {
				number |= uint64(inner[i])
			}
		}
		return number, nil
	}
	number, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		return 0, errors.New("this is no number from 0 to 2^64-1, nor characters in quotation marks")
	}
	return number, nil
}

// hookPlaces reads what --listen says.
func hookPlaces(texts []string) ([]*pb.Place, error) {
	var places []*pb.Place
	for _, text := range texts {
		switch text {
		case "default":
			places = append(places, &pb.Place{})
			continue
		case "none":
			if len(texts) > 1 {
				return nil, errors.New("--listen none stands alone")
			}
			continue
		}
		host, service, err := net.SplitHostPort(text)
		port, errPort := strconv.ParseUint(service, 10, 16)
		if err != nil || errPort != nil || port == 0 {
			return nil, fmt.Errorf("--listen %s: write ADDRESS:PORT, :PORT, default or none", text)
		}
		place := &pb.Place{Port: uint32(port)}
		if host != "" && host != "*" {
			address, err := netip.ParseAddr(host)
			if err != nil {
				return nil, fmt.Errorf("--listen %s: %s is no IP address", text, host)
			}
			if !address.IsUnspecified() {
				place.Address = address.Unmap().AsSlice()
			}
		}
		places = append(places, place)
	}
	return places, nil
}

// findHook returns the path of a hook: a file, or one of those that are ready for use.
func findHook(name string) (string, error) {
	if _, err := os.Stat(name); err == nil || strings.Contains(name, "/") {
		return name, err
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	ready := readyHooks(self)
	path := filepath.Join(ready, name+".bpf.o")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	entries, _ := os.ReadDir(ready)
	var names []string
	for _, entry := range entries {
		if name, is := strings.CutSuffix(entry.Name(), ".bpf.o"); is {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", fmt.Errorf("%s: no such file", name)
	}
	return "", fmt.Errorf("%s: no such file, and not one of those that are ready for use: %s", name, strings.Join(names, ", "))
}

// readyHooks is where they are: beside this binary, or where they are installed.
func readyHooks(self string) string {
	directory := filepath.Dir(self)
	beside := filepath.Join(directory, "hooks")
	if _, err := os.Stat(beside); err == nil {
		return beside
	}
	return filepath.Join(directory, "..", "lib", "steelyard", "hooks")
}
