// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"steelyard/internal/cluster"
	"steelyard/internal/config"
	agentpb "steelyard/internal/gen/agentpb"
	"steelyard/internal/model"

	"connectrpc.com/connect"
)

// plan is a change of a project's configuration at one forwarder, computed from entries of the store.
type plan struct {
	forwarder, project string
	own, desired       cluster.Entry // as read from the store
	previous           cluster.Entry // likewise: the version of own that the forwarder confirmed last, while own is unconfirmed
	member             cluster.Entry
	projectEntry       cluster.Entry
	groupOf            cluster.Entry // of which group the forwarder is a node
	group              *config.Group // nil: of none
	groupEntry         cluster.Entry
	record             project // with the new usage
	text               []byte  // the project's file; nil: none
	merged             []byte  // the forwarder's whole file after the change
	textRef, mergedRef []byte  // store values of text and merged
	parsed             *model.Config
	old                bool // the agent has a newer revision than the store
	prune              bool // it may remove services that the forwarder had before it joined
	claims             *claims
}

// same reports whether the plan changes nothing.
func (p *plan) same() bool {
	return p.desired.Revision != 0 && bytes.Equal(p.desired.Value, p.mergedRef) && !p.old && !p.prune
}

// isOld reports whether the agent has a newer revision than the store, because etcd was restored from a backup. An identical file is then written anew.
func (s *Server) isOld(forwarder string, revision int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var now status
	entry := s.mirror.Get(keyStatus + forwarder)
	return entry.Revision != 0 && decodeRecord(entry, &now) == nil && now.Older && now.Refused == revision
}

// prepare computes a plan and stores its texts. Fails if the plan breaks a rule, such as a quota.
func (s *Server) prepare(ctx context.Context, w *work, forwarder, name, file string, text []byte) (*plan, error) {
	plans, err := s.compute(ctx, w, []string{forwarder}, name, file, text)
	if err != nil {
		return nil, err
	}
	return plans[0], s.saveTexts(ctx, w, plans[0])
}

// work is shared by the plans of one order.
type work struct {
	projectParser *config.Parser           // of the project's file
	mergedParser  *config.Parser           // of forwarders' files
	parsed        map[string]*model.Config // by text
	merged        map[string][]byte        // by the parts that they are made of
	saved         []*cluster.Large
	counts        map[*model.Config]usage
	uses          map[*model.Config]*uses
	usage         map[string]usage         // the project's usage after the order's plans for earlier forwarders; nil: the store's
	named         bool                     // the names in the project's file are checked
	workflow      bool                     // the workflow sent the order; only it may change services of requests
	operator      bool                     // the caller is no admin, and may claim addresses within the project's prefixes only
	claimed       *claimed                 // addresses of other projects; nil: not read yet
	groups        map[string]*config.Group // of forwarders whose group the order changes; nil: of none
	prune         bool                     // the order may remove services that forwarders had before they joined
}

// maxParsers bounds the cached parsers. A cached parser decodes only what has changed since its last file.
const maxParsers = 4

// newWork returns the shared state of an order for a project.
func (s *Server) newWork(project string) *work {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, whole := s.parsers[project], s.parsers[project+"/whole"]
	if own == nil || whole == nil {
		if s.parsers == nil || len(s.parsers) >= maxParsers {
			s.parsers = map[string]*config.Parser{}
		}
		own, whole = &config.Parser{}, &config.Parser{}
		s.parsers[project], s.parsers[project+"/whole"] = own, whole
	}
	return &work{projectParser: own, mergedParser: whole}
}

// newWorkOf returns the shared state of a caller's order for a project.
func (s *Server) newWorkOf(caller principal, project string) *work {
	w := s.newWork(project)
	w.operator = !caller.admin()
	return w
}

// parse parses a file, and caches the result by its text.
func (w *work) parse(parser *config.Parser, file string, text []byte) (*model.Config, error) {
	if known := w.parsed[string(text)]; known != nil {
		return known, nil
	}
	parsed, err := parser.Parse(file, text)
	if err != nil {
		return nil, invalid(err)
	}
	if w.parsed == nil {
		w.parsed = map[string]*model.Config{}
	}
	w.parsed[string(text)] = parsed
	return parsed, nil
}

