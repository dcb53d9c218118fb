// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/agentpb"
)

// accessView is an access list as `-o json` prints it.
type accessView struct {
	Name      string           `json:"name"`
	Global    bool             `json:"global"`
	Services  []string         `json:"services"` // services whose access names the list
	Rules     []accessRuleView `json:"rules"`
	Otherwise string           `json:"otherwise"`
	Undecided uint64           `json:"undecided"`     // packets that no rule matched
	Existing  string           `json:"existing"`      // existing sessions: keep or end
	Ended     uint64           `json:"ended"`         // existing sessions that the list no longer allowed
	Early     uint64           `json:"dropped_early"` // dropped by the XDP programs, not counted in the rules' matches; list of all services only
}

type accessRuleView struct {
	Name     string   `json:"name,omitempty"`
	Action   string   `json:"action"`
	From     []string `json:"from,omitempty"`
	Protocol string   `json:"protocol,omitempty"`
	Ports    []string `json:"ports,omitempty"`
	Log      uint32   `json:"log,omitempty"`
	Matches  uint64   `json:"matches"`
	Early    bool     `json:"dropped_early,omitempty"` // the XDP programs may drop its packets; dropped_early of the list counts these
}

func texts[T fmt.Stringer](list []T) []string {
	var out []string
	for _, one := range list {
		out = append(out, one.String())
	}
	return out
}

func viewAccess(stats *dpclient.AccessStats) (accessView, error) {
	list, err := dpclient.AccessListFromWire(stats.GetList())
	if err != nil {
		return accessView{}, err
	}
	view := accessView{Name: list.Name, Global: stats.GetGlobal(), Services: append([]string{}, stats.GetServices()...),
		Rules: []accessRuleView{}, Otherwise: list.Otherwise.String(), Undecided: stats.GetOtherwise(),
		Existing: list.Existing.String(), Ended: stats.GetEnded()}
	for i, rule := range list.Rules {
		one := accessRuleView{Name: rule.Name, Action: rule.Action.String(), From: rule.Clients(), Ports: texts(rule.Ports), Log: rule.LogEvery}
		if rule.Protocol != 0 {
			one.Protocol = rule.Protocol.String()
		}
		if i < len(stats.GetMatches()) {
			one.Matches = stats.GetMatches()[i]
		}
		view.Rules = append(view.Rules, one)
	}
	if view.Global {
		markEarly(view.Rules)
	}
	return view, nil
}

// markEarly marks the rules that XDP programs apply: the leading ones of the list for all services that drop by source alone.
func markEarly(rules []accessRuleView) {
	for i, rule := range rules {
		if rule.Action != "drop" || rule.Protocol != "" || len(rule.Ports) > 0 || rule.Log > 0 || len(rule.From) == 0 {
			return
		}
		rules[i].Early = true
	}
}

// shortList formats the first few items of a list.
func shortList(items []string) string {
	const shown = 3
	if len(items) > shown {
		return strings.Join(items[:shown], " ") + fmt.Sprintf(" and %d more", len(items)-shown)
	}
	return strings.Join(items, " ")
}

func (a *app) getAccess(ctx context.Context, name string) error {
	response, err := call(ctx, a, a.client().ListAccess, &pb.ListAccessRequest{})
	if err != nil {
		return err
	}
	views := []accessView{}
	for _, stats := range response.GetLists() {
		view, err := viewAccess(stats)
		if err != nil {
			return err
		}
		if view.Global {
			view.Early = response.GetDroppedEarly()
		}
		if name == "" || view.Name == name {
			views = append(views, view)
		}
	}
	if name != "" && len(views) == 0 {
		return fmt.Errorf("there is no access list %q: `steelyard get access` shows all", name)
	}
	return a.show(views, func() {
		t := &table{columns: []column{left("LIST"), left("FOR"), left("RULE"), left("ACTION"), left("FROM"), left("PROTOCOL"),
			left("PORTS"), right("MATCHES")}}
		for _, view := range views {
			uses := view.Services
			if view.Global {
				uses = []string{"(all services)"}
			}
			if view.Early > 0 {
				t.add(view.Name, shortList(uses), "(dropped early)", "drop", "", "", "", strconv.FormatUint(view.Early, 10))
			}
			for i, rule := range view.Rules {
				position := strconv.Itoa(i + 1)
				if rule.Name != "" {
					position += " " + rule.Name
				}
				matches := strconv.FormatUint(rule.Matches, 10)
				if rule.Early && view.Early > 0 {
					matches += " + early"
				}
				t.add(view.Name, shortList(uses), position, rule.Action, shortList(rule.From), rule.Protocol, shortList(rule.Ports), matches)
			}
			if view.Ended > 0 {
				t.add(view.Name, shortList(uses), "(sessions ended)", "end", "", "", "", strconv.FormatUint(view.Ended, 10))
			}
			t.add(view.Name, shortList(uses), "", view.Otherwise, "", "", "", strconv.FormatUint(view.Undecided, 10))
		}
		a.print(t)
	})
}

// setView is an access set as `-o json` prints it.
type setView struct {
	Name      string   `json:"name"`
	Prefixes  uint64   `json:"prefixes"`
	Prefixes4 uint64   `json:"prefixes4"`
	Prefixes6 uint64   `json:"prefixes6"`
	Lists     []string `json:"lists"`          // lists that name the set
	File      string   `json:"file"`           // empty: its prefixes are in the configuration
	Loaded    uint64   `json:"loaded_unix_ms"` // when this agent loaded the file; 0: never
	Problem   string   `json:"problem"`        // why the set differs from the file; empty: it does not
}

// setProblem explains why a set differs from its file, or returns "".
func setProblem(set *dpclient.AccessSetStats, file *pb.AccessSetFile) string {
	switch {
	case file.GetError() != "":
		return file.GetError()
	case set.GetMissing():
		return "the forwarder has lost the set's data, and waits for the agent to send it again"
	}
	return ""
}

func (a *app) getSets(ctx context.Context) error {
	response, err := call(ctx, a, a.client().ListAccess, &pb.ListAccessRequest{})
	if err != nil {
		return err
	}
	files := map[string]*pb.AccessSetFile{}
	for _, file := range response.GetSetFiles() {
		files[file.GetSet()] = file
	}
	views := []setView{}
	for _, set := range response.GetSets() {
		file := files[set.GetName()]
		views = append(views, setView{Name: set.GetName(), Prefixes: set.GetPrefixes4() + set.GetPrefixes6(),
			Prefixes4: set.GetPrefixes4(), Prefixes6: set.GetPrefixes6(), Lists: append([]string{}, set.GetLists()...),
			File: file.GetPath(), Loaded: file.GetLoadedUnixMs(), Problem: setProblem(set, file)})
	}
	return a.show(views, func() {
		t := &table{columns: []column{left("SET"), right("PREFIXES"), right("IPV4"), right("IPV6"), left("LISTS"), left("FILE"), left("LOADED")}}
		for _, view := range views {
			loaded := ""
			if view.Loaded != 0 {
				loaded = time.UnixMilli(int64(view.Loaded)).Format(time.DateTime)
			}
			t.add(view.Name, strconv.FormatUint(view.Prefixes, 10), strconv.FormatUint(view.Prefixes4, 10),
				strconv.FormatUint(view.Prefixes6, 10), shortList(view.Lists), view.File, loaded)
		}
		a.print(t)
		for _, view := range views {
			if view.Problem != "" {
				fmt.Fprintf(a.out, "%s keeps its prefixes: %s\n", view.Name, view.Problem)
			}
		}
	})
}
