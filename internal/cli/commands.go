// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"steelyard/internal/agent"
	"steelyard/internal/config"
	"steelyard/internal/confine"
	"steelyard/internal/controller"
	"steelyard/internal/dpclient"
	"steelyard/internal/egress"
	pb "steelyard/internal/gen/agentpb"
	"steelyard/internal/health"
	"steelyard/internal/model"
	"steelyard/internal/setfile"
	"steelyard/internal/stall"
	"steelyard/internal/version"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
)

func (a *app) agentCommand() *cobra.Command {
	options := agent.Options{}
	var token, tokenFile string
	var allowed []string
	command := &cobra.Command{
		Use: "agent", Short: "Configure a forwarder from a file, and keep it in sync", Args: args(0, 0),
		Long: "The agent reads the configuration file, checks the health of servers, and keeps the forwarder in sync with both, " +
			"also after a restart of either. It reloads the file on `steelyard apply` and on SIGHUP (`systemctl reload steelyard-agent`), as HAProxy and keepalived " +
			"do; with --watch also whenever the file is saved. Until then `steelyard get status` warns that the file has changed. If the file has an " +
			"error, or the forwarder refuses it, the whole file is ignored and the running configuration stays. When the agent stops, the forwarder " +
			"continues with its configuration.\n\nWith --controller, a controller's configuration replaces the file. The agent stores it in its state directory, and works " +
			"from there when no controller is reachable. It joins once, with a token.",
	}
	flags := command.Flags()
	flags.StringVar(&options.Config, "config", agent.DefaultConfig, "configuration `file`")
	flags.BoolVar(&options.Watch, "watch", false, "load the configuration file whenever it is saved, without an apply command")
	flags.StringVar(&options.Forwarder, "forwarder", dpclient.DefaultSocket, "the forwarder's `socket`")
	flags.StringVar(&options.Group, "group", agent.DefaultGroup, "`group` whose members may control the agent")
	flags.StringVar(&options.ReadGroup, "read-group", agent.DefaultReadGroup, "`group` whose members may read")
	flags.StringVar(&options.State, "state", agent.DefaultState, "`directory` for state that survives a restart of the agent")
	flags.StringSliceVar(&options.Controllers, "controller", nil, "`URL` of a controller, as https://HOST:7443, instead of a file; several, separated by commas")
	tokenFlags(command, &token, &tokenFile)
	flags.StringVar(&options.Sets, "sets", "", "`directory` that must contain the files of access sets (default that of --config)")
	flags.StringSliceVar(&allowed, "allow-egress", nil, "`addresses` or prefixes, separated by commas, to which health checks and load sources may connect although the egress policy refuses them: docs/security.md")
	filter := confine.On
	flags.Var(&filter, "seccomp", "on, trap or off: a system call outside the agent's filter fails, kills the agent, or is allowed")
	command.RunE = func(c *cobra.Command, _ []string) error {
		if len(options.Controllers) > 0 && c.Flags().Changed("config") {
			return errors.New("--config and --controller exclude each other: the configuration comes from one of them")
		}
		if len(options.Controllers) > 0 && options.Watch {
			return errors.New("--watch and --controller exclude each other: a controller's configuration is loaded when it arrives")
		}
		if len(options.Controllers) == 0 && (token != "" || tokenFile != "") {
			return errors.New("a token needs a controller: name it by --controller")
		}
		options.Socket = a.socket
		options.Log = slog.New(slog.NewTextHandler(a.err, nil))
		if os.Geteuid() == 0 {
			options.Log.Warn("this agent runs as root without need: run it as the user steelyard, as its unit does")
		}
		if err := confine.NoDumps(); err != nil {
			options.Log.Warn("a core dump of this agent would contain the tokens of its configuration", "error", err)
		}
		if err := confine.Apply(filter); err != nil {
			options.Log.Warn("no system call filter: this agent may make all calls", "error", err)
		}
		options.Probe, options.MayMark = health.Connect, health.MayMark
		var err error
		if options.AllowEgress, err = egress.ParseAllow(allowed); err != nil {
			return err
		}
		if options.Token, err = readToken(token, tokenFile); err != nil {
			return err
		}
		reload := make(chan struct{})
		options.Reload = reload
		defer forwardHangups(c.Context(), reload)()
		limitMemory()
		stall.Start()
		return agent.Run(c.Context(), options)
	}
	return command
}

// agentMemory is the memory use above which the garbage collector runs without delay: half of the unit's limit. Otherwise the heap would double
// before a collection, and exceed the memory after a large file.
const agentMemory = 1 << 30

