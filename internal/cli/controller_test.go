// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"steelyard/internal/agent"
	"steelyard/internal/cluster"
	"steelyard/internal/controller"
	"steelyard/internal/dpclient/dptest"
	pb "steelyard/internal/gen/controllerpb"
)

// site is a controller, and what an administrator has at hand: commands.
type site struct {
	*testing.T
	directory string
	url       string
	socket    string
}

func newSite(t *testing.T) *site {
	t.Helper()
	directory, err := os.MkdirTemp("", "sys")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	t.Setenv("STEELYARD_CONTEXTS", filepath.Join(directory, "contexts"))
	store, err := cluster.Open(t.Context(), cluster.Options{Directory: filepath.Join(directory, "s"), Large: controller.LargeKeys})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t, directory, "https://" + listener.Addr().String(), filepath.Join(directory, "c.sock")}
	s.background(func(ctx context.Context) error {
		return controller.Run(ctx, controller.Options{Store: store, Listen: listener, URL: s.url, Socket: s.socket, Log: slog.New(slog.DiscardHandler)})
	}, store.Close)
	s.until(func() bool { code, _, _ := s.run("--socket", s.socket, "get", "projects"); return code == 0 })
	return s
}

func (s *site) background(run func(context.Context) error, after func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	s.Cleanup(sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.Error(err)
		}
		after()
	}))
}

func (s *site) until(is func() bool) {
	s.Helper()
	for begun := time.Now(); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > 4*time.Minute {
			s.Fatal("not within a minute")
		}
	}
}

func (s *site) run(args ...string) (int, string, string) {
	var out, errOut bytes.Buffer
	code := Run(args, strings.NewReader(""), &out, &errOut)
	return code, out.String(), errOut.String()
}

// must runs a command that succeeds, and returns what it prints.
func (s *site) must(line string) string {
	s.Helper()
	code, out, errOut := s.run(strings.Fields(line)...)
	if code != 0 {
		s.Fatalf("%s: [%d] %s", line, code, errOut)
	}
	return out
}

