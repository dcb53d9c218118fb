// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"steelyard/internal/cluster"
	"steelyard/internal/config"
	agentpb "steelyard/internal/gen/agentpb"
	"steelyard/internal/model"

	"connectrpc.com/connect"
)

// plan is a change of what a project wants of a forwarder, computed from entries of the store.
type plan struct {
	forwarder, project string
	own, desired       cluster.Entry // as read
	projectEntry       cluster.Entry
	record             project // with the new usage
	text               []byte  // the project's file
	before             []byte  // the forwarder's
	merged             []byte  // likewise, after the change
	parsed             *model.Config
}

// same reports that the plan changes nothing.
func (p *plan) same() bool { return p.desired.Revision != 0 && bytes.Equal(p.before, p.merged) }

// prepare computes a plan, and refuses one that breaks a rule.
func (s *Server) prepare(ctx context.Context, forwarder, name, file string, text []byte) (*plan, error) {
	p := &plan{forwarder: forwarder, project: name, text: text}
	if entry, err := s.store.Get(ctx, keyMembers+forwarder); err != nil {
		return nil, unavailable(err)
	} else if entry.Revision == 0 {
		return nil, missing("there is no forwarder %q: `steelyard get forwarders` lists them", forwarder)
	}
	var err error
	if p.record, p.projectEntry, err = read[project](ctx, s.store, keyProjects+name); err != nil {
		return nil, err
	}
	if p.projectEntry.Revision == 0 && name != defaultProject {
		return nil, missing("there is no project %q: `steelyard get projects` lists them", name)
	}
	if len(p.record.Forwarders) > 0 && !slices.Contains(p.record.Forwarders, forwarder) {
		return nil, denied("the project %s may not use the forwarder %s, only %s", name, forwarder, strings.Join(p.record.Forwarders, ", "))
	}
	if p.desired, err = s.store.Get(ctx, keyDesired+forwarder); err != nil {
		return nil, unavailable(err)
	}
	if p.before, err = unpack(p.desired.Value); err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	// After desired: if these are newer than that, the transaction fails.
	others, _, err := s.store.List(ctx, keyConfigs+forwarder+"/")
	if err != nil {
		return nil, unavailable(err)
	}
	if err := p.merge(others, file); err != nil {
		return nil, err
	}
	return p, p.count()
}

// merge computes the forwarder's file from those of all projects.
func (p *plan) merge(others []cluster.Entry, file string) error {
	base := []byte("version: 1\nservices: []\n")
	var parts []config.Part
	p.own = cluster.Entry{Key: keyConfigs + p.forwarder + "/" + p.project}
	take := func(name string, text []byte) {
		if name == defaultProject {
			base = text
		} else {
			parts = append(parts, config.Part{Name: name, Text: text})
		}
	}
	for _, entry := range others {
		if entry.Key == p.own.Key {
			p.own = entry
			continue
		}
		text, err := unpack(entry.Value)
		if err != nil {
			return connect.NewError(connect.CodeInternal, fmt.Errorf("%s: %w", entry.Key, err))
		}
		take(nameOf(entry.Key, keyConfigs+p.forwarder+"/"), text)
	}
	if p.text != nil {
		take(p.project, p.text)
	}
	if err := p.ownNames(file); err != nil {
		return err
	}
	slices.SortFunc(parts, func(a, b config.Part) int { return strings.Compare(a.Name, b.Name) })
	var err error
	if p.merged, err = config.Merge(base, parts); err != nil {
		return invalid(err)
	}
	if len(parts) > 0 { // places in the result mean nothing to who wrote a part
		file = "forwarder " + p.forwarder + ", all projects"
	}
	if p.parsed, err = config.Parse(file, p.merged); err != nil {
		return invalid(err)
	}
	return nil
}

// ownNames refuses names of the default project that look like another one's: what is before a dot counts as a project.
func (p *plan) ownNames(file string) error {
	if p.project != defaultProject || p.text == nil {
		return nil
	}
	parsed, err := config.Parse(file, p.text)
	if err != nil {
		return invalid(err)
	}
	for _, service := range parsed.Services {
		if strings.Contains(service.Name, ".") {
			return invalid(fmt.Errorf("%s: service %s: a name with a dot is for the services of other projects (PROJECT.SERVICE); take another one", file, service.Name))
		}
	}
	return nil
}

// count notes what the project uses, and compares it with its quotas.
func (p *plan) count() error {
	var used usage
	for _, service := range p.parsed.Services {
		owner, _, long := strings.Cut(service.Name, ".")
		if (p.project == defaultProject && !long) || (long && owner == p.project) {
			used.Services++
			used.Servers += uint32(len(service.Servers))
		}
	}
	uses := map[string]usage{}
	for name, u := range p.record.Usage {
		uses[name] = u
	}
	delete(uses, p.forwarder)
	if used.Services > 0 {
		uses[p.forwarder] = used
	}
	before := p.record.total()
	p.record.Usage = uses
	total := p.record.total()
	for _, quota := range []struct {
		what            string
		had, wants, may uint32
	}{{"services", before.Services, total.Services, p.record.MaxServices}, {"servers", before.Servers, total.Servers, p.record.MaxServers}} {
		// Who has too many already, because the quota was lowered, may still have fewer.
		if quota.may > 0 && quota.wants > quota.may && quota.wants > quota.had {
			return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("the project %s would have %d %s, its quota is %d",
				p.project, quota.wants, quota.what, quota.may))
		}
	}
	return nil
}

