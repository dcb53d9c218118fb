// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"steelyard/internal/agent"
	"steelyard/internal/cluster"
	"steelyard/internal/confine"
	"steelyard/internal/controller"
	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/stall"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
)

func (a *app) controllerCommand() *cobra.Command {
	var options controller.Options
	var listen, state, ca, certificate, key string
	var quota int64
	var plain bool
	var members cluster.Members
	var membersKey string
	store := cluster.Options{Large: controller.LargeKeys}
	command := &cobra.Command{
		Use: "controller", Short: "Configure many forwarders through their agents", Args: args(0, 0),
		Long: "The controller keeps what all forwarders are to do in etcd, and brings it to their agents, which connect to it (`steelyard agent " +
			"--controller`). By default it has an etcd of its own in its state directory. The etcds of three or more controllers form a cluster (--members), or they " +
			"share an external one (--etcd): they divide the forwarders among themselves, and take over from one that dies. Without any controller, forwarders go on with what they have.",
	}
	flags := command.Flags()
	flags.StringVar(&listen, "listen", controller.DefaultListen, "`address` for agents and users")
	flags.StringVar(&options.URL, "url", "", "`URL` by which agents and other controllers reach this one (default https://, the host's name and the port of --listen)")
	flags.StringVar(&options.Socket, "socket", controller.DefaultSocket, "`socket` for this host")
	flags.StringVar(&options.Group, "group", agent.DefaultGroup, "`group` whose members are admins, by the socket")
	flags.StringVar(&state, "state", controller.DefaultState, "`directory` of the controller's own etcd")
	flags.StringSliceVar(&store.Endpoints, "etcd", nil, "`URLs` of an external etcd cluster")
	flags.StringVar(&members.Name, "name", "", "`name` of this controller among --members")
	flags.StringToStringVar(&members.URLs, "members", nil, "`NAME=URL`,… of all controllers whose own etcds form a cluster, at least three, as c1=https://h1:7444")
	flags.StringVar(&membersKey, "members-key", "", "`file` with the key that these share (`steelyard controller new-key`)")
	flags.StringVar(&members.Listen, "members-listen", "", "`address` for the other members (default the port of the own URL, on all addresses)")
	command.MarkFlagsRequiredTogether("name", "members", "members-key")
	command.MarkFlagsMutuallyExclusive("members", "etcd")
	flags.BoolVar(&members.Joins, "members-join", false, "this one has an empty disk, and the others were told so: steelyard controller replace")
	command.AddCommand(a.newKeyCommand(), a.replaceCommand())
	flags.Int64Var(&quota, "etcd-quota", cluster.DefaultQuota>>20, "`megabytes` that the controller's own etcd may have on the disk")
	flags.BoolVar(&plain, "etcd-insecure", false, "reach an external etcd on another host without TLS: who is on the way can take over all forwarders")
	flags.StringVar(&ca, "etcd-ca", "", "`file` with the authority of the external etcd's certificates")
	flags.StringVar(&certificate, "etcd-cert", "", "`file` with the certificate for the external etcd")
	flags.StringVar(&key, "etcd-key", "", "`file` with the key of that")
	command.RunE = func(c *cobra.Command, _ []string) error {
		options.Log = slog.New(slog.NewTextHandler(a.err, nil))
		if err := confine.NoDumps(); err != nil {
			options.Log.Warn("a core dump of this controller would have the key that signs all certificates", "error", err)
		}
		if quota < 64 {
			return errors.New("--etcd-quota is 64 MB at least")
		}
		store.Quota = quota << 20
		if members.Name != "" {
			var err error
			if members.Key, err = os.ReadFile(membersKey); err != nil {
				return err
			}
			if err := members.Check(); err != nil {
				return err
			}
			store.Members = &members
			options.Log.Info("waiting for more than half of the members", "name", members.Name)
		}
		if err := checkEndpoints(store.Endpoints, plain); err != nil {
			return err
		}
		var err error
		if store.TLS, err = etcdTLS(ca, certificate, key); err != nil {
			return err
		}
		if store.Directory, err = filepath.Abs(state); err != nil {
			return err
		}
		if options.Store, err = cluster.Open(c.Context(), store); err != nil {
			return err
		}
		defer options.Store.Close()
		if options.Listen, err = net.Listen("tcp", listen); err != nil {
			return err
		}
		stall.Start()
		return controller.Run(c.Context(), options)
	}
	return command
}