// limitMemory sets the limit, unless the environment variable GOMEMLIMIT does.
func limitMemory() {
	if _, set := os.LookupEnv("GOMEMLIMIT"); !set { // also "off"
		debug.SetMemoryLimit(agentMemory)
	}
}

// forwardHangups converts SIGHUPs into reloads until the returned function is called.
func forwardHangups(ctx context.Context, reload chan<- struct{}) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for range hangups {
			select {
			case reload <- struct{}{}:
			case <-ctx.Done():
			}
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(hangups)
	}
}

// readFile reads a file from the command line; "-" is the standard input.
func (a *app) readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(a.in)
	}
	data, err := os.ReadFile(name)
	if err == nil && len(data) == 0 {
		return nil, fmt.Errorf("%s is empty: begin it with `version: 1`", name)
	}
	return data, err
}

// fileName returns a file's name for messages.
func fileName(name string) string {
	if name == "-" {
		return "standard input"
	}
	return name
}

// parse parses a file, and prints all its errors.
func (a *app) parse(name string, data []byte) (*model.Config, error) {
	parsed, err := config.Parse(fileName(name), data)
	var mistakes config.Errors
	if errors.As(err, &mistakes) {
		fmt.Fprintln(a.err, mistakes.Error())
		return nil, fmt.Errorf("%s has %s", fileName(name), plural(len(mistakes), "error"))
	}
	return parsed, err
}

func (a *app) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check FILE", Short: "Check a file and print all its errors", Args: args(1, 1),
		Long: "Checks FILE, and the files of its access sets on this host. Needs no agent. Conditions on the forwarder's " +
			"host, such as VIPs that are the host's own addresses, are checked by `steelyard apply`.",
		RunE: func(_ *cobra.Command, args []string) error {
			data, err := a.readFile(args[0])
			if err != nil {
				return err
			}
			parsed, err := a.parse(args[0], data)
			if err != nil {
				return err
			}
			if err := checkSetFiles(parsed.AccessSets); err != nil {
				return err
			}
			servers := 0
			for _, service := range parsed.Services {
				servers += len(service.Servers)
			}
			what := plural(len(parsed.Services), "service") + ", " + plural(servers, "server")
			if rules := len(parsed.SNAT); rules > 0 {
				what += ", " + plural(rules, "rule") + " of SNAT"
			}
			if lists := len(parsed.AccessLists); lists > 0 {
				what += ", " + plural(lists, "access list")
			}
			if sets := len(parsed.AccessSets); sets > 0 {
				what += ", " + plural(sets, "access set")
			}
			if limits := len(parsed.Limits); limits > 0 {
				what += ", " + plural(limits, "limit")
			}
			if ports := len(parsed.Shaping); ports > 0 {
				what += ", shaping of " + plural(ports, "port")
			}
			a.warn(config.Warnings(fileName(args[0]), data, parsed))
			fmt.Fprintf(a.out, "%s is valid: %s.\nConditions on the forwarder's host, such as its own addresses, are checked by apply.\n",
				fileName(args[0]), what)
			return nil
		},
	}
}

// checkSetFiles reads the files of access sets, and returns their errors.
func checkSetFiles(sets []model.AccessSet) error {
	var errs []error
	for _, set := range sets {
		if set.File == "" {
			continue
		}
		if _, err := setfile.Read(set.File); err != nil {
			errs = append(errs, fmt.Errorf("access set %s: %w", set.Name, err))
		}
	}
	return errors.Join(errs...)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// readChecked reads the command's FILE argument, and fails if it has errors. Without a FILE it returns nothing, which stands for the agent's own file.
func (a *app) readChecked(args []string) (data []byte, name string, err error) {
	if len(args) == 0 {
		return nil, "", nil
	}
	if data, err = a.readFile(args[0]); err != nil {
		return nil, "", err
	}
	if _, err = a.parse(args[0], data); err != nil {
		return nil, "", err
	}
	return data, fileName(args[0]), nil
}

func (a *app) diffCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "diff [FILE]", Short: "Show what apply would change", Args: args(0, 1),
		Long: "Compares FILE, or the agent's own file, with the configuration of the forwarder, and with the settings of the agent " +
			"itself: health checks, deadlines of drains, files of access sets, metrics and export. Changes nothing.\n\n" +
			"Exit codes: 0 no differences; 1 differences; 2 failure.",
		RunE: func(c *cobra.Command, args []string) error {
			request := &pb.DiffConfigRequest{}
			var err error
			if request.Yaml, request.File, err = a.readChecked(args); err != nil {
				return err
			}
			response, err := call(c.Context(), a, a.client().DiffConfig, request)
			if err != nil {
				return err
			}
			a.warn(response.GetWarnings())
			if err := a.showDiff(response); err != nil {
				return err
			}
			if len(response.GetChanges()) > 0 {
				return errDifferent
			}
			return nil
		},
	}
	a.outputFlag(command)
	return command
}

