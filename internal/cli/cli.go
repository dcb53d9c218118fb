// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line: a client of the agent or of a controller. The commands `agent`, `controller`, `check`, `upgrade`, `role`,
// `get peers`, `describe peer`, `release`, `cleanup`, `run` and `version` need neither.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"steelyard/internal/agent"
	"steelyard/internal/gen/agentpb/agentpbconnect"
	"steelyard/internal/unixsock"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Exit codes.
const (
	exitOK         = 0
	exitDifference = 1 // diff: there are differences; get status: the file is not in force
	exitFailure    = 2
)

// Errors of diff and get status that set the exit code, and print no message.
var (
	errDifferent = errors.New("there are differences")
	errRefused   = errors.New("the configuration file is refused")
)

// app is the state that all commands share.
type app struct {
	in       io.Reader
	out, err io.Writer
	socket   string
	timeout  time.Duration
	context  string // name; "": the current one
	// --socket was given: it selects this host, whatever the current context is.
	socketGiven        bool
	forwarder, project string // at a controller
	output             string // "table" or "json"
	color              bool
	connections        []*http.Transport // of reach()
}

// Run executes a command line and returns the exit code.
func Run(args []string, in io.Reader, out, errOut io.Writer) int {
	a := &app{in: in, out: out, err: errOut, output: "table"}
	if file, ok := out.(*os.File); ok {
		a.color = term.IsTerminal(int(file.Fd())) && os.Getenv("NO_COLOR") == ""
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer a.closeConnections()
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	command, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errDifferent), errors.Is(err, errRefused):
		return exitDifference
	}
	var exit *exitError
	if errors.Is(err, errUnhealthy) && errors.As(err, &exit) {
		return exit.code
	}
	text := a.explain(err)
	if ctx.Err() != nil && isInterruption(err) {
		text = afterInterruption(command.CommandPath(), err)
	}
	var lines []string // an error may have several lines
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, printable(line))
	}
	fmt.Fprintf(errOut, "steelyard: %s\n", strings.Join(lines, "\n"))
	if errors.As(err, &exit) {
		return exit.code
	}
	return exitFailure
}

// closeConnections closes what a command has left open: the process may run others (tests/commands).
func (a *app) closeConnections() {
	for _, one := range a.connections {
		one.CloseIdleConnections()
	}
}

// exitError is an error with its own exit code.
type exitError struct {
	code int
	error
}

func (e *exitError) Unwrap() error { return e.error }

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "steelyard",
		Short: "Control and monitor a Steelyard layer-4 load balancer",
		Long: "`steelyard agent` runs the agent, which configures a forwarder from a file. The other commands control and show both. " +
			"`steelyard controller` configures many forwarders through their agents; a context (`steelyard context add`) directs the same commands to it.\n\n" +
			"With -o json, a list is an array, and [] if it is empty; a single object, as of `get status` and `get placement`, is an object. A remark about a whole " +
			"list, such as that it is truncated, is a warning on standard error. Fields are only ever added.\n\n" +
			"Exit codes: 0 success; 1 `diff` found differences, or `get status` a refused configuration file; 2 failure. `health` and `run` have their own.",
		SilenceErrors: true, SilenceUsage: true,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.socket, "socket", agent.DefaultSocket, "the agent's `socket`")
	flags.StringVar(&a.context, "context", os.Getenv("STEELYARD_CONTEXT"), "`name` of the context, instead of the current one; local: the agent of this host")
	flags.StringVar(&a.forwarder, "forwarder", "", "`name` of a controller's forwarder; apply accepts several, separated by commas, or '*' for all")
	flags.StringVar(&a.project, "project", "", "`name` of the project for apply and diff, at a controller (default `default`)")
	flags.DurationVar(&a.timeout, "timeout", 30*time.Second, "maximum time to wait for an answer")
	root.PersistentPreRun = func(c *cobra.Command, _ []string) { a.socketGiven = root.PersistentFlags().Changed("socket") }
	root.AddCommand(a.controllerCommand(), a.contextCommand(), a.tokenCommand(), a.memberCommand(), a.authorityCommand(), a.projectCommand(), a.groupsCommand(), a.nfvCommand(), a.watchCommand(),
		a.agentCommand(), a.checkCommand(), a.diffCommand(), a.applyCommand(), a.getCommand(), a.healthCommand(),
		a.describeCommand(), a.drainCommand(), a.undrainCommand(), a.killCommand(), a.statsCommand(), a.roleCommand(), a.upgradeCommand(), a.releaseCommand(), a.cleanupCommand(), a.runCommand(), a.stackCommand(), a.hookCommand(), a.versionCommand(),
		a.docsCommand())
	return root
}

