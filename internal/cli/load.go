// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"time"

	pb "steelyard/internal/gen/agentpb"
)

type loadView struct {
	Load     float64 `json:"load"`         // 0 to 1
	RPS      float64 `json:"rps"`          // 0: not reported by the source
	ReadMs   uint64  `json:"read_unix_ms"` // 0: never
	AgeMs    uint64  `json:"age_ms"`
	Source   string  `json:"source"`
	Error    string  `json:"error"`
	Failures uint64  `json:"failures"`
}

func viewLoad(l *pb.LoadState) *loadView {
	if l == nil {
		return nil
	}
	return &loadView{l.GetLoad(), l.GetRps(), l.GetReadUnixMs(), l.GetAgeMs(), l.GetSource(), l.GetError(), l.GetFailures()}
}

// summary returns the load in few words, with its age if the value is stale.
func (l *loadView) summary() cell {
	switch {
	case l == nil:
		return cell{"-", dim}
	case l.ReadMs == 0 && l.Error != "":
		return cell{"unknown", red}
	case l.ReadMs == 0:
		return cell{"not read yet", dim}
	case l.Error != "":
		return cell{fmt.Sprintf("%.0f%% (%s old)", 100*l.Load, l.age()), yellow}
	}
	return cell{text: fmt.Sprintf("%.0f%%", 100*l.Load)}
}

func (l *loadView) age() time.Duration {
	return (time.Duration(l.AgeMs) * time.Millisecond).Round(time.Second)
}

func (a *app) printLoad(l *loadView) {
	if l == nil {
		return
	}
	text := a.paint(l.summary()) + ", by " + l.Source
	if l.ReadMs != 0 && l.Error == "" {
		text += fmt.Sprintf(", %s ago", l.age())
	}
	if l.RPS > 0 {
		text += fmt.Sprintf(", %.4g requests/s", l.RPS)
	}
	a.pair("Load", text)
	if l.Error != "" {
		a.pair("", a.paint(cell{fmt.Sprintf("%d failed: %s", l.Failures, l.Error), yellow}))
	}
}

// anyLoad reports whether the load of a server is configured.
func anyLoad(servers []serverView) bool {
	for _, s := range servers {
		if s.Load != nil {
			return true
		}
	}
	return false
}
