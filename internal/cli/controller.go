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
		Long: "The controller stores the desired configuration of all forwarders in etcd, and sends it to their agents, which connect to it (`steelyard agent " +
			"--controller`). By default it runs its own etcd in its state directory. The etcds of three or more controllers form a cluster (--members), or the controllers " +
			"share an external one (--etcd): they divide the forwarders among themselves, and take over those of a dead controller. Without any controller, forwarders keep their configuration.",
	}
	flags := command.Flags()
	flags.StringVar(&listen, "listen", controller.DefaultListen, "`address` for agents and users")
	flags.StringVar(&options.URL, "url", "", "`URL` at which agents and other controllers reach this one (default https://, the host's name and the port of --listen)")
	flags.StringVar(&options.Socket, "socket", controller.DefaultSocket, "`socket` for users of this host")
	flags.StringVar(&options.Group, "group", agent.DefaultGroup, "`group` whose members are admins on the socket")
	flags.StringVar(&state, "state", controller.DefaultState, "`directory` of the controller's own etcd")
	flags.StringSliceVar(&store.Endpoints, "etcd", nil, "`URLs` of an external etcd cluster")
	flags.StringVar(&members.Name, "name", "", "`name` of this controller among --members")
	flags.StringToStringVar(&members.URLs, "members", nil, "`NAME=URL`,… of all controllers whose own etcds form a cluster, at least three, as c1=https://h1:7444")
	flags.StringVar(&membersKey, "members-key", "", "`file` with the key that all members share (`steelyard controller new-key`)")
	flags.StringVar(&members.Listen, "members-listen", "", "`address` for the other members (default the port of the own URL, on all addresses)")
	command.MarkFlagsRequiredTogether("name", "members", "members-key")
	command.MarkFlagsMutuallyExclusive("members", "etcd")
	flags.BoolVar(&members.Joins, "members-join", false, "join the cluster with an empty disk, after steelyard controller replace at another controller")
	command.AddCommand(a.newKeyCommand(), a.replaceCommand())
	flags.Int64Var(&quota, "etcd-quota", cluster.DefaultQuota>>20, "maximum size of the controller's own etcd on disk, in `megabytes`")
	flags.BoolVar(&plain, "etcd-insecure", false, "reach an external etcd on another host without TLS: anyone on the network path can take over all forwarders")
	flags.StringVar(&ca, "etcd-ca", "", "`file` with the authority of the external etcd's certificates")
	flags.StringVar(&certificate, "etcd-cert", "", "`file` with the certificate for the external etcd")
	flags.StringVar(&key, "etcd-key", "", "`file` with the key of --etcd-cert")
	command.RunE = func(c *cobra.Command, _ []string) error {
		options.Log = slog.New(slog.NewTextHandler(a.err, nil))
		if err := confine.NoDumps(); err != nil {
			options.Log.Warn("a core dump of this controller would contain the key that signs all certificates", "error", err)
		}
		if quota < 64 {
			return errors.New("--etcd-quota is too small: use 64 MB or more")
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
		Use: "new-key", Short: "Create the key that the controllers of a cluster share", Args: args(0, 0),
		Long: "Prints a key for --members-key, which must be the same on all controllers. Its holder can read all their data, and sign " +
			"certificates: store it in a file that only they can read.",
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
		Use: "replace NAME", Short: "Prepare the cluster for a controller that has lost its disk", Args: args(1, 1),
		Long: "For controllers whose own etcds form a cluster (--members). Run this at a live controller; then start the controller NAME with an empty state directory and " +
			"--members-join. NAME must not run meanwhile.",
		RunE: func(c *cobra.Command, names []string) error {
			_, err := ask(c.Context(), a, a.controllers().ReplaceController, &pb.ReplaceControllerRequest{Name: names[0]})
			return err
		},
	}
}

// checkEndpoints rejects URLs without TLS on other hosts, because etcd has the key that signs all certificates.
func checkEndpoints(endpoints []string, plain bool) error {
	for _, endpoint := range endpoints {
		to, err := url.Parse(endpoint)
		if err != nil || !slices.Contains([]string{"https", "http", "unix", "unixs"}, to.Scheme) {
			return fmt.Errorf("--etcd %s: write https://HOST:2379", endpoint)
		}
		address := net.ParseIP(to.Hostname())
		if to.Scheme == "http" && !plain && to.Hostname() != "localhost" && !address.IsLoopback() {
			return fmt.Errorf("--etcd %s: this etcd has the key that signs all certificates: reach it by https:// (--etcd-ca, --etcd-cert, --etcd-key), or add --etcd-insecure", endpoint)
		}
	}
	return nil
}

