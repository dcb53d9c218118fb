// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"steelyard/internal/model"
)

// StateFile is the name of the agent's state file in its state directory.
const StateFile = "agent.json"

// Drain is a drain command for a server.
type Drain struct {
	Kill  bool
	Until time.Time // when the remaining sessions are reset; zero: never
}

// drainFile is the state that outlives the agent, in memory and on disk.
type drainFile struct {
	path   string
	orders map[model.ServerRef]Drain     // orders in force, by command
	began  map[model.ServerRef]time.Time // start of drains by the file with a deadline
	shared *shared                       // the sources of orders, if controllers send orders, too; nil: they do not
	former *shared                       // that of an earlier agent, until this one knows whether controllers send orders
	name   func(model.ServiceKey) string // name of a service; "": there is none
	// Changes are not on disk: the file was not written yet, or writing failed.
	unsaved bool
	node    bool // this node is drained
}

// savedState is the file's content.
type savedState struct {
	Version int `json:"version"`
	// The orders in force, also those of controllers: an older agent reads these, and takes all of them as its own.
	Drained []savedDrain `json:"drained"`
	// Servers drained by the configuration, with a deadline.
	Began []savedDrain `json:"began,omitempty"`
	Node  bool         `json:"node_drained,omitempty"`
	// Absent: no controller sends orders.
	Shared *savedShared `json:"shared,omitempty"`
}

type savedDrain struct {
	Protocol string         `json:"protocol"`
	VIP      netip.AddrPort `json:"vip"` // port 0: all
	LastPort uint16         `json:"last_port,omitempty"`
	Server   netip.AddrPort `json:"server"`
	Kill     bool           `json:"kill,omitempty"`
	Until    *time.Time     `json:"until,omitempty"`
	Since    *time.Time     `json:"since,omitempty"`
	// For orders in savedShared.
	Service  string `json:"service,omitempty"`
	Revision int64  `json:"revision,omitempty"`
	Number   uint64 `json:"number,omitempty"`
	Ended    bool   `json:"ended,omitempty"`
}

func saveDrain(ref model.ServerRef, order Drain) savedDrain {
	saved := savedDrain{
		Protocol: ref.Service.Protocol.String(),
		VIP:      netip.AddrPortFrom(ref.Service.VIP, ref.Service.Port),
		LastPort: ref.Service.LastPort, Server: ref.Address, Kill: order.Kill,
	}
	if !order.Until.IsZero() {
		saved.Until = &order.Until
	}
	return saved
}

func (d savedDrain) order() Drain {
	order := Drain{Kill: d.Kill}
	if d.Until != nil {
		order.Until = *d.Until
	}
	return order
}

func (d savedDrain) ref() model.ServerRef {
	protocol := model.TCP
	if d.Protocol == model.UDP.String() {
		protocol = model.UDP
	}
	key := model.ServiceKey{Protocol: protocol, VIP: d.VIP.Addr(), Port: d.VIP.Port(), LastPort: d.LastPort}
	return model.ServerRef{Service: key, Address: d.Server}
}

func openDrains(directory string) (*drainFile, error) {
	d := &drainFile{
		path: filepath.Join(directory, StateFile), orders: map[model.ServerRef]Drain{}, began: map[model.ServerRef]time.Time{},
	}
	data, err := os.ReadFile(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	var saved savedState
	if err := json.Unmarshal(data, &saved); err != nil {
		return nil, fmt.Errorf("state: %s: %w: remove the file, and repeat the drains that it contained", d.path, err)
	}
	if saved.Version != 1 {
		return nil, fmt.Errorf("state: %s: version %d is not known to this build: use a newer one", d.path, saved.Version)
	}
	d.node = saved.Node
	for _, drain := range saved.Drained {
		d.orders[drain.ref()] = drain.order()
	}
	if saved.Shared != nil {
		d.former = saved.Shared.read()
	}
	for _, drain := range saved.Began {
		if drain.Since != nil {
			d.began[drain.ref()] = *drain.Since
		}
	}
	return d, nil
}

// set stores a command, or removes it if drain is nil.
func (d *drainFile) set(refs []model.ServerRef, drain *Drain) error {
	if d.shared != nil {
		return d.share(d.shared.with(refs, drain, d.name), d.began)
	}
	next := maps.Clone(d.orders)
	for _, ref := range refs {
		if drain != nil {
			next[ref] = *drain
		} else {
			delete(next, ref)
		}
	}
	return d.replace(next, d.began)
}

// begin records the start of a drain by the file, unless it is known. The next keep writes it to disk.
func (d *drainFile) begin(ref model.ServerRef) {
	if _, ok := d.began[ref]; !ok {
		d.began = maps.Clone(d.began)
		d.began[ref] = time.Now() // compared by the monotonic clock; after a restart, by the wall clock
		d.unsaved = true
	}
}

// keep removes the commands for which keep returns false, and the drains by the file for which keepBegan does.
func (d *drainFile) keep(keep, keepBegan func(model.ServerRef) bool) error {
	began := maps.Clone(d.began)
	maps.DeleteFunc(began, func(ref model.ServerRef, _ time.Time) bool { return !keepBegan(ref) })
	if d.shared != nil {
		return d.share(d.shared.keeping(keep), began)
	}
	orders := maps.Clone(d.orders)
	maps.DeleteFunc(orders, func(ref model.ServerRef, _ Drain) bool { return !keep(ref) })
	return d.replace(orders, began)
}

func sorted[V any](refs map[model.ServerRef]V) []model.ServerRef {
	return slices.SortedFunc(maps.Keys(refs), compare)
}

func compare(a, b model.ServerRef) int {
	return cmp.Or(a.Service.Compare(b.Service), a.Address.Compare(b.Address))
}

func (d *drainFile) replace(orders map[model.ServerRef]Drain, began map[model.ServerRef]time.Time) error {
	if maps.Equal(orders, d.orders) && maps.Equal(began, d.began) && !d.unsaved {
		return nil
	}
	// They apply even if they cannot be written: a full disk must not keep a server in service.
	d.orders, d.began, d.unsaved = orders, began, true
	return d.save()
}

// share replaces the orders of controllers and of this agent.
func (d *drainFile) share(next *shared, began map[model.ServerRef]time.Time) error {
	d.unsaved = d.unsaved || !next.equal(d.shared)
	d.shared = next
	return d.replace(next.inForce(d.name), began)
}

// rename computes the orders in force anew, because services may have other names. The next keep writes them to disk.
func (d *drainFile) rename() {
	if d.shared == nil {
		return
	}
	if orders := d.shared.inForce(d.name); !maps.Equal(orders, d.orders) {
		d.orders, d.unsaved = orders, true
	}
}

func (d *drainFile) save() error {
	saved := savedState{Version: 1, Drained: []savedDrain{}, Node: d.node}
	for _, ref := range sorted(d.orders) {
		saved.Drained = append(saved.Drained, saveDrain(ref, d.orders[ref]))
	}
	for _, ref := range sorted(d.began) {
		one, since := saveDrain(ref, Drain{}), d.began[ref]
		one.Since = &since
		saved.Began = append(saved.Began, one)
	}
	if d.shared != nil {
		saved.Shared = d.shared.saved()
	}
	data, err := json.MarshalIndent(saved, "", "  ")
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(d.path), 0o755); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	if err := WriteFile(d.path, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	d.unsaved = false
	return nil
}

// WriteFile replaces a file atomically: after a crash, and for readers, it has the old or the new content.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // after the rename this fails, as intended
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