// compute makes one plan per forwarder. All of them are for one transaction, in this order.
func (s *Server) compute(ctx context.Context, w *work, forwarders []string, name, file string, text []byte) ([]*plan, error) {
	done, err := s.inFlight.startComputing(ctx, text)
	if err != nil {
		return nil, err
	}
	defer done()
	reads := []string{keyProjects + name, keyGroups}
	for _, forwarder := range forwarders {
		reads = append(reads, keyMembers+forwarder, keyDesired+forwarder, keyConfigs+forwarder+"/", keyPrevious+forwarder+"/"+name, keyGroupOf+forwarder)
	}
	now, err := s.store.Snapshot(ctx, reads...)
	if err != nil {
		return nil, unavailable(err)
	}
	var record project
	entry := now.Get(keyProjects + name)
	if entry.Revision == 0 && name != defaultProject {
		return nil, missing("there is no project %q: `steelyard get projects` lists them", name)
	}
	if entry.Revision != 0 {
		if err := decodeRecord(entry, &record); err != nil {
			return nil, err
		}
	}
	if w.usage != nil {
		record.Usage = w.usage
	}
	var plans []*plan
	w.claimed = nil
	for _, forwarder := range forwarders {
		p := &plan{
			forwarder: forwarder, project: name, text: text, projectEntry: entry, record: record, member: now.Get(keyMembers + forwarder),
			desired: now.Get(keyDesired + forwarder), previous: now.Get(keyPrevious + forwarder + "/" + name),
		}
		if err := p.findGroup(w, now); err != nil {
			return nil, err
		}
		p.prune = w.prune
		p.old = s.isOld(forwarder, p.desired.Revision)
		if p.member.Revision == 0 {
			return nil, missing("there is no forwarder %q: `steelyard get forwarders` lists them", forwarder)
		}
		if record.Workflow && !w.workflow {
			return nil, denied("the services of the project %s are those of requests: change these (`steelyard nfv`)", name)
		}
		had := record.Usage[forwarder].Services
		may := len(record.Forwarders) == 0 || slices.Contains(record.Forwarders, forwarder)
		if !may && had == 0 {
			return nil, denied("the project %s may not use the forwarder %s, only %s", name, forwarder, strings.Join(record.Forwarders, ", "))
		}
		if err := s.merge(ctx, w, p, now.List(keyConfigs+forwarder+"/"), file); err != nil {
			return nil, err
		}
		if err := p.count(w); err != nil {
			return nil, err
		}
		record = p.record
		if p.claims, err = s.claim(ctx, w, p); err != nil {
			return nil, err
		}
		if !may {
			less, err := s.onlyRemovesServices(ctx, w, p)
			if err != nil {
				return nil, err
			}
			if !less {
				return nil, denied("the project %s may not use the forwarder %s any more, only %s: its file there may only remove services",
					name, forwarder, strings.Join(record.Forwarders, ", "))
			}
		}
		plans = append(plans, p)
	}
	return plans, nil
}

// findGroup finds the group of which the forwarder is a node, or will be after the order.
func (p *plan) findGroup(w *work, now cluster.Snapshot) error {
	p.groupOf = now.Get(keyGroupOf + p.forwarder)
	if group, changes := w.groups[p.forwarder]; changes {
		p.group = group
		return nil
	}
	var of groupOf
	if p.groupOf.Revision != 0 {
		if err := decodeRecord(p.groupOf, &of); err != nil {
			return err
		}
	}
	if of.Group == "" {
		return nil
	}
	p.groupEntry, p.group = now.Get(keyGroups+of.Group), new(config.Group)
	return decodeRecord(p.groupEntry, p.group)
}

// guardGroup has a transaction fail if the forwarder's group has changed since it was read.
func (p *plan) guardGroup(txn *cluster.Txn) {
	if txn.Unchanged(p.groupOf); p.groupEntry.Revision != 0 {
		txn.Unchanged(p.groupEntry)
	}
}

