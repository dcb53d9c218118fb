// SPDX-License-Identifier: Apache-2.0
#include "sync_seal.h"

#include <errno.h>
#include <stdlib.h>

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#define KEY   32
#define NONCE 12

struct sync_cipher {
	EVP_CIPHER_CTX *seal, *open;
};

static const char label[] = "steelyard session sync 1";

/* HKDF (RFC 5869) with SHA-256. */
static bool hkdf(const struct sync_secret *secret, uint64_t salt, const void *info, size_t info_len,
                 uint8_t *key, size_t len)
{
	EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
	EVP_KDF_CTX *ctx = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
	const OSSL_PARAM params[] = {
	        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)"SHA256", 0),
	        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)secret->bytes,
	                                          secret->len),
	        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, &salt, sizeof(salt)),
	        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)info, info_len),
	        OSSL_PARAM_construct_end(),
	};
	bool derived = ctx && EVP_KDF_derive(ctx, key, len, params) == 1;
	EVP_KDF_CTX_free(ctx);
	EVP_KDF_free(kdf);
	return derived;
}

/* The incarnation is the salt. */
static bool key_derive(const struct sync_secret *secret, uint8_t node, uint64_t incarnation,
                       uint8_t key[static KEY])
{
	uint8_t info[sizeof(label)];

	memcpy(info, label, sizeof(label));
	info[sizeof(label) - 1] = node;
	return hkdf(secret, incarnation, info, sizeof(info), key, KEY);
}

bool sync_secret_derive(const struct sync_secret *secret, const char *purpose, uint8_t *key,
                        size_t len)
{
	return hkdf(secret, 0, purpose, strlen(purpose), key, len);
}

struct sync_cipher *sync_cipher_create(const struct sync_secret *secret, uint8_t node,
                                       uint64_t incarnation)
{
	struct sync_cipher *c = calloc(1, sizeof(*c));
	uint8_t key[KEY];

	if (!c)
		return NULL;
	c->seal = EVP_CIPHER_CTX_new();
	c->open = EVP_CIPHER_CTX_new();
	bool ready = c->seal && c->open && key_derive(secret, node, incarnation, key) &&
	             EVP_EncryptInit_ex(c->seal, EVP_aes_256_gcm(), NULL, key, NULL) == 1 &&
	             EVP_DecryptInit_ex(c->open, EVP_aes_256_gcm(), NULL, key, NULL) == 1;
	sy_secret_wipe(key, sizeof(key));
	if (ready)
		return c;
	sync_cipher_destroy(c);
	return NULL;
}

void sync_cipher_destroy(struct sync_cipher *c)
{
	if (!c)
		return;
	EVP_CIPHER_CTX_free(c->seal);
	EVP_CIPHER_CTX_free(c->open);
	free(c);
}

static void nonce_make(const struct sync_header *h, uint8_t nonce[static NONCE])
{
	const uint32_t worker = h->worker;

	memcpy(nonce, &worker, sizeof(worker));
	memcpy(nonce + sizeof(worker), &h->counter, sizeof(h->counter));
}

size_t sync_seal(struct sync_cipher *c, const struct sync_header *header, const uint8_t *plain,
                 size_t len, uint8_t *to)
{
	uint8_t nonce[NONCE], *sealed = to + sizeof(*header);
	int n;

	nonce_make(header, nonce);
	memcpy(to, header, sizeof(*header));
	if (EVP_EncryptInit_ex(c->seal, NULL, NULL, NULL, nonce) != 1 ||
	    EVP_EncryptUpdate(c->seal, NULL, &n, to, sizeof(*header)) != 1 ||
	    EVP_EncryptUpdate(c->seal, sealed, &n, plain, (int)len) != 1 ||
	    EVP_EncryptFinal_ex(c->seal, sealed + n, &n) != 1 ||
	    EVP_CIPHER_CTX_ctrl(c->seal, EVP_CTRL_AEAD_GET_TAG, SYNC_TAG, sealed + len) != 1)
		return 0;
	return sizeof(*header) + len + SYNC_TAG;
}

int64_t sync_open(struct sync_cipher *c, const uint8_t *datagram, size_t len, uint8_t *to)
{
	struct sync_header header;
	uint8_t nonce[NONCE], tag[SYNC_TAG];
	int n;

	if (len < sizeof(header) + SYNC_TAG)
		return -EBADMSG;
	size_t sealed = len - sizeof(header) - SYNC_TAG;
	memcpy(&header, datagram, sizeof(header));
	memcpy(tag, datagram + len - SYNC_TAG, SYNC_TAG);
	nonce_make(&header, nonce);
	if (EVP_DecryptInit_ex(c->open, NULL, NULL, NULL, nonce) != 1 ||
	    EVP_DecryptUpdate(c->open, NULL, &n, datagram, sizeof(header)) != 1 ||
	    EVP_DecryptUpdate(c->open, to, &n, datagram + sizeof(header), (int)sealed) != 1 ||
	    EVP_CIPHER_CTX_ctrl(c->open, EVP_CTRL_AEAD_SET_TAG, SYNC_TAG, tag) != 1 ||
	    EVP_DecryptFinal_ex(c->open, to + n, &n) != 1)
		return -EBADMSG;
	return (int64_t)sealed;
}

/* ---- replays --------------------------------------------------------------------------------- */

bool sync_replay_accept(struct sync_replay *r, uint64_t counter)
{
	const unsigned words = SY_ARRAY_LEN(r->seen);

	if (counter + SYNC_REPLAY - 64 <= r->last || counter == 0)
		return false;
	if (counter > r->last) { /* words that are used anew */
		uint64_t from = r->last / 64 + 1, to = counter / 64;
		if (to >= from + words)
			from = to - words + 1;
		for (; from <= to; from++)
			r->seen[from % words] = 0;
		r->last = counter;
	}
	uint64_t bit = UINT64_C(1) << counter % 64, *word = &r->seen[counter / 64 % words];
	bool first = !(*word & bit);
	*word |= bit;
	return first;
}