type changeView struct {
	Action string `json:"action"`
	Object string `json:"object"`
	Detail string `json:"detail"`
}

func (a *app) showDiff(response *pb.DiffConfigResponse) error {
	views := viewChanges(response.GetChanges())
	return a.show(views, func() {
		if len(views) == 0 {
			fmt.Fprintln(a.out, "No differences.")
		}
		a.printChanges(views)
		if len(views) > 1 {
			fmt.Fprintln(a.out, summary(views))
		}
	})
}

// changedKinds are the prefixes of changes, and the plural of their kind.
var changedKinds = []struct{ begins, kind string }{
	{"service ", "services"}, {"server ", "servers"}, {"local address ", "local addresses"}, {"snat ", "SNAT rules"},
	{"access list ", "access lists"}, {"access set ", "access sets"}, {"limit ", "limits"}, {"shaping ", "shaping"},
	{"", "the agent's settings"},
}

// summary counts changes:
func summary(views []changeView) string {
	kinds, actions := map[string]int{}, map[string]int{}
	for _, v := range views {
		actions[v.Action]++
		for _, one := range changedKinds {
			if strings.HasPrefix(v.Object, one.begins) {
				kinds[one.kind]++
				break
			}
		}
	}
	var parts, done []string
	for _, one := range changedKinds {
		if n := kinds[one.kind]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", one.kind, n))
		}
	}
	for _, one := range []struct{ action, word string }{{"add", "added"}, {"change", "changed"}, {"remove", "removed"}} {
		if n := actions[one.action]; n > 0 {
			done = append(done, fmt.Sprintf("%d %s", n, one.word))
		}
	}
	return fmt.Sprintf("%d changes: %s; %s.", len(views), strings.Join(parts, ", "), strings.Join(done, ", "))
}

func viewChanges(changes []*pb.ConfigChange) []changeView {
	views := []changeView{}
	for _, change := range changes {
		views = append(views, changeView{change.GetAction(), change.GetObject(), change.GetDetail()})
	}
	return views
}

func (a *app) printChanges(views []changeView) {
	for _, v := range views {
		mark := map[string]cell{"add": {"+", green}, "change": {"~", yellow}, "remove": {"-", red}}[v.Action]
		line := a.paint(mark) + " " + v.Object
		if v.Detail != "" {
			line += ": " + v.Detail
		}
		fmt.Fprintln(a.out, line)
	}
}

// maxSettings bounds the changed settings that apply lists one by one.
const maxSettings = 20

// reportApplied prints the effect of an accepted configuration.
func (a *app) reportApplied(response *pb.ApplyConfigResponse) {
	changes, settings := response.GetChanges(), viewChanges(response.GetSettings())
	own := plural(len(settings), "setting") + " of the agent"
	switch {
	case response.GetRevision() == 0 && changes == 0:
		fmt.Fprintf(a.out, "Saved as revision %d; no forwarder has confirmed it yet.\n", response.GetGeneration())
	case changes == 0 && len(settings) == 0:
		fmt.Fprintf(a.out, "Nothing to change; the forwarder is at revision %d.\n", response.GetRevision())
	case changes == 0:
		fmt.Fprintf(a.out, "Changed %s; nothing to change in the forwarder, at revision %d.\n", own, response.GetRevision())
	case len(settings) == 0:
		fmt.Fprintf(a.out, "Applied %s; the forwarder is at revision %d.\n", plural(int(changes), "change"), response.GetRevision())
	default:
		fmt.Fprintf(a.out, "Applied %s, and changed %s; the forwarder is at revision %d.\n", plural(int(changes), "change"), own,
			response.GetRevision())
	}
	if len(settings) <= maxSettings {
		a.printChanges(settings)
	}
}

