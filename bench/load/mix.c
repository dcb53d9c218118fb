// SPDX-License-Identifier: Apache-2.0
#include "mix.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define ECHO_DEFAULT 64

/* ---- classes --------------------------------------------------------------------------------- */

static int word_read(const char *what, const char *text, char *out, size_t room,
                     struct sy_error *err)
{
	for (const char *c = text; *c; c++)
		if ((uint8_t)*c <= ' ' || (uint8_t)*c >= 127)
			return sy_fail(err, EINVAL, "%s: \"%.60s\" holds a space or worse", what,
			               text);
	if (!*text || strlen(text) >= room)
		return sy_fail(err, EINVAL, "%s: from 1 to %zu characters", what, room - 1);
	strcpy(out, text);
	return 0;
}

/* Excluded methods: their responses have a length without a body, or are tunnels. */
static int method_read(const char *text, char *out, size_t room, struct sy_error *err)
{
	if (!strcasecmp(text, "HEAD") || !strcasecmp(text, "CONNECT"))
		return sy_fail(err, EINVAL, "method=%s is not possible: its answers have no body",
		               text);
	return word_read("method", text, out, room, err);
}

static int class_key(struct request_class *k, const char *key, const char *value,
                     struct sy_error *err)
{
	double number;
	int rc;

	if (!strcmp(key, "share"))
		return number_read("share", value, UNIT_COUNT, 0, 1e12, &k->share, err);
	if (!strcmp(key, "length")) {
		k->has_length = true;
		return distribution_read(&k->length, "length", value, UNIT_COUNT, err);
	}
	if (!strcmp(key, "answer"))
		return distribution_read(&k->answer, "answer", value, UNIT_COUNT, err);
	if (!strcmp(key, "service"))
		return distribution_read(&k->service, "service", value, UNIT_TIME, err);
	if (!strcmp(key, "unsent")) {
		rc = number_read("unsent", value, UNIT_TIME, 1, 1e9, &number, err);
		k->unsent_ns = rc ? 0 : (uint64_t)number;
		return rc;
	}
	if (!strcmp(key, "type")) {
		rc = number_read("type", value, UNIT_COUNT, 0, UINT16_MAX, &number, err);
		k->type = rc ? 0 : (uint16_t)number;
		return rc;
	}
	if (!strcmp(key, "path"))
		return word_read("path", value, k->path, sizeof(k->path), err);
	if (!strcmp(key, "method"))
		return method_read(value, k->method, sizeof(k->method), err);
	if (!strcmp(key, "key"))
		return word_read("key", value, k->key, sizeof(k->key), err);
	return sy_fail(err, EINVAL, "%.40s is unknown; see --help", key);
}

static void class_default(struct request_class *k)
{
	*k = (struct request_class){.name = "all", .share = 1, .path = "/"};
	k->length = k->answer = distribution_constant(ECHO_DEFAULT);
}

int class_read(struct mix *m, const char *text, struct sy_error *err)
{
	struct request_class *k = &m->class[m->classes];
	char copy[512], *save, *word;
	int rc;

	if (m->classes == CLASSES_MAX)
		return sy_fail(err, EINVAL, "--class: at most %u are possible", CLASSES_MAX);
	if (strlen(text) >= sizeof(copy))
		return sy_fail(err, EINVAL, "--class %.40s… is too long", text);
	strcpy(copy, text);
	class_default(k);
	word = strtok_r(copy, ",", &save);
	rc = word_read("--class: its name", word ? word : "", k->name, sizeof(k->name), err);
	if (rc)
		return rc;
	m->classes++;
	while ((word = strtok_r(NULL, ",", &save))) {
		char *value = strchr(word, '=');
		if (!value)
			return sy_fail(err, EINVAL,
			               "--class %s: \"%.60s\" must have the form KEY=VALUE",
			               k->name, word);
		*value++ = '\0';
		if (class_key(k, word, value, err))
			return sy_fail_in(err, "--class %s", k->name);
	}
	return 0;
}

