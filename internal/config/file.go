// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"steelyard/internal/model"
	"steelyard/internal/store"

	"github.com/fsnotify/fsnotify"
)

// Status is the outcome of the last attempts to load a file.
type Status struct {
	Generation uint64    // of the running configuration; 0: none yet
	Loaded     time.Time // when it was loaded
	Attempted  time.Time
	Err        error // of the last attempt
}

// File is the agent's configuration file. A valid file is passed to Use; an invalid one changes nothing.
type File struct {
	Path string
	Use  func(*model.Config) (generation uint64)
	// Check returns what does not work on this host, before Install writes a valid file; nil: no check.
	Check func(*model.Config) error
	Log   *slog.Logger

	parser Parser

	mu     sync.Mutex
	status Status
	seen   []byte      // content of the last attempt
	info   fs.FileInfo // of the file at the last attempt; nil: there was none
	undo   undo
}

// undo is the state before Install.
type undo struct {
	generation uint64 // of what was installed
	data       []byte
	existed    bool
}

// Status returns the outcome of the last attempts.
func (f *File) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// Changed reports whether the file was saved or removed since the last attempt to load it.
func (f *File) Changed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := os.Stat(f.Path)
	if err != nil || f.info == nil {
		return (err == nil) != (f.info != nil)
	}
	return !os.SameFile(now, f.info) || now.Size() != f.info.Size() || !now.ModTime().Equal(f.info.ModTime())
}

// Text returns the file's content and changes nothing.
func (f *File) Text() ([]byte, error) {
	return f.read()
}

// Parse parses a file's content as the package's Parse does, but decodes only the services that have changed since the last call.
func (f *File) Parse(name string, data []byte) (*model.Config, error) {
	return f.parser.Parse(name, data)
}

// Load reads the file and applies it. Returns the configuration's generation.
func (f *File) Load() (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.load(false)
}

// Install writes data to the file and applies it; `name` names data in errors.
func (f *File) Install(name string, data []byte) (uint64, error) {
	parsed, err := f.Parse(name, data)
	if err == nil && f.Check != nil {
		err = f.Check(parsed)
	}
	if err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	old, err := readFile(f.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("installing %s: %w", f.Path, err)
	}
	existed := err == nil
	if err := f.write(data); err != nil {
		return 0, fmt.Errorf("installing %s: %w", f.Path, err)
	}
	generation, err := f.load(false)
	f.undo = undo{generation, old, existed}
	return generation, err
}

// Restore restores the state before Install and applies it, if the file is still the one installed with this generation.
func (f *File) Restore(generation uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if current, err := f.read(); err != nil || !bytes.Equal(current, f.seen) || f.status.Generation != generation ||
		f.undo.generation != generation {
		return fmt.Errorf("%s has changed meanwhile, and was not restored: check it, and run `steelyard apply`", f.Path)
	}
	var err error
	if f.undo.existed {
		err = f.write(f.undo.data)
	} else {
		err = os.Remove(f.Path)
	}
	if err != nil {
		return fmt.Errorf("restoring the previous %s: %w", f.Path, err)
	}
	_, _ = f.load(false) // an error is logged and kept in the status, as for any load
	return nil
}

func (f *File) write(data []byte) error {
	mode := fs.FileMode(0o640) // the query of a check's path may contain a token
	path := f.Path
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // write to the target, so that a link stays a link
	}
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	err := store.WriteFile(path, data, mode)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: this agent may replace only its own file: `chown steelyard %s`", err, path)
	}
	return err
}

func (f *File) read() ([]byte, error) {
	data, err := readFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s does not exist: write it (see steelyard.yaml(5)) and run `steelyard apply`, or `steelyard apply FILE`", f.Path)
	}
	return data, err
}

// readFile reads a file up to the maximum size of a configuration. A user who may write the file must not be able to exhaust the agent's memory, or
// block it by a pipe.
func readFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file: replace it by one", path)
	}
	if info.Size() > MaxFileBytes {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read: split the services over several forwarders",
			path, info.Size(), MaxFileBytes)
	}
	data := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead))
	_, err = data.ReadFrom(io.LimitReader(file, MaxFileBytes+1)) // the file may grow meanwhile
	return data.Bytes(), err
}

// load is Load under the lock. onlyNew: skip content that was tried before.
func (f *File) load(onlyNew bool) (uint64, error) {
	f.info, _ = os.Stat(f.Path) // before reading, so that a save meanwhile counts as a change
	data, err := f.read()
	if onlyNew && bytes.Equal(data, f.seen) {
		return f.status.Generation, nil
	}
	f.seen = data
	var config *model.Config
	if err == nil {
		config, err = f.Parse(f.Path, data)
	}
	f.status.Attempted, f.status.Err = time.Now(), err
	if err != nil {
		f.logErrors(err)
		return 0, err
	}
	generation := f.Use(config)
	f.status.Generation, f.status.Loaded = generation, f.status.Attempted
	f.Log.Info("configuration loaded", "file", f.Path, "services", len(config.Services), "generation", generation)
	return generation, nil
}

// logErrors logs why the file is not used, one line per error.
func (f *File) logErrors(err error) {
	text := "configuration refused; the running one stays"
	if f.status.Generation == 0 {
		text = "no configuration from this file; the forwarder keeps its own"
	}
	var list Errors
	if !errors.As(err, &list) {
		f.Log.Error(text, "file", f.Path, "error", err)
		return
	}
	f.Log.Error(text, "file", f.Path, "errors", len(list))
	for _, one := range list {
		f.Log.Error("configuration error", "error", one)
	}
}

// settleTime lets an editor finish before the agent reads the file.
const settleTime = 50 * time.Millisecond

// Watch loads the file whenever its content changes, until ctx ends. It watches the directory, because
// editors and configuration systems replace files instead of writing to them.
func (f *File) Watch(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching %s: %w", f.Path, err)
	}
	if err := watcher.Add(filepath.Dir(f.Path)); err != nil {
		watcher.Close()
		return fmt.Errorf("watching %s: %w", f.Path, err)
	}
	go f.follow(ctx, watcher)
	return nil
}

func (f *File) follow(ctx context.Context, watcher *fsnotify.Watcher) {
	defer watcher.Close()
	settled := time.NewTimer(settleTime) // for changes from before the watch
	defer settled.Stop()
	for {
		select {
		case <-watcher.Events:
			settled.Reset(settleTime)
		case err := <-watcher.Errors:
			f.Log.Warn("watching the configuration file", "error", err)
			settled.Reset(settleTime) // events may be lost
		case <-settled.C:
			f.mu.Lock()
			_, _ = f.load(true) // an error is logged and kept in the status
			f.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}
