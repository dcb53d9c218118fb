// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"steelyard/internal/cluster"
	"steelyard/internal/config"
	agentpb "steelyard/internal/gen/agentpb"
	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/pki"

	"connectrpc.com/connect"
)

// maxTogether bounds the forwarders of one transaction: each needs up to eleven of its 128 operations.
const maxTogether = 10

// applyToMany makes one file a project's configuration of several forwarders. It computes and checks the change for all of them before it writes
// anything. Then each forwarder is independent: if one refuses, it keeps its configuration, and the others do not wait for it.
func (a *agentService) applyToMany(ctx context.Context, names string, request *connect.Request[agentpb.ApplyConfigRequest]) (
	*connect.Response[agentpb.ApplyConfigResponse], error) {
	project := request.Header().Get(ProjectHeader)
	if project == "" {
		project = defaultProject
	}
	forwarders, err := a.server.named(ctx, names)
	if err == nil {
		err = pki.CheckName("project", project)
	}
	if err != nil {
		return nil, invalid(err)
	}
	response, err := a.server.applyAll(ctx, from(ctx), forwarders, project, request.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(response), nil
}

// named returns the forwarders that a header names.
func (s *Server) named(ctx context.Context, names string) ([]string, error) {
	var all []string
	if names == AllForwarders {
		list, err := s.ListForwarders(ctx, connect.NewRequest(&pb.ListForwardersRequest{}))
		if err != nil {
			return nil, err
		}
		for _, f := range list.Msg.GetForwarders() {
			all = append(all, f.GetName())
		}
		if len(all) == 0 {
			return nil, errors.New("no forwarder has joined: create a token for one by `steelyard token create --new-forwarder NAME`")
		}
		return all, nil
	}
	if group, ok := strings.CutPrefix(names, GroupHeader); ok {
		if err := pki.CheckName("group", group); err != nil {
			return nil, err
		}
		return s.nodesOf(ctx, group)
	}
	for name := range strings.SplitSeq(names, ",") {
		name = strings.TrimSpace(name)
		if err := pki.CheckName("forwarder", name); err != nil {
			return nil, err
		}
		all = append(all, name)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func (s *Server) applyAll(ctx context.Context, caller principal, forwarders []string, project string, request *agentpb.ApplyConfigRequest) (
	*agentpb.ApplyConfigResponse, error) {
	if !caller.mayApply(project) {
		return nil, denied("%s may not apply in the project %s", caller, project)
	}
	if len(request.GetYaml()) == 0 {
		return nil, invalid(errors.New("a controller has no file of its own to reload: name a file, `steelyard apply FILE`"))
	}
	if request.GetForce() { // they would take one address from each other
		return nil, invalid(errors.New("--force claims addresses at one forwarder only: name one by --forwarder"))
	}
	if err := s.checkWhole(ctx, forwarders); err != nil {
		return nil, err
	}
	w := s.newWorkOf(caller, project)
	w.prune = request.GetPrune()
	for some := range slices.Chunk(forwarders, maxTogether) {
		plans, err := s.compute(ctx, w, some, project, request.GetFile(), request.GetYaml())
		if err != nil {
			return nil, err
		}
		w.usage = plans[len(plans)-1].record.Usage // a quota bounds the sum over all forwarders
	}
	w.usage = nil
	var waiting sync.WaitGroup
	var mu sync.Mutex
	total := &agentpb.ApplyConfigResponse{}
	warned := false
	var refusals []string
	for some := range slices.Chunk(forwarders, maxTogether) {
		plans, revision, err := s.commitAll(ctx, caller, w, some, project, request)
		if err != nil {
			waiting.Wait()
			return nil, fmt.Errorf("%s and the forwarders after it have not received it: %w", some[0], err)
		}
		for _, p := range plans {
			at := revision
			if p.same() {
				at = p.desired.Revision
			}
			waiting.Go(func() {
				response, err := s.awaitResponse(ctx, p, at, nil)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					refusals = append(refusals, err.Error())
					return
				}
				total.Generation = max(total.Generation, response.GetGeneration())
				total.Changes += response.GetChanges()
				for _, warning := range response.GetWarnings() {
					total.Warnings = append(total.Warnings, p.forwarder+": "+warning)
				}
			})
		}
		if !warned { // the merged files differ in other projects' parts only, so the first one's warnings suffice
			warned = true
			found := config.Warnings(request.GetFile(), plans[0].merged, plans[0].parsed)
			mu.Lock()
			total.Warnings = append(found, total.Warnings...)
			mu.Unlock()
		}
	}
	waiting.Wait()
	if len(refusals) > 0 {
		slices.Sort(refusals)
		return nil, invalid(fmt.Errorf("%s (%d of %d forwarders have it)", strings.Join(refusals, "; "), len(forwarders)-len(refusals), len(forwarders)))
	}
	return total, nil
}

// commitAll writes a file for several forwarders in one transaction. It computes the change again after each conflict.
func (s *Server) commitAll(ctx context.Context, caller principal, w *work, forwarders []string, project string, request *agentpb.ApplyConfigRequest) (
	[]*plan, int64, error) {
	var plans []*plan
	again := false
	revision, err := s.retry(ctx, func() (*cluster.Txn, error) {
		var err error
		if again {
			w.saved = nil // saved values may have been removed since
		}
		again = true
		if plans, err = s.compute(ctx, w, forwarders, project, request.GetFile(), request.GetYaml()); err != nil {
			return nil, err
		}
		var new []*plan
		for _, p := range plans {
			if err := s.saveTexts(ctx, w, p); err != nil {
				return nil, err
			}
			if !p.same() {
				new = append(new, p)
			}
		}
		if len(new) == 0 {
			return nil, nil
		}
		txn := txnOf(new)
		for _, p := range new {
			s.record(txn, caller.String(), "apply", p.forwarder, project, fmt.Sprintf("%s, %d services", request.GetFile(), len(p.parsed.Services)))
		}
		return txn, nil
	})
	return plans, revision, err
}