func (a *app) newKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "new-key", Short: "Make the key that the controllers of a cluster share", Args: args(0, 0),
		Long: "Prints a key for --members-key, which must be the same on all controllers. Whoever has it can read all that they know, and sign " +
			"certificates: it belongs into a file that only they read.",
		RunE: func(*cobra.Command, []string) error {
			key, err := cluster.NewMembersKey()
			if err == nil {
				_, err = a.out.Write(key)
			}
			return err
		},
	}
}

func (a *app) replaceCommand() *cobra.Command {
	return &cobra.Command{
		Use: "replace NAME", Short: "Have the other controllers expect one whose disk is lost", Args: args(1, 1),
		Long: "For controllers whose own etcds form a cluster (--members). Ask one that runs; then start the controller NAME with an empty state directory and " +
			"--members-join. It must not run meanwhile.",
		RunE: func(c *cobra.Command, names []string) error {
			_, err := ask(c.Context(), a, a.controllers().ReplaceController, &pb.ReplaceControllerRequest{Name: names[0]})
			return err
		},
	}
}

// checkEndpoints refuses to send what signs all certificates over a network without TLS.
func checkEndpoints(endpoints []string, plain bool) error {
	for _, endpoint := range endpoints {
		to, err := url.Parse(endpoint)
		if err != nil || !slices.Contains([]string{"https", "http", "unix", "unixs"}, to.Scheme) {
			return fmt.Errorf("--etcd %s: write https://HOST:2379", endpoint)
		}
		address := net.ParseIP(to.Hostname())
		if to.Scheme == "http" && !plain && to.Hostname() != "localhost" && !address.IsLoopback() {
			return fmt.Errorf("--etcd %s: this etcd has the key that signs all certificates: reach it by https:// (--etcd-ca, --etcd-cert, --etcd-key), or say --etcd-insecure", endpoint)
		}
	}
	return nil
}

// etcdTLS returns how to reach an external etcd; nil: without TLS.
func etcdTLS(ca, certificate, key string) (*tls.Config, error) {
	if ca == "" && certificate == "" && key == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		data, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("%s has no certificate", ca)
		}
	}
	if certificate != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// ask sends a request to the controller.
func ask[Q, R any](ctx context.Context, a *app, f func(context.Context, *connect.Request[Q]) (*connect.Response[R], error), request *Q) (*R, error) {
	response, err := call(ctx, a, f, request)
	return response, a.explainController(err)
}

