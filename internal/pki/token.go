// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"strings"
)

// Token authorizes a member to join: syt1.ID.SECRET.HASH, with the hash of the authority's key.
type Token struct{ ID, Secret, Authority string }

// NewToken creates a token.
func NewToken(authority string) (Token, error) {
	random := make([]byte, 8+24)
	if _, err := rand.Read(random); err != nil {
		return Token{}, err
	}
	return Token{base64.RawURLEncoding.EncodeToString(random[:8]), base64.RawURLEncoding.EncodeToString(random[8:]), authority}, nil
}

func (t Token) String() string { return "syt1." + t.ID + "." + t.Secret + "." + t.Authority }

// ParseToken reads a token.
func ParseToken(text string) (Token, error) {
	parts := strings.Split(strings.TrimSpace(text), ".")
	if len(parts) != 4 || parts[0] != "syt1" {
		return Token{}, errors.New("this is no token: it begins with syt1. and has four parts (`steelyard token create`)")
	}
	for _, part := range parts[1:] {
		if data, err := base64.RawURLEncoding.DecodeString(part); err != nil || len(data) < 8 || len(data) > 32 {
			return Token{}, errors.New("this token is damaged: copy all of it")
		}
	}
	return Token{parts[1], parts[2], parts[3]}, nil
}

// SecretHash is the stored form of a token's secret.
func (t Token) SecretHash() string {
	sum := sha256.Sum256([]byte(t.Secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Matches compares the token with a hash that was kept.
func (t Token) Matches(hash string) bool {
	return subtle.ConstantTimeCompare([]byte(t.SecretHash()), []byte(hash)) == 1
}
