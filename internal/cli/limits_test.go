// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"

	"steelyard/internal/model"
)

func TestRatesOfLimits(t *testing.T) {
	limit := func(name string, unit model.LimitUnit, passed, above uint64) limitView {
		return limitView{Name: name, Passed: limitCounts{passed, 100 * passed}, Above: limitCounts{above, 100 * above},
			spec: model.LimitSpec{Unit: unit, PerSecond: 8000}}
	}
	before := []limitView{limit("bits", model.LimitBits, 1000, 10), limit("begun", model.LimitSessions, 5, 5), limit("again", model.LimitPackets, 1e6, 1e6)}
	after := []limitView{limit("again", model.LimitPackets, 200, 0), limit("begun", model.LimitSessions, 25, 5), limit("bits", model.LimitBits, 3000, 20),
		limit("new", model.LimitBits, 7, 7)}
	var out bytes.Buffer
	a := &app{out: &out, err: &out, output: "table"}
	if err := a.showLimitRates(limitRates(before, after, 2)); err != nil {
		t.Fatal(err)
	}
	expectGolden(t, "limit-rates", out.String())
}

func TestStatsOfLimits(t *testing.T) {
	l := newLab(t)
	code, out, errOut := l.run("stats", "--limits", "-o", "json")
	if code != 0 || !strings.Contains(out, `"limit": "acme-1g"`) || strings.Contains(out, `"service"`) {
		t.Errorf("%d: %s%s", code, out, errOut)
	}
	code, _, errOut = l.run("stats", "--limits", "-w", "1ms")
	if code != 2 || !strings.Contains(errOut, "too short") {
		t.Errorf("%d: %s", code, errOut)
	}
}
