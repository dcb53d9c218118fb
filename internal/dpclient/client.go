// SPDX-License-Identifier: Apache-2.0

package dpclient

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"

	pb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/model"
	"steelyard/internal/unixsock"

	"google.golang.org/protobuf/proto"
)

// DefaultSocket is where a forwarder listens.
const DefaultSocket = "/run/steelyard/forwarder.sock"

// Upper limits for a request, far below the forwarder's limit of MaxFrame.
const (
	maxBatchChanges = 1000
	maxBatchBytes   = 1 << 20
)

// Client is one connection to a forwarder. Several goroutines may call its methods; calls are answered
// one after the other.
type Client struct {
	conn net.Conn
	done chan struct{} // closed when the connection has ended

	mu      sync.Mutex // one request at a time
	nextID  uint64
	replies chan *pb.Response
	err     error // why the connection ended; read after done
}

// ErrAbsent is the error of a call without a forwarder: none listens, it has closed the connection, or it is being replaced.
var ErrAbsent = errors.New("no forwarder")

// absence is that no forwarder listens on a socket.
type absence struct{ socket string }

func (a absence) Error() string {
	return fmt.Sprintf("no forwarder listens on %s: start it with `systemctl start steelyard-forwarder`, or name its socket by "+
		"--forwarder of `steelyard agent`, `upgrade` or `role`", a.socket)
}

func (absence) Is(target error) bool { return target == ErrAbsent }

// closure is that the forwarder ended the connection.
type closure struct{}

func (closure) Error() string { return "it closed the connection" }

func (closure) Is(target error) bool { return target == ErrAbsent }

// Dial connects to the forwarder's socket.
func Dial(ctx context.Context, socket string) (*Client, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
			return nil, absence{socket}
		}
		if errors.Is(err, syscall.EACCES) {
			return nil, fmt.Errorf("permission denied for %s: only root%s may connect to the forwarder",
				socket, unixsock.Members(socket, " and members of the group "))
		}
		return nil, fmt.Errorf("forwarder: %w", err)
	}
	c := &Client{conn: conn, done: make(chan struct{}), replies: make(chan *pb.Response, 1)}
	go c.read()
	return c, nil
}

// Close closes the connection; the forwarder drops changes that were staged on it.
func (c *Client) Close() error {
	return c.conn.Close()
}

// Done is closed when either side has ended the connection.
func (c *Client) Done() <-chan struct{} {
	return c.done
}

func (c *Client) read() {
	defer close(c.done)
	defer c.conn.Close()
	reader := bufio.NewReaderSize(c.conn, 64<<10)
	for {
		response := new(pb.Response)
		if err := ReadFrame(reader, response); err != nil {
			// net.ErrClosed: a write has failed first
			if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) {
				err = closure{}
			}
			c.err = fmt.Errorf("forwarder: %w", err)
			return
		}
		select {
		case c.replies <- response:
		default:
			c.err = fmt.Errorf("forwarder: an answer without a request (id %d)", response.GetId())
			return
		}
	}
}

// Error is a refusal by the forwarder.
type Error struct {
	Code   pb.Code
	Text   string
	Change uint32 // for Apply: the refused change
}

func (e *Error) Error() string {
	return "the forwarder refused: " + e.Text
}

// Refused reports whether the forwarder understood the request and will refuse it again until something
// else has changed; the connection continues.
func (e *Error) Refused() bool {
	return e.Code == pb.Code_CODE_INVALID || e.Code == pb.Code_CODE_EXHAUSTED || e.Code == pb.Code_CODE_UNSUPPORTED
}

// Unknown reports whether the forwarder does not know the request, because it is of an earlier version.
func (e *Error) Unknown() bool { return e.Code == pb.Code_CODE_UNSUPPORTED }

// Is makes a forwarder that is being replaced absent: its successor answers.
func (e *Error) Is(target error) bool { return target == ErrAbsent && e.Code == pb.Code_CODE_INTERNAL }

// Revision requests the revision of the configuration.
func (c *Client) Revision(ctx context.Context) (uint64, error) {
	status, err := c.Status(ctx)
	return status.GetRevision(), err
}

// call sends one request and waits for its answer. If the context ends, the connection ends too, because
// otherwise the answer would be mistaken for that of a later request.
func (c *Client) call(ctx context.Context, request *pb.Request) (*pb.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.nextID++
	request.Version = uint32(pb.Version_VERSION_CURRENT)
	request.Id = c.nextID

	stop := context.AfterFunc(ctx, func() { c.conn.Close() })
	defer stop()
	if err := WriteFrame(c.conn, request); err != nil {
		c.conn.Close()
		return nil, c.ended(ctx)
	}
	select {
	case response := <-c.replies:
		return c.checked(request, response)
	case <-c.done:
	}
	select { // an answer just before the end counts
	case response := <-c.replies:
		return c.checked(request, response)
	default:
		return nil, c.ended(ctx)
	}
}