// commit writes a plan, its quota's new use and its record in one transaction.
func (p *plan) txn() *cluster.Txn {
	return new(cluster.Txn).Unchanged(p.own).Unchanged(p.desired).Unchanged(p.projectEntry).
		Put(p.own.Key, pack(p.text), 0).Put(keyDesired+p.forwarder, pack(p.merged), 0).Put(keyProjects+p.project, encode(p.record), 0)
}

// ApplyConfig makes a file what a project wants of a forwarder, and waits until the forwarder has confirmed it.
func (s *Server) ApplyConfig(ctx context.Context, who caller, forwarder, project string, request *agentpb.ApplyConfigRequest) (
	*agentpb.ApplyConfigResponse, error) {
	if !who.mayApply(project) {
		return nil, denied("%s may not apply in the project %s", who, project)
	}
	if len(request.GetYaml()) == 0 {
		return nil, invalid(fmt.Errorf("a controller has no file to read again: name one"))
	}
	var last *plan
	revision, err := s.retry(ctx, func() (*cluster.Txn, error) {
		p, err := s.prepare(ctx, forwarder, project, request.GetFile(), request.GetYaml())
		last = p
		if err != nil || p.same() {
			return nil, err
		}
		detail := fmt.Sprintf("%s, %d services", request.GetFile(), len(p.parsed.Services))
		return s.record(p.txn(), who.String(), "apply", forwarder, project, detail), nil
	})
	if err != nil {
		return nil, err
	}
	warnings := config.Warnings(request.GetFile(), last.merged, last.parsed)
	if revision == 0 {
		revision = last.desired.Revision
	}
	outcome, err := s.await(ctx, forwarder, revision)
	switch {
	case err != nil:
		if !last.same() {
			go s.finish(last, revision)
		}
		return nil, err
	case outcome == nil:
		return &agentpb.ApplyConfigResponse{Generation: uint64(revision), Warnings: append(warnings,
			"saved; no agent of "+forwarder+" is connected: it gets this when it is")}, nil
	case outcome.Refused == revision:
		undone := "it stays the desired configuration, because it was changed again meanwhile"
		if last.same() {
			undone = "it was refused before, and is what `steelyard get forwarders` complains about"
		} else if s.undo(context.WithoutCancel(ctx), last, revision) {
			undone = "nothing was changed"
		}
		return nil, invalid(fmt.Errorf("%s refuses this: %s; %s", forwarder, outcome.Error, undone))
	case outcome.Applied > revision:
		warnings = append(warnings, "somebody has applied a newer configuration meanwhile")
	case !outcome.InForwarder:
		warnings = append(warnings, "the agent has it, but its forwarder has not confirmed it yet: "+outcome.Error)
	}
	return &agentpb.ApplyConfigResponse{Generation: uint64(revision), Revision: outcome.Forwarder, Changes: outcome.Changes, Warnings: warnings}, nil
}

// undo takes a refused change back, unless its project was changed again; what other projects have applied since stays.
func (s *Server) undo(ctx context.Context, p *plan, revision int64) bool {
	_, err := s.retry(ctx, func() (*cluster.Txn, error) {
		desired, err := s.store.Get(ctx, keyDesired+p.forwarder)
		if err != nil {
			return nil, err
		}
		others, _, err := s.store.List(ctx, keyConfigs+p.forwarder+"/")
		if err != nil {
			return nil, err
		}
		others = slices.DeleteFunc(others, func(e cluster.Entry) bool { return e.Key == p.own.Key })
		record, entry, err := read[project](ctx, s.store, keyProjects+p.project)
		if err != nil {
			return nil, err
		}
		old, _, err := s.usageOf(p, record)
		if err != nil {
			return nil, err
		}
		txn := new(cluster.Txn).Unchanged(desired).At(p.own.Key, revision).Unchanged(entry).Put(keyProjects+p.project, encode(old), 0)
		q := &plan{forwarder: p.forwarder, project: p.project}
		if p.own.Revision == 0 {
			txn.Delete(p.own.Key)
		} else {
			if q.text, err = unpack(p.own.Value); err != nil {
				return nil, err
			}
			txn.Put(p.own.Key, p.own.Value, 0)
		}
		if q.text == nil && len(others) == 0 {
			txn.Delete(desired.Key)
		} else if err := q.merge(others, "undo"); err != nil {
			return nil, err
		} else {
			txn.Put(desired.Key, pack(q.merged), 0)
		}
		if current, err := s.store.Get(ctx, p.own.Key); err != nil || current.Revision != revision {
			return nil, errChangedAgain
		}
		return s.record(txn, "controller/"+s.id, "undo", p.forwarder, p.project, "the forwarder refused it"), nil
	})
	return err == nil
}

var errChangedAgain = errors.New("changed again")

// finish undoes a change that is refused after its caller has gone.
func (s *Server) finish(p *plan, revision int64) {
	ctx, cancel := context.WithTimeout(s.ctx, 2*pushTimeout)
	defer cancel()
	if outcome, err := s.await(ctx, p.forwarder, revision); err == nil && outcome != nil && outcome.Refused == revision {
		s.undo(ctx, p, revision)
	}
}

// usageOf returns the project's record with what it used at the forwarder before the plan.
func (s *Server) usageOf(p *plan, record project) (project, usage, error) {
	uses := map[string]usage{}
	for name, u := range record.Usage {
		uses[name] = u
	}
	var before project
	if p.projectEntry.Revision != 0 {
		if err := decodeRecord(p.projectEntry, &before); err != nil {
			return record, usage{}, err
		}
	}
	old, had := before.Usage[p.forwarder]
	delete(uses, p.forwarder)
	if had {
		uses[p.forwarder] = old
	}
	record.Usage = uses
	return record, old, nil
}
