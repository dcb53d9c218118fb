// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"steelyard/internal/controller"
	"steelyard/internal/gen/controllerpb/controllerpbconnect"
	"steelyard/internal/member"
	"steelyard/internal/pki"
	"steelyard/internal/store"
	"steelyard/internal/unixsock"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
)

// localContext stands for the agent of this host.
const localContext = "local"

// contexts are the user's controllers.
type contexts struct {
	Current  string                  `json:"current"` // "": the agent of this host
	Contexts map[string]*userContext `json:"contexts"`
}

type userContext struct {
	Controllers []string `json:"controllers"` // URLs
	Forwarder   string   `json:"forwarder,omitempty"`
	Project     string   `json:"project,omitempty"`
}

// contextDirectory returns the directory of contexts and their certificates.
func contextDirectory() (string, error) {
	if directory := os.Getenv("STEELYARD_CONTEXTS"); directory != "" {
		return directory, nil
	}
	directory, err := os.UserConfigDir()
	return filepath.Join(directory, "steelyard"), err
}

func readContexts() (*contexts, string, error) {
	known := &contexts{Contexts: map[string]*userContext{}}
	directory, err := contextDirectory()
	if err != nil {
		return known, "", nil // no home directory, as in a system service: no contexts
	}
	data, err := os.ReadFile(filepath.Join(directory, "contexts.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return known, directory, nil
	}
	if err == nil {
		err = json.Unmarshal(data, known)
	}
	if err != nil {
		return nil, "", fmt.Errorf("contexts: %w", err)
	}
	return known, directory, nil
}

func (c *contexts) write(directory string) error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err == nil {
		err = os.MkdirAll(directory, 0o700)
	}
	if err == nil {
		err = store.WriteFile(filepath.Join(directory, "contexts.json"), append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	return nil
}

// names lists the contexts in order.
func (c *contexts) names() []string { return slices.Sorted(maps.Keys(c.Contexts)) }

// chosen returns the command's context, with its name; nil: this host.
func (a *app) chosen() (*userContext, string, string, error) {
	if a.socketGiven && a.context == "" {
		return nil, "", "", nil
	}
	known, directory, err := readContexts()
	if err != nil {
		return nil, "", "", err
	}
	name := a.context
	if name == "" {
		name = known.Current
	}
	if name == "" || name == localContext {
		return nil, "", "", nil
	}
	one := known.Contexts[name]
	if one == nil {
		return nil, "", "", fmt.Errorf("there is no context %q (there are %s): `steelyard context add`", name,
			strings.Join(append(known.names(), localContext), ", "))
	}
	return one, name, filepath.Join(directory, name+".pem"), nil
}

// reach returns the HTTP client and base URL: for the context's controllers, or for a socket of this host.
func (a *app) reach(sockets ...string) (*http.Client, string) {
	transport := &http.Transport{}
	a.connections = append(a.connections, transport)
	headers := map[string]string{controller.ForwarderHeader: a.forwarder, controller.ProjectHeader: a.project}
	client := &http.Client{Transport: headed{transport, headers}}
	one, name, path, err := a.chosen()
	if err != nil {
		client.Transport = failing{err}
		return client, "http://none"
	}
	if one == nil {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialFirst(ctx, sockets...) }
		return client, "http://agent"
	}
	identity, err := pki.Load(path, time.Now)
	if err != nil {
		client.Transport = failing{fmt.Errorf("the certificate of the context %s: %w: `steelyard context add` with another token", name, err)}
		return client, "http://none"
	}
	if a.forwarder == "" {
		headers[controller.ForwarderHeader] = one.Forwarder
	}
	if a.project == "" {
		headers[controller.ProjectHeader] = one.Project
	}
	transport.TLSClientConfig = identity.Client()
	renewing := &renewing{app: a, next: transport, identity: identity}
	client.Transport = headed{renewing, headers}
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, controller, err := dialController(ctx, name, one.Controllers)
		renewing.controller.Store(controller)
		return conn, err
	}
	return client, "https://controller"
}

