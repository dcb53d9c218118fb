// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"steelyard/internal/model"
)

// StateFile is the name of the agent's file in its state directory.
const StateFile = "agent.json"

// drainFile holds the servers drained by command, in memory and on disk.
type drainFile struct {
	path string
	refs map[model.ServerRef]struct{}
}

// What the file says.
type savedState struct {
	Version int          `json:"version"`
	Drained []savedDrain `json:"drained"`
}

type savedDrain struct {
	Protocol string         `json:"protocol"`
	VIP      netip.AddrPort `json:"vip"`
	Server   netip.AddrPort `json:"server"`
}

func openDrains(directory string) (*drainFile, error) {
	d := &drainFile{path: filepath.Join(directory, StateFile), refs: map[model.ServerRef]struct{}{}}
	data, err := os.ReadFile(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	var saved savedState
	if err := json.Unmarshal(data, &saved); err != nil {
		return nil, fmt.Errorf("state: %s: %w: remove the file, and drain again what it named", d.path, err)
	}
	if saved.Version != 1 {
		return nil, fmt.Errorf("state: %s: version %d is not known to this build: use a newer one", d.path, saved.Version)
	}
	for _, drain := range saved.Drained {
		protocol := model.TCP
		if drain.Protocol == model.UDP.String() {
			protocol = model.UDP
		}
		key := model.ServiceKey{Protocol: protocol, VIP: drain.VIP.Addr(), Port: drain.VIP.Port()}
		d.refs[model.ServerRef{Service: key, Address: drain.Server}] = struct{}{}
	}
	return d, nil
}

func (d *drainFile) has(ref model.ServerRef) bool {
	_, ok := d.refs[ref]
	return ok
}

func (d *drainFile) set(refs []model.ServerRef, drain bool) error {
	next := maps.Clone(d.refs)
	for _, ref := range refs {
		if drain {
			next[ref] = struct{}{}
		} else {
			delete(next, ref)
		}
	}
	return d.replace(next)
}

// keep forgets the drains that keep does not want.
func (d *drainFile) keep(keep func(model.ServerRef) bool) error {
	next := maps.Clone(d.refs)
	maps.DeleteFunc(next, func(ref model.ServerRef, _ struct{}) bool { return !keep(ref) })
	return d.replace(next)
}

func (d *drainFile) replace(refs map[model.ServerRef]struct{}) error {
	if maps.Equal(refs, d.refs) {
		return nil
	}
	saved := savedState{Version: 1, Drained: []savedDrain{}}
	compare := func(a, b model.ServerRef) int {
		if order := a.Service.Compare(b.Service); order != 0 {
			return order
		}
		return a.Address.Compare(b.Address)
	}
	for _, ref := range slices.SortedFunc(maps.Keys(refs), compare) {
		saved.Drained = append(saved.Drained, savedDrain{
			Protocol: ref.Service.Protocol.String(),
			VIP:      netip.AddrPortFrom(ref.Service.VIP, ref.Service.Port), Server: ref.Address,
		})
	}
	data, err := json.MarshalIndent(saved, "", "  ")
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(d.path), 0o755); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	if err := WriteFile(d.path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	d.refs = refs
	return nil
}

// WriteFile replaces a file so that a reader, or a crash, sees the old content or the new, whole.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // fails after the rename, as it should
	_, err = file.Write(data)
	err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
