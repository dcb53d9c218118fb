// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	agentpb "steelyard/internal/gen/agentpb"
	"steelyard/internal/gen/agentpb/agentpbconnect"
	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/gen/controllerpb/controllerpbconnect"
	joining "steelyard/internal/member"
	"steelyard/internal/pki"

	"connectrpc.com/connect"
)

// asMember returns a client with a member's certificate.
func (l *lab) asMember(c *runningController, token *pb.CreateTokenRequest) (*http.Client, *pki.Identity) {
	l.Helper()
	identity, _, err := joining.Join(l.Context(), "", []string{c.url}, l.token(c, token), pki.User)
	if err != nil {
		l.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	transport := &http.Transport{TLSClientConfig: identity.Client(), Protocols: protocols}
	l.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}, identity
}

// endless returns a body of the given size that does not end until it is closed.
func endless(bytes int) io.Reader {
	reader, writer := io.Pipe()
	go func() { _, _ = writer.Write(make([]byte, bytes)) }() // fails when the reader is closed
	return reader
}

// The controller does not read the file of a caller who may not apply; messages without a file are small, even when decompressed.
func TestLargeMessagesOfMembersAreRefused(t *testing.T) {
	l := workflowLab(t, 1, "f1")
	c := l.controllers[0]
	setProject(l, &pb.Project{Name: "a"})
	setProject(l, &pb.Project{Name: "b"})
	viewer, _ := l.asMember(c, &pb.CreateTokenRequest{Name: "vic", Role: pb.Role_ROLE_VIEWER})
	operator, _ := l.asMember(c, &pb.CreateTokenRequest{Name: "op", Role: pb.Role_ROLE_OPERATOR, Projects: []string{"a"}})
	post := func(by *http.Client, procedure, project, encoding string, body io.Reader) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url+procedure, body)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set(ForwarderHeader, "f1")
		request.Header.Set(ProjectHeader, project)
		if encoding != "" {
			request.Header.Set("Content-Encoding", encoding)
		}
		response, err := by.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(text)
	}
	for name, by := range map[string]*http.Client{"a viewer": viewer, "an operator of another project": operator} {
		if code, text := post(by, agentpbconnect.AgentServiceApplyConfigProcedure, "b", "", endless(1<<10)); code != http.StatusForbidden || !strings.Contains(text, "may not apply") {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	var bomb bytes.Buffer
	packer := gzip.NewWriter(&bomb)
	fmt.Fprintf(packer, `{"name": "%s"}`, strings.Repeat("x", 2*maxMessage))
	packer.Close()
	if code, text := post(viewer, controllerpbconnect.ControllerServiceSetProjectProcedure, "", "gzip", &bomb); code != http.StatusTooManyRequests || !strings.Contains(text, "resource_exhausted") {
		t.Errorf("a message that becomes large: %d %s", code, text)
	}
}

// A member with many requests that do not end, some of them large, uses its own slots only. Others are served.
func TestEndlessRequestsDoNotBlockOtherMembers(t *testing.T) {
	l := workflowLab(t, 1, "f1")
	c := l.controllers[0]
	for _, name := range []string{"a", "b"} {
		setProject(l, &pb.Project{Name: name, VipPrefixes: []string{"10.8.0.0/16"}, ServerPrefixes: []string{"10.1.0.0/16"}})
	}
	greedy, _ := l.asMember(c, &pb.CreateTokenRequest{Name: "greedy", Role: pb.Role_ROLE_OPERATOR, Projects: []string{"a"}})
	other, _ := l.asMember(c, &pb.CreateTokenRequest{Name: "other", Role: pb.Role_ROLE_OPERATOR, Projects: []string{"b"}})
	const many = maxFiles + maxFilesOf
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, many)
	for range many {
		go func() {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+agentpbconnect.AgentServiceApplyConfigProcedure, endless(2*smallFile))
			if err == nil {
				request.Header.Set("Content-Type", "application/proto")
				request.Header.Set(ForwarderHeader, "f1")
				request.Header.Set(ProjectHeader, "a")
				_, err = greedy.Do(request)
			}
			ended <- err
		}()
	}
	large := service("10.8.0.1", "80", "fnat", "10.1.0.21") + "# " + strings.Repeat("x", 2*smallFile) + "\n"
	request := connect.NewRequest(&agentpb.ApplyConfigRequest{Yaml: []byte(large), File: "test.yaml"})
	request.Header().Set(ForwarderHeader, "f1")
	request.Header().Set(ProjectHeader, "b")
	if _, err := agentpbconnect.NewAgentServiceClient(other, c.url, connect.WithSendGzip()).ApplyConfig(t.Context(), request); err != nil {
		t.Errorf("another member: %v", err)
	}
	cancel()
	for range many {
		if err := <-ended; err == nil {
			t.Error("an endless request was answered")
		}
	}
}

// A project's file uses no more of the store than its services justify.
func TestFilesOfProjectsAreBounded(t *testing.T) {
	l, a, _ := tenants(t)
	text := service("10.8.0.1", "80", "fnat", "10.1.0.21")
	if _, err := apply(t.Context(), a, "f1", "a", text+"# "+strings.Repeat("x", fileBytes/2)+"\n"); err != nil {
		t.Error(err)
	}
	for _, by := range []user{a, l.controllers[0].admin} {
		if _, err := apply(t.Context(), by, "f1", "a", text+"# "+strings.Repeat("x", 2*fileBytes)+"\n"); connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "comments") {
			t.Errorf("a file of comments: %v", err)
		}
	}
}