// dialController connects to the first controller of a context that answers, and returns its URL.
func dialController(ctx context.Context, name string, controllers []string) (net.Conn, string, error) {
	var failures error
	for _, text := range controllers {
		to, err := url.Parse(text)
		if err == nil {
			dialing, cancel := context.WithTimeout(ctx, 3*time.Second)
			var conn net.Conn
			conn, err = new(net.Dialer).DialContext(dialing, "tcp", to.Host)
			cancel()
			if err == nil {
				return conn, text, nil
			}
		}
		failures = errors.Join(failures, err)
	}
	return nil, "", &unreachable{name, failures}
}

// renewing renews the certificate when it is due, after an answer of the controller.
type renewing struct {
	app        *app
	next       http.RoundTripper
	identity   *pki.Identity
	controller atomic.Value // its URL
}

func (r *renewing) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err == nil {
		asking, cancel := context.WithTimeout(request.Context(), 3*time.Second)
		defer cancel()
		if err := r.renew(asking, r.controller.Load().(string)); err != nil {
			r.app.warn([]string{err.Error()})
		}
	}
	return response, err
}

func (r *renewing) renew(ctx context.Context, controller string) error {
	if !r.identity.Due() {
		return nil
	}
	if err := member.Renew(ctx, r.identity, controller); err != nil {
		return err
	}
	return member.Show(ctx, r.identity, controller)
}

// unreachable is the error that no controller answers.
type unreachable struct {
	context string
	err     error
}

func (u *unreachable) Error() string {
	return fmt.Sprintf("no controller of the context %s answers: %v", u.context, u.err)
}

type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

// headed adds non-empty headers to requests.
type headed struct {
	next    http.RoundTripper
	headers map[string]string
}

func (h headed) RoundTrip(r *http.Request) (*http.Response, error) {
	for key, value := range h.headers {
		if value != "" {
			r.Header.Set(key, value)
		}
	}
	return h.next.RoundTrip(r)
}

// controllers returns a client of the context's controllers, or of the controller on this host.
func (a *app) controllers() controllerpbconnect.ControllerServiceClient {
	socket := controller.DefaultSocket
	if a.socketGiven {
		socket = a.socket
	}
	client, url := a.reach(socket)
	return controllerpbconnect.NewControllerServiceClient(client, url)
}

// explainController adds the remedy if there is no controller.
func (a *app) explainController(err error) error {
	if err != nil && isDial(err) {
		if one, _, _, failed := a.chosen(); failed == nil && one == nil {
			return connect.NewError(connect.CodeUnavailable, fmt.Errorf(
				"no controller listens on this host: choose one by --context (`steelyard context list`), or start `steelyard controller`"))
		}
	}
	return err
}

func (a *app) contextCommand() *cobra.Command {
	command := group("context", "Select the controller that commands use")
	var urls []string
	var token, tokenFile, forwarder, project string
	add := &cobra.Command{
		Use: "add NAME", Short: "Join a controller as a user, and select it as the current context", Args: args(1, 1),
		Long: "Exchanges a token, which an admin has created by `steelyard token create`, for a certificate, which commands renew automatically. The certificate and its key " +
			"are in ~/.config/steelyard, or in $STEELYARD_CONTEXTS.",
		RunE: func(c *cobra.Command, names []string) error {
			text, err := readToken(token, tokenFile)
			if err != nil {
				return err
			}
			return a.addContext(c.Context(), names[0], text, &userContext{urls, forwarder, project})
		},
	}
	add.Flags().StringSliceVar(&urls, "controller", nil, "`URL` of a controller, as https://HOST:7443; several, separated by commas")
	tokenFlags(add, &token, &tokenFile)
	add.Flags().StringVar(&forwarder, "default-forwarder", "", "`name` of the forwarder for commands without --forwarder")
	add.Flags().StringVar(&project, "default-project", "", "`name` of the project for commands without --project")
	_ = add.MarkFlagRequired("controller")
	list := &cobra.Command{Use: "list", Short: "List the contexts", Args: args(0, 0), RunE: func(*cobra.Command, []string) error { return a.listContexts() }}
	a.outputFlag(list)
	use := &cobra.Command{
		Use: "use NAME", Short: "Select the current context; `local` is the agent of this host", Args: args(1, 1),
		RunE: func(_ *cobra.Command, names []string) error {
			return changeContexts(func(known *contexts, _ string) error {
				if known.Contexts[names[0]] == nil && names[0] != localContext {
					return fmt.Errorf("there is no context %q: there are %s", names[0], strings.Join(append(known.names(), localContext), ", "))
				}
				known.Current = names[0]
				return nil
			})
		},
	}
	remove := &cobra.Command{
		Use: "remove NAME", Short: "Remove a context and its certificate", Args: args(1, 1),
		RunE: func(_ *cobra.Command, names []string) error {
			return changeContexts(func(known *contexts, directory string) error {
				if known.Contexts[names[0]] == nil {
					return fmt.Errorf("there is no context %q", names[0])
				}
				delete(known.Contexts, names[0])
				if known.Current == names[0] {
					known.Current = ""
				}
				return os.Remove(filepath.Join(directory, names[0]+".pem"))
			})
		},
	}
	command.AddCommand(add, list, use, remove)
	return command
}

