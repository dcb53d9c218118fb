// SPDX-License-Identifier: Apache-2.0
/* The nftables table that keeps this host from sending from claimed addresses, for claim.c. */
#include "guard.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Priority -300 is raw: drops packets before connection tracking handles them. */
static const char guard_rules[] = "table inet steelyard {\n"
                                  "  set claimed4 { type ipv4_addr; }\n"
                                  "  set claimed6 { type ipv6_addr; }\n"
                                  "  chain output {\n"
                                  "    type filter hook output priority -300; policy accept;\n"
                                  "    ip saddr @claimed4 drop\n"
                                  "    ip6 saddr @claimed6 icmpv6 type nd-neighbor-advert accept\n"
                                  "    ip6 saddr @claimed6 drop\n"
                                  "  }\n"
                                  "}\n";

struct nft_ctx *guard_open(void)
{
	struct nft_ctx *nft = nft_ctx_new(NFT_CTX_DEFAULT);

	if (nft) {
		nft_ctx_buffer_output(nft);
		nft_ctx_buffer_error(nft);
	}
	return nft;
}

static int guard_run(struct nft_ctx *nft, const char *commands, struct sy_error *err)
{
	const char *text;

	if (nft_run_cmd_from_buffer(nft, commands) == 0)
		return 0;
	text = nft_ctx_get_error_buffer(nft);
	return sy_fail(err, EIO, "nftables refuses table inet steelyard: %.*s",
	               (int)strcspn(text, "\n"), text);
}

static void element_write(FILE *out, const char *verb, const struct sy_addr *addr)
{
	char text[SY_ADDR_TEXT];

	fprintf(out, "%s element inet steelyard claimed%c { %s }\n", verb,
	        sy_addr_is_v4(addr) ? '4' : '6', sy_addr_format(addr, text));
}

/* One command for all addresses of a family: libnftables is slow per command. */
static void elements_write(FILE *out, const struct sy_addr *addrs, size_t count, bool v4)
{
	char text[SY_ADDR_TEXT];
	bool any = false;

	for (size_t i = 0; i < count; i++) {
		if (sy_addr_is_v4(&addrs[i]) != v4)
			continue;
		if (any)
			fputs(", ", out);
		else
			fprintf(out, "add element inet steelyard claimed%c { ", v4 ? '4' : '6');
		fputs(sy_addr_format(&addrs[i], text), out);
		any = true;
	}
	if (any)
		fputs(" }\n", out);
}

int guard_reset(struct nft_ctx *nft, const struct sy_addr *addrs, size_t count,
                struct sy_error *err)
{
	char *commands = NULL;
	size_t len;
	FILE *out = open_memstream(&commands, &len);
	int rc;

	if (!out)
		return sy_fail(err, ENOMEM, "no memory for nftables commands");
	/* "delete" fails without a table, hence the "add" before it. */
	fprintf(out, "add table inet steelyard\ndelete table inet steelyard\n%s", guard_rules);
	elements_write(out, addrs, count, true);
	elements_write(out, addrs, count, false);
	if (fclose(out) == 0)
		rc = guard_run(nft, commands, err);
	else
		rc = sy_fail(err, ENOMEM, "no memory for nftables commands");
	free(commands);
	return rc;
}

static int element_change(struct nft_ctx *nft, const char *verb, const struct sy_addr *addr,
                          struct sy_error *err)
{
	char command[96 + SY_ADDR_TEXT] = "";
	FILE *out = fmemopen(command, sizeof(command), "w");

	if (!out)
		return sy_fail(err, ENOMEM, "no memory for nftables commands");
	element_write(out, verb, addr);
	fclose(out);
	return guard_run(nft, command, err);
}

int guard_add(struct nft_ctx *nft, const struct sy_addr *addr, struct sy_error *err)
{
	return element_change(nft, "add", addr, err);
}

int guard_remove(struct nft_ctx *nft, const struct sy_addr *addr)
{
	return element_change(nft, "delete", addr, NULL);
}

bool guard_delete(struct nft_ctx *nft)
{
	return nft_run_cmd_from_buffer(nft, "delete table inet steelyard") == 0;
}
