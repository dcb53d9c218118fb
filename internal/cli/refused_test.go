// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	fpb "steelyard/internal/gen/forwarderpb"
)

func TestARefusedFileIsReported(t *testing.T) {
	l := newLab(t)
	l.forwarder.Refuse(&fpb.Error{Code: fpb.Code_CODE_INVALID, Text: "an address of this host"}, "10.0.0.81")
	next := filepath.Join(l.directory, "next.yaml")
	for _, file := range []string{next, l.config} {
		if err := os.WriteFile(file, []byte(strings.Replace(configText, "10.0.0.80", "10.0.0.81", 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		args := []string{"apply", next}
		if file == l.config {
			args = args[:1]
		}
		code, _, errOut := l.run(args...)
		if code != 2 || !strings.Contains(errOut, ": an address of this host; ") || strings.Contains(errOut, "CODE_") {
			t.Errorf("exit code %d: %s", code, errOut)
		}
	}
	// Generations: 1 runs, 2 was given up with the file that apply had installed, 3 is that file put back, 4 and more the file itself.
	code, out, _ := l.run("get", "status")
	if code != 1 || !strings.Contains(out, "connected, but refused: an address of this host\n") ||
		!regexp.MustCompile(`Config: .* generation \d+, loaded TIME ago \(refused; generation [1-3] runs\)\n`).MatchString(out) {
		t.Errorf("exit code %d: %s", code, out)
	}
	if err := os.WriteFile(l.config, []byte(configText), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, out, errOut := l.run("apply"); code != 0 {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
	if code, out, _ := l.run("get", "status"); code != 0 || strings.Contains(out, "refused;") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if err := os.WriteFile(l.config, []byte("version: 2"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, _ := l.run("apply"); code != 2 {
		t.Errorf("exit code %d", code)
	}
	if code, out, _ := l.run("get", "status"); code != 1 || !strings.Contains(out, "Refused: ") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestARefusalNamesThePlaceOfItsAddress(t *testing.T) {
	l := newLab(t)
	const why = "10.0.0.81 is the host's own address; choose another, or move this address off the host"
	l.forwarder.Refuse(&fpb.Error{Code: fpb.Code_CODE_INVALID, Text: why}, "10.0.0.81")
	text := strings.Replace(configText, "10.0.0.80", "10.0.0.81", 1)
	next := filepath.Join(l.directory, "next.yaml")
	for _, file := range []string{next, l.config} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for command, want := range map[string]string{
		"apply " + next: "steelyard: the forwarder refuses DIR/next.yaml:39:10: services[0].vip: " + why + "; nothing was changed\n",
		"apply":         "steelyard: the forwarder refuses CONFIG:39:10: services[0].vip: " + why + "; it keeps its configuration, and the agent retries periodically\n",
	} {
		if code, _, errOut := l.run(strings.Fields(command)...); code != 2 || errOut != want {
			t.Errorf("exit code %d: got %q, want %q", code, errOut, want)
		}
	}
	if err := os.WriteFile(l.config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	l.run("apply")
	if code, out, _ := l.run("get", "status"); code != 1 || !strings.Contains(out, "refused: CONFIG:39:10: services[0].vip: "+why+"\n") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestARefusalNamesThePlaceOfWhatItIsAbout(t *testing.T) {
	for why, place := range map[string]string{
		"limit noisy: no memory":                    "23:5: limits[3]: ",
		"shaping of port eth9: the rate is too low": "36:5: shaping[2]: ",
		"shaping of port eth7: what is that?":       "",
	} {
		l := newLab(t)
		l.forwarder.Refuse(&fpb.Error{Code: fpb.Code_CODE_EXHAUSTED, Text: why})
		next := filepath.Join(l.directory, "next.yaml")
		if err := os.WriteFile(next, []byte(strings.Replace(configText, "max_clients: 1000", "max_clients: 100000", 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		want := "steelyard: the forwarder refuses DIR/next.yaml:" + cmp.Or(place, " ") + why + "; nothing was changed\n"
		if code, _, errOut := l.run("apply", next); code != 2 || errOut != want {
			t.Errorf("exit code %d: got %q, want %q", code, errOut, want)
		}
	}
}