func tokenFlags(command *cobra.Command, token, file *string) {
	command.Flags().StringVar(token, "token", "", "`token` for joining; visible to other users of this host, so prefer --token-file")
	command.Flags().StringVar(file, "token-file", "", "`file` with the token for joining; - is the standard input")
}

// readToken returns the token of one of two flags, or "".
func readToken(token, file string) (string, error) {
	if file == "" {
		return token, nil
	}
	if file == "-" {
		file = "/dev/stdin"
	}
	data, err := os.ReadFile(file)
	return strings.TrimSpace(string(data)), err
}

func changeContexts(change func(known *contexts, directory string) error) error {
	known, directory, err := readContexts()
	if err != nil {
		return err
	}
	if err := change(known, directory); err != nil {
		return err
	}
	return known.write(directory)
}

func (a *app) addContext(ctx context.Context, name, token string, one *userContext) error {
	if err := pki.CheckName("context", name); err != nil || name == localContext {
		return errors.Join(err, errors.New("choose another name for the context"))
	}
	return changeContexts(func(known *contexts, directory string) error {
		ctx, cancel := context.WithTimeout(ctx, a.timeout)
		defer cancel()
		identity, controllers, err := member.Join(ctx, filepath.Join(directory, name+".pem"), one.Controllers, token, pki.User)
		if err != nil {
			return err
		}
		for _, url := range controllers {
			if !slices.Contains(one.Controllers, url) {
				one.Controllers = append(one.Controllers, url)
			}
		}
		known.Contexts[name], known.Current = one, name
		fmt.Fprintf(a.out, "Joined as %s; the current context is %s.\n", identity.Name(), name)
		return nil
	})
}

type contextView struct {
	Name        string   `json:"name"`
	Current     bool     `json:"current"`
	Controllers []string `json:"controllers"`
	Forwarder   string   `json:"forwarder"`
	Project     string   `json:"project"`
}

func (a *app) listContexts() error {
	known, _, err := readContexts()
	if err != nil {
		return err
	}
	views := []contextView{{Name: localContext, Current: known.Current == "" || known.Current == localContext, Controllers: []string{}}}
	for _, name := range known.names() {
		one := known.Contexts[name]
		views = append(views, contextView{name, known.Current == name, one.Controllers, one.Forwarder, one.Project})
	}
	return a.show(views, func() {
		t := &table{columns: []column{left(""), left("NAME"), left("CONTROLLERS"), left("FORWARDER"), left("PROJECT")}}
		for _, v := range views {
			mark := " "
			if v.Current {
				mark = "*"
			}
			where := strings.Join(v.Controllers, " ")
			if v.Name == localContext {
				where = "agent of this host, " + unixsock.Reading(a.socket)
			}
			t.add(mark, v.Name, where, v.Forwarder, v.Project)
		}
		a.print(t)
	})
}