func (a *app) tokenCommand() *cobra.Command {
	command := group("token", "Make tokens to join a controller")
	var forwarder, user, role string
	var valid time.Duration
	request := &pb.CreateTokenRequest{}
	create := &cobra.Command{
		Use: "create", Short: "Make a token for one agent or user", Args: args(0, 0),
		Long: "Prints a token for a forwarder's agent (--new-forwarder), or for a user (--user, --role). It holds once. An admin may do everything; an " +
			"operator applies and drains in the projects of --projects; a viewer reads. A member that joins again under its name replaces itself.",
		RunE: func(c *cobra.Command, _ []string) error {
			roles := map[string]pb.Role{"admin": pb.Role_ROLE_ADMIN, "operator": pb.Role_ROLE_OPERATOR, "viewer": pb.Role_ROLE_VIEWER}
			switch {
			case (forwarder == "") == (user == ""):
				return errors.New("for whom? Give --new-forwarder or --user")
			case forwarder != "":
				request.Name, request.Role = forwarder, pb.Role_ROLE_FORWARDER
			default:
				request.Name, request.Role = user, roles[role]
				if request.Role == 0 {
					return fmt.Errorf("%q is no role: use admin, operator or viewer", role)
				}
			}
			request.ValidS = uint64(valid / time.Second)
			response, err := ask(c.Context(), a, a.controllers().CreateToken, request)
			if err != nil {
				return err
			}
			fmt.Fprintln(a.out, response.GetToken())
			return nil
		},
	}
	create.Flags().StringVar(&forwarder, "new-forwarder", "", "`name` of the forwarder")
	create.Flags().StringVar(&user, "user", "", "`name` of the user")
	create.Flags().StringVar(&role, "role", "viewer", "`role` of the user: admin, operator or viewer")
	create.Flags().StringSliceVar(&request.Projects, "projects", nil, "`names` of an operator's projects, separated by commas")
	create.Flags().DurationVar(&valid, "valid", time.Hour, "how long the token holds, at most 720h")
	command.AddCommand(create)
	return command
}

func (a *app) memberCommand() *cobra.Command {
	command := group("member", "Remove forwarders and users from a controller")
	command.AddCommand(&cobra.Command{
		Use: "remove NAME", Short: "Remove a forwarder or a user; its certificate is void at once", Args: args(1, 1),
		Long: "Also removes what the controller keeps for a forwarder. The forwarder itself, and its agent, go on with what they have.",
		RunE: func(c *cobra.Command, names []string) error {
			_, err := ask(c.Context(), a, a.controllers().RemoveMember, &pb.RemoveMemberRequest{Name: names[0]})
			return err
		},
	})
	return command
}

func (a *app) projectCommand() *cobra.Command {
	command := group("project", "Make, change and remove projects of a controller")
	project := &pb.Project{}
	set := &cobra.Command{
		Use: "set NAME", Short: "Make a project, or change its quotas", Args: args(1, 1),
		Long: "Quotas count over all forwarders. A quota that is lower than what a project has removes nothing, but allows nothing more. --vips and --servers say which " +
			"addresses the project may use; without the option they stay as they are, and \"\" removes them. Without prefixes only an admin adds VIPs or servers. What the project has already stays.",
		RunE: func(c *cobra.Command, names []string) error {
			project.Name = names[0]
			if err := a.keepPrefixes(c, project); err != nil {
				return err
			}
			_, err := ask(c.Context(), a, a.controllers().SetProject, &pb.SetProjectRequest{Project: project})
			return err
		},
	}
	set.Flags().Uint32Var(&project.MaxServices, "max-services", 0, "most services; 0: no limit")
	set.Flags().Uint32Var(&project.MaxServers, "max-servers", 0, "most servers, of all services together; 0: no limit")
	set.Flags().StringSliceVar(&project.Forwarders, "forwarders", nil, "`names` of the forwarders that it may use, separated by commas; none: all")
	set.Flags().StringSliceVar(&project.VipPrefixes, "vips", nil, "`prefixes` in which its VIPs must be, separated by commas")
	set.Flags().StringSliceVar(&project.ServerPrefixes, "servers", nil, "`prefixes` in which its servers must be, separated by commas")
	remove := &cobra.Command{
		Use: "remove NAME", Short: "Remove a project that has no services", Args: args(1, 1),
		RunE: func(c *cobra.Command, names []string) error {
			_, err := ask(c.Context(), a, a.controllers().RemoveProject, &pb.RemoveProjectRequest{Name: names[0]})
			return err
		},
	}
	command.AddCommand(set, remove)
	return command
}

