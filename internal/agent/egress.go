// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"steelyard/internal/egress"
	"steelyard/internal/model"
	"steelyard/internal/unixsock"
)

// author returns the author of a service. At a controller, projects other than `default` are those of operators; the agent's own file is root's.
func (a *Agent) author(service string) egress.Author {
	if a.member != nil && strings.Contains(service, ".") {
		return egress.Tenant
	}
	return egress.Administrator
}

// controllers returns the addresses of controllers.
func (a *Agent) controllers() []netip.Addr {
	if a.member == nil {
		return nil
	}
	return a.member.Addresses()
}

// check is called before a file is installed. Fails if this host cannot read an access set, or does not allow a load source.
func (a *Agent) check(config *model.Config) error {
	if err := a.sets.Check(config); err != nil {
		return err
	}
	return a.checkEgress(config, a.author)
}

// checkByUser is check for a file from a user of the agent's socket.
func (a *Agent) checkByUser(ctx context.Context, config *model.Config) error {
	if user, known := unixsock.Peer(ctx); !known || user == 0 || int(user) == os.Geteuid() {
		return nil
	}
	return a.checkEgress(config, func(string) egress.Author { return egress.Tenant })
}

// checkEgress rejects load sources to which the agent would not connect. Sources in force stay, and are checked at each connection.
func (a *Agent) checkEgress(config *model.Config, author func(string) egress.Author) error {
	known := map[string]bool{}
	if running := a.store.Config(); running != nil {
		for i := range running.Services {
			known[running.Services[i].Load.URL] = true
		}
	}
	for i := range config.Services {
		service := &config.Services[i]
		if url := service.Load.URL; url != "" && !known[url] {
			known[url] = true
			if err := a.egress.CheckURL(url, author(service.Name)); err != nil {
				return fmt.Errorf("service %s: load.url: %w", service.Name, err)
			}
		}
	}
	return nil
}
