/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The identity: everything that decides what the bytes of a block mean, from the model, the context's parameters and
 * the shape of its state. docs/LLAMA.md has the list. A setting that the public API of llama.cpp does not tell is
 * taken from `params`; one that changes nothing is left out, so that more programs share.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama_in.h"

enum {
	TEXT_MAX = 1024, /* of a string in a description */
	TENSORS_MAX = 32768,
	ADAPTERS_MAX = 16,
};

struct lora {
	cairn_digest digest;
	char scale[64];
};

struct description {
	struct cairn_space_desc desc;
	char model[256], kv_dtype[64], layout[TEXT_MAX + 1], rope[TEXT_MAX + 1], isa[TEXT_MAX + 1], engine[256];
	char lora_text[ADAPTERS_MAX * 140];
	char tensors[TENSORS_MAX];
	cairn_digest weights;
	struct lora loras[ADAPTERS_MAX];
	struct cairn_field fields[4];
};

/* Model metadata, whatever bytes it has, as plain ASCII: a description holds UTF-8 only. */
static void plain_text(char *text)
{
	for (; *text; text++) {
		if ((unsigned char)*text < 0x20 || (unsigned char)*text > 0x7e)
			*text = '?';
	}
}

/* The value of "ARCHITECTURE.name" in the model's metadata. Returns whether there is one. */
static int metadata(const struct llama_model *model, const char *name, char *value, size_t max)
{
	char architecture[64], key[160];

	if (llama_model_meta_val_str(model, "general.architecture", architecture, sizeof architecture) < 0)
		return 0;
	snprintf(key, sizeof key, "%s.%s", architecture, name);
	return llama_model_meta_val_str(model, key, value, max) >= 0;
}

static double metadata_number(const struct llama_model *model, const char *name, double otherwise)
{
	char value[64];

	return metadata(model, name, value, sizeof value) ? strtod(value, NULL) : otherwise;
}

static void describe_model(struct description *d, const struct llama_model *model,
                           const struct cairn_llama_options *options)
{
	char build[128];

	if (options->model)
		snprintf(d->model, sizeof d->model, "%s", options->model);
	else if (llama_model_meta_val_str(model, "general.name", d->model, sizeof d->model) <= 0)
		llama_model_desc(model, d->model, sizeof d->model);
	plain_text(d->model);
	d->desc.model = d->model;
	/* Not version alone: between two releases the bits of a KV may change, and libllama promises nothing. */
	snprintf(build, sizeof build, "%s", ggml_commit());
	plain_text(build);
	snprintf(d->engine, sizeof d->engine, "libllama %s, ggml %s %s, state %d", llama_version(), ggml_version(), build,
	         LLAMA_STATE_SEQ_VERSION);
}

static int describe_cache(struct description *d, const struct cairn_llama *llama, const struct llama_model *model)
{
	const struct shape_tensor *k = &llama->shape.tensors[0];
	const struct shape_tensor *v = llama->shape.nv ? &llama->shape.tensors[llama->shape.nk] : k;
	const char *rotation = getenv("LLAMA_ATTN_ROT_DISABLE");
	int32_t heads = llama_model_n_head_kv(model);
	uint64_t elements = k->row_bytes / ggml_type_size((enum ggml_type)k->type) *
	                    (uint64_t)ggml_blck_size((enum ggml_type)k->type);

	if (k->type == v->type)
		snprintf(d->kv_dtype, sizeof d->kv_dtype, "%s", ggml_type_name((enum ggml_type)k->type));
	else
		snprintf(d->kv_dtype, sizeof d->kv_dtype, "%s/%s", ggml_type_name((enum ggml_type)k->type),
		         ggml_type_name((enum ggml_type)v->type));
	d->desc.kv_dtype = d->kv_dtype;
	d->desc.layers = llama->shape.nk;
	d->desc.kv_heads = heads > 0 ? (uint32_t)heads : 0;
	d->desc.head_size = heads > 0 ? (uint32_t)(elements / (uint64_t)heads) : 0;
	/* llama.cpp rotates a quantised KV unless this variable says no; the bytes do not tell. */
	snprintf(d->layout, sizeof d->layout, "llama-seq n_stream=1 v_trans=%u%s", llama->shape.v_trans,
	         rotation && atoi(rotation) ? " rot=off" : "");
	d->desc.layout = d->layout;
	if (cllama_shape_text(&llama->shape, d->tensors, sizeof d->tensors) >= sizeof d->tensors)
		return cllama_fail(CAIRN_E_VERSION, "the layers of this model are too unlike each other to describe");
	return 0;
}

/* The settings in force: what the context's parameters leave open is the model's. */
static void describe_rope(struct description *d, const struct cairn_llama *llama, const struct llama_model *model,
                          const struct llama_context_params *params)
{
	double base = params->rope_freq_base != 0 ? (double)params->rope_freq_base
	                                          : metadata_number(model, "rope.freq_base", 10000);
	double scale = params->rope_freq_scale != 0 ? (double)params->rope_freq_scale
	                                            : (double)llama_model_rope_freq_scale_train(model);
	double original = metadata_number(model, "rope.scaling.original_context_length", 0);
	int length;

	length = snprintf(d->rope, sizeof d->rope,
	                  "type=%d base=%.9g scale=%.9g scaling=%d ext=%.9g attn=%.9g fast=%.9g slow=%.9g orig=%u",
	                  (int)llama_model_rope_type(model), base, scale, (int)params->rope_scaling_type,
	                  (double)params->yarn_ext_factor, (double)params->yarn_attn_factor,
	                  (double)params->yarn_beta_fast, (double)params->yarn_beta_slow, params->yarn_orig_ctx);
	/* Models with two sets of factors choose by the size of the context. */
	if (original > 0)
		snprintf(d->rope + length, sizeof d->rope - (size_t)length, " long=%d",
		         llama_n_ctx_seq(llama->ctx) > original);
	d->desc.rope = d->rope;
}