// keepPrefixes takes prefixes for which no option is given from what the project has.
func (a *app) keepPrefixes(c *cobra.Command, project *pb.Project) error {
	vips, servers := c.Flags().Changed("vips"), c.Flags().Changed("servers")
	if vips && servers {
		return nil
	}
	response, err := ask(c.Context(), a, a.controllers().ListProjects, &pb.ListProjectsRequest{})
	if err != nil {
		return err
	}
	for _, known := range response.GetProjects() {
		if known.GetName() != project.GetName() {
			continue
		}
		if !vips {
			project.VipPrefixes = known.GetVipPrefixes()
		}
		if !servers {
			project.ServerPrefixes = known.GetServerPrefixes()
		}
	}
	return nil
}

type eventView struct {
	Revision  int64  `json:"revision"`
	Forwarder string `json:"forwarder"`
	What      string `json:"what"`
	Detail    string `json:"detail"`
}

func (a *app) watchCommand() *cobra.Command {
	var after int64
	command := &cobra.Command{
		Use: "watch", Short: "Show what happens to a controller's forwarders, as it happens", Args: args(0, 0),
		Long: "Prints one line, or with -o json one object, for each event: joined, removed, desired (a new configuration), status (what an agent did with it), taken-back (a change that the forwarder refused), drain, kill and end drain (orders, and for which server), owner " +
			"and owner-gone (the controller that serves the forwarder), request (a step of one of `steelyard nfv`), spare-missing and spare (whether the loss of one forwarder " +
			"could be made up by the others). Each has a revision; --after goes on behind one.",
		RunE: func(c *cobra.Command, _ []string) error {
			stream, err := a.controllers().Watch(c.Context(), connect.NewRequest(&pb.WatchRequest{AfterRevision: after}))
			if err != nil {
				return a.explainController(err)
			}
			defer stream.Close()
			for stream.Receive() {
				m := stream.Msg()
				a.line(eventView{m.GetRevision(), m.GetForwarder(), m.GetWhat(), m.GetDetail()}, func() string {
					return fmt.Sprintf("%d  %s  %s  %s", m.GetRevision(), m.GetForwarder(), m.GetWhat(), m.GetDetail())
				})
			}
			if c.Context().Err() != nil {
				return nil // the user's end of it
			}
			return a.explainController(stream.Err())
		},
	}
	command.Flags().Int64Var(&after, "after", 0, "`revision` after which events are shown; 0: from now on")
	a.outputFlag(command)
	return command
}

// ---- get ----------------------------------------------------------------------------------------

type forwarderView struct {
	Name        string   `json:"name"`
	State       string   `json:"state"` // in-force, loaded, behind, alone, lost, empty
	Controller  string   `json:"controller"`
	Desired     int64    `json:"desired_revision"`
	Applied     int64    `json:"applied_revision"`
	Projects    []string `json:"projects"`
	Error       string   `json:"error"`
	ChangedUnix uint64   `json:"changed_unix_s"`
	TakenBack   []string `json:"taken_back"`
	Lost        string   `json:"lost"` // why its agent does not reach it; empty: the agent does
}

// problem says what is wrong, or was with the last changes.
func (v forwarderView) problem() string {
	text := v.Error
	if v.Lost != "" && v.State == "lost" {
		text = "its agent does not reach the forwarder: " + v.Lost
	}
	for _, change := range v.TakenBack {
		text = strings.TrimPrefix(text+"; taken back from "+change, "; ")
	}
	return text
}

// stateOf says in one word how far a forwarder is.
func stateOf(f *pb.Forwarder) string {
	switch {
	case f.GetController() == "":
		return "alone"
	case f.GetLost() != "":
		return "lost"
	case f.GetDesiredRevision() == 0:
		return "empty"
	case f.GetAppliedRevision() != f.GetDesiredRevision():
		return "behind"
	case !f.GetInForwarder():
		return "loaded"
	}
	return "in-force"
}

