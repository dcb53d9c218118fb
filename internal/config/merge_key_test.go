// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"
)

const anchored = `version: 1
local_addresses: [10.1.0.10]
x-check: &check { type: tcp, interval: 3s }
x-web: &web
  scheduler: rr
  health: *check
  max_sessions: 100
x-pool: &pool
  - { address: 10.1.0.21, port: 8080 }
  - { address: 10.1.0.22, port: 8080 }
services:
  - &first { <<: *web, name: a, vip: 10.0.0.80, port: 80, servers: *pool }
  - <<: *web
    name: b
    vip: 10.0.0.80
    port: 81
    scheduler: wlc
    servers: *pool
  - { <<: [{ name: c, port: 82 }, *first], vip: 10.0.0.81 }
`

const plainly = `version: 1
local_addresses: [10.1.0.10]
services:
  - { name: a, vip: 10.0.0.80, port: 80, scheduler: rr, health: { type: tcp, interval: 3s }, max_sessions: 100, servers: [{ address: 10.1.0.21, port: 8080 }, { address: 10.1.0.22, port: 8080 }] }
  - { name: b, vip: 10.0.0.80, port: 81, scheduler: wlc, health: { type: tcp, interval: 3s }, max_sessions: 100, servers: [{ address: 10.1.0.21, port: 8080 }, { address: 10.1.0.22, port: 8080 }] }
  - { name: c, vip: 10.0.0.81, port: 82, scheduler: rr, health: { type: tcp, interval: 3s }, max_sessions: 100, servers: [{ address: 10.1.0.21, port: 8080 }, { address: 10.1.0.22, port: 8080 }] }
`

// Anchors, aliases and merge keys mean what YAML says: as if everything was written out. Own keys win, then the first mapping of a list.
func TestAnchorsAndMergeKeys(t *testing.T) {
	short, err := Parse("short", []byte(anchored))
	if err != nil {
		t.Fatal(err)
	}
	long, err := Parse("long", []byte(plainly))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := fmt.Sprintf("%+v", short.Services), fmt.Sprintf("%+v", long.Services); a != b {
		t.Errorf("with anchors:\n%s\nwritten out:\n%s", a, b)
	}
	var p Parser // which reads a file again only in part, where it can
	for _, scheduler := range []string{"rr", "wlc", "rr"} {
		config, err := p.Parse("again", []byte(strings.Replace(anchored, "scheduler: rr", "scheduler: "+scheduler, 1)))
		if err != nil || config.Services[0].Policy.Scheduler.String() == "" {
			t.Fatal(err)
		}
		if again, err := Parse("again", []byte(strings.Replace(anchored, "scheduler: rr", "scheduler: "+scheduler, 1))); err != nil ||
			fmt.Sprintf("%+v", again.Services) != fmt.Sprintf("%+v", config.Services) {
			t.Errorf("%s: %v", scheduler, err)
		}
	}
	if place := Place("f", []byte(anchored), "services[1].max_sessions"); !strings.HasPrefix(place, "f:7:") {
		t.Errorf("a merged value is at %s", place)
	}
}

func TestBadMergesAreRefused(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"not a mapping": {"version: 1\nx-a: &a 3\nservices:\n  - { <<: *a }\n", "found after `<<`: name a mapping"},
		"itself":        {"version: 1\nservices:\n  - &a { <<: *a, name: x }\n", "merges more than 16 deep, or a mapping with itself"},
		"unknown key":   {"version: 1\nx-a: &a { nam: x }\nservices:\n  - { <<: *a }\n", "did you mean `name`"},
		"quoted":        {"version: 1\nservices:\n  - { \"<<\": { name: x } }\n", "unknown key"},
		"bad value":     {"version: 1\nx-a: &a { port: 99999 }\nservices:\n  - { <<: *a }\n", "2:"},
		"note below":    {"version: 1\nservices:\n  - { x-a: 1 }\n", "unknown key"},
		"no anchor":     {"version: 1\nservices:\n  - { <<: *a }\n", "unknown anchor"},
		"duplicate key": {"version: 1\nx-a: &a { port: 1 }\nservices:\n  - { <<: *a, name: x, name: y }\n", "duplicate key"},
		"many a merge":  {mergeBomb(), "do not multiply them by aliases"},
	} {
		if _, err := Parse("bad", []byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %.300v", name, err)
		}
	}
}

// mergeBomb has mappings that each merge eight of the one before: a thousand million entries in some lines.
func mergeBomb() string {
	text := "version: 1\nx-a: &a { name: a, port: 1 }\n"
	for name := 'b'; name <= 'k'; name++ {
		text += fmt.Sprintf("x-%c: &%c { <<: [%s] }\n", name, name, strings.TrimSuffix(strings.Repeat("*"+string(name-1)+",", 8), ","))
	}
	return text + "services:\n  - { <<: *k }\n"
}

func TestMergesDoNotMultiplyMemory(t *testing.T) {
	took := allocated(func() {
		if _, err := Parse("bomb", []byte(mergeBomb())); err == nil {
			t.Error("a bomb is accepted")
		}
	})
	if took > 256<<20 {
		t.Errorf("%d bytes were allocated to refuse it", took)
	}
}

// The file of a project may have anchors of its own, which hold in no other project's part.
func TestMergeOfPartsWithAnchors(t *testing.T) {
	part := func(name, vip string) Part {
		return Part{name, []byte("version: 1\nx-d: &d { scheduler: rr, name: web }\nx-s: &s [{ address: 10.1.0.22, port: 8080 }]\nservices:\n" +
			"  - { <<: *d, vip: " + vip + ", port: 80, servers: *s }\n  - { <<: *d, name: two, vip: " + vip + ", port: 81, servers: *s }\n")}
	}
	base := strings.Replace(mergeBase, "services:", "x-own: &own\n", 1) + "services: *own\n"
	for _, text := range []string{mergeBase, base} {
		checkMerge(t, "web shop.web shop.two blog.web blog.two", text, part("shop", "10.0.0.81"), part("blog", "10.0.0.82"))
	}
	if _, err := Merge([]byte("version: 1\nx-b: &b { services: [] }\n<<: *b\n"), []Part{part("shop", "10.0.0.81")}); err == nil || !strings.Contains(err.Error(), "write its keys out") {
		t.Errorf("the base's merged services are lost: %v", err)
	}
	var text strings.Builder
	text.WriteString("version: 1\nx-a: &a [x,x,x,x,x,x,x,x]\n")
	for name := 'b'; name <= 'j'; name++ {
		text.WriteString("x-" + string(name) + ": &" + string(name) + " [" + strings.Repeat("*"+string(name-1)+",", 8) + "]\n")
	}
	for want, bad := range map[string]string{
		"aliases expand to more than": text.String() + "services: [*f, *f, *f, *f]\n",
		"do not multiply them":        text.String() + "services: *j\n",
		"or contain themselves":       "version: 1\nservices: &s [{ servers: *s }]\n",
	} {
		if _, err := Merge([]byte(mergeBase), []Part{{"shop", []byte(bad)}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
