// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"steelyard/internal/agent"
	"steelyard/internal/dpclient/dptest"
	pb "steelyard/internal/gen/nfvpb"
)

func TestNFVByCommands(t *testing.T) {
	s := newSite(t)
	s.must("context add prod --controller " + s.url + " --token-file " + s.token("--user ada --role admin"))
	settings := filepath.Join(s.directory, "settings.yaml")
	if err := os.WriteFile(settings, []byte("health: { type: none }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const request = "nfv request web --vip 10.9.0.80:80 --real 10.1.0.21:8080 --real 10.1.0.22:8080,weight=3 --predecessor fw1 --settings "
	s.must(request + settings)
	s.must(request + settings + " --wait needs-forwarder")
	if out := s.must("get requests"); !strings.Contains(out, "needs-forwarder") || !strings.Contains(out, "there is no forwarder") {
		t.Error(out)
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
	file := filepath.Join(s.directory, "base.yaml")
	if err := os.WriteFile(file, []byte("version: 1\nlocal_addresses: [10.1.0.200]\nservices: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.until(func() bool { return strings.Contains(s.must("get forwarders"), "empty") })
	s.must("apply " + file + " --forwarder f1")
	out := s.must(request + settings + " --wait routing")
	for _, want := range []string{"State:      routing, since ", "Forwarder:  f1", "Route:      1: 10.9.0.80/32 via 10.1.0.200 (f1), not confirmed", "For:        fw1",
		"f1 has confirmed"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	s.must("nfv route-set web")
	s.until(func() bool { return strings.Contains(s.must("get requests"), "routed") })
	if out := s.must(request + settings + " --wait routing"); !strings.Contains(out, "State:      routed") { // as a request whose route another one has set
		t.Error(out)
	}
	var view requestView
	if err := json.Unmarshal([]byte(s.must("describe request web -o json")), &view); err != nil {
		t.Fatal(err)
	}
	if r := view.Reals[1]; r.Health != 1 || r.Reserved == nil || r.Reserved.From != 0.25 || r.Reserved.To != 1 || r.Key == "" || view.Key == "" {
		t.Errorf("%+v", r)
	}
	if out := s.must("describe request web"); !strings.Contains(out, "[0.250, 1.000)") {
		t.Error(out)
	}
	if out := s.must("get placement"); !strings.Contains(out, "f1") || !strings.Contains(out, "only one forwarder serves") || !strings.Contains(out, "Leader:     "+s.url) {
		t.Error(out)
	}
	if out := s.must("get placement -o yaml"); !strings.Contains(out, "\nforwarders:\n  - name: f1\n    serves: true\n") {
		t.Error(out)
	}
	s.must("nfv request shop --vip 10.9.0.81:80 --real 10.1.0.21:8080 --vip 10.9.0.81:443 --real 10.1.0.21:8443 --vip udp/10.9.0.81:443 --settings " + settings)
	if out := s.must("get requests"); !strings.Contains(out, "tcp 10.9.0.81:80, tcp 443, udp 443") {
		t.Error(out)
	}
	if out := s.must("describe request shop"); !strings.Contains(out, "udp 10.9.0.81:443, key") || !strings.Contains(out, "443  10.1.0.21:8443") {
		t.Error(out)
	}
	s.must("nfv delete shop")
	s.must("nfv delete web")
	s.until(func() bool { return strings.Contains(s.must("get requests"), "withdrawing") })
	s.must("nfv route-set web")
	s.until(func() bool { return !strings.Contains(s.must("get requests"), "web") })
	if out := s.must("get requests --removed"); !strings.Contains(out, "removed") {
		t.Error(out)
	}
	for line, want := range map[string]string{
		"nfv request web --vip 10.9.0.80:80 --real 10.1.0.21:8080":             "with other contents",
		"nfv request b --real 10.1.0.21:1 --vip 10.9.0.82:1 --vip 10.9.0.82:2": "write each --vip before its --real",
		"nfv request b --vip 10.9.0.80":                                        "is not an address with a port",
		"nfv request b --vip 10.9.0.80:80 --real 10.1.0.21":                    "is not an address with a port",
		"nfv request b --vip 10.9.0.80:80 --real 10.1.0.21:1,w=1":              "is not weight=N",
		"nfv request b --vip 10.9.0.80:80 --wait done":                         "is not a state",
		"describe request none":                                                `there is no request "none"`,
		"nfv route-set none":                                                   `there is no request "none"`,
	} {
		if code, _, errOut := s.run(strings.Fields(line)...); code == 0 || !strings.Contains(errOut, want) {
			t.Errorf("%s: [%d] %s", line, code, errOut)
		}
	}
}

func TestYAML(t *testing.T) {
	var out bytes.Buffer
	a := &app{out: &out, output: "yaml"}
	view := struct {
		Text  string    `json:"text"`
		Yes   bool      `json:"yes"`
		None  *pb.Range `json:"none"`
		Empty []int     `json:"empty"`
		List  []int     `json:"list"`
		Odd   string    `json:"odd"`
		Digit string    `json:"digit"`
	}{"a", true, nil, []int{}, []int{1, 2}, "a: b\nc", "7"}
	if err := a.show(view, nil); err != nil {
		t.Fatal(err)
	}
	want := "text: a\nyes: true\nnone: null\nempty: []\nlist:\n  - 1\n  - 2\nodd: |-\n  a: b\n  c\ndigit: \"7\"\n"
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
}