func (a *app) getForwarders(ctx context.Context) error {
	response, err := ask(ctx, a, a.controllers().ListForwarders, &pb.ListForwardersRequest{})
	if err != nil {
		return err
	}
	views := []forwarderView{}
	for _, f := range response.GetForwarders() {
		views = append(views, forwarderView{f.GetName(), stateOf(f), f.GetController(), f.GetDesiredRevision(), f.GetAppliedRevision(),
			append([]string{}, f.GetProjects()...), f.GetError(), f.GetChangedUnixS(), append([]string{}, f.GetTakenBack()...), f.GetLost()})
	}
	return a.show(views, func() {
		t := &table{columns: []column{left("NAME"), left("STATE"), right("DESIRED"), right("APPLIED"), left("CONTROLLER"), left("PROJECTS"), left("ERROR")}}
		colors := map[string]string{"in-force": green, "alone": red, "lost": red, "behind": yellow, "loaded": yellow}
		for _, v := range views {
			t.add(v.Name, cell{v.State, colors[v.State]}, v.Desired, v.Applied, v.Controller, strings.Join(v.Projects, " "), v.problem())
		}
		a.print(t)
	})
}

type projectView struct {
	Name        string   `json:"name"`
	Services    uint32   `json:"services"`
	MaxServices uint32   `json:"max_services"`
	Servers     uint32   `json:"servers"`
	MaxServers  uint32   `json:"max_servers"`
	Forwarders  []string `json:"forwarders"`
	VIPs        []string `json:"vip_prefixes"`
	ServersIn   []string `json:"server_prefixes"`
}

func (a *app) getProjects(ctx context.Context) error {
	response, err := ask(ctx, a, a.controllers().ListProjects, &pb.ListProjectsRequest{})
	if err != nil {
		return err
	}
	views := []projectView{}
	for _, p := range response.GetProjects() {
		views = append(views, projectView{p.GetName(), p.GetServices(), p.GetMaxServices(), p.GetServers(), p.GetMaxServers(), append([]string{}, p.GetForwarders()...),
			append([]string{}, p.GetVipPrefixes()...), append([]string{}, p.GetServerPrefixes()...)})
	}
	quota := func(has, most uint32) string {
		if most == 0 {
			return fmt.Sprint(has)
		}
		return fmt.Sprintf("%d of %d", has, most)
	}
	return a.show(views, func() {
		t := &table{columns: []column{left("NAME"), right("SERVICES"), right("SERVERS"), left("FORWARDERS"), left("VIPS IN"), left("SERVERS IN")}}
		for _, v := range views {
			forwarders := "all"
			if len(v.Forwarders) > 0 {
				forwarders = strings.Join(v.Forwarders, " ")
			}
			t.add(v.Name, quota(v.Services, v.MaxServices), quota(v.Servers, v.MaxServers), forwarders, strings.Join(v.VIPs, " "), strings.Join(v.ServersIn, " "))
		}
		a.print(t)
	})
}

type auditView struct {
	At        string `json:"at"`
	Who       string `json:"who"`
	What      string `json:"what"`
	Forwarder string `json:"forwarder"`
	Project   string `json:"project"`
	Detail    string `json:"detail"`
	Revision  int64  `json:"revision"`
}

func (a *app) getAudit(ctx context.Context, limit uint32) error {
	response, err := ask(ctx, a, a.controllers().ListAudit, &pb.ListAuditRequest{Limit: limit})
	if err != nil {
		return err
	}
	views := []auditView{}
	for _, r := range response.GetRecords() {
		at := time.UnixMilli(int64(r.GetAtUnixMs())).UTC().Format(time.RFC3339)
		views = append(views, auditView{at, r.GetWho(), r.GetWhat(), r.GetForwarder(), r.GetProject(), r.GetDetail(), r.GetRevision()})
	}
	return a.show(views, func() {
		t := &table{columns: []column{left("AT"), left("WHO"), left("WHAT"), left("FORWARDER"), left("PROJECT"), right("REVISION"), left("DETAIL")}}
		for _, v := range views {
			t.add(v.At, v.Who, v.What, v.Forwarder, v.Project, v.Revision, v.Detail)
		}
		a.print(t)
	})
}
