// SPDX-License-Identifier: Apache-2.0
/*
 * The id dictionary: the meaning of the ids in records. A name is complete or absent: its check is
 * cleared before it changes and stored last. After a crash during a change, adoption finds no name
 * rather than a wrong one.
 */
#include "session_file.h"

/* Excludes `removed` and `active`, which change while the name stays. Includes the id: a name
 * copied to another id is invalid. */
static uint32_t name_check(uint32_t id, const struct sy_addr *addr, const struct sy_addr *vip,
                           uint64_t rest)
{
	uint64_t h = sy_hash_mix(addr->d[0] ^ 0x9e3779b97f4a7c15, addr->d[1] ^ 0xbf58476d1ce4e5b9);

	h = sy_hash_mix(h ^ vip->d[0] ^ 0x94d049bb133111eb, vip->d[1] ^ 0xd6e8feb86659fd93);
	h = sy_hash_mix(h ^ id, rest ^ 0xa0761d6478bd642f);
	return (uint32_t)(h ^ h >> 32) | 1;
}

static uint32_t server_check(uint32_t id, const struct session_server_name *n)
{
	return name_check(id, &n->addr, &n->vip,
	                  (uint64_t)n->port << 48 | (uint64_t)n->vport << 32 |
	                          (uint64_t)n->last_port << 16 | (uint64_t)n->mode << 8 | n->proto);
}

static uint32_t local_check(uint32_t id, const struct sy_addr *addr)
{
	return name_check(id, addr, &(struct sy_addr){.d = {0, 0}}, 0);
}

static struct session_server_name *server_at(const struct session_file *f, uint32_t id)
{
	return (struct session_server_name *)((uint8_t *)(uintptr_t)f + f->servers_at) + id;
}

static struct session_local_name *local_at(const struct session_file *f, uint32_t id)
{
	return (struct session_local_name *)((uint8_t *)(uintptr_t)f + f->locals_at) + id;
}

static void server_write(struct session_file *f, uint32_t id,
                         const struct session_server_name *name)
{
	struct session_server_name *at = server_at(f, id);

	__atomic_store_n(&at->check, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	at->addr = name->addr;
	at->vip = name->vip;
	at->port = name->port;
	at->vport = name->vport;
	at->last_port = name->last_port;
	at->proto = name->proto;
	at->mode = name->mode;
	at->removed = name->removed;
	at->active = name->active;
	__atomic_store_n(&at->check, server_check(id, name), __ATOMIC_RELEASE);
}

static void local_write(struct session_file *f, uint32_t id, const struct sy_addr *addr)
{
	struct session_local_name *at = local_at(f, id);

	__atomic_store_n(&at->check, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	at->addr = *addr;
	__atomic_store_n(&at->check, local_check(id, addr), __ATOMIC_RELEASE);
}

static bool server_read(const struct session_file *f, uint32_t id, struct session_server_name *out)
{
	if (id >= f->servers)
		return false;
	*out = *server_at(f, id);
	return out->check != 0 && out->check == server_check(id, out);
}

static bool local_read(const struct session_file *f, uint32_t id, struct sy_addr *out)
{
	const struct session_local_name *at = local_at(f, id);

	*out = at->addr;
	return at->check != 0 && at->check == local_check(id, out);
}

/* ---- interface of the store ------------------------------------------------------------------ */

static void names_have_changed(struct session_store *s)
{
	__atomic_store_n(&s->names_version, s->names_version + 1, __ATOMIC_RELEASE);
}

uint32_t session_names_version(const struct session_store *s)
{
	return __atomic_load_n(&s->names_version, __ATOMIC_ACQUIRE);
}

void session_name_server(struct session_store *s, uint32_t id,
                         const struct session_server_name *name)
{
	if (id >= session_servers(s))
		return;
	if (name != NULL)
		server_write(s->now.file, id, name);
	else
		__atomic_store_n(&server_at(s->now.file, id)->check, 0, __ATOMIC_RELEASE);
	names_have_changed(s);
}

void session_name_local(struct session_store *s, uint8_t id, const struct sy_addr *addr)
{
	if (addr != NULL)
		local_write(s->now.file, id, addr);
	else
		__atomic_store_n(&local_at(s->now.file, id)->check, 0, __ATOMIC_RELEASE);
	names_have_changed(s);
}

bool session_server_named(const struct session_store *s, uint32_t id,
                          struct session_server_name *out)
{
	return server_read(s->now.file, id, out);
}

bool session_local_named(const struct session_store *s, uint8_t id, struct sy_addr *out)
{
	return local_read(s->now.file, id, out);
}

void session_server_set_removed(struct session_store *s, uint32_t id)
{
	if (id < session_servers(s))
		server_at(s->now.file, id)->removed = 1;
	names_have_changed(s);
}

void session_server_set_active(struct session_store *s, uint32_t id, uint32_t active)
{
	if (id < session_servers(s))
		server_at(s->now.file, id)->active = active;
}

uint32_t session_servers(const struct session_store *s)
{
	return s->now.file->servers;
}

void session_dictionary_copy(struct session_file *to, const struct session_file *from)
{
	struct session_server_name server;
	struct sy_addr local;

	for (uint32_t id = 0; id < from->servers && id < to->servers; id++)
		if (server_read(from, id, &server))
			server_write(to, id, &server);
	for (uint32_t id = 0; id < SESSION_LOCALS; id++)
		if (local_read(from, id, &local))
			local_write(to, id, &local);
}
