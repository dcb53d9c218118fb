// SPDX-License-Identifier: Apache-2.0

// Package setfile reads the files of access sets, and reads them again when they change.
package setfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"steelyard/internal/config"
	"steelyard/internal/model"
)

// Limits of a file.
const (
	maxBytes    = 256 << 20
	maxPrefixes = 4 << 20 // the forwarder's, of all sets together
	maxLine     = 4096
)

// Read reads a file: a prefix or an address a line; # begins a comment. A file without a byte is an error. Errors name the file and the line.
func Read(path string) (*model.SetData, error) {
	data, _, err := read(path)
	return data, err
}

// read also returns the stamp of what was read.
func read(path string) (*model.SetData, stamp, error) {
	// A FIFO would wait for its writer.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, stamp{}, explain(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, stamp{}, err
	}
	at := stampOf(info)
	if !info.Mode().IsRegular() {
		return nil, at, fmt.Errorf("%s is not a file", path)
	}
	prefixes, err := parse(path, file)
	if err != nil {
		return nil, at, err
	}
	if at.size == 0 && len(prefixes) == 0 { // as whoever writes a file anew leaves it at first
		return nil, at, fmt.Errorf("%s is empty: if the set is to have no prefixes, write a comment into it, such as # none", path)
	}
	return model.NewSetData(model.MergePrefixes(prefixes)), at, nil
}

func explain(err error) error {
	var failed *os.PathError
	switch {
	case errors.Is(err, os.ErrNotExist) && errors.As(err, &failed):
		return fmt.Errorf("%s does not exist", failed.Path)
	case errors.Is(err, os.ErrPermission) && errors.As(err, &failed):
		return fmt.Errorf("%s cannot be read: permission denied", failed.Path)
	}
	return err
}

// parse returns the prefixes in the order of their lines.
func parse(name string, r io.Reader) ([]netip.Prefix, error) {
	limited := &io.LimitedReader{R: r, N: maxBytes + 1}
	lines := bufio.NewScanner(limited)
	lines.Buffer(make([]byte, maxLine), maxLine)
	var prefixes []netip.Prefix
	line := 0
	for lines.Scan() {
		line++
		text, _, _ := bytes.Cut(lines.Bytes(), []byte("#"))
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		prefix, err := config.ParsePrefix(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %s", name, line, clean(err.Error()))
		}
		if len(prefixes) == maxPrefixes {
			return nil, fmt.Errorf("%s:%d: more than %d prefixes", name, line, maxPrefixes)
		}
		prefixes = append(prefixes, prefix)
	}
	if limited.N == 0 {
		return nil, fmt.Errorf("%s is larger than %d MiB", name, maxBytes>>20)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("%s:%d: the line is longer than %d bytes", name, line+1, maxLine)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return prefixes, nil
}

// clean shortens an error that quotes a line.
func clean(text string) string {
	const most = 200
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
