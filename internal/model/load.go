// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"time"
)

// LoadType is a kind of source of a server's load.
type LoadType uint8

// The sources of load.
const (
	LoadNone       LoadType = iota
	LoadNode                // the metrics of a node_exporter on the server
	LoadORCA                // a report by the conventions of ORCA, over HTTP
	LoadHealth              // such a report in the answers to health checks
	LoadPrometheus          // a query to a Prometheus
)

// LoadTypes lists all sources.
var LoadTypes = []LoadType{LoadNone, LoadNode, LoadORCA, LoadHealth, LoadPrometheus}

func (t LoadType) String() string {
	return [...]string{"none", "node", "orca", "health", "prometheus"}[t]
}

// Load configures the source of the load of a service's servers; comparable.
type Load struct {
	Type     LoadType
	Port     uint16 // 0: the source's usual one
	Path     string
	URL      string  // of a Prometheus
	Query    string  // to it
	Metric   string  // of a report; empty: the use of processors
	Full     float64 // the value that means a busy server
	Interval time.Duration
	Timeout  time.Duration
}

// ServerLoad has a server's own settings; comparable.
type ServerLoad struct {
	Off      bool   // its load is not read
	Port     uint16 // 0: as the service's
	Instance string // for $instance in a query; empty: address and port
}

func (l Load) words() []setting {
	if l.Type == LoadNone {
		return nil
	}
	full := ""
	if l.Full != 1 {
		full = fmt.Sprint(l.Full)
	}
	return []setting{{"type", l.Type.String()}, {"port", numberText(l.Port)}, {"path", HideQuery(l.Path)}, {"url", l.URL}, {"query", l.Query},
		{"metric", l.Metric}, {"full", full}, {"interval", durationText(l.Interval)}, {"timeout", durationText(l.Timeout)}}
}

func (l ServerLoad) words() []setting {
	off := ""
	if l.Off {
		off = "none"
	}
	return []setting{{"type", off}, {"port", numberText(l.Port)}, {"instance", l.Instance}}
}

// describeServerLoads describes changes of servers' own settings.
func describeServerLoads(was, now *Service) []Description {
	old := map[ServerRef]ServerLoad{}
	for _, server := range was.Servers {
		old[ServerRef{was.Key, server.Address}] = server.Load
	}
	var list []Description
	for _, server := range now.Servers {
		if before, ok := old[ServerRef{now.Key, server.Address}]; ok && before != server.Load {
			list = appendSetting(list, fmt.Sprintf("load of server %s of %s", ServerText(server.Address), now.Name), before.words(), server.Load.words())
		}
	}
	return list
}
