// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"steelyard/internal/model"
	"steelyard/internal/store"

	"github.com/fsnotify/fsnotify"
)

// Status is how the last attempts to load a file ended.
type Status struct {
	Generation uint64    // of the running configuration; 0: none yet
	Loaded     time.Time // when that was loaded
	Attempted  time.Time
	Err        error // of the last attempt
}

// File is the agent's configuration file. A good one is handed to Use; a bad one changes nothing.
type File struct {
	Path string
	Use  func(*model.Config) (generation uint64, err error)
	Log  *slog.Logger

	mu     sync.Mutex
	status Status
	seen   []byte // content of the last attempt
}

// Status returns how the last attempts ended.
func (f *File) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// Read parses the file and changes nothing.
func (f *File) Read() (*model.Config, error) {
	data, err := f.read()
	if err != nil {
		return nil, err
	}
	return Parse(f.Path, data)
}

// Load reads the file and uses it; returns its generation.
func (f *File) Load() (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.load(false)
}

// Install makes data, which `name` names in errors, the file's content, and uses it.
func (f *File) Install(name string, data []byte) (uint64, error) {
	if _, err := Parse(name, data); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	mode := fs.FileMode(0o644)
	path := f.Path
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // a link stays a link
	}
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	if err := store.WriteFile(path, data, mode); err != nil {
		return 0, fmt.Errorf("installing %s: %w", f.Path, err)
	}
	return f.load(false)
}

func (f *File) read() ([]byte, error) {
	data, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s does not exist: write it (see steelyard.yaml(5)), or `steelyard apply FILE`", f.Path)
	}
	return data, err
}

// load is Load under the lock; onlyNew: content that was tried already is left alone.
func (f *File) load(onlyNew bool) (uint64, error) {
	data, err := f.read()
	if onlyNew && bytes.Equal(data, f.seen) {
		return f.status.Generation, nil
	}
	f.seen = data
	var config *model.Config
	if err == nil {
		config, err = Parse(f.Path, data)
	}
	var generation uint64
	if err == nil {
		generation, err = f.Use(config)
	}
	f.status.Attempted, f.status.Err = time.Now(), err
	if err != nil {
		f.Log.Error("configuration refused; the running one stays", "file", f.Path, "error", err)
		return 0, err
	}
	f.status.Generation, f.status.Loaded = generation, f.status.Attempted
	f.Log.Info("configuration loaded", "file", f.Path, "services", len(config.Services), "generation", generation)
	return generation, nil
}

// settleTime lets an editor finish before the file is read.
const settleTime = 50 * time.Millisecond

// Watch loads the file whenever its content changes, until ctx ends. It watches the directory, as
// editors and configuration systems replace files rather than write them.
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
	settled := time.NewTimer(settleTime) // what changed before the watch began
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
			_, _ = f.load(true) // logged, and kept in the status
			f.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}
