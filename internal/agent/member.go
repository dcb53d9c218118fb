// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/http"
	"os"

	"steelyard/internal/api"
	"steelyard/internal/config"
	"steelyard/internal/gen/controllerpb/controllerpbconnect"
	"steelyard/internal/member"

	"connectrpc.com/connect"
)

// memberHandler is what a controller may ask: what users of this host may, and to set the configuration.
func (a *Agent) memberHandler(service *api.Server) http.Handler {
	mux := http.NewServeMux()
	path, desired := controllerpbconnect.NewMemberServiceHandler(&member.Desired{
		Path: a.options.Config, Install: service.Apply, Know: a.member.Know, Store: a.store, Settle: service.Settle,
	}, connect.WithReadMaxBytes(config.MaxFileBytes+1<<20))
	mux.Handle(path, desired)
	mux.Handle("/", api.NewHandler(service))
	return mux
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