// etcdTLS returns the TLS configuration for an external etcd; nil: without TLS.
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
	command := group("token", "Create tokens for joining a controller")
	var forwarder, user, role string
	var valid time.Duration
	request := &pb.CreateTokenRequest{}
	create := &cobra.Command{
		Use: "create", Short: "Create a token for one agent or user", Args: args(0, 0),
		Long: "Prints a token for a forwarder's agent (--new-forwarder), or for a user (--user, --role). It works once, until it expires. An admin may do everything; an " +
			"operator applies and drains in the projects of --projects; a viewer reads. A member that joins again under its name replaces itself.",
		RunE: func(c *cobra.Command, _ []string) error {
			roles := map[string]pb.Role{"admin": pb.Role_ROLE_ADMIN, "operator": pb.Role_ROLE_OPERATOR, "viewer": pb.Role_ROLE_VIEWER}
			switch {
			case (forwarder == "") == (user == ""):
				return errors.New("the token's owner is missing: use --new-forwarder or --user")
			case forwarder != "":
				request.Name, request.Role = forwarder, pb.Role_ROLE_FORWARDER
			default:
				request.Name, request.Role = user, roles[role]
				if request.Role == 0 {
					return fmt.Errorf("%q is not a role: use admin, operator or viewer", role)
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
	create.Flags().DurationVar(&valid, "valid", time.Hour, "time until the token expires, at most 720h")
	command.AddCommand(create)
	return command
}

func (a *app) memberCommand() *cobra.Command {
	command := group("member", "Remove forwarders and users from a controller")
	command.AddCommand(&cobra.Command{
		Use: "remove NAME", Short: "Remove a forwarder or a user, and void its certificate at once", Args: args(1, 1),
		Long: "Also removes a forwarder's state from the controller. The forwarder and its agent keep running with their last configuration.",
		RunE: func(c *cobra.Command, names []string) error {
			_, err := ask(c.Context(), a, a.controllers().RemoveMember, &pb.RemoveMemberRequest{Name: names[0]})
			return err
		},
	})
	return command
}

func (a *app) projectCommand() *cobra.Command {
	command := group("project", "Create, change and remove projects of a controller")
	project := &pb.Project{}
	set := &cobra.Command{
		Use: "set NAME", Short: "Create a project, or change its quotas", Args: args(1, 1),
		Long: "A quota bounds the sum over all forwarders. Lowering it below the current usage removes nothing, but permits no additions. --vips and --servers set the " +
			"addresses that the project may use; without the option they stay unchanged, and \"\" removes them. Without prefixes only an admin may add VIPs or servers. Existing services stay.",
		RunE: func(c *cobra.Command, names []string) error {
			project.Name = names[0]
			if err := a.keepPrefixes(c, project); err != nil {
				return err
			}
			_, err := ask(c.Context(), a, a.controllers().SetProject, &pb.SetProjectRequest{Project: project})
			return err
		},
	}
	set.Flags().Uint32Var(&project.MaxServices, "max-services", 0, "maximum number of services; 0: no limit")
	set.Flags().Uint32Var(&project.MaxServers, "max-servers", 0, "maximum number of servers, of all services together; 0: no limit")
	set.Flags().StringSliceVar(&project.Forwarders, "forwarders", nil, "`names` of the permitted forwarders, separated by commas; none: all")
	set.Flags().StringSliceVar(&project.VipPrefixes, "vips", nil, "`prefixes` of permitted VIPs, separated by commas")
	set.Flags().StringSliceVar(&project.ServerPrefixes, "servers", nil, "`prefixes` of permitted servers, separated by commas")
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

// keepPrefixes fills in the project's current prefixes where no option is given.
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
		Use: "watch", Short: "Show events of a controller's forwarders, as they happen", Args: args(0, 0),
		Long: "Prints one line, or with -o json one object, for each event: joined, removed, desired (a new configuration), status (the result at an agent), taken-back (the rollback of a change that the forwarder refused), drain, kill and end drain (orders, with the server), owner " +
			"and owner-gone (the controller that serves the forwarder), request (a step of a request of `steelyard nfv`), spare-missing and spare (whether the others " +
			"could replace a lost forwarder), lost and back (whether the agent reaches its forwarder), group (a change of a group), takeover and return (another node serves a node's sessions; the node is back). Each event has a revision; --after resumes after one.",
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
				return nil // the user has interrupted it
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
	Lost        string   `json:"lost"` // why its agent does not reach it; empty: it does
}

// problem describes what is wrong, or was wrong with the last changes.
func (v forwarderView) problem() string {
	text := v.Error
	if v.Lost != "" && v.State == "lost" {
		text = "its agent does not reach the forwarder: " + v.Lost
	}
	for _, change := range v.TakenBack {
		text = strings.TrimPrefix(text+"; rolled back from "+change, "; ")
	}
	return text
}

// stateOf returns a forwarder's state as one word.
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
	quota := func(has, maximum uint32) string {
		if maximum == 0 {
			return fmt.Sprint(has)
		}
		return fmt.Sprintf("%d of %d", has, maximum)
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

func (a *app) readRecords(ctx context.Context, request *pb.ListAuditRequest) ([]auditView, error) {
	response, err := ask(ctx, a, a.controllers().ListAudit, request)
	views := []auditView{}
	for _, r := range response.GetRecords() {
		at := time.UnixMilli(int64(r.GetAtUnixMs())).UTC().Format(time.RFC3339)
		views = append(views, auditView{at, r.GetWho(), r.GetWhat(), r.GetForwarder(), r.GetProject(), r.GetDetail(), r.GetRevision()})
	}
	return views, err
}

func (a *app) getAudit(ctx context.Context, limit uint32) error {
	views, err := a.readRecords(ctx, &pb.ListAuditRequest{Limit: limit})
	if err != nil {
		return err
	}
	return a.show(views, func() {
		t := &table{columns: []column{left("AT"), left("WHO"), left("WHAT"), left("FORWARDER"), left("PROJECT"), right("REVISION"), left("DETAIL")}}
		for _, v := range views {
			t.add(v.At, v.Who, v.What, v.Forwarder, v.Project, v.Revision, v.Detail)
		}
		a.print(t)
	})
}