func (c *Client) checked(request *pb.Request, response *pb.Response) (*pb.Response, error) {
	if e := response.GetError(); e != nil {
		return nil, &Error{Code: e.GetCode(), Text: e.GetText(), Change: e.GetChangeIndex()}
	}
	if response.GetId() != request.GetId() {
		c.conn.Close()
		return nil, fmt.Errorf("forwarder: answer %d to request %d: the versions of steelyard and "+
			"steelyard-forwarder differ, install both from one build", response.GetId(), request.GetId())
	}
	return response, nil
}

// silence is a deadline that has passed.
type silence struct{}

func (silence) Error() string {
	return "the forwarder does not answer in time: it hangs, is stopped (SIGSTOP), or lacks processor time"
}

func (silence) Unwrap() error { return context.DeadlineExceeded }

func (c *Client) ended(ctx context.Context) error {
	<-c.done
	if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
		return silence{}
	} else if err != nil {
		return err
	}
	return c.err
}

// Marks reports whether marked health checks reach their servers.
func (c *Client) Marks(ctx context.Context) (model.Marks, error) {
	status, err := c.Status(ctx)
	return model.Marks{Active: status.GetMarksActive(), Refused: status.GetMarksRefused()}, err
}

// Status requests the forwarder's status.
func (c *Client) Status(ctx context.Context) (*pb.Status, error) {
	response, err := c.call(ctx, &pb.Request{Body: &pb.Request_Status{Status: &pb.StatusRequest{}}})
	return response.GetStatus(), err
}

// Claim makes the forwarder claim addresses of other hosts: the given ones, or all if none are given. Returns their number.
func (c *Client) Claim(ctx context.Context, some ...netip.Addr) (uint32, error) {
	request := &pb.ClaimRequest{}
	for _, address := range some {
		request.Addresses = append(request.Addresses, address.AsSlice())
	}
	response, err := c.call(ctx, &pb.Request{Body: &pb.Request_Claim{Claim: request}})
	return response.GetClaim().GetClaimed(), err
}

// Upgrade describes the successor of the running forwarder.
type Upgrade struct {
	Binary  string   // empty: the path that the forwarder was started from
	Options []string // nil: the same as now
}

// Upgrade replaces the forwarder by another process, which takes over its sessions. It returns when that
// process forwards. After an error, the old forwarder continues, or has restarted with its sessions.
func (c *Client) Upgrade(ctx context.Context, upgrade Upgrade) (*pb.UpgradeResult, error) {
	response, err := c.call(ctx, &pb.Request{Body: &pb.Request_Upgrade{Upgrade: &pb.UpgradeRequest{
		Binary: upgrade.Binary, Args: upgrade.Options, SetArgs: upgrade.Options != nil}}})
	return response.GetUpgrade(), err
}

// ErrMoved means that the configuration changed repeatedly while it was read.
var ErrMoved = errors.New("the forwarder's configuration keeps changing: is another agent running?")

// ReadTable reads the whole configuration and its revision.
func (c *Client) ReadTable(ctx context.Context) (*model.Table, uint64, error) {
	for range 5 {
		table, revision, err := c.readTable(ctx)
		if !errors.Is(err, ErrMoved) {
			return table, revision, err
		}
	}
	return nil, 0, ErrMoved
}

func (c *Client) readTable(ctx context.Context) (*model.Table, uint64, error) {
	table := model.NewTable()
	var revision uint64
	for cursor := uint32(0); ; {
		response, err := c.call(ctx, &pb.Request{Body: &pb.Request_GetConfig{
			GetConfig: &pb.GetConfigRequest{Cursor: cursor}}})
		if err != nil {
			return nil, 0, err
		}
		page := response.GetGetConfig()
		if cursor != 0 && page.GetRevision() != revision {
			return nil, 0, ErrMoved
		}
		revision = page.GetRevision()
		if err := addPage(table, page); err != nil {
			return nil, 0, err
		}
		next := page.GetNextCursor()
		if next == 0 {
			return table, revision, nil
		}
		if next == cursor {
			return nil, 0, fmt.Errorf("forwarder: configuration page %d names itself as the next", cursor)
		}
		cursor = next
	}
}

