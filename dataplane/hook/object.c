// SPDX-License-Identifier: Apache-2.0
#include "object.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef EM_BPF
#define EM_BPF 247
#endif

/* What is in the object. */
struct object {
	Elf *elf;
	Elf_Data *code; /* NULL: no section of a hook */
	size_t code_index;
	enum sy_hook_kind kind;
	unsigned programs;
	Elf_Scn *symbols, *moves; /* the code's relocations; may be NULL */
	size_t strings;           /* index of the symbols' names */
};

static const char *const not_bpf =
        "it is no object of eBPF; compile it by `clang -O2 -target bpf -c`";

static int section_see(struct object *o, Elf_Scn *scn, size_t names)
{
	GElf_Shdr head;
	if (!gelf_getshdr(scn, &head))
		return -1;
	const char *name = elf_strptr(o->elf, names, head.sh_name);
	if (head.sh_type == SHT_SYMTAB) {
		o->symbols = scn;
		o->strings = head.sh_link;
	}
	for (unsigned kind = 0; kind < SY_HOOK_KINDS && name; kind++) {
		if (head.sh_type != SHT_PROGBITS || head.sh_size == 0 ||
		    strcmp(name, sy_hook_kind_name((enum sy_hook_kind)kind)))
			continue;
		o->programs++;
		o->code = elf_getdata(scn, NULL);
		o->code_index = elf_ndxscn(scn);
		o->kind = (enum sy_hook_kind)kind;
	}
	return 0;
}

static int sections_see(struct object *o, struct sy_error *err)
{
	GElf_Ehdr head;
	size_t names;
	if (!gelf_getehdr(o->elf, &head) || head.e_machine != EM_BPF ||
	    elf_getshdrstrndx(o->elf, &names) != 0)
		return sy_fail(err, EINVAL, "%s", not_bpf);
	for (Elf_Scn *scn = NULL; (scn = elf_nextscn(o->elf, scn));)
		if (section_see(o, scn, names) < 0)
			return sy_fail(err, EINVAL, "%s", not_bpf);
	for (Elf_Scn *scn = NULL; (scn = elf_nextscn(o->elf, scn));) {
		GElf_Shdr one;
		if (gelf_getshdr(scn, &one) && one.sh_type == SHT_REL &&
		    one.sh_info == o->code_index)
			o->moves = scn;
	}
	if (o->programs != 1 || !o->code || !o->code->d_buf || !o->symbols)
		return sy_fail(err, EINVAL,
		               "%s: a hook is one function, marked SY_PACKET_HOOK or "
		               "SY_SEGMENT_HOOK",
		               o->programs > 1 ? "it has hooks of both kinds" : "it has no hook");
	return 0;
}

static Elf_Data *data_of(Elf_Scn *scn)
{
	return scn ? elf_getdata(scn, NULL) : NULL;
}

/* More than one function in the section: which would be run? */
static int functions_check(const struct object *o, struct sy_error *err)
{
	Elf_Data *data = data_of(o->symbols);
	unsigned functions = 0;
	GElf_Sym sym;
	for (int i = 0; data && gelf_getsym(data, i, &sym); i++)
		functions += GELF_ST_TYPE(sym.st_info) == STT_FUNC && sym.st_shndx == o->code_index;
	if (functions == 1)
		return 0;
	return sy_fail(err, EINVAL, "%u functions are in section %s, not one", functions,
	               sy_hook_kind_name(o->kind));
}

static bool name_is_known(const struct object_names *known, const char *name)
{
	for (unsigned i = 0; i < known->count; i++)
		if (!strcmp(known->at[i], name))
			return true;
	return false;
}

static int move_check(const struct object *o, const struct object_names *known,
                      const GElf_Rel *move, struct sy_error *err)
{
	GElf_Sym sym;
	if (!gelf_getsym(data_of(o->symbols), (int)GELF_R_SYM(move->r_info), &sym))
		return sy_fail(err, EINVAL, "%s", not_bpf);
	const char *name = elf_strptr(o->elf, o->strings, sym.st_name);
	name = name ? name : "";
	size_t at = move->r_offset / sizeof(struct ebpf_insn);
	struct ebpf_insn *code = o->code->d_buf;
	if (at >= o->code->d_size / sizeof(*code))
		return sy_fail(err, EINVAL, "%s", not_bpf);
	if (sym.st_shndx == SHN_UNDEF && name_is_known(known, name)) {
		code[at].src_reg = 1; /* of a load: it is an address */
		return 0;
	}
	if (sym.st_shndx == SHN_UNDEF)
		return sy_fail(err, EINVAL,
		               "instruction %zu uses %s, which sy_hook_program.h does not have", at,
		               name);
	if (code[at].code == (BPF_JMP | EBPF_CALL))
		return sy_fail(err, EINVAL,
		               "instruction %zu calls a function of its own; mark these `static "
		               "inline __attribute__((always_inline))`",
		               at);
	return sy_fail(
	        err, EINVAL,
	        "instruction %zu uses data of its own%s%s; a hook keeps numbers in sy_param, "
	        "what lasts in own[], and its constants in code (no tables, no strings)",
	        at, *name ? ": " : "", name);
}

static int moves_check(const struct object *o, const struct object_names *known,
                       struct sy_error *err)
{
	Elf_Data *data = data_of(o->moves);
	GElf_Rel move;
	for (int i = 0; data && gelf_getrel(data, i, &move); i++)
		if (move_check(o, known, &move, err) < 0)
			return -EINVAL;
	return 0;
}

static int code_take(const struct object *o, struct ebpf_insn **code, uint32_t *count,
                     struct sy_error *err)
{
	size_t len = o->code->d_size;
	if (len % sizeof(**code))
		return sy_fail(err, EINVAL, "%s", not_bpf);
	*code = malloc(len);
	if (!*code)
		return sy_fail(err, ENOMEM, "no memory for a program of %zu bytes", len);
	memcpy(*code, o->code->d_buf, len);
	*count = (uint32_t)(len / sizeof(**code));
	return 0;
}

int object_read(const char *file, const struct object_names *known, enum sy_hook_kind *kind,
                struct ebpf_insn **code, uint32_t *count, struct sy_error *err)
{
	struct object o = {0};
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return sy_fail(err, errno, "%s: %s", file, strerror(errno));
	elf_version(EV_CURRENT);
	o.elf = elf_begin(fd, ELF_C_READ, NULL);
	int rc = o.elf ? sections_see(&o, err) : sy_fail(err, EINVAL, "%s", not_bpf);
	if (rc == 0)
		rc = functions_check(&o, err);
	if (rc == 0)
		rc = moves_check(&o, known, err);
	if (rc == 0)
		rc = code_take(&o, code, count, err);
	*kind = o.kind;
	elf_end(o.elf);
	close(fd);
	return rc < 0 ? sy_fail_in(err, "%s", file) : 0;
}
