// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"compress/gzip"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Large values are stored once each, under the hash of their text, compressed and in pieces that every etcd accepts; a key's value then names the hash.
// So transactions are small, whatever they change, and a hundred keys with one configuration need its space once.
//
//	parts/HASH/0000, parts/HASH/0001, …   the pieces
//
// whole/HASH                            "whole" when all pieces are stored, "" before
//
// A transaction that refers to a hash writes whole/HASH, and requires that it is "whole". A transaction that removes one requires that whole/HASH has
// not changed since the check that nothing refers to it. These keys are outside the prefix of keys: no watch sees them.
const (
	blobs    = "/steelyard/blobs/1/"
	partRoot = blobs + "parts/"
	markRoot = blobs + "whole/"
	whole    = "whole"

	refMark   = "sha256:"
	maxInline = 4 << 10  // bytes of a compressed text in the value itself
	partBytes = 1 << 20  // external clusters accept requests of 1.5 MB
	maxCached = 48 << 20 // bytes of texts, compressed and uncompressed
)

// ErrFull means that the store has no space for another configuration.
var ErrFull = errors.New("the controllers' etcd is full")

// Large is a text in the form in which it is stored.
type Large struct {
	Value []byte // the value of a key; "": no text
	Text  []byte
	Gzip  []byte // the text, compressed
	hash  string // "": the value contains the text
}

// Same reports whether two texts are equal.
func (l *Large) Same(other *Large) bool { return bytes.Equal(l.Value, other.Value) }

func newLarge(text []byte) *Large {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	_, _ = w.Write(text) // writing to a buffer cannot fail
	_ = w.Close()
	l := &Large{Value: out.Bytes(), Text: text, Gzip: out.Bytes()}
	if len(l.Value) > maxInline {
		l.Value = []byte(NameOf(text))
		l.hash, _ = hashOf(l.Value)
	}
	return l
}

// NameOf returns the value with which a key refers to a text.
func NameOf(text []byte) string {
	sum := sha256.Sum256(text)
	return refMark + hex.EncodeToString(sum[:])
}

// hashOf returns the hash in a value.
func hashOf(value []byte) (string, bool) {
	hash, named := bytes.CutPrefix(value, []byte(refMark))
	return string(hash), named
}

// Save stores a text and returns the value for a key; the transaction must refer to it by PutLarge. Nil stays nil.
func (s *Store) Save(ctx context.Context, text []byte) (*Large, error) {
	if text == nil {
		return &Large{}, nil
	}
	l := newLarge(text)
	if l.hash == "" {
		return l, nil
	}
	for range 5 {
		err := s.upload(ctx, l)
		if err == nil {
			s.cache.put(l)
			return l, nil
		}
		if !errors.Is(err, ErrConflict) {
			return nil, err
		}
	}
	return nil, ErrConflict
}

// upload writes the missing pieces of a text.
func (s *Store) upload(ctx context.Context, l *Large) error {
	mark := markRoot + l.hash
	found, err := s.client.Get(ctx, mark)
	if err != nil {
		return failed(err)
	}
	var made int64
	if len(found.Kvs) > 0 {
		if string(found.Kvs[0].Value) == whole {
			return nil
		}
		made = found.Kvs[0].CreateRevision // another writer uploads it now, or did not finish
	} else {
		if err := s.Room(ctx, len(l.Gzip)); err != nil {
			return err
		}
		s.grew(len(l.Gzip))
		begun, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(mark), "=", 0)).Then(clientv3.OpPut(mark, "")).Commit()
		if err != nil {
			return failed(err)
		}
		if !begun.Succeeded {
			return ErrConflict
		}
		made = begun.Header.Revision
	}
	for i := 0; i*partBytes < len(l.Gzip); i++ {
		piece := l.Gzip[i*partBytes : min((i+1)*partBytes, len(l.Gzip))]
		if _, err := s.client.Put(ctx, fmt.Sprintf("%s%s/%04d", partRoot, l.hash, i), string(piece)); err != nil {
			return failed(err)
		}
	}
	ended, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(mark), "=", made)).Then(clientv3.OpPut(mark, whole)).Commit()
	if err != nil {
		return failed(err)
	}
	if !ended.Succeeded {
		return ErrConflict
	}
	return nil
}

// Load returns the text of a key's value.
func (s *Store) Load(ctx context.Context, value []byte) (*Large, error) {
	if len(value) == 0 {
		return &Large{}, nil
	}
	hash, named := hashOf(value)
	if !named {
		text, err := unpack(value)
		return &Large{Value: value, Text: text, Gzip: value}, err
	}
	if l := s.cache.get(hash); l != nil {
		return l, nil
	}
	found, err := s.client.Get(ctx, partRoot+hash+"/", clientv3.WithPrefix())
	if err != nil {
		return nil, failed(err)
	}
	var packed []byte
	for _, kv := range found.Kvs {
		packed = append(packed, kv.Value...)
	}
	text, err := unpack(packed)
	if err != nil {
		return nil, fmt.Errorf("the text %s in etcd: %w", hash, err)
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != hash {
		return nil, fmt.Errorf("the text %s in etcd does not match its hash", hash)
	}
	l := &Large{Value: value, Text: text, Gzip: packed, hash: hash}
	s.cache.put(l)
	return l, nil
}

// unpack decompresses gzip, up to the size of the store's largest text.
func unpack(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err == nil && len(text) > maxText {
		err = errors.New("too large")
	}
	return text, err
}

// maxText bounds the decompressed size of a text.
const maxText = 80 << 20

// PutLarge writes a key with a value that Save returned, or that another key has.
func (t *Txn) PutLarge(key string, value []byte) *Txn {
	t.Put(key, value, 0)
	if hash, named := hashOf(value); named && !t.refers[hash] {
		if t.refers == nil {
			t.refers = map[string]bool{}
		}
		t.refers[hash] = true
		mark := markRoot + hash
		t.conditions = append(t.conditions, clientv3.Compare(clientv3.Value(mark), "=", whole))
		t.operations = append(t.operations, clientv3.OpPut(mark, whole))
	}
	return t
}

// cache has the most recently used texts; the text of a hash never changes.
type cache struct {
	mu    sync.Mutex
	bytes int
	used  list.List // of *Large, most recently used first
	known map[string]*list.Element
}

func (c *cache) get(hash string) *Large {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.known[hash]
	if e == nil {
		return nil
	}
	c.used.MoveToFront(e)
	return e.Value.(*Large)
}

func (c *cache) put(l *Large) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[string]*list.Element{}
	}
	if l.hash == "" || c.known[l.hash] != nil {
		return
	}
	c.known[l.hash] = c.used.PushFront(l)
	c.bytes += len(l.Text) + len(l.Gzip)
	for c.bytes > maxCached && c.used.Len() > 1 {
		old := c.used.Remove(c.used.Back()).(*Large)
		delete(c.known, old.hash)
		c.bytes -= len(old.Text) + len(old.Gzip)
	}
}