// Apply stages the changes in batches and commits them as one transaction; returns the new revision.
// After an error nothing has changed and nothing is staged; the connection is closed unless the error
// is an *Error that is Refused.
func (c *Client) Apply(ctx context.Context, changes []model.Change) (uint64, error) {
	batch := &pb.ApplyRequest{}
	size := 0
	for _, change := range changes {
		wire := changeToWire(change)
		bytes := proto.Size(wire) + 8 // its tag and length
		if len(batch.Changes) == maxBatchChanges || size+bytes > maxBatchBytes {
			if _, err := c.stage(ctx, batch); err != nil {
				return 0, err
			}
			batch, size = &pb.ApplyRequest{}, 0
		}
		batch.Changes = append(batch.Changes, wire)
		size += bytes
	}
	batch.Commit = true
	result, err := c.stage(ctx, batch)
	return result.GetRevision(), err
}

func (c *Client) stage(ctx context.Context, batch *pb.ApplyRequest) (*pb.ApplyResult, error) {
	response, err := c.call(ctx, &pb.Request{Body: &pb.Request_Apply{Apply: batch}})
	if err != nil {
		var refusal *Error
		if !errors.As(err, &refusal) || !refusal.Refused() {
			c.conn.Close()
		}
		return nil, err
	}
	return response.GetApply(), nil
}

// EachService calls f with every service's counters, or with one service's when only is not nil.
func (c *Client) EachService(ctx context.Context, only *model.ServiceKey, f func(*pb.ServiceStats) error) error {
	request := &pb.ListServicesRequest{}
	if only != nil {
		request.Only = keyToWire(*only)
	}
	for {
		response, err := c.call(ctx, &pb.Request{Body: &pb.Request_ListServices{ListServices: request}})
		if err != nil {
			return err
		}
		page := response.GetListServices()
		for _, service := range page.GetServices() {
			if err := f(service); err != nil {
				return err
			}
		}
		if page.GetNextCursor() == 0 || page.GetNextCursor() == request.Cursor {
			return nil
		}
		request.Cursor = page.GetNextCursor()
	}
}

// Sessions returns at most limit sessions, and whether there are more of them.
func (c *Client) Sessions(ctx context.Context, filter SessionFilter, limit int) ([]*pb.Session, bool, error) {
	request := &pb.ListSessionsRequest{Validated: filter.Validated, ClientBits: uint32(filter.Bits)}
	if filter.Client.IsValid() {
		request.Client = filter.Client.AsSlice()
	}
	if filter.Service != nil {
		request.Service = keyToWire(*filter.Service)
	}
	var sessions []*pb.Session
	for {
		request.Limit = uint32(min(limit-len(sessions), 1000))
		response, err := c.call(ctx, &pb.Request{Body: &pb.Request_ListSessions{ListSessions: request}})
		if err != nil {
			return nil, false, err
		}
		page := response.GetListSessions()
		sessions = append(sessions, page.GetSessions()...)
		next := page.GetNextCursor()
		if len(sessions) >= limit {
			return sessions[:limit], next != 0 || len(sessions) > limit, nil
		}
		if next == 0 || next == request.Cursor {
			return sessions, false, nil
		}
		request.Cursor = next
	}
}

// Drops returns the counters of all reasons.
func (c *Client) Drops(ctx context.Context) ([]*pb.Drop, error) {
	response, err := c.call(ctx, &pb.Request{Body: &pb.Request_ListDrops{ListDrops: &pb.ListDropsRequest{}}})
	return response.GetListDrops().GetDrops(), err
}

// Ports returns the counters of all ports.
func (c *Client) Ports(ctx context.Context) ([]*pb.Port, error) {
	response, err := c.call(ctx, &pb.Request{Body: &pb.Request_ListPorts{ListPorts: &pb.ListPortsRequest{}}})
	return response.GetListPorts().GetPorts(), err
}

// Workers returns the counters of all workers.
func (c *Client) Workers(ctx context.Context) ([]*pb.Worker, error) {
	response, err := c.call(ctx, &pb.Request{Body: &pb.Request_ListWorkers{ListWorkers: &pb.ListWorkersRequest{}}})
	return response.GetListWorkers().GetWorkers(), err
}

// Slots returns the counters of all slots.
func (c *Client) Slots(ctx context.Context) ([]*pb.Slot, error) {
	response, err := c.call(ctx, &pb.Request{Body: &pb.Request_ListSlots{ListSlots: &pb.ListSlotsRequest{}}})
	return response.GetListSlots().GetSlots(), err
}

// Attacks returns the attacks that the forwarder lists, and the number of those that did not fit.
func (c *Client) Attacks(ctx context.Context) ([]*pb.Attack, uint64, error) {
	response, err := c.call(ctx, &pb.Request{Body: &pb.Request_ListAttacks{ListAttacks: &pb.ListAttacksRequest{}}})
	return response.GetListAttacks().GetAttacks(), response.GetListAttacks().GetLeftOut(), err
}
