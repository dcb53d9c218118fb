// SPDX-License-Identifier: Apache-2.0

package member

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"steelyard/internal/config"
	agentpb "steelyard/internal/gen/agentpb"
	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/gen/controllerpb/controllerpbconnect"
	"steelyard/internal/store"

	"connectrpc.com/connect"
)

// revisionLine begins the file of a configuration from a controller, so that the two are replaced in one step.
const revisionLine = "# From a controller; changes here are lost. Revision: "

// Desired accepts configurations and orders to drain from controllers, newer ones only.
type Desired struct {
	controllerpbconnect.UnimplementedMemberServiceHandler
	Path    string // path of the agent's file
	Install func(context.Context, *agentpb.ApplyConfigRequest) (*agentpb.ApplyConfigResponse, error)
	Know    func(controllers []string)
	Store   *store.Store
	Settle  func(context.Context) (warning string) // waits until the forwarder matches the store
	// Ends returns the forwarder's services that a configuration lacks; nil: no check.
	Ends func(ctx context.Context, yaml []byte) ([]string, error)
	Node *Node // this agent's part of a group

	mu sync.Mutex
}

// has returns the agent's file and its revision; 0: there is no file.
func (d *Desired) has() (int64, []byte, error) {
	data, err := os.ReadFile(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil, nil
	}
	if err != nil {
		return 0, nil, err
	}
	line, text, _ := bytes.Cut(data, []byte("\n"))
	number, ok := bytes.CutPrefix(line, []byte(revisionLine))
	if !ok {
		return 0, nil, fmt.Errorf("%s does not begin with its revision: remove it, and the controller sends it again", d.Path)
	}
	revision, err := strconv.ParseInt(string(number), 10, 64)
	return revision, text, err
}

// SetDesired implements the service. It refuses a configuration older than the one on disk, whichever controller sends it, and whatever its clock says.
func (d *Desired) SetDesired(ctx context.Context, request *connect.Request[pb.SetDesiredRequest]) (*connect.Response[pb.SetDesiredResponse], error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Know(request.Msg.GetControllers())
	has, text, err := d.has()
	if err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	wanted := request.Msg.GetRevision()
	answer := &pb.SetDesiredResponse{Outcome: pb.SetDesiredResponse_OUTCOME_OLDER, Revision: has}
	if wanted < has {
		return connect.NewResponse(answer), nil
	}
	yaml, err := unpack(request.Msg.GetYamlGzip())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if has == 0 && !request.Msg.GetPrune() && d.Ends != nil {
		if refusal := d.checkFirst(ctx, yaml); refusal != nil {
			return connect.NewResponse(refusal), nil
		}
	}
	apply := &agentpb.ApplyConfigRequest{File: fmt.Sprintf("revision %d", wanted)}
	if wanted > has || !bytes.Equal(text, yaml) { // or the file was edited
		apply.Yaml = append([]byte(fmt.Sprintf("%s%d\n", revisionLine, wanted)), yaml...)
	}
	applied, err := d.Install(ctx, apply)
	answer.Revision, _, _ = d.has()
	answer.Outcome = outcomeOf(err, answer.Revision == wanted)
	if err != nil {
		answer.Error = err.Error()
		var refusal *connect.Error
		if errors.As(err, &refusal) {
			answer.Error = refusal.Message()
		}
	}
	answer.ForwarderRevision, answer.Changes = applied.GetRevision(), applied.GetChanges()
	return connect.NewResponse(answer), nil
}

// maxNamed bounds the services that an error names.
const maxNamed = 5

// checkFirst refuses a controller's first configuration if it would remove services that no controller has configured: those of the agent's own file,
// from before it joined.
func (d *Desired) checkFirst(ctx context.Context, yaml []byte) *pb.SetDesiredResponse {
	ends, err := d.Ends(ctx, yaml)
	switch {
	case err != nil:
		return &pb.SetDesiredResponse{Outcome: pb.SetDesiredResponse_OUTCOME_FAILED,
			Error: "the forwarder's services are unknown, so they are not replaced yet: " + err.Error()}
	case len(ends) == 0:
		return nil
	}
	named := strings.Join(ends[:min(len(ends), maxNamed)], ", ")
	if more := len(ends) - maxNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return &pb.SetDesiredResponse{Outcome: pb.SetDesiredResponse_OUTCOME_REFUSED, NeedsPrune: true,
		Error: fmt.Sprintf("this would remove services that no controller has configured: %s; add them to the file (they are from the agent's own file, before it joined), "+
			"or confirm by `apply --prune`", named)}
}

// unpack decompresses a file from a controller.
func unpack(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r, config.MaxFileBytes+1))
	if err == nil && len(text) > config.MaxFileBytes {
		err = fmt.Errorf("a configuration of more than %d bytes", config.MaxFileBytes)
	}
	return text, err
}

// outcomeOf returns the outcome of a configuration. Only a refusal is permanent; any other fault may pass.
func outcomeOf(err error, has bool) pb.SetDesiredResponse_Outcome {
	var host syscall.Errno
	passes := errors.As(err, &host) && slices.Contains([]syscall.Errno{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE}, host)
	switch {
	case err == nil && has:
		return pb.SetDesiredResponse_OUTCOME_APPLIED
	case err != nil && !passes && connect.CodeOf(err) == connect.CodeInvalidArgument:
		return pb.SetDesiredResponse_OUTCOME_REFUSED
	case has: // the forwarder is disconnected, or slow
		return pb.SetDesiredResponse_OUTCOME_LOADED
	}
	return pb.SetDesiredResponse_OUTCOME_FAILED
}
