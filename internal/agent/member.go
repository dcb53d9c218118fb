// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"

	"steelyard/internal/api"
	"steelyard/internal/config"
	"steelyard/internal/gen/controllerpb/controllerpbconnect"
	"steelyard/internal/member"
	"steelyard/internal/model"

	"connectrpc.com/connect"
)

// memberHandler serves a controller: the methods that users of this host have, and those that set the configuration.
func (a *Agent) memberHandler(service *api.Server) http.Handler {
	mux := http.NewServeMux()
	path, desired := controllerpbconnect.NewMemberServiceHandler(&member.Desired{
		Path: a.options.Config, Install: service.Apply, Know: a.member.Know, Store: a.store, Settle: service.Settle, Ends: a.removedServices, Node: a.node,
	}, connect.WithReadMaxBytes(config.MaxFileBytes+1<<20))
	mux.Handle(path, desired)
	mux.Handle("/", api.NewHandler(service))
	return mux
}

// removedServices returns the forwarder's services and SNAT rules that a configuration would remove.
func (a *Agent) removedServices(ctx context.Context, yaml []byte) ([]string, error) {
	wanted, err := a.file.Parse("the controller's file", yaml)
	if err != nil {
		return nil, nil // SetDesired rejects the file with this error
	}
	client, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	actual, _, err := client.ReadTable(ctx)
	if err != nil {
		return nil, err
	}
	services, rules := map[model.ServiceKey]bool{}, map[string]bool{}
	for i := range wanted.Services {
		services[wanted.Services[i].Key] = true
	}
	for _, rule := range wanted.SNAT {
		rules[rule.Name] = true
	}
	var removed []string
	for key, service := range actual.Services {
		if !services[key] {
			removed = append(removed, fmt.Sprintf("service %s (%s)", service.Spec.Name, key))
		}
	}
	for name := range actual.SNAT {
		if !rules[name] {
			removed = append(removed, "SNAT rule "+name)
		}
	}
	slices.Sort(removed)
	return removed, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