func (a *app) applyCommand() *cobra.Command {
	var prune, force bool
	var group string
	command := &cobra.Command{
		Use: "apply [FILE]", Short: "Install FILE as the agent's file, or reload that, and wait for the forwarder",
		Args: args(0, 1),
		Long: "With FILE (- is the standard input): checks it, atomically replaces the agent's configuration file with it, " +
			"and waits until the forwarder has accepted it. Without FILE: the agent reloads its own file. If the file has an error, or " +
			"the forwarder refuses it, nothing changes. A VIP or local address in use on another host is claimed only when that host " +
			"no longer answers for it, or with --force. Through a controller, --force claims the addresses of FILE; for operators, only those within their project's prefixes.\n\n" +
			"At a controller, the first file of a forwarder that joined with its own services is refused if it would remove one of them: " +
			"add them to FILE, or confirm with --prune.",
		RunE: func(c *cobra.Command, args []string) error {
			request := &pb.ApplyConfigRequest{Prune: prune, Force: force}
			var err error
			if group != "" {
				if a.forwarder != "" {
					return errGroupAndForwarder
				}
				a.forwarder = controller.GroupHeader + group
			}
			if len(args) > 0 {
				if request.Yaml, err = a.readFile(args[0]); err != nil {
					return err
				}
				request.File = fileName(args[0])
			}
			if len(args) > 0 && len(request.Yaml) == 0 {
				_, err = a.parse(args[0], nil) // for empty content, the agent would use its own file
				return err
			}
			response, err := call(c.Context(), a, a.client().ApplyConfig, request)
			if connect.CodeOf(err) == connect.CodeInvalidArgument && len(args) > 0 {
				// The other side checks the file, so it is parsed here only after a refusal, to count the errors if these are the reason. A project's
				// file has other errors by itself than as a part of the whole.
				if _, mistakes := config.Parse(request.File, request.Yaml); mistakes != nil && mistakes.Error() == a.explain(err) {
					_, err = a.parse(args[0], request.Yaml)
					return err
				}
			}
			if err != nil {
				return err
			}
			a.warn(response.GetWarnings())
			a.reportApplied(response)
			return nil
		},
	}
	command.Flags().StringVar(&group, "group", "", "`name` of a controller's group: FILE is for all of its nodes")
	command.Flags().BoolVar(&prune, "prune", false, "at a controller: also remove services that the forwarder had before it joined, and that FILE lacks")
	command.Flags().BoolVar(&force, "force", false, "claim addresses of other hosts at once (through a controller: those of FILE, at one forwarder)")
	return command
}

func (a *app) releaseCommand() *cobra.Command {
	return a.forwarderCommand("release", "Remove the addresses of a stopped forwarder, for another node",
		"Runs `steelyard-forwarder --release`, which removes the addresses, rules and XDP programs of a stopped forwarder, and removes the agent's kernel routes. It "+
			"prints what it removed. With NAT or SNAT the XDP programs stay and drop what servers still send here. The host then no longer answers ARP and neighbour discovery for VIPs and local "+
			"addresses, so another node can take them over. Sessions and configuration stay for the next start.")
}

func (a *app) cleanupCommand() *cobra.Command {
	return a.forwarderCommand("cleanup", "Remove all that a stopped forwarder has left on this host",
		"Runs `steelyard-forwarder --cleanup`, which removes the XDP programs, links, routes and files of a stopped forwarder, and removes the agent's kernel routes. It "+
			"prints what it removed. Its saved sessions are removed, too.")
}

// forwarderCommand returns a command that the forwarder's binary executes, by an option of the same name.
func (a *app) forwarderCommand(name, short, long string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Args: args(0, 0), Long: long,
		RunE: func(c *cobra.Command, _ []string) error {
			path, err := findForwarder()
			if err != nil {
				return err
			}
			forwarder := exec.CommandContext(c.Context(), path, "--"+name)
			forwarder.Stdout, forwarder.Stderr = a.out, a.err
			if err := forwarder.Run(); err != nil {
				return fmt.Errorf("%s --%s: %w", path, name, err)
			}
			return a.removeRoutes()
		},
	}
}

func findForwarder() (string, error) {
	self, err := os.Executable()
	if err != nil {
		self = ""
	}
	return findForwarderBeside(self)
}

// findForwarderBeside searches the directory of this binary and ../sbin first, so that the programs of one build stay together: they are installed as
// PREFIX/bin/steelyard and PREFIX/sbin/steelyard-forwarder.
func findForwarderBeside(self string) (string, error) {
	const name = "steelyard-forwarder"
	if self != "" {
		directory := filepath.Dir(self)
		for _, beside := range []string{filepath.Join(directory, name), filepath.Join(directory, "..", "sbin", name)} {
			if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
				return beside, nil
			}
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither in this binary's directory, nor in ../sbin, nor in PATH: install it, or add its directory to PATH", name)
	}
	return path, nil
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version of this binary", Args: args(0, 0),
		Run: func(*cobra.Command, []string) { fmt.Fprintf(a.out, "steelyard %s\n", version.Build) },
	}
}
