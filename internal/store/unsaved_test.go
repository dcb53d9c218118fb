// SPDX-License-Identifier: Apache-2.0

package store

import (
	"os"
	"path/filepath"
	"testing"

	"steelyard/internal/model"
)

// A drain must not depend on free disk space. A path that is no directory has the same effect.
func TestUnsavedDrainIsInEffect(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "state")
	s, _ := open(t, directory)
	use(t, s, configOf(model.HealthNone, "10.1.0.1:80"))
	if err := os.RemoveAll(directory); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(directory, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.SetDrain([]model.ServerRef{ref("10.1.0.1:80")}, &Drain{}); err == nil || s.Unsaved() == nil {
		t.Fatal("not said")
	}
	s.Adopt(model.NewTable())
	if spec := s.Desired().Table.Services[vip].Servers[ref("10.1.0.1:80").Address]; spec.State != model.Drain {
		t.Errorf("the server is %s", spec.State)
	}
	s.save()
	if s.Unsaved() == nil {
		t.Error("not said any more")
	}
	if err := os.Remove(directory); err != nil {
		t.Fatal(err)
	}
	s.save()
	if err := s.Unsaved(); err != nil {
		t.Error(err)
	}
	again, _ := open(t, directory)
	if len(again.Drained()) != 1 {
		t.Error("nothing was saved")
	}
}
