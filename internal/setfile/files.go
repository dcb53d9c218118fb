// SPDX-License-Identifier: Apache-2.0

package setfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"steelyard/internal/model"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// settleTime lets a writer finish before the file is read.
	settleTime = 100 * time.Millisecond
	// lookPeriod is for file systems that send no events.
	lookPeriod = 10 * time.Second
)

// Files are the files of the configuration's access sets. A changed file is read again; while it has an error, its sets keep their data.
type Files struct {
	Directory Directory // set before use
	use       func(map[string]*model.SetData)
	log       *slog.Logger
	watcher   *fsnotify.Watcher // nil: there is none, files are looked at from time to time
	now       func() time.Time
	limit     int // prefixes of all sets that have a file

	work sync.Mutex // one reads files at a time

	mu    sync.Mutex
	files map[string]*file // by path
	sets  []model.AccessSet
}

// file is immutable; another one replaces it.
type file struct {
	tried  stamp          // of the last attempt
	data   *model.SetData // of the last valid version; nil: none so far
	loaded time.Time      // when data was read
	err    error          // of the last attempt
	excess int            // the prefixes of the last attempt, if they exceeded the total of all sets
}

func (f *file) prefixes() int {
	if f == nil || f.data == nil {
		return 0
	}
	return f.data.Prefixes
}

// stamp changes with the file.
type stamp struct {
	size     int64
	modified time.Time
	inode    uint64
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), modified: info.ModTime()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = sys.Ino
	}
	return s
}

// New returns Files that pass their contents to use.
func New(use func(map[string]*model.SetData), log *slog.Logger) *Files {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("files of access sets are looked at from time to time only", "period", lookPeriod, "error", err)
		watcher = nil
	}
	return &Files{use: use, log: log, watcher: watcher, now: time.Now, limit: maxPrefixes, files: map[string]*file{}}
}

// Configure reads the files of these sets that are new or have changed, and from now on watches them.
func (f *Files) Configure(sets []model.AccessSet) {
	f.work.Lock()
	defer f.work.Unlock()
	files := map[string]*file{}
	f.mu.Lock()
	for _, set := range sets {
		if set.File != "" {
			files[set.File] = f.files[set.File]
		}
	}
	f.sets = sets
	f.mu.Unlock()
	f.watch(files)
	f.refresh(files) // a write in progress causes another event
}

// watch watches the directories of these files, because writers often replace files.
func (f *Files) watch(files map[string]*file) {
	if f.watcher == nil {
		return
	}
	folders := map[string]bool{}
	for path := range files {
		if _, err := f.Directory.inside(path); f.Directory == "" || err == nil {
			folders[filepath.Dir(path)] = true
		}
	}
	for _, folder := range f.watcher.WatchList() {
		if !folders[folder] {
			_ = f.watcher.Remove(folder) // the folder may be gone
		}
	}
	for folder := range folders {
		_ = f.watcher.Add(folder) // a missing folder: the file is missing too, and looked for from time to time
	}
}

// refresh reads those that have changed, and hands all to use. It returns whether a file is being written, so that it
// must be checked again.
func (f *Files) refresh(files map[string]*file) (again bool) {
	contents := map[string]*model.SetData{}
	large := false
	paths, uses := f.named()
	left := f.limit
	for path, one := range files {
		left -= uses[path] * one.prefixes()
	}
	// A file that shrinks frees capacity for another one before it, which is then tried again.
	for range 2 {
		for _, path := range paths {
			before := files[path]
			now, young := f.load(path, before, before.prefixes()+left/uses[path])
			again = again || young
			large = large || now != before && now.prefixes() > 100_000
			left -= uses[path] * (now.prefixes() - before.prefixes())
			files[path] = now
			if now.data != nil {
				contents[path] = now.data
			}
		}
	}
	f.mu.Lock()
	f.files = files
	f.mu.Unlock()
	f.use(contents)
	if large {
		debug.FreeOSMemory() // reading needs many times the memory of the result
	}
	return again
}

// named returns the files in the order of their sets, and how many sets name each: the forwarder counts it for each.
func (f *Files) named() (paths []string, uses map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	uses = map[string]int{}
	for _, set := range f.sets {
		if set.File == "" {
			continue
		}
		if uses[set.File] == 0 {
			paths = append(paths, set.File)
		}
		uses[set.File]++
	}
	return paths, uses
}

// isYoung returns whether a file was changed so recently that it may be half written. A time in the future is
// another machine's.
func (f *Files) isYoung(info fs.FileInfo) bool {
	age := f.now().Sub(info.ModTime())
	return age >= 0 && age < settleTime
}

// load returns the file as it is now, `before` if it has not changed. A file that has been read once is not read
// again while it is young. It may have `room` prefixes.
func (f *Files) load(path string, before *file, room int) (now *file, young bool) {
	if before == nil {
		before = &file{}
	} else if info, err := f.Directory.stat(path); err == nil {
		if stampOf(info) == before.tried && (before.excess == 0 || before.excess > room) {
			return before, false
		}
		if before.data != nil && f.isYoung(info) {
			return before, true
		}
	}
	began := time.Now()
	data, tried, err := f.Directory.read(path)
	if info, failed := f.Directory.stat(path); before.data != nil && failed == nil && stampOf(info) != tried {
		return before, true // it was changed meanwhile
	}
	excess := 0
	if err == nil && data.Prefixes > max(room, before.prefixes()) {
		excess = data.Prefixes
		err = fmt.Errorf("%s has %d prefixes: %s", path, excess, f.tooMany())
	}
	if err != nil {
		if before.err == nil || before.err.Error() != err.Error() {
			f.log.Warn("the file of an access set is not used; the set keeps its prefixes", "error", err)
		}
		return &file{tried: tried, data: before.data, loaded: before.loaded, err: err, excess: excess}, false
	}
	if old := before.data; old == nil || !old.Equal(data) || before.err != nil {
		f.log.Info("the file of an access set is read", "file", path, "prefixes", data.Prefixes, "duration", time.Since(began).Round(time.Millisecond))
	}
	if old := before.data; old != nil && 2*data.Prefixes < old.Prefixes {
		f.log.Warn("the file of an access set has less than half of its former prefixes: check that it is complete",
			"file", path, "prefixes", data.Prefixes, "before", old.Prefixes)
	}
	return &file{tried: tried, data: data, loaded: time.Now()}, false
}