// merge computes the forwarder's file from the files of all projects.
func (s *Server) merge(ctx context.Context, w *work, p *plan, others []cluster.Entry, file string) error {
	p.own = cluster.Entry{Key: keyConfigs + p.forwarder + "/" + p.project}
	key := p.project
	if p.group != nil {
		key += "\x00" + p.forwarder + "\x00" + string(encode(p.group))
	}
	for _, entry := range others {
		if entry.Key == p.own.Key {
			p.own = entry
		} else {
			key += "\x00" + nameOf(entry.Key, keyConfigs+p.forwarder+"/") + "\x00" + string(entry.Value)
		}
	}
	if err := p.rejectDottedNames(w, file); err != nil {
		return err
	}
	known, found := w.merged[key]
	if !found {
		var err error
		if known, err = s.union(ctx, p, others, file); err != nil {
			return err
		}
		if w.merged == nil {
			w.merged = map[string][]byte{}
		}
		w.merged[key] = known
	}
	p.merged = known
	if len(others) > 1 || len(others) == 1 && p.own.Revision == 0 || p.project != defaultProject { // positions in the merged file mean nothing to the author of a part
		file = "forwarder " + p.forwarder + ", all projects"
	}
	var err error
	if p.parsed, err = w.parse(w.mergedParser, file, p.merged); err != nil {
		return err
	}
	if p.group != nil && p.group.ECMP && len(p.parsed.SNAT) > 0 {
		return invalid(fmt.Errorf("%s: snat: rule %s: the nodes of the ECMP group %s would choose the same ports of its pool: translate at a pair, or at a forwarder outside the group",
			file, p.parsed.SNAT[0].Name, p.group.Name))
	}
	return nil
}

// union merges the files of all projects, and adds the addresses of the forwarder's group. file: the name of the file of the default project.
func (s *Server) union(ctx context.Context, p *plan, others []cluster.Entry, file string) ([]byte, error) {
	base := []byte("version: 1\nservices: []\n")
	var parts []config.Part
	take := func(name string, text []byte) {
		if name == defaultProject {
			base = text
		} else {
			parts = append(parts, config.Part{Name: name, Text: text})
		}
	}
	for _, entry := range others {
		if entry.Key == p.own.Key || len(entry.Value) == 0 { // a change of the group writes an empty part where there was none
			continue
		}
		text, err := s.store.Load(ctx, entry.Value)
		if err != nil {
			return nil, unavailable(fmt.Errorf("%s: %w", entry.Key, err))
		}
		take(nameOf(entry.Key, keyConfigs+p.forwarder+"/"), text.Text)
	}
	if p.text != nil {
		take(p.project, p.text)
	}
	if p.group != nil {
		var err error
		if base, err = p.group.Extend(file, base, p.forwarder); err != nil {
			return nil, invalid(err)
		}
	}
	slices.SortFunc(parts, func(a, b config.Part) int { return strings.Compare(a.Name, b.Name) })
	merged, err := config.Merge(base, parts)
	if err != nil {
		return nil, invalid(err)
	}
	return merged, nil
}

// saveTexts stores a plan's texts before its transaction refers to them.
func (s *Server) saveTexts(ctx context.Context, w *work, p *plan) error {
	for text, value := range map[*[]byte]*[]byte{&p.text: &p.textRef, &p.merged: &p.mergedRef} {
		if *text == nil {
			continue
		}
		i := slices.IndexFunc(w.saved, func(l *cluster.Large) bool { return bytes.Equal(l.Text, *text) })
		if i < 0 {
			saved, err := s.store.Save(ctx, *text)
			if err != nil {
				return unstored(err)
			}
			i, w.saved = len(w.saved), append(w.saved, saved)
		}
		*value = w.saved[i].Value
	}
	return nil
}

// rejectDottedNames rejects names of the default project that look like another project's: the part before a dot names a project.
func (p *plan) rejectDottedNames(w *work, file string) error {
	if p.project != defaultProject || p.text == nil || w.named {
		return nil
	}
	text := p.text
	if p.group != nil { // without its addresses the file is incomplete
		var err error
		if text, err = p.group.Extend(file, text, p.forwarder); err != nil {
			return invalid(err)
		}
	}
	parsed, err := w.parse(w.projectParser, file, text)
	if err != nil {
		return err
	}
	for _, service := range parsed.Services {
		if strings.Contains(service.Name, ".") {
			return invalid(fmt.Errorf("%s: service %s: a name with a dot is for the services of other projects (PROJECT.SERVICE); use another name", file, service.Name))
		}
	}
	w.named = true
	return nil
}