func (a *app) client() agentpbconnect.AgentServiceClient {
	client, url := a.reach(a.socket, unixsock.Reading(a.socket))
	return agentpbconnect.NewAgentServiceClient(client, url)
}

// dialFirst connects to the first socket that the user may open. If there is none, it returns the error of the first socket.
func dialFirst(ctx context.Context, sockets ...string) (net.Conn, error) {
	var first error
	for _, socket := range sockets {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err == nil {
			return conn, nil
		}
		if first == nil {
			first = err
		}
		if !errors.Is(err, syscall.EACCES) {
			break
		}
	}
	return nil, first
}

// call sends one request to the agent.
func call[Q, R any](ctx context.Context, a *app, f func(context.Context, *connect.Request[Q]) (*connect.Response[R], error),
	request *Q) (*R, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	response, err := f(ctx, connect.NewRequest(request))
	if err != nil {
		return nil, err
	}
	return response.Msg, nil
}

// explain returns an error's text with the remedy.
func (a *app) explain(err error) string {
	var away *unreachable
	var own *interruptMessage
	switch {
	case errors.As(err, &own):
		return own.text
	case errors.As(err, &away):
		return away.Error()
	case errors.Is(err, syscall.ENOENT) && isDial(err), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("no agent listens on %s: start it with `systemctl start steelyard-agent` (or "+
			"`steelyard agent`), or name its socket with --socket", a.socket)
	case errors.Is(err, syscall.EACCES) && isDial(err):
		return fmt.Sprintf("permission denied for %s: run this as root%s%s", a.socket,
			unixsock.Members(unixsock.Reading(a.socket), ", or, to read, as a member of the group "),
			unixsock.Members(a.socket, ", or, to change, of the group "))
	}
	var answer *connect.Error
	if errors.As(err, &answer) {
		switch answer.Code() {
		case connect.CodeDeadlineExceeded:
			return a.noAnswer()
		case connect.CodeCanceled:
			return "the agent or the controller closed the connection before its answer, because it is stopping: try again"
		}
		return answer.Message()
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return a.noAnswer()
	}
	return err.Error()
}

func (a *app) noAnswer() string {
	return fmt.Sprintf("no answer within %s: see `steelyard get status`, or use a longer --timeout", a.timeout)
}

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// args accepts low to high arguments.
func args(low, high int) cobra.PositionalArgs {
	return func(c *cobra.Command, given []string) error {
		if len(given) < low || len(given) > high {
			return fmt.Errorf("%s given: usage: %s", plural(len(given), "argument"), c.UseLine())
		}
		return nil
	}
}

// group returns a command that only contains other commands.
func group(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Args: unknown,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
}

// unknown reports an argument that is not a command of a group, with similar commands and the list of all commands.
func unknown(c *cobra.Command, given []string) error {
	if len(given) == 0 {
		return nil
	}
	var names []string
	for _, command := range c.Commands() {
		if command.IsAvailableCommand() {
			names = append(names, command.Name())
		}
	}
	if c.SuggestionsMinimumDistance <= 0 {
		c.SuggestionsMinimumDistance = 2
	}
	meant := ""
	if suggestions := c.SuggestionsFor(given[0]); len(suggestions) > 0 {
		meant = fmt.Sprintf(": did you mean %s?", strings.Join(suggestions, " or "))
	}
	return fmt.Errorf("%q is not a subcommand of %s%s (available: %s)", given[0], c.Name(), meant, strings.Join(names, ", "))
}

// outputFlag adds -o to a command that prints data.
func (a *app) outputFlag(command *cobra.Command) {
	command.Flags().VarP((*outputValue)(&a.output), "output", "o", "`format`: table, json or yaml")
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json", "yaml"},
		cobra.ShellCompDirectiveNoFileComp))
}

type outputValue string

func (v *outputValue) String() string { return string(*v) }
func (v *outputValue) Type() string   { return "format" }
func (v *outputValue) Set(text string) error {
	if text != "table" && text != "json" && text != "yaml" {
		return errors.New("use table, json or yaml")
	}
	*v = outputValue(text)
	return nil
}
