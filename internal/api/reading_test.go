// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	agentpb "steelyard/internal/gen/agentpb"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

func eachMethod(f func(procedure string, reads bool)) {
	services := agentpb.File_steelyard_agent_v1_agent_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			method := methods.Get(j)
			options := method.Options().(*descriptorpb.MethodOptions)
			reads := options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
			f("/"+string(services.Get(i).FullName())+"/"+string(method.Name()), reads)
		}
	}
}

// A method without the mark is closed to readers, whatever its request is.
func TestReadersMayOnlyRead(t *testing.T) {
	web := httptest.NewServer(NewReadingHandler(&Server{}, func() string { return "join the group operators" }))
	defer web.Close()
	var changing []string
	eachMethod(func(procedure string, reads bool) {
		if reads {
			return
		}
		changing = append(changing, procedure[strings.LastIndex(procedure, "/")+1:])
		code, text := post(t, web.URL+procedure, nil, nil)
		if code != http.StatusForbidden || !strings.Contains(text, "join the group operators") {
			t.Errorf("%s: %d %s", procedure, code, text)
		}
		response, err := http.Get(web.URL + procedure + "?encoding=proto&message=&connect=v1")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode == http.StatusOK {
			t.Errorf("%s: a GET is answered", procedure)
		}
	})
	if got := strings.Join(changing, " "); got != "DiffConfig ApplyConfig SetDrain DrainNode ClaimAddresses" {
		t.Errorf("methods that readers may not use: %s; a new one that only reads needs the mark", got)
	}
}

// Names show what a method does; the mark must agree.
func TestMarksAgreeWithNames(t *testing.T) {
	eachMethod(func(procedure string, reads bool) {
		name := string(protoreflect.FullName(procedure[strings.LastIndex(procedure, "/")+1:]))
		if named := strings.HasPrefix(name, "Get") || strings.HasPrefix(name, "List"); named != reads {
			t.Errorf("%s: NO_SIDE_EFFECTS is %v", name, reads)
		}
	})
}