// has reports whether a service of the forwarder's file belongs to the plan's project.
func (p *plan) has(service *model.Service) bool {
	owner, _, long := strings.Cut(service.Name, ".")
	return p.project == defaultProject && !long || long && owner == p.project
}

// used counts the project's services and servers on the forwarder after the change.
func (p *plan) used() usage {
	var used usage
	for i := range p.parsed.Services {
		if service := &p.parsed.Services[i]; p.has(service) {
			used.Services++
			used.Servers += uint32(len(service.Servers))
		}
	}
	return used
}

// onlyRemovesServices reports whether a plan changes nothing at the forwarder, except that it removes services of the project.
func (s *Server) onlyRemovesServices(ctx context.Context, w *work, p *plan) (bool, error) {
	if p.used().Services == 0 && p.project != defaultProject { // the default project's file has other sections too
		return true, nil
	}
	own, err := s.store.Load(ctx, p.own.Value)
	if err != nil {
		return false, unavailable(err)
	}
	if bytes.Equal(own.Text, p.text) { // a new leader of the workflow writes the same file again
		return true, nil
	}
	before, err := s.store.Load(ctx, p.desired.Value)
	if err != nil {
		return false, unavailable(err)
	}
	parsed, err := w.parse(w.mergedParser, "forwarder "+p.forwarder+", before", before.Text)
	if err != nil {
		return false, err
	}
	others, now := *parsed, *p.parsed
	if others.Services, now.Services = nil, nil; !reflect.DeepEqual(others, now) {
		return false, nil
	}
	known := map[string]*model.Service{}
	for i := range parsed.Services {
		known[parsed.Services[i].Name] = &parsed.Services[i]
	}
	for i := range p.parsed.Services {
		if service := &p.parsed.Services[i]; p.has(service) && !reflect.DeepEqual(service, known[service.Name]) {
			return false, nil
		}
	}
	return true, nil
}

// Maximum bytes of the file of a project other than `default`. They make the quotas bound the store's size, too.
const (
	fileBytes    = 1 << 20
	serviceBytes = 16 << 10
	serverBytes  = 4 << 10
)

// checkSize rejects a file that is far larger than its services need, because of comments and notes.
func (p *plan) checkSize(used usage) error {
	if maximum := fileBytes + uint64(used.Services)*serviceBytes + uint64(used.Servers)*serverBytes; p.project != defaultProject && !p.record.Workflow && uint64(len(p.text)) > maximum {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("the file of the project %s has %d kB, for its %d services and %d servers at most %d kB are kept: shorten comments and notes",
			p.project, len(p.text)>>10, used.Services, used.Servers, maximum>>10))
	}
	return nil
}

// count records the project's new usage, and checks it against the quotas.
func (p *plan) count(w *work) error {
	before := p.record.total()
	used, known := w.counts[p.parsed]
	if !known {
		used = p.used()
		if w.counts == nil {
			w.counts = map[*model.Config]usage{}
		}
		w.counts[p.parsed] = used
	}
	if err := p.checkSize(used); err != nil {
		return err
	}
	p.record = p.record.with(p.forwarder, used)
	if p.record.Workflow { // a request is counted when it is accepted; while it moves, two forwarders have it
		return nil
	}
	total := p.record.total()
	for _, quota := range []struct {
		what            string
		had, wants, may uint32
	}{{"services", before.Services, total.Services, p.record.MaxServices}, {"servers", before.Servers, total.Servers, p.record.MaxServers}} {
		// A project above a lowered quota may still shrink.
		if quota.may > 0 && quota.wants > quota.may && quota.wants > quota.had {
			return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("the project %s would have %d %s, its quota is %d",
				p.project, quota.wants, quota.what, quota.may))
		}
	}
	return nil
}

// txn returns the transaction that writes a plan and the project's new usage.
func (p *plan) txn() *cluster.Txn { return txnOf([]*plan{p}) }

// txnOf returns the transaction of several plans of one computation. It keeps the confirmed version of each file until the forwarder confirms the new one.
func txnOf(plans []*plan) *cluster.Txn { return addPlans(new(cluster.Txn), plans) }

