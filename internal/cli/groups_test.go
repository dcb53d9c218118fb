// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"steelyard/internal/agent"
	"steelyard/internal/dpclient/dptest"
	forwarderpb "steelyard/internal/gen/forwarderpb"
)

const groupText = `version: 1
group: edge
mode: pair
next_hops: [10.0.0.5]
local_addresses: [10.1.0.10]
nodes:
  - { forwarder: f1, node: 1, sync: 10.9.0.1 }
  - { forwarder: f2, node: 2, sync: 10.9.0.2 }
`

// joinForwarder starts a fake forwarder whose agent joins the site's controller.
func (s *site) joinForwarder(name string) *dptest.Forwarder {
	s.Helper()
	f := dptest.New(s.T)
	token, err := os.ReadFile(s.token("--new-forwarder " + name))
	if err != nil {
		s.Fatal(err)
	}
	options := agent.Options{
		Forwarder: f.Socket, Socket: filepath.Join(filepath.Dir(f.Socket), "agent.sock"), State: s.TempDir(), Log: slog.New(slog.DiscardHandler),
		Controllers: []string{s.url}, Token: strings.TrimSpace(string(token)),
	}
	s.background(func(ctx context.Context) error { return agent.Run(ctx, options) }, func() {})
	return f
}

func (s *site) file(name, text string) string {
	s.Helper()
	path := filepath.Join(s.directory, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

func (s *site) refused(line, want string) {
	s.Helper()
	if code, _, errOut := s.run(strings.Fields(line)...); code != exitFailure || !strings.Contains(errOut, want) {
		s.Errorf("%s: [%d] %s, want %s", line, code, errOut, want)
	}
}

func TestGroupsByCommands(t *testing.T) {
	s := newSite(t)
	s.must("context add prod --controller " + s.url + " --token-file " + s.token("--user ada --role admin"))
	f1, f2 := s.joinForwarder("f1"), s.joinForwarder("f2")
	s.until(func() bool { return strings.Count(s.must("get forwarders"), "empty") == 2 })

	bad := s.file("bad.yaml", strings.Replace(groupText, "mode: pair", "mode: trio", 1))
	s.refused("group set "+bad, `bad.yaml:3:7: mode: "trio" is unknown: use pair or ecmp`)
	group := s.file("edge.yaml", groupText)
	if out := s.must("group set " + group); out != "Set; `steelyard describe group edge` shows its nodes.\n" {
		t.Error(out)
	}
	if out := s.must("group set " + group); out != "Nothing to change.\n" {
		t.Error(out)
	}
	s.until(func() bool { return strings.Contains(s.must("get groups"), "no node serves") })
	f2.SetPeers(func(list *forwarderpb.PeerList) { list.Role = forwarderpb.Role_ROLE_MASTER })
	s.until(func() bool {
		return strings.Contains(s.must("get events"), "node 2 (f2) serves instead of node 1 (f1), which is backup")
	})

	web := s.file("web.yaml", "version: 1\nservices:\n  - { name: web, vip: 10.0.0.80, port: 80, health: { type: none }, servers: [ { address: 10.1.0.21 } ] }\n")
	s.refused("apply "+web+" --forwarder f1", "f1 is a node of the group edge, and all nodes need the same services: use --group edge instead of --forwarder")
	s.refused("apply "+web+" --forwarder f1 --group edge", "--group and --forwarder exclude each other")
	if out := s.must("apply " + web + " --group edge"); !strings.HasPrefix(out, "Applied ") {
		t.Error(out)
	}
	if out := s.must("describe group edge"); out != "Group:      edge, pair, 1 of 2 nodes serve\n"+
		"Local:      10.1.0.10\nNext hops:  10.0.0.5\nSecrets:    1\n"+
		"NODE  FORWARDER  STATE   SYNC           LOCAL  NEXT HOPS  PEERS\n"+
		"   1  f1         backup  10.9.0.1:8849  -      -          2 alive\n"+
		"   2  f2         master  10.9.0.2:8849  -      -          1 alive\n"+
		out[strings.LastIndex(strings.TrimSuffix(out, "\n"), "\n")+1:] {
		t.Error(out)
	}
	var views []groupView
	if err := json.Unmarshal([]byte(s.must("get groups -o json")), &views); err != nil || len(views) != 1 || views[0].Problem != "" || views[0].Nodes[1].State != "master" {
		t.Errorf("%+v, %v", views, err)
	}
	s.refused("describe group core", `there is no group "core"`)
	if out := s.must("group rotate edge"); !strings.HasPrefix(out, "Secret 2 replaces the present one") {
		t.Error(out)
	}
	s.until(func() bool {
		return f1.Group().GetSecrets()[0].GetId() == 2 && strings.Contains(s.must("describe group edge"), "step 2 of 3")
	})
	s.refused("group rotate edge", "is being replaced already")
	s.refused("member remove f1", "f1 is a node of the group edge")
	s.must("group remove edge")
	s.until(func() bool { return f1.Group() == nil && f2.Group() == nil })
	s.refused("group remove edge", `there is no group "edge"`)
}