// The slots of a member, and of all files, are bounded.
func TestMembersUseTheirOwnSlots(t *testing.T) {
	f := newInFlight()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var leaves []func()
	for range maxInFlight {
		_, leave := f.enter(t.Context(), "user/greedy")
		leaves = append(leaves, leave)
	}
	if own, _ := f.enter(gone, "user/greedy"); own != nil {
		t.Error("one more is served")
	}
	own, leave := f.enter(t.Context(), "user/other")
	if own == nil {
		t.Fatal("another member waits")
	}
	body := func(compressed bool, read int) *fileBody {
		return &fileBody{body: io.NopCloser(strings.NewReader("x")), ctx: gone, all: f.files, own: own.files, compressed: compressed, read: read}
	}
	var held []*fileBody
	for i := range maxFilesOf + 1 {
		one := body(i%2 == 0, smallFile+1)
		if n, err := one.Read(make([]byte, 1)); (n == 1) != (i < maxFilesOf) || (err == nil) != (i < maxFilesOf) {
			t.Errorf("file %d: %d, %v", i, n, err)
		}
		held = append(held, one)
	}
	if n, err := body(false, 0).Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("a small file waits: %v", err)
	}
	for _, one := range held {
		one.release()
	}
	ctx := context.WithValue(t.Context(), shareKey{}, own)
	done, err := f.startComputing(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.startComputing(context.WithValue(gone, shareKey{}, own), nil); err == nil {
		t.Error("two changes of a member are computed at a time")
	}
	if _, err := f.startComputing(gone, bytes.Repeat([]byte("[],"), 1<<20)); err == nil {
		t.Error("a large file is computed beside another one")
	}
	if more, err := f.startComputing(t.Context(), nil); err != nil {
		t.Error(err)
	} else {
		more()
	}
	done()
	delayMember(ctx)
	for _, one := range append(leaves, leave) {
		one()
	}
	if own, leave = f.enter(t.Context(), "user/other"); len(own.computing) != 1 {
		t.Error("a member does not wait after a refusal, as its request has ended")
	}
	own.computing <- struct{}{} // when the pause is over
	<-own.computing
	leave()
	members := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.of)
	}
	for begun := time.Now(); members() != 0 && time.Since(begun) < 4*time.Minute; time.Sleep(time.Millisecond) {
	}
	if members() != 0 || len(f.files) != 0 || !f.computing.TryAcquire(maxComputing) {
		t.Errorf("%d members, %d files are left", members(), len(f.files))
	}
}

// taken is an agent whose answer would exceed the controller's memory.
type taken struct {
	controllerpbconnect.UnimplementedMemberServiceHandler
}

func (taken) SetDrains(context.Context, *connect.Request[pb.SetDrainsRequest]) (*connect.Response[pb.SetDrainsResponse], error) {
	return connect.NewResponse(&pb.SetDrainsResponse{Warnings: []string{strings.Repeat("x", maxAnswer)}}), nil // compressed to 16 kB
}

func TestAnswersOfAgentsAreBounded(t *testing.T) {
	here, there := net.Pipe()
	_, handler := controllerpbconnect.NewMemberServiceHandler(taken{})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	served := make(chan net.Conn, 1)
	served <- there
	server := &http.Server{Handler: handler, Protocols: protocols}
	defer server.Close()
	go func() { _ = server.Serve(pipes{served}) }()
	one := newSession("f1", here)
	defer one.conn.Close()
	if _, err := one.member.SetDrains(t.Context(), connect.NewRequest(&pb.SetDrainsRequest{})); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("an answer that becomes large: %v", err)
	}
}

// pipes is a listener with given connections.
type pipes struct{ next chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p.next; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { close(p.next); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A certificate has a maximum number of connections, which does not affect others.
func TestConnectionsOfAMemberAreBounded(t *testing.T) {
	l := newLab(t, 1)
	c := l.controllers[0]
	_, identity := l.asMember(c, &pb.CreateTokenRequest{Name: "greedy", Role: pb.Role_ROLE_VIEWER})
	ask := func() (*tls.Conn, int) {
		conn, err := tls.Dial("tcp", c.url[len("https://"):], identity.Client())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_, err = io.WriteString(conn, "POST "+controllerpbconnect.ControllerServiceListForwardersProcedure+" HTTP/1.1\r\nHost: c\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		var version string
		var code int
		if err == nil {
			_, err = fmt.Fscanf(conn, "%s %d", &version, &code)
		}
		if err != nil {
			t.Fatal(err)
		}
		return conn, code
	}
	var first *tls.Conn
	for i := range maxConnectionsOf {
		conn, code := ask()
		if code != http.StatusOK {
			t.Fatalf("connection %d: %d", i, code)
		}
		if i == 0 {
			first = conn
		}
	}
	if _, code := ask(); code != http.StatusTooManyRequests {
		t.Errorf("one more: %d", code)
	}
	other := l.join(c, &pb.CreateTokenRequest{Name: "vic", Role: pb.Role_ROLE_VIEWER}, nil)
	if _, err := other.ListForwarders(t.Context(), connect.NewRequest(&pb.ListForwardersRequest{})); err != nil {
		t.Errorf("another member: %v", err)
	}
	first.Close()
	l.until("a closed connection counts no more", func() bool {
		conn, code := ask()
		conn.Close()
		return code == http.StatusOK
	})
}
