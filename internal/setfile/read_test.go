// SPDX-License-Identifier: Apache-2.0

package setfile

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/internal/model"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// A file that was changed just now would be left alone for a while.
	if changed := time.Now().Add(-time.Second); os.Chtimes(path+".new", changed, changed) != nil {
		t.Fatal("the time of a file cannot be set")
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func data(prefixes ...string) *model.SetData {
	var parsed []netip.Prefix
	for _, prefix := range prefixes {
		parsed = append(parsed, netip.MustParsePrefix(prefix))
	}
	return model.NewSetData(parsed)
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.txt")
	write(t, path, "# a list\n\n 2001:db8::/32\t# of both families\r\n192.0.2.7\n192.0.2.0/24\n2001:db8::1\n10.0.0.1")
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	want := data("10.0.0.1/32", "192.0.2.0/24", "2001:db8::/32")
	if !got.Equal(want) || got.Prefixes != 3 {
		t.Errorf("got %v", got)
	}
	packed := []byte{2, 0, 0, 0, 1, 0, 0, 0, 10, 0, 0, 1, 32, 192, 0, 2, 0, 24, 0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32}
	if !slices.Equal(got.Bytes, packed) {
		t.Errorf("packed %v", got.Bytes)
	}
	write(t, path, "# nothing\n")
	if got, err := Read(path); err != nil || got.Prefixes != 0 || len(got.Bytes) != 8 {
		t.Errorf("a file of a comment: %v, %v", got, err)
	}
}

func TestReadErrors(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "bad.txt")
	for _, test := range []struct{ text, want string }{
		{"10.0.0.1\n\n10.0.0.0/33\n", "bad.txt:3: this line is not a prefix"},
		{"10.0.0.1/24", "bad.txt:1: this prefix has bits behind its length"},
		{"::ffff:10.0.0.1", "bad.txt:1: this is an IPv4-mapped"},
		{"fe80::1%eth0", "bad.txt:1: this address has a zone"},
		{"10.0.0.1 10.0.0.2", "is not a prefix"},
		{"10.0.0.1\n" + strings.Repeat("x", 5000), "bad.txt:2: the line is longer than 4096 bytes"},
		{strings.Repeat("é", 1000), "is not a prefix"},
		{"", "bad.txt is empty: if the set is to have no prefixes, write a comment into it"},
	} {
		write(t, path, test.text)
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.20q: %v", test.text, err)
		}
	}
	if _, err := Read(filepath.Join(folder, "none")); err == nil || !strings.HasSuffix(err.Error(), "/none does not exist") {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Read(folder); err == nil || !strings.HasSuffix(err.Error(), " is not a file") {
		t.Errorf("a folder: %v", err)
	}
}

// A file that the agent may read and its caller may not: no name leads to it, and nothing of it is in an error.
func TestDirectory(t *testing.T) {
	outside, inside := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "shadow")
	write(t, secret, "root:secret:1::\n")
	write(t, filepath.Join(inside, "good.txt"), "10.0.0.1\n")
	write(t, filepath.Join(inside, "bad.txt"), "root:secret:1::\n")
	for link, to := range map[string]string{
		"file.txt": secret, "folder": outside, "relative.txt": "../" + filepath.Base(outside) + "/shadow", "own.txt": "good.txt", "environment": "/proc/self/environ",
	} {
		if err := os.Symlink(to, filepath.Join(inside, link)); err != nil {
			t.Fatal(err)
		}
	}
	f := New(func(map[string]*model.SetData) {}, slog.New(slog.DiscardHandler))
	f.Directory = Directory(inside)
	for path, want := range map[string]string{
		"good.txt": "", "own.txt": "", "bad.txt": "bad.txt:1: this line is not a prefix", "none.txt": "none.txt does not exist",
		"file.txt": "by a symbolic link", "folder/shadow": "by a symbolic link", "relative.txt": "by a symbolic link", "environment": "by a symbolic link",
		"../" + filepath.Base(outside) + "/shadow": "--sets", secret: "--sets", "/etc/shadow": "--sets", "/proc/self/environ": "--sets", "/nowhere": "--sets",
	} {
		if !filepath.IsAbs(path) {
			path = inside + "/" + path // as a caller writes it
		}
		config := &model.Config{AccessSets: []model.AccessSet{{Name: "bad", File: path}}}
		err := f.Check(config)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
		f.Configure(config.AccessSets) // as if the file was in force before
		if status := f.Status(); len(status) != 1 || (status[0].Err == nil) != (want == "") || strings.Contains(fmt.Sprint(status[0].Err), "secret") {
			t.Errorf("%s: %+v", path, status)
		}
	}
}

// FuzzParse: whatever is in a file, it is refused with its line, or its prefixes are as the forwarder wants them.
func FuzzParse(f *testing.F) {
	f.Add("10.0.0.0/8\n# x\n2001:db8::1 # y\n")
	f.Add("0.0.0.0/0\n::/0\n255.255.255.255")
	f.Add("10.0.0.0/8\n10.1.0.0/16\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		prefixes, err := parse("f", strings.NewReader(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f:") {
				t.Errorf("an error without its place: %v", err)
			}
			return
		}
		merged := model.MergePrefixes(prefixes)
		for i, prefix := range merged {
			if prefix != prefix.Masked() || prefix.Addr().Is4In6() || prefix.Addr().Zone() != "" {
				t.Errorf("%s", prefix)
			}
			if i > 0 && (merged[i-1].Addr().Compare(prefix.Addr()) >= 0 || merged[i-1].Overlaps(prefix)) {
				t.Errorf("%s after %s", prefix, merged[i-1])
			}
		}
		if packed := model.NewSetData(merged); packed.Prefixes != len(merged) {
			t.Errorf("%d of %d prefixes", packed.Prefixes, len(merged))
		}
	})
}
