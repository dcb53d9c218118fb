// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"slices"
	"strings"
	"syscall"
	"testing"

	"steelyard/internal/dpclient/dptest"
	fpb "steelyard/internal/gen/forwarderpb"
)

// An upgrade talks to the forwarder directly, without an agent.
func TestUpgradePrintsTheAdoption(t *testing.T) {
	f := dptest.New(t)
	f.Status = &fpb.Status{Build: "1.0", Pid: 7}
	var asked *fpb.UpgradeRequest
	f.Upgrade = func(request *fpb.UpgradeRequest) (*fpb.UpgradeResult, *fpb.Error) {
		asked = request
		if request.GetBinary() == "/bad" {
			return nil, &fpb.Error{Code: fpb.Code_CODE_INVALID, Text: "/bad is no program"}
		}
		return &fpb.UpgradeResult{Build: "1.1", Pid: 8, GapNs: 12_340_000, Sessions: 1000}, nil
	}
	const text = "Upgraded 1.0 (pid 7) to 1.1 (pid 8): 1000 sessions kept, 12.3 ms without packets.\n"
	const values = `{
  "old_build": "1.0",
  "old_pid": 7,
  "build": "1.1",
  "pid": 8,
  "sessions": 1000,
  "gap_ns": 12340000
}
`
	for _, c := range []struct {
		line   string
		code   int
		out    string
		errOut string
		wanted *fpb.UpgradeRequest // nil: no request
	}{
		{"", 0, text, "", &fpb.UpgradeRequest{}},
		{"-o json", 0, values, "", &fpb.UpgradeRequest{}},
		{"--binary /new", 0, text, "", &fpb.UpgradeRequest{Binary: "/new"}},
		{"-- --port eth0 --workers 2", 0, text, "",
			&fpb.UpgradeRequest{SetArgs: true, Args: []string{"--port", "eth0", "--workers", "2"}}},
		{"--", 2, "", "steelyard: no options after --: ", nil},
		{"--binary /bad", 2, "", "steelyard: not upgraded: /bad is no program\n", &fpb.UpgradeRequest{Binary: "/bad"}},
		{"/new", 2, "", "steelyard: \"/new\": write options of the new forwarder after --: ", nil},
		{"/new -- --port eth0", 2, "", "steelyard: \"/new\": write options of the new forwarder after --: ", nil},
	} {
		asked = nil
		var out, errOut bytes.Buffer
		line := append([]string{"upgrade", "--forwarder", f.Socket}, strings.Fields(c.line)...)
		code := Run(line, nil, &out, &errOut)
		if code != c.code || out.String() != c.out || !strings.HasPrefix(errOut.String(), c.errOut) {
			t.Errorf("%q: exit code %d: %s%s", c.line, code, out.String(), errOut.String())
		}
		if (asked == nil) != (c.wanted == nil) || asked.GetBinary() != c.wanted.GetBinary() ||
			asked.GetSetArgs() != c.wanted.GetSetArgs() || !slices.Equal(asked.GetArgs(), c.wanted.GetArgs()) {
			t.Errorf("%q asks for %v", c.line, asked)
		}
	}
	f.Stop()
	var out, errOut bytes.Buffer
	if code := Run([]string{"upgrade", "--forwarder", f.Socket}, nil, &out, &errOut); code != 2 ||
		!strings.HasPrefix(errOut.String(), "steelyard: no forwarder listens on "+f.Socket) {
		t.Errorf("exit code %d: %s", code, errOut.String())
	}
}

// A forwarder that dies during the upgrade leaves the outcome open, and the command says so.
func TestUpgradeWithoutAnAnswer(t *testing.T) {
	f := dptest.New(t)
	f.Upgrade = func(*fpb.UpgradeRequest) (*fpb.UpgradeResult, *fpb.Error) { return nil, nil }
	var out, errOut bytes.Buffer
	if code := Run([]string{"upgrade", "--forwarder", f.Socket}, nil, &out, &errOut); code != 2 ||
		!strings.Contains(errOut.String(), "unknown whether the upgrade succeeded") {
		t.Errorf("exit code %d: %s%s", code, out.String(), errOut.String())
	}
}

func TestStatusShowsAdoption(t *testing.T) {
	l := newLab(t)
	for want, adoption := range map[string]*fpb.Adoption{
		"": {Source: fpb.Adoption_SOURCE_NEW},
		"Adopted:    nothing: it is from an earlier boot; kept as /dev/shm/s.refused\n": {
			Source: fpb.Adoption_SOURCE_NEW, Refused: "it is from an earlier boot; kept as /dev/shm/s.refused"},
		"Adopted:    1 session from an upgrade; adopted in 0.2 ms\n": {
			Source: fpb.Adoption_SOURCE_HANDED_OVER, DurationNs: 200_000,
			Results: []*fpb.Adoption_Result{{Name: "kept", Sessions: 1}}},
		"Adopted:    0 sessions from a forwarder that was stopped, last seen alive 2.0 s before; adopted at once; ended: 3 expired, 1 torn\n": {
			Source: fpb.Adoption_SOURCE_STOPPED, DurationNs: 1e4, AwayNs: 2e9,
			Results: []*fpb.Adoption_Result{{Name: "kept"}, {Name: "torn", Sessions: 1}, {Name: "expired", Sessions: 3}}},
	} {
		l.forwarder.Status.Adoption = adoption
		_, out, _ := l.run("get", "status")
		if !strings.Contains(out, want) || strings.Contains(out, "Adopted:") != (want != "") {
			t.Errorf("want %q in:\n%s", want, out)
		}
	}
}

// If the user interrupts the command, it says that the forwarder continues the upgrade.
func TestUpgradeInterrupted(t *testing.T) {
	f := dptest.New(t)
	f.Status = &fpb.Status{Build: "1.0", Pid: 7}
	over := make(chan struct{})
	f.Upgrade = func(*fpb.UpgradeRequest) (*fpb.UpgradeResult, *fpb.Error) {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
			t.Error(err)
		}
		<-over
		return &fpb.UpgradeResult{}, nil
	}
	var out, errOut bytes.Buffer
	code := Run([]string{"upgrade", "--forwarder", f.Socket}, nil, &out, &errOut)
	close(over)
	const text = "steelyard: interrupted; the forwarder continues the upgrade: see `steelyard get status`\n"
	if code != 2 || out.String() != "" || errOut.String() != text {
		t.Errorf("exit code %d: %s%s", code, out.String(), errOut.String())
	}
}