func (f *Files) tooMany() string {
	return fmt.Sprintf("all sets together may have %d from files", f.limit)
}

// Check returns the errors of new or changed files of these sets. A file that is already known to be invalid is skipped, because its set keeps its data.
func (f *Files) Check(config *model.Config) error {
	var problems []error
	counts := map[string]int{"": 0}
	total := 0
	for _, set := range config.AccessSets {
		count, checked := counts[set.File]
		if !checked {
			var err error
			if count, err = f.count(set.File); err != nil {
				problems = append(problems, fmt.Errorf("access set %s: %w", set.Name, err))
			}
			counts[set.File] = count
		}
		total += count
	}
	if total > f.limit {
		problems = append(problems, fmt.Errorf("the files of the access sets have %d prefixes: %s", total, f.tooMany()))
	}
	return errors.Join(problems...)
}

// count returns how many prefixes a file will have in use.
func (f *Files) count(path string) (int, error) {
	f.mu.Lock()
	known := f.files[path]
	f.mu.Unlock()
	if info, err := f.Directory.stat(path); err == nil && known != nil && known.data != nil && stampOf(info) == known.tried {
		return known.prefixes(), nil
	}
	data, _, err := f.Directory.read(path)
	if err != nil {
		return 0, err
	}
	return data.Prefixes, nil
}

// Run reads files that change, until ctx ends.
func (f *Files) Run(ctx context.Context) {
	var events chan fsnotify.Event
	var failures chan error
	if f.watcher != nil {
		defer f.watcher.Close()
		events, failures = f.watcher.Events, f.watcher.Errors
	}
	settled := time.NewTimer(settleTime)
	defer settled.Stop()
	look := time.NewTicker(lookPeriod)
	defer look.Stop()
	for {
		select {
		case <-events:
			settled.Reset(settleTime)
		case <-failures: // events may be lost
			settled.Reset(settleTime)
		case <-settled.C:
			if f.look() {
				settled.Reset(settleTime)
			}
		case <-look.C:
			if f.look() {
				settled.Reset(settleTime)
			}
		case <-ctx.Done():
			return
		}
	}
}

// look reports whether it must be called again soon.
func (f *Files) look() (again bool) {
	f.work.Lock()
	defer f.work.Unlock()
	f.mu.Lock()
	files := make(map[string]*file, len(f.files))
	for path, one := range f.files {
		files[path] = one
	}
	f.mu.Unlock()
	f.watch(files)
	return f.refresh(files)
}

// Status is the state of a set's file.
type Status struct {
	Set, Path string
	Loaded    time.Time // when the data in force was read; zero: none so far
	Err       error     // why the file as it is now is not used; nil: it is
}

// Status returns the sets that have a file.
func (f *Files) Status() []Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []Status
	for _, set := range f.sets {
		if one := f.files[set.File]; one != nil {
			all = append(all, Status{Set: set.Name, Path: set.File, Loaded: one.loaded, Err: one.err})
		}
	}
	return all
}

// Warnings lists the files that are not in use in their current version.
func (f *Files) Warnings() []string {
	var warnings []string
	for _, s := range f.Status() {
		switch {
		case s.Err == nil:
		case s.Loaded.IsZero():
			warnings = append(warnings, fmt.Sprintf("access set %s keeps the forwarder's previous data, or is empty: %s", s.Set, s.Err))
		default:
			warnings = append(warnings, fmt.Sprintf("access set %s has its file as it was at %s: %s",
				s.Set, s.Loaded.Format(time.DateTime), s.Err))
		}
	}
	return warnings
}

var (
	validMetric = prometheus.NewDesc("steelyard_access_set_file_valid",
		"1 if the current file of this access set is in use; 0: the set keeps its previous prefixes.", []string{"set"}, nil)
	loadedMetric = prometheus.NewDesc("steelyard_access_set_file_loaded_timestamp_seconds",
		"When the agent read the contents of this access set from its file.", []string{"set"}, nil)
)

// Describe implements prometheus.Collector.
func (f *Files) Describe(ch chan<- *prometheus.Desc) {
	ch <- validMetric
	ch <- loadedMetric
}

// Collect implements prometheus.Collector.
func (f *Files) Collect(ch chan<- prometheus.Metric) {
	for _, s := range f.Status() {
		valid := 1.0
		if s.Err != nil {
			valid = 0
		}
		ch <- prometheus.MustNewConstMetric(validMetric, prometheus.GaugeValue, valid, s.Set)
		if !s.Loaded.IsZero() {
			ch <- prometheus.MustNewConstMetric(loadedMetric, prometheus.GaugeValue, float64(s.Loaded.UnixMilli())/1000, s.Set)
		}
	}
}