int mix_complete(struct mix *m, struct sy_error *err)
{
	double shares = 0;

	if (m->classes == 0)
		class_default(&m->class[m->classes++]);
	for (unsigned i = 0; i < m->classes; i++) {
		struct request_class *k = &m->class[i];
		shares += k->share;
		for (unsigned j = 0; j < i; j++)
			if (!strcmp(k->name, m->class[j].name))
				return sy_fail(err, EINVAL, "--class %s: there are two", k->name);
		if (m->protocol != PROTOCOL_RAW && (!distribution_is(&k->service, 0) || k->type ||
		                                    !distribution_is(&k->answer, ECHO_DEFAULT)))
			return sy_fail(
			        err, EINVAL,
			        "--class %s: only --protocol raw has service, type and answer",
			        k->name);
		if (m->protocol != PROTOCOL_HTTP && (k->method[0] || strcmp(k->path, "/")))
			return sy_fail(err, EINVAL,
			               "--class %s: only --protocol http has path and method",
			               k->name);
		if (m->protocol != PROTOCOL_REDIS ? k->key[0] : k->has_length)
			return sy_fail(err, EINVAL,
			               "--class %s: --protocol redis, and no other, has key, and "
			               "it has no length",
			               k->name);
	}
	if (shares <= 0)
		return sy_fail(err, EINVAL, "--class: no class has a share");
	return 0;
}

void mix_free(struct mix *m)
{
	for (unsigned i = 0; i < m->classes; i++) {
		distribution_free(&m->class[i].length);
		distribution_free(&m->class[i].answer);
		distribution_free(&m->class[i].service);
	}
}

/* ---- requests -------------------------------------------------------------------------------- */

static uint32_t between(uint64_t value, uint32_t min, uint32_t max)
{
	return value < min ? min : value > max ? max : (uint32_t)value;
}

static uint8_t class_draw(const struct mix *m, struct chance *c)
{
	double shares = 0, at;
	unsigned i;

	if (m->classes == 1)
		return 0;
	for (i = 0; i < m->classes; i++)
		shares += m->class[i].share;
	at = chance_unit(c) * shares;
	for (i = 0; i + 1 < m->classes && at > m->class[i].share; i++)
		at -= m->class[i].share;
	return (uint8_t)i;
}

void request_draw(const struct mix *m, struct chance *c, struct request *r)
{
	uint32_t min = m->protocol == PROTOCOL_RAW ? RAW_HEADER : m->protocol == PROTOCOL_ECHO;
	const struct request_class *k;

	r->class = class_draw(m, c);
	k = &m->class[r->class];
	r->length = between(distribution_draw(&k->length, c), min, RAW_LONGEST);
	r->answer = between(distribution_draw(&k->answer, c), RAW_HEADER, RAW_LONGEST);
	if (m->protocol == PROTOCOL_REDIS || (m->protocol == PROTOCOL_HTTP && !k->has_length))
		r->length = 0;
	r->service_ns = distribution_draw(&k->service, c);
	if (r->service_ns > RAW_SERVICE_MAX)
		r->service_ns = RAW_SERVICE_MAX;
}

static size_t http_header(const struct mix *m, const struct request *r, char *out)
{
	const struct request_class *k = &m->class[r->class];
	const char *method = k->method[0] ? k->method : k->has_length ? "POST" : "GET";
	char body[48] = "";

	if (k->has_length)
		snprintf(body, sizeof(body), "Content-Length: %u\r\n", r->length);
	return (size_t)snprintf(out, REQUEST_HEADER, "%s %s HTTP/1.1\r\nHost: %s\r\n%s%s%s\r\n",
	                        method, k->path, m->host, m->close ? "Connection: close\r\n" : "",
	                        m->fields, body);
}

static size_t redis_header(const struct request_class *k, char *out)
{
	const char *key = k->key[0] ? k->key : "key";

	return (size_t)snprintf(out, REQUEST_HEADER, "*2\r\n$3\r\nGET\r\n$%zu\r\n%s\r\n",
	                        strlen(key), key);
}

size_t request_header(const struct mix *m, const struct request *r, char out[static REQUEST_HEADER])
{
	if (m->protocol == PROTOCOL_HTTP)
		return http_header(m, r, out);
	if (m->protocol == PROTOCOL_REDIS)
		return redis_header(&m->class[r->class], out);
	if (m->protocol == PROTOCOL_ECHO)
		return 0;
	raw_write((uint8_t *)out, &(struct raw_header){.kind = RAW_REQUEST,
	                                               .class = r->class,
	                                               .type = m->class[r->class].type,
	                                               .length = r->length,
	                                               .answer = r->answer,
	                                               .service_ns = r->service_ns,
	                                               .number = request_number(m, r)});
	return RAW_HEADER;
}

uint64_t request_rest(const struct mix *m, const struct request *r)
{
	return m->protocol == PROTOCOL_RAW ? r->length - RAW_HEADER : r->length;
}
