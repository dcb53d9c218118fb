// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"steelyard/internal/model"
)

func TestRoutes(t *testing.T) {
	head := "version: 1\nservices: []\n"
	for text, want := range map[string]model.Routes{
		"": {},
		"routes: { kernel: {} }": {Announce: model.RouteKinds, WithdrawAfter: 500 * time.Millisecond,
			Kernel: model.KernelRoutes{Table: 202, Metric: 100}},
		"routes: { announce: [snat_pools, vips], withdraw_after: 0s, kernel: { table: 7, metric: 20 } }": {
			Announce: []model.RouteKind{model.RoutePool, model.RouteVIP}, Kernel: model.KernelRoutes{Table: 7, Metric: 20}},
	} {
		config, err := Parse("steelyard.yaml", []byte(head+text))
		if err != nil || !reflect.DeepEqual(config.Routes, want) {
			t.Errorf("%s: %+v, %v", text, config, err)
		}
	}
	for text, want := range map[string]string{
		"{}":                                     "no routes can be announced",
		"{ announce: [], kernel: {} }":           "nothing is announced",
		"{ announce: [vips, vips], kernel: {} }": "vips is in this list already",
		"{ announce: [vip], kernel: {} }":        "vips",
		"{ kernel: { table: 254 } }":             "use 1 to 252",
		"{ kernel: { metric: 0 } }":              "0 is out of range",
		"{ withdraw_after: 1m, kernel: {} }":     "10s",
		"{ kernel: {}, withdraw: 1s }":           "withdraw_after",
	} {
		_, err := Parse("steelyard.yaml", []byte(head+"routes: "+text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
