// SPDX-License-Identifier: Apache-2.0

// Package setfile reads the files of access sets, and reloads them when they change.
package setfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
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

// Read reads a file: a prefix or an address a line; # begins a comment. A file without a byte is an error. Errors name the file and the line, and have
// nothing of its contents: the caller of an agent may not be allowed to read it.
func Read(path string) (*model.SetData, error) {
	data, _, err := Directory("").read(path)
	return data, err
}

// Directory is the directory that must contain the files of sets; "": any directory.
type Directory string

// inside returns the name of a file in the directory.
func (d Directory) inside(path string) (string, error) {
	name, err := filepath.Rel(string(d), path)
	if err != nil || !filepath.IsLocal(name) {
		return "", fmt.Errorf("%s is not in %s, where the agent reads files of access sets: move it there, or choose another directory by `steelyard agent --sets`", path, d)
	}
	return name, nil
}

// enter opens the directory and returns it with the name that a file has in it. No symbolic link leads out of it.
func (d Directory) enter(path string) (*os.Root, string, error) {
	name, err := d.inside(path)
	if err != nil {
		return nil, "", err
	}
	root, err := os.OpenRoot(string(d))
	return root, name, err
}

func (d Directory) open(path string) (*os.File, error) {
	const flags = os.O_RDONLY | syscall.O_NONBLOCK // a FIFO would wait for its writer
	if d == "" {
		return os.OpenFile(path, flags, 0)
	}
	root, name, err := d.enter(path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.OpenFile(name, flags, 0)
}

func (d Directory) stat(path string) (fs.FileInfo, error) {
	if d == "" {
		return os.Stat(path)
	}
	root, name, err := d.enter(path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.Stat(name)
}

// read also returns the stamp of the version that it read.
func (d Directory) read(path string) (*model.SetData, stamp, error) {
	file, err := d.open(path)
	if err != nil {
		return nil, stamp{}, d.explain(path, err)
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
	if at.size == 0 && len(prefixes) == 0 { // as at the start of a rewrite of the file
		return nil, at, fmt.Errorf("%s is empty: if the set is to have no prefixes, write a comment into it, such as # none", path)
	}
	return model.NewSetData(model.MergePrefixes(prefixes)), at, nil
}

func (d Directory) explain(path string, err error) error {
	var number syscall.Errno
	var failed *os.PathError
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%s does not exist", path)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s cannot be read: permission denied", path)
	case d != "" && errors.As(err, &failed) && !errors.As(err, &number):
		return fmt.Errorf("%s leads out of %s by a symbolic link: put the file itself there", path, d)
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
			return nil, fmt.Errorf("%s:%d: %s", name, line, wrong(string(text)))
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

// wrong describes the fault of a line, without quoting the line.
func wrong(text string) string {
	prefix, err := netip.ParsePrefix(text)
	address, failed := netip.ParseAddr(text)
	if failed == nil {
		prefix, err = netip.PrefixFrom(address, address.BitLen()), nil
	}
	switch {
	case address.Zone() != "":
		return "this address has a zone: write it without"
	case err != nil:
		return "this line is not a prefix: write one like 10.1.0.0/24 or fd00:1::/64"
	case prefix.Addr().Is4In6():
		return "this is an IPv4-mapped IPv6 prefix: write it as IPv4"
	}
	return "this prefix has bits behind its length: set them to 0"
}
