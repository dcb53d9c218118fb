// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strings"
	"time"
)

// DescribeSettings describes the differences of two configurations in settings of the agent alone,
// so that no table shows them: health checks, deadlines of drains, files of access sets, metrics, export, routes.
// Services and servers that only one of them has are described by their tables. before may be nil.
func DescribeSettings(before, after *Config) []Description {
	if before == nil {
		before = &Config{}
	}
	list := describeServices(before, after)
	list = append(list, describeSetFiles(before, after)...)
	list = appendSetting(list, "next_hops", nextHops(before), nextHops(after))
	list = appendSetting(list, "metrics", before.Metrics.words(), after.Metrics.words())
	list = appendSetting(list, "export by sFlow", before.SFlow.words(), after.SFlow.words())
	return append(list, describeRoutes(&before.Routes, &after.Routes)...)
}

// nextHops returns nil if there are none: then local_addresses are.
func nextHops(config *Config) []setting {
	if len(config.NextHops) == 0 {
		return nil
	}
	text := make([]string, len(config.NextHops))
	for i, address := range config.NextHops {
		text[i] = address.String()
	}
	return []setting{{"addresses", strings.Join(text, " ")}}
}

// setting is a value of a setting in words. Without text it has no value.
type setting struct{ name, text string }

// appendSetting appends the difference between two states of an object; nil: there is no such object.
func appendSetting(list []Description, object string, old, now []setting) []Description {
	var parts []string
	switch {
	case old == nil && now == nil:
		return list
	case now == nil:
		return append(list, Description{"remove", object, ""})
	case old == nil:
		for _, one := range now {
			if one.text != "" {
				parts = append(parts, one.name+" "+one.text)
			}
		}
		return append(list, Description{"add", object, strings.Join(parts, ", ")})
	}
	for i := range now {
		if old[i] != now[i] {
			parts = append(parts, fmt.Sprintf("%s %s -> %s", now[i].name, orNone(old[i].text), orNone(now[i].text)))
		}
	}
	if parts == nil {
		return list
	}
	return append(list, Description{"change", object, strings.Join(parts, ", ")})
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// numberText returns nothing for 0, which stands for none.
func numberText[N ~int | ~uint16 | ~uint32](n N) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func describeServices(before, after *Config) []Description {
	old := make(map[ServiceKey]*Service, len(before.Services))
	for i := range before.Services {
		old[before.Services[i].Key] = &before.Services[i]
	}
	var list []Description
	for i := range after.Services {
		now := &after.Services[i]
		was := old[now.Key]
		if was == nil || was.equal(now) {
			continue
		}
		if was.Health != now.Health {
			list = append(list, Description{"change", "health of " + now.Name, describeHealth(was.Health, now.Health)})
		}
		list = appendSetting(list, "load of "+now.Name, was.Load.words(), now.Load.words())
		if path := HideQuery(now.Load.Path); was.Load.Path != now.Load.Path && HideQuery(was.Load.Path) == path {
			list = append(list, Description{"change", "load of " + now.Name, fmt.Sprintf("path %s: another query", path)})
		}
		list = appendSetting(list, "feedback of "+now.Name, was.Feedback.words(), now.Feedback.words())
		list = append(list, describeServerSettings(was, now)...)
		list = append(list, describeServerLoads(was, now)...)
	}
	return list
}

func describeHealth(old, now Health) string {
	if old.Type == HealthNone || now.Type == HealthNone {
		return fmt.Sprintf("type %s -> %s", old.Type, now.Type)
	}
	var parts []string
	for _, one := range []struct{ name, from, to, absent string }{
		{"type", string(old.Type), string(now.Type), ""},
		{"port", numberText(old.Port), numberText(now.Port), "the server's"},
		{"host", old.Host, now.Host, "the server's address"},
		{"expect", old.expected(), now.expected(), "none"},
		{"interval", old.Interval.String(), now.Interval.String(), ""},
		{"timeout", old.Timeout.String(), now.Timeout.String(), ""},
		{"rise", fmt.Sprint(old.Rise), fmt.Sprint(now.Rise), ""},
		{"fall", fmt.Sprint(old.Fall), fmt.Sprint(now.Fall), ""},
		{"jitter", fmt.Sprintf("%d%%", old.Jitter), fmt.Sprintf("%d%%", now.Jitter), ""},
		{"linger", old.Linger.String(), now.Linger.String(), ""},
		{"PROXY header", old.Proxy.String(), now.Proxy.String(), ""},
	} {
		if one.from == one.to {
			continue
		}
		if one.from == "" {
			one.from = one.absent
		}
		if one.to == "" {
			one.to = one.absent
		}
		parts = append(parts, fmt.Sprintf("%s %s -> %s", one.name, one.from, one.to))
	}
	if old.Path != now.Path { // the query is shown nowhere, also if it alone differs
		text := fmt.Sprintf("path %s -> %s", orNone(HideQuery(old.Path)), orNone(HideQuery(now.Path)))
		if HideQuery(old.Path) == HideQuery(now.Path) {
			text = fmt.Sprintf("path %s: another query", HideQuery(now.Path))
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// expected returns the expected statuses, which only HTTP has.
func (h Health) expected() string {
	if h.Type != HealthHTTP {
		return ""
	}
	return h.Expect.String()
}

// describeServerSettings describes changes of servers' own settings, except for load.
func describeServerSettings(was, now *Service) []Description {
	old := map[ServerRef]Server{}
	for _, server := range was.Servers {
		old[ServerRef{was.Key, server.Address}] = server
	}
	words := func(s *Server) []setting {
		return []setting{{"drain_deadline", durationText(s.DrainDeadline)}, {"link", s.Link}}
	}
	var list []Description
	for _, server := range now.Servers {
		if before, ok := old[ServerRef{now.Key, server.Address}]; ok {
			list = appendSetting(list, fmt.Sprintf("server %s of %s", ServerText(server.Address), now.Name), words(&before), words(&server))
		}
	}
	return list
}

// describeSetFiles describes sets whose source of prefixes changes. The prefixes themselves are in the table.
func describeSetFiles(before, after *Config) []Description {
	old := map[string]AccessSet{}
	for _, set := range before.AccessSets {
		old[set.Name] = set
	}
	place := func(file string) string {
		if file == "" {
			return "prefixes"
		}
		return file
	}
	var list []Description
	for _, set := range after.AccessSets {
		if was, ok := old[set.Name]; ok && was.File != set.File {
			list = append(list, Description{"change", "source of access set " + set.Name,
				fmt.Sprintf("%s -> %s", place(was.File), place(set.File))})
		}
	}
	return list
}

// words returns nil if no metrics are served.
func (m Metrics) words() []setting {
	if m.Listen == "" {
		return nil
	}
	return []setting{{"listen", m.Listen}, {"detail", m.Detail.String()}}
}

// words returns nil if nothing is exported.
func (s SFlow) words() []setting {
	if !s.Collector.IsValid() {
		return nil
	}
	agent := ""
	if s.AgentAddress.IsValid() {
		agent = s.AgentAddress.String()
	}
	return []setting{{"collector", s.Collector.String()}, {"sampling", numberText(s.Sampling)}, {"drops", numberText(s.Drops)},
		{"agent_address", agent}}
}