// addPlans adds the same to a transaction.
func addPlans(txn *cluster.Txn, plans []*plan) *cluster.Txn {
	last := plans[len(plans)-1]
	txn.Unchanged(last.projectEntry)
	if record := encode(last.record); last.projectEntry.Revision == 0 || !bytes.Equal(record, last.projectEntry.Value) { // an unchanged record is not written, so orders for other forwarders do not conflict
		txn.Put(keyProjects+last.project, record, 0)
	}
	claimsOf(plans).guard(txn)
	for _, p := range plans {
		txn.Unchanged(p.member).Unchanged(p.own).Unchanged(p.desired).Unchanged(p.previous).
			PutLarge(p.own.Key, p.textRef).PutLarge(keyDesired+p.forwarder, p.mergedRef).
			Delete(keyRefusals + p.forwarder + "/" + p.project)
		p.guardGroup(txn)
		if p.prune {
			txn.Put(keyPrune+p.forwarder, []byte("1"), 0)
		}
		if p.previous.Revision == 0 {
			txn.PutLarge(p.previous.Key, p.own.Value) // empty if there was none
		}
	}
	return txn
}

// ApplyConfig makes a file the project's desired configuration of a forwarder, and waits until the forwarder has confirmed it.
func (s *Server) ApplyConfig(ctx context.Context, caller principal, forwarder, project string, request *agentpb.ApplyConfigRequest) (
	*agentpb.ApplyConfigResponse, error) {
	if !caller.mayApply(project) {
		return nil, denied("%s may not apply in the project %s", caller, project)
	}
	if len(request.GetYaml()) == 0 {
		return nil, invalid(fmt.Errorf("a controller has no file of its own to reload: name a file, `steelyard apply FILE`"))
	}
	var last *plan
	var forced []netip.Addr
	revision, err := s.retry(ctx, func() (*cluster.Txn, error) {
		w := s.newWorkOf(caller, project)
		w.prune = request.GetPrune()
		p, err := s.prepare(ctx, w, forwarder, project, request.GetFile(), request.GetYaml())
		last = p
		if err == nil && request.GetForce() {
			forced, err = p.forcible(caller)
		}
		if err != nil || p.same() {
			return nil, err
		}
		detail := fmt.Sprintf("%s, %d services", request.GetFile(), len(p.parsed.Services))
		return s.record(p.txn(), caller.String(), "apply", forwarder, project, detail), nil
	})
	if err != nil {
		return nil, err
	}
	warnings := config.Warnings(request.GetFile(), last.merged, last.parsed)
	if revision == 0 {
		revision = last.desired.Revision
	}
	response, err := s.awaitResponse(ctx, last, revision, warnings)
	if err == nil && request.GetForce() {
		err = s.force(ctx, caller, last, forced, response)
	}
	if err != nil {
		return nil, err
	}
	return response, nil
}

// awaitResponse waits for the outcome of a change, and turns it into the response.
func (s *Server) awaitResponse(ctx context.Context, p *plan, revision int64, warnings []string) (*agentpb.ApplyConfigResponse, error) {
	forwarder := p.forwarder
	outcome, err := s.await(ctx, forwarder, p.project, revision)
	switch {
	case err != nil:
		return nil, err
	case outcome == nil:
		return &agentpb.ApplyConfigResponse{Generation: uint64(revision), Warnings: append(warnings,
			"saved; no agent of "+forwarder+" is connected: it receives this when it connects. If it refuses it then, the controller rolls the change back, and `steelyard get forwarders` shows the reason")}, nil
	case outcome.Older:
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%s: %s", forwarder, outcome.Error))
	case outcome.rolledBack:
		delayMember(ctx)
		return nil, invalid(fmt.Errorf("%s refuses this: %s; nothing was changed", forwarder, outcome.Error))
	case outcome.Refused == revision:
		return nil, invalid(fmt.Errorf("%s refuses this: %s; it has confirmed this before, so it stays the desired configuration", forwarder, outcome.Error))
	case outcome.Applied > revision:
		warnings = append(warnings, "another caller has applied a newer configuration meanwhile")
	case !outcome.InForwarder:
		warnings = append(warnings, "the agent has it, but its forwarder has not confirmed it yet: "+outcome.Error)
	}
	return &agentpb.ApplyConfigResponse{Generation: uint64(revision), Revision: outcome.Forwarder, Changes: outcome.Changes, Warnings: warnings}, nil
}