func (s *site) token(line string) string {
	path := filepath.Join(s.directory, "token")
	if err := os.WriteFile(path, []byte(s.must("--socket "+s.socket+" token create "+line)), 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

func TestControllerByCommands(t *testing.T) {
	s := newSite(t)
	s.must("context add prod --controller " + s.url + " --token-file " + s.token("--user ada --role admin"))
	if out := s.must("context list"); !strings.Contains(out, "*  prod") {
		t.Errorf("%s", out)
	}
	f := dptest.New(t)
	token, err := os.ReadFile(s.token("--new-forwarder f1"))
	if err != nil {
		t.Fatal(err)
	}
	options := agent.Options{
		Forwarder: f.Socket, Socket: filepath.Join(filepath.Dir(f.Socket), "agent.sock"), State: t.TempDir(), Log: slog.New(slog.DiscardHandler),
		Controllers: []string{s.url}, Token: strings.TrimSpace(string(token)),
	}
	s.background(func(ctx context.Context) error { return agent.Run(ctx, options) }, func() {})
	s.until(func() bool { return strings.Contains(s.must("get forwarders"), "empty") })

	file := filepath.Join(s.directory, "web.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(configText, "max_sessions: 600", "max_sessions: 601", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errOut := s.run("diff", file); code != exitDifference || !strings.Contains(out, "+ service web") {
		t.Errorf("[%d] %s%s", code, out, errOut)
	}
	if out := s.must("apply " + file); !strings.HasPrefix(out, "Applied ") {
		t.Errorf("%s", out)
	}
	if out := s.must("diff " + file); out != "No differences.\n" {
		t.Errorf("%s", out)
	}
	for line, want := range map[string]string{
		"get forwarders":                      "in-force",
		"get services":                        "media",
		"get servers --forwarder f1":          "10.1.0.21",
		"describe service web --forwarder f1": "10.1.0.21",
		"drain 10.1.0.21:8080@web":            "10.1.0.21",
		"get projects":                        "default",
		"get audit":                           "user/ada",
	} {
		if out := s.must(line); !strings.Contains(out, want) {
			t.Errorf("%s: %s", line, out)
		}
	}
	s.must("project set shop --max-services 3 --forwarders f1")
	var projects []projectView
	if err := json.Unmarshal([]byte(s.must("get projects -o json")), &projects); err != nil || len(projects) != 2 || projects[1].MaxServices != 3 || projects[0].Services != 4 {
		t.Errorf("%+v, %v", projects, err)
	}
	s.must("project set shop --vips 10.9.0.0/24,fd00:9::/64 --servers 10.1.0.0/16")
	s.must("project set shop --max-services 4 --servers=")
	if err := json.Unmarshal([]byte(s.must("get projects -o json")), &projects); err != nil || projects[1].MaxServices != 4 ||
		strings.Join(projects[1].VIPs, " ") != "10.9.0.0/24 fd00:9::/64" || len(projects[1].ServersIn) != 0 {
		t.Errorf("%+v, %v", projects, err)
	}
	if code, _, errOut := s.run("project", "set", "shop", "--vips", "10.9.0.1/24"); code != exitFailure || !strings.Contains(errOut, "write 10.9.0.0/24") {
		t.Errorf("[%d] %s", code, errOut)
	}
	// The controller's reason is shown, and not what a project's file lacks when it is read by itself.
	part := filepath.Join(s.directory, "part.yaml")
	if err := os.WriteFile(part, []byte("version: 1\nservices:\n  - { name: s, vip: 10.0.0.80, port: 8443, health: { type: none }, servers: [ { address: 10.1.0.99 } ] }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := s.run("apply", part, "--project", "shop"); code != exitFailure || !strings.Contains(errOut, "10.0.0.80 is in no prefix of the project shop") || strings.Contains(errOut, "local address") {
		t.Errorf("[%d] %s", code, errOut)
	}
	s.must("project set shop --vips=")
	if code, _, errOut := s.run("apply", part, "--project", "shop"); code != exitFailure || !strings.Contains(errOut, "10.0.0.80 belongs to the project default") || strings.Contains(errOut, "local address") {
		t.Errorf("[%d] %s", code, errOut)
	}
	s.must("project remove shop")

	// The agent's own socket answers, but takes no other configuration.
	local := []string{"--socket", options.Socket}
	if code, out, _ := s.run(append(local, "get", "services")...); code != 0 || !strings.Contains(out, "media") {
		t.Errorf("[%d] %s", code, out)
	}
	if code, _, errOut := s.run(append(local, "apply", file)...); code != exitFailure || !strings.Contains(errOut, "a controller configures this agent") {
		t.Errorf("[%d] %s", code, errOut)
	}
	if code, _, errOut := s.run("get", "services", "--forwarder", "f9"); code != exitFailure || !strings.Contains(errOut, `no agent of "f9" is connected`) {
		t.Errorf("[%d] %s", code, errOut)
	}
	s.must("context use local")
	if code, _, errOut := s.run("get", "forwarders"); code != exitFailure || !strings.Contains(errOut, "no controller listens on this host") {
		t.Errorf("[%d] %s", code, errOut)
	}
	if out := s.must("get forwarders --context prod"); !strings.Contains(out, "f1") {
		t.Errorf("%s", out)
	}
	s.must("member remove f1 --context prod")
	if out := s.must("get forwarders --context prod -o json"); out != "[]\n" {
		t.Errorf("%s", out)
	}
	s.must("context remove prod")
	if code, _, errOut := s.run("get", "forwarders", "--context", "prod"); code != exitFailure || !strings.Contains(errOut, "there is no context") {
		t.Errorf("[%d] %s", code, errOut)
	}
}

func TestWrongUseOfControllerCommands(t *testing.T) {
	t.Setenv("STEELYARD_CONTEXTS", t.TempDir())
	for line, want := range map[string]string{
		"agent --config x.yaml --controller https://c:7443": "from one of them",
		"agent --token x":                                        "a token needs a controller",
		"token create":                                           "owner is missing",
		"token create --user ada --role king":                    "is not a role",
		"context add Prod --controller https://c:7443":           "is no name",
		"context add local --controller https://c:7443":          "another name",
		"context add prod --controller https://c:7443 --token x": "this is no token",
		"context use prod":                                       "there is no context",
		"get services --context prod":                            "there is no context",
		"controller --etcd-ca /nowhere":                          "/nowhere",
	} {
		var out, errOut bytes.Buffer
		if code := Run(strings.Fields(line), strings.NewReader(""), &out, &errOut); code != exitFailure || !strings.Contains(errOut.String(), want) {
			t.Errorf("%s: [%d] %s", line, code, errOut.String())
		}
	}
}

func TestEtcdOverANetwork(t *testing.T) {
	for endpoint, want := range map[string]string{
		"https://e1:2379": "", "http://127.0.0.1:2379": "", "http://[::1]:2379": "", "http://localhost:2379": "", "unix:///run/etcd.sock": "",
		"http://e1:2379": "--etcd-insecure", "http://10.0.0.1:2379": "--etcd-insecure", "e1:2379": "write https", "ftp://e1": "write https",
	} {
		err := checkEndpoints([]string{"https://e0:2379", endpoint}, false)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", endpoint, err, want)
		}
	}
	if err := checkEndpoints([]string{"http://e1:2379"}, true); err != nil {
		t.Error(err)
	}
}

// A replacement of the authority takes one command of a user for each of its two steps.
func TestAuthorityByCommands(t *testing.T) {
	s := newSite(t)
	s.must("context add prod --controller " + s.url + " --token-file " + s.token("--user ada --role admin"))
	await := func(want ...string) { // the state of the second one, if there is one, and for whom it waits
		t.Helper()
		s.until(func() bool {
			var now authoritiesView
			code, text, errors := s.run("--socket", s.socket, "authority", "show", "-o", "json")
			if code != 0 || errors != "" || json.Unmarshal([]byte(text), &now) != nil || now.Authorities[0].State != "signs" {
				t.Fatal(code, text, errors)
			}
			has := now.WaitingFor
			for _, one := range now.Authorities[1:] {
				has = append([]string{one.State}, has...)
			}
			return slices.Equal(has, want) && (now.Since == "") == (len(want) == 0)
		})
	}
	await()
	s.must("authority replace")
	await("next", "ada") // no longer for the controller, which shows the next one now
	if code, text, errors := s.run("--socket", s.socket, "authority", "show"); code != 0 || !strings.Contains(text, "next") || !strings.Contains(text, "ada") {
		t.Errorf("%d: %s%s", code, text, errors)
	}
	if code, _, errors := s.run("--socket", s.socket, "authority", "replace"); code == 0 || !strings.Contains(errors, "is being replaced already") {
		t.Errorf("%d: %s", code, errors)
	}
	s.must("get forwarders")
	await("former", "ada")
	s.must("get forwarders")
	await()
	if code, _, errors := s.run("get", "forwarders"); code != 0 || errors != "" {
		t.Errorf("%d: %s", code, errors)
	}
	s.must("authority replace --distrust")
	s.until(func() bool { code, _, _ := s.run("get", "forwarders"); return code != 0 })
}

// A forwarder that its agent does not reach is lost, whatever it has confirmed before.
func TestUnreachableForwarderIsLost(t *testing.T) {
	for want, f := range map[string]*pb.Forwarder{
		"in-force": {Controller: "c", DesiredRevision: 2, AppliedRevision: 2, InForwarder: true},
		"loaded":   {Controller: "c", DesiredRevision: 2, AppliedRevision: 2},
		"behind":   {Controller: "c", DesiredRevision: 2, AppliedRevision: 1, InForwarder: true},
		"empty":    {Controller: "c"},
		"lost":     {Controller: "c", DesiredRevision: 2, AppliedRevision: 2, InForwarder: true, Lost: "refused"},
		"alone":    {DesiredRevision: 2, AppliedRevision: 2, Lost: "refused"},
	} {
		if got := stateOf(f); got != want {
			t.Errorf("%s, want %s: %v", got, want, f)
		}
	}
}