/* ggml's own list of what its kernels use, as "CPU: AVX2=1 FMA=1 ...". */
static void describe_isa(struct description *d)
{
	const char *from = llama_print_system_info();
	size_t length = 0;

	for (; *from && length < TEXT_MAX; from++) {
		char last = length ? d->isa[length - 1] : ' ';

		if (*from == '|' || (*from == ' ' && (last == ' ' || last == '=' || from[1] == '=' || from[1] == ':')))
			continue;
		d->isa[length++] = *from;
	}
	while (length > 0 && d->isa[length - 1] == ' ')
		length--;
	d->isa[length] = 0;
	plain_text(d->isa);
	d->desc.isa = length ? d->isa : NULL;
}

static int compare_loras(const void *a, const void *b)
{
	const struct lora *x = a, *y = b;
	int order = memcmp(x->digest.bytes, y->digest.bytes, sizeof x->digest.bytes);

	return order ? order : strcmp(x->scale, y->scale);
}

/* One adapter has its place in a description. Of several, a field says each one's digest and scale, in an order that
 * does not depend on the program's. */
static int describe_adapters(struct description *d, const struct cairn_llama_options *options, uint32_t *nfields)
{
	size_t length = 0;
	int rc;

	if (options->nadapters == 0)
		return 0;
	if (options->nadapters > ADAPTERS_MAX)
		return cllama_fail(CAIRN_E_INVAL, "%zu adapters; at most %d are supported", options->nadapters, ADAPTERS_MAX);
	for (size_t i = 0; i < options->nadapters; i++) {
		const struct cairn_llama_adapter *adapter = &options->adapters[i];

		rc = cairn_weights_digest(&adapter->path, 1, NULL, NULL, &d->loras[i].digest);
		if (rc)
			return cllama_fail_cairn(rc, "the digest of an adapter's file");
		if (!(adapter->scale > -1e6f && adapter->scale < 1e6f))
			return cllama_fail(CAIRN_E_INVAL, "the scale of adapter %s is no number of use", adapter->path);
		snprintf(d->loras[i].scale, sizeof d->loras[i].scale, "%.12f", (double)adapter->scale);
	}
	qsort(d->loras, options->nadapters, sizeof d->loras[0], compare_loras);
	d->desc.adapter = &d->loras[0].digest;
	if (options->nadapters == 1) {
		d->desc.adapter_scale = d->loras[0].scale;
		return 0;
	}
	for (size_t i = 0; i < options->nadapters; i++) {
		for (int j = 0; j < 32; j++)
			length += (size_t)snprintf(d->lora_text + length, sizeof d->lora_text - length, "%02x",
			                           d->loras[i].digest.bytes[j]);
		length += (size_t)snprintf(d->lora_text + length, sizeof d->lora_text - length, "*%s ", d->loras[i].scale);
	}
	d->fields[(*nfields)++] = (struct cairn_field){"llama_loras", d->lora_text, length};
	return 0;
}

static int describe(struct description *d, struct cairn_llama *llama, const struct cairn_llama_options *options)
{
	const struct llama_model *model = llama_get_model(llama->ctx);
	uint32_t nfields = 0;
	int rc;

	d->desc.size = sizeof d->desc;
	d->desc.tenant = options->tenant;
	if (options->weights) {
		d->weights = *options->weights;
	} else {
		rc = cllama_digest_weights(options->model_path, &d->weights);
		if (rc)
			return rc;
	}
	d->desc.weights = &d->weights;
	describe_model(d, model, options);
	rc = describe_cache(d, llama, model);
	if (rc)
		return rc;
	describe_rope(d, llama, model, options->params);
	describe_isa(d);
	rc = describe_adapters(d, options, &nfields);
	if (rc)
		return rc;
	d->fields[nfields++] = (struct cairn_field){"llama_engine", d->engine, strlen(d->engine)};
	d->fields[nfields++] = (struct cairn_field){"llama_tensors", d->tensors, strlen(d->tensors)};
	if (options->variant)
		d->fields[nfields++] = (struct cairn_field){"llama_variant", options->variant, strlen(options->variant)};
	d->desc.fields = d->fields;
	d->desc.nfields = nfields;
	d->desc.block_tokens = llama->block_tokens;
	d->desc.block_bytes = llama->block_bytes;
	d->desc.cost_a_s = options->cost_a_s;
	d->desc.cost_b_s = options->cost_b_s;
	return 0;
}

int cllama_space_describe(struct cairn_llama *llama, const struct cairn_llama_options *options)
{
	struct description *d = calloc(1, sizeof *d);
	cairn_digest id;
	int rc, length;

	if (!d)
		return cllama_fail(CAIRN_E_NOMEM, "out of memory for the description");
	rc = describe(d, llama, options);
	if (rc == 0) {
		rc = cairn_describe(llama->store, &d->desc, &llama->space);
		if (rc)
			cllama_fail_cairn(rc, "describing the model to the store");
	}
	free(d);
	if (rc)
		return rc;
	cairn_space_get_id(llama->space, &id);
	length = snprintf(llama->owner_prefix, sizeof llama->owner_prefix, "llama-");
	for (int i = 0; i < 16; i++)
		length += snprintf(llama->owner_prefix + length, sizeof llama->owner_prefix - (size_t)length, "%02x",
		                   id.bytes[i]);
	return 0;
}
