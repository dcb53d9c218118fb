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

struct object {
	Elf *elf;
	Elf_Data *code; /* NULL: no hook section */
	size_t code_index;
	enum sy_hook_kind kind;
	unsigned programs;
	Elf_Scn *symbols, *relocs; /* relocs: of the code; may be NULL */
	size_t strings;            /* section index of the symbol names */
};

static const char *const not_bpf =
        "it is no object of eBPF; compile it by `clang -O2 -target bpf -c`";

static int section_read(struct object *o, Elf_Scn *scn, size_t names)
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

static int sections_read(struct object *o, struct sy_error *err)
{
	GElf_Ehdr head;
	size_t names;
	if (!gelf_getehdr(o->elf, &head) || head.e_machine != EM_BPF ||
	    elf_getshdrstrndx(o->elf, &names) != 0)
		return sy_fail(err, EINVAL, "%s", not_bpf);
	for (Elf_Scn *scn = NULL; (scn = elf_nextscn(o->elf, scn));)
		if (section_read(o, scn, names) < 0)
			return sy_fail(err, EINVAL, "%s", not_bpf);
	for (Elf_Scn *scn = NULL; (scn = elf_nextscn(o->elf, scn));) {
		GElf_Shdr one;
		if (!gelf_getshdr(scn, &one) || one.sh_info != o->code_index ||
		    (one.sh_type != SHT_REL && one.sh_type != SHT_RELA))
			continue;
		if (o->relocs || one.sh_type == SHT_RELA)
			return sy_fail(err, EINVAL, "its relocations are not as clang writes them");
		o->relocs = scn;
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

/* The entry point would be ambiguous with several functions in the section. */
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

/* Copies the instructions and clears src_reg of loads, which marks addresses here. */
static int code_copy(const struct object *o, struct ebpf_insn **code, uint32_t *count,
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
	for (uint32_t i = 0; i < *count; i++)
		if (BPF_CLASS((*code)[i].code) == BPF_LD)
			(*code)[i].src_reg = 0;
	return 0;
}

static int reloc_refuse(const struct object *o, const GElf_Sym *sym, const char *name,
                        const struct ebpf_insn *one, size_t at, struct sy_error *err)
{
	if (sym->st_shndx == SHN_UNDEF)
		return sy_fail(err, EINVAL,
		               "instruction %zu uses %s, which sy_hook_program.h does not have", at,
		               name);
	if (one->code == (BPF_JMP | EBPF_CALL))
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

static int reloc_apply(const struct object *o, const struct object_names *known,
                       const GElf_Rel *reloc, struct ebpf_insn *code, uint32_t count,
                       struct sy_error *err)
{
	GElf_Sym sym;
	size_t at = reloc->r_offset / sizeof(*code);
	if (!gelf_getsym(data_of(o->symbols), (int)GELF_R_SYM(reloc->r_info), &sym) || at >= count)
		return sy_fail(err, EINVAL, "%s", not_bpf);
	const char *name = elf_strptr(o->elf, o->strings, sym.st_name);
	struct ebpf_insn *one = &code[at];
	name = name ? name : "";
	if (sym.st_shndx == SHN_UNDEF && one->code == (BPF_LD | BPF_IMM | EBPF_DW) &&
	    !strcmp(name, known->data)) {
		one->src_reg = OBJECT_ADDRESS;
		return 0;
	}
	for (unsigned i = 0; i < known->functions; i++) {
		if (sym.st_shndx != SHN_UNDEF || one->code != (BPF_JMP | EBPF_CALL) ||
		    strcmp(name, known->function[i]))
			continue;
		one->imm = (int32_t)i;
		one->src_reg = 0;
		return 0;
	}
	return reloc_refuse(o, &sym, name, one, at, err);
}

static int relocs_apply(const struct object *o, const struct object_names *known,
                        struct ebpf_insn *code, uint32_t count, struct sy_error *err)
{
	Elf_Data *data = data_of(o->relocs);
	GElf_Rel reloc;
	for (int i = 0; data && gelf_getrel(data, i, &reloc); i++)
		if (reloc_apply(o, known, &reloc, code, count, err) < 0)
			return -EINVAL;
	return 0;
}

/* Copies objects in memory: elf_memory() may write to its buffer. */
static int object_open(struct object *o, const struct sy_hook_source *source, void **copy, int *fd,
                       struct sy_error *err)
{
	elf_version(EV_CURRENT);
	if (source->file) {
		*fd = open(source->file, O_RDONLY | O_CLOEXEC);
		if (*fd < 0)
			return sy_fail(err, errno, "%s", strerror(errno));
		o->elf = elf_begin(*fd, ELF_C_READ, NULL);
	} else {
		*copy = malloc(source->object_len);
		if (!*copy)
			return sy_fail(err, ENOMEM, "no memory for %zu bytes", source->object_len);
		memcpy(*copy, source->object, source->object_len);
		o->elf = elf_memory(*copy, source->object_len);
	}
	return o->elf ? 0 : sy_fail(err, EINVAL, "%s", not_bpf);
}

int object_read(const struct sy_hook_source *source, const struct object_names *known,
                enum sy_hook_kind *kind, struct ebpf_insn **code, uint32_t *count,
                struct sy_error *err)
{
	struct object o = {0};
	void *copy = NULL;
	int fd = -1;
	*code = NULL;
	int rc = object_open(&o, source, &copy, &fd, err);
	if (rc == 0)
		rc = sections_read(&o, err);
	if (rc == 0)
		rc = functions_check(&o, err);
	if (rc == 0)
		rc = code_copy(&o, code, count, err);
	if (rc == 0)
		rc = relocs_apply(&o, known, *code, *count, err);
	*kind = o.kind;
	elf_end(o.elf);
	free(copy);
	if (fd >= 0)
		close(fd);
	if (rc < 0) {
		free(*code);
		*code = NULL;
	}
	return rc;
}
